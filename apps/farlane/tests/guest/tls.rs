//! Linux's own NVMe/TCP, in a guest, encrypts: its initiator with `farlane target`, and its target
//! with our host (TLS 1.3 with pre-shared keys, the handshakes by tlshd).

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use guest::{Guest, skip};
use nvme_fabrics::tls::{Derivation, IdentityVersion, TlsKey};

use crate::support::{Export, FARLANE, fail, succeed};

/// Script of what the guest does.
const USE: &str = include_str!("scripts/tls.sh");
const LIMIT: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// The PSK of `identity` version 0 in hexadecimal, and the identity.
fn version_0(text: &str) -> (String, String) {
    let key: TlsKey = text.parse().unwrap();
    let (host, subsystem) = (HOST.parse().unwrap(), NQN.parse().unwrap());
    let psk = key.psk(IdentityVersion::Zero, Derivation::Specified, &host, &subsystem);
    (psk.secret.iter().map(|byte| format!("{byte:02x}")).collect(), psk.identity)
}

#[test]
fn linux_encrypts_as_a_host_and_as_a_target() {
    let Some(kit) = skip::kit_or_skip("TLS with the kernel's NVMe/TCP") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    succeed(&["setup", "key", "tls", &path("key")]);
    let text = fs::read_to_string(path("key")).unwrap().trim().to_owned();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"]);
    command.args(["--host", HOST, "--tls-key-file", &path("key"), "--control", &path("control")]);
    let mut target = Export::of(command);
    let port = target.address.rsplit(':').next().unwrap();

    let (psk, identity) = version_0(&text);
    let words = format!("PORT={port} NQN={NQN} HOST={HOST} KEY='{text}' PSK={psk} IDENTITY='{identity}'");
    let forwarded = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio", "tlshd", "keyctl"]).unwrap();
    let modules = ["nvme-tcp", "nvmet", "nvmet-tcp", "brd", "tls", "gcm", "ghash-generic"];
    let builder = builder.modules(modules).unwrap().memory_mib(768).forward(forwarded, 4420).unwrap();
    // A processor with RDRAND: otherwise the guest has no randomness for minutes.
    let builder = builder.qemu_arguments(["-cpu", "max"]).limit(LIMIT * 3);
    let mut guest = builder.script(format!("{words}\n{USE}")).start().unwrap();
    guest.expect("the target is up", LIMIT).unwrap();

    let url = format!("nvme-tcp://127.0.0.1:{forwarded}/nqn.2014-08.org.example:kernel?hostnqn={HOST}");
    let job = ["--rw", "randrw", "--bs", "16k", "--iodepth", "16", "--runtime", "1s", "--verify"];
    let said = succeed(&[&["bench", &url, "--tls-key-file", &path("key")][..], &job].concat());
    assert!(said.contains("as written"), "{said}");
    succeed(&["setup", "key", "tls", &path("other")]);
    fail(&["measure", "ping", &url, "--tls-key-file", &path("other"), "--timeout", "3s"]);
    fail(&["measure", "ping", &url, "--timeout", "3s"]);

    guest.tell("end").unwrap();
    let said = guest.finish().unwrap().expect_success().output;
    for words in [
        "discovered: TLS 1.3",
        "without TLS: refused",
        "encrypted by identity version 0",
        "fio verified, encrypted by identity version 1",
        "encrypted after a reset",
        "by a wrong key: refused",
        "done",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // A key that nvme-cli made, checked by farlane.
    let made = said.lines().find_map(|line| line.strip_prefix("made ")).unwrap();
    fs::write(path("key"), made).unwrap();
    assert!(succeed(&["setup", "key", "test", &path("key")]).contains("a TLS key of 32 bytes"));
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("has connected without TLS"), "{said}");
}
