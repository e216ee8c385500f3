//! Linux in a guest and Farlane authenticate to each other (DH-HMAC-CHAP), each as host and
//! as target.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use guest::{Guest, skip};

use crate::support::{Export, FARLANE, fail, succeed};

/// Script of what the guest does.
const USE: &str = include_str!("scripts/authentication.sh");
/// Script of the kernel as a target.
const SERVE: &str = include_str!("scripts/nvmet_authentication.sh");
const LIMIT: Duration = Duration::from_secs(180);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
/// The subsystems, each with the hash function and the group that it demands.
const SUBSYSTEMS: [(&str, &str, &str); 4] = [
    ("null", "sha256", "null"),
    ("small", "sha384", "ffdhe2048"),
    ("medium", "sha512", "ffdhe3072"),
    ("large", "sha256", "ffdhe8192"),
];

#[test]
fn linux_and_a_target_prove_who_they_are() {
    let Some(kit) = skip::kit_or_skip("DH-HMAC-CHAP with the kernel's initiator") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let secret = |name: &str, hash: &str| {
        succeed(&["setup", "key", "dhchap", &path(name), "--hash", hash]);
        fs::read_to_string(path(name)).unwrap().trim().to_owned()
    };
    let (host, controller) = (secret("host", "sha256"), secret("controller", "none"));
    let ours = [secret("long", "sha384"), secret("longest", "sha512")];
    let mut text = String::from("[[port]]\nlisten = \"127.0.0.1:0\"\n");
    for (name, hash, group) in SUBSYSTEMS {
        text += &format!(
            "[[subsystem]]\nnqn = \"{NQN}.{name}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\n\
             dhchap-secret-file = \"{}\"\ndhchap-controller-secret-file = \"{}\"\n\
             dhchap-hashes = [\"{hash}\"]\ndhchap-groups = [\"{group}\"]\n\
             [[subsystem.namespace]]\nram = \"16MiB\"\n",
            path("host"),
            path("controller")
        );
    }
    fs::write(path("target.toml"), text).unwrap();
    let mut command = Command::new(&*FARLANE);
    let (config, control) = (path("target.toml"), path("control"));
    command.args(["target", "--json", "--config", &config, "--control", &control]);
    let mut target = Export::of(command);
    let port = target.address.rsplit(':').next().unwrap();

    let names = SUBSYSTEMS.map(|(name, ..)| name).join(" ");
    let script = format!(
        "PORT={port} NQN={NQN} HOST={HOST} SECRET='{host}' CONTROLLER='{controller}' \
         OURS='{}' SUBSYSTEMS='{names}'\n{USE}",
        ours.join(" ")
    );
    let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio"]).unwrap().modules(["nvme-tcp"]).unwrap();
    // A processor with RDRAND: otherwise the guest has no randomness for minutes.
    let builder = builder.qemu_arguments(["-cpu", "max"]);
    let outcome = builder.user_network().unwrap().limit(LIMIT).script(script).run().unwrap().expect_success();
    let said = outcome.output;
    for name in SUBSYSTEMS.map(|(name, ..)| name) {
        assert!(said.contains(&format!("{name}: both have authenticated")), "{said}");
    }
    for words in ["farlane's secrets are accepted", "a wrong secret: refused", "fio verified", "done"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // nvme-cli's secrets, checked by farlane.
    for line in said.lines().filter_map(|line| line.strip_prefix("made ")) {
        let (hash, secret) = line.split_once(' ').unwrap();
        fs::write(path("made"), secret).unwrap();
        fs::set_permissions(path("made"), Permissions::from_mode(0o600)).unwrap();
        assert!(succeed(&["setup", "key", "test", &path("made")]).contains("DH-HMAC-CHAP secret"), "{hash}");
    }
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("host and controller authenticated, sha512, ffdhe3072"), "{said}");
    assert!(said.contains("another secret than the target has for it"), "{said}");
}

/// Hashes and groups that the kernel's target is set to demand, one after the other.
const METHODS: [&str; 4] = ["sha256-null", "sha384-ffdhe2048", "sha512-ffdhe3072", "sha256-ffdhe8192"];

#[test]
fn our_host_and_the_kernels_target_prove_who_they_are() {
    let Some(kit) = skip::kit_or_skip("DH-HMAC-CHAP with the kernel's target") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let secret = |name: &str, hash: &str| {
        succeed(&["setup", "key", "dhchap", &path(name), "--hash", hash]);
        fs::read_to_string(path(name)).unwrap().trim().to_owned()
    };
    let (host, controller) = (secret("host", "sha256"), secret("controller", "sha384"));
    secret("wrong", "sha256");
    let script = format!(
        "NQN={NQN} HOST={HOST} SECRET='{host}' CONTROLLER='{controller}' METHODS='{}'\n{SERVE}",
        METHODS.join(" ")
    );
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let builder = Guest::builder(kit).unwrap().modules(["nvmet", "nvmet-tcp", "brd"]).unwrap();
    let builder = builder.qemu_arguments(["-cpu", "max"]).forward(port, 4420).unwrap();
    let mut guest = builder.limit(LIMIT).script(script).start().unwrap();
    let patience = Duration::from_secs(60);
    guest.expect("ready", patience).unwrap();
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?hostnqn={HOST}");
    let (ours, theirs, wrong) = (path("host"), path("controller"), path("wrong"));
    let load = ["bench", &url, "--rw", "randrw", "--verify", "--runtime", "300ms", "--size", "4MiB"];
    let as_host = ["--dhchap-secret-file", &ours];
    let as_both = ["--dhchap-secret-file", &ours, "--dhchap-controller-secret-file", &theirs];
    for method in METHODS {
        guest.tell(method).unwrap();
        guest.expect(method, patience).unwrap();
        for secrets in [&as_host[..], &as_both[..]] {
            let said = succeed(&[&load[..], secrets].concat());
            assert!(said.contains("verified"), "{method}: {said}");
        }
        let said = fail(&["nvme", "identify", &url, "--dhchap-secret-file", &wrong, "--timeout", "5s"]);
        assert!(said.contains("authenticat"), "{method}: {said}");
        let liar = ["--dhchap-secret-file", &ours, "--dhchap-controller-secret-file", &wrong];
        let said = fail(&[&["nvme", "identify", &url, "--timeout", "5s"][..], &liar[..]].concat());
        assert!(said.contains("authenticat"), "{method}: {said}");
    }
    let said = fail(&["nvme", "identify", &url, "--timeout", "5s"]);
    assert!(said.contains("authenticat"), "{said}");
    guest.tell("end").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert!(outcome.output.contains("nothing in the kernel's log"), "{}", outcome.output);
}
