//! Hosts and targets of NVMe/TCP in processes of their own that encrypt by the same key.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::load::short_load;
use crate::support::running::Running;
use crate::support::{Export, FARLANE, farlane};
use nvme_fabrics::tls::{Derivation, IdentityVersion, Psk, TlsKey};

const HOST: &str = "nqn.2014-08.org.example:known";
const DISK: &str = "nqn.2026-01.io.farlane:disk";

/// A folder for the keys of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let beside = std::env::current_exe().unwrap();
        let path = beside.parent().unwrap().join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A new key, made by the command.
    fn key(&self, name: &str, hash: &str) -> String {
        let path = self.0.join(name).to_str().unwrap().to_owned();
        let made = farlane(&["setup", "key", "tls", &path, "--hash", hash]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A target with a subsystem for the host alone, which encrypts by `key`.
fn target(folder: &Folder, key: &str, more: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", DISK, "--ram", "32MiB"]);
    command.args(["--host", HOST, "--tls-key-file", key, "--control"]);
    command.arg(folder.0.join("control.sock")).args(more);
    Export::of(command)
}

/// The output of a short verified load, and whether it succeeds.
fn bench(url: &str, more: &[&str]) -> (bool, String) {
    let mut further = vec!["--iodepth", "8", "--timeout", "3s"];
    further.extend(more);
    short_load(url, "randrw", &further)
}

#[test]
fn a_target_serves_hosts_with_the_key_and_no_others() {
    let folder = Folder::new("tls");
    for hash in ["sha256", "sha384"] {
        let (key, other) = (folder.key(hash, hash), folder.key(&format!("other-{hash}"), hash));
        // Without --cores the connection stays on its thread; the next test moves it.
        let mut target = target(&folder, &key, &[]);
        let url = format!("nvme-tcp://{}/{DISK}?queues=2&hostnqn={HOST}", target.address);
        let (passed, text) = bench(&url, &["--tls-key-file", &key]);
        assert!(passed && text.contains("as written"), "{text}");
        let (passed, text) = bench(&format!("{url}&tls-key-file={key}"), &["--bs", "128k"]);
        assert!(passed && text.contains("as written"), "{text}");

        let (passed, text) = bench(&url, &[]);
        assert!(!passed && text.contains("Connect Invalid Host"), "{text}");
        let (passed, text) = bench(&url, &["--tls-key-file", &other]);
        assert!(!passed && text.contains("TLS: the target has ended the handshake"), "{text}");
        let stranger = url.replace(HOST, "nqn.2014-08.org.example:stranger");
        let (passed, text) = bench(&stranger, &["--tls-key-file", &key]);
        assert!(!passed && text.contains("no key of this host"), "{text}");

        let found = farlane(&[
            "use",
            "discover",
            &format!("nvme-tcp://{}?hostnqn={HOST}", target.address),
            "--tls-key-file",
            &key,
        ]);
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(found.contains("TLS possible") && found.contains("TLS required"), "{found}");

        let (status, said) = target.end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
        for words in [
            "has connected without TLS",
            &format!("{HOST} has another key for {DISK}"),
            &format!("no key of nqn.2014-08.org.example:stranger for {DISK}"),
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("NVMeTLSkey-1:0") && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn each_subsystem_has_keys_of_its_own_and_a_new_key_disconnects() {
    let folder = Folder::new("tls-reload");
    let (one, two) = (folder.key("one", "sha256"), folder.key("two", "sha384"));
    let (file, socket) = (folder.0.join("target.toml"), folder.0.join("control.sock"));
    let offer = |key: &str| {
        let subsystem = |name: &str, key: &str| {
            format!(
                "[[subsystem]]\nnqn = \"{name}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\n\
                 tls-key-file = \"{key}\"\n[[subsystem.namespace]]\nram = \"32MiB\"\n"
            )
        };
        let text = format!(
            "[[port]]\nlisten = \"127.0.0.1:0\"\n{}{}",
            subsystem(DISK, &one),
            subsystem("nqn.2026-01.io.farlane:two", key)
        );
        fs::write(&file, text).unwrap();
    };
    offer(&two);
    let mut command = Command::new(&*FARLANE);
    // The second subsystem is on the second thread: the encrypted connection moves there.
    command.args(["target", "--json", "--cores", "2", "--config"]).arg(&file).arg("--control").arg(&socket);
    let mut target = Export::of(command);
    let url = |name: &str, key: &str| {
        format!("nvme-tcp://{}/{name}?hostnqn={HOST}&tls-key-file={key}", target.address)
    };
    let first = url(DISK, &one);
    let second = url("nqn.2026-01.io.farlane:two", &two);
    for good in [&first, &second] {
        let (passed, text) = bench(good, &[]);
        assert!(passed, "{text}");
    }
    let (passed, text) = bench(&url("nqn.2026-01.io.farlane:two", &one), &[]);
    assert!(!passed, "the key of another subsystem: {text}");

    let running =
        Running::start(&["bench", "--rw", "randread", "--runtime", "30s", "--timeout", "3s", &second]);
    std::thread::sleep(Duration::from_secs(1));
    offer(&one);
    let reloaded = farlane(&["target", "reload", "--control", socket.to_str().unwrap()]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    let output = running.output();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let (passed, text) = bench(&first, &[]);
    assert!(passed, "the other subsystem goes on: {text}");
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn keys_that_others_may_read_and_texts_that_are_no_keys_are_not_used() {
    let folder = Folder::new("tls-files");
    let key = folder.key("key", "sha256");
    let again = farlane(&["setup", "key", "tls", &key]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("never written over"), "{said}");
    let checked = farlane(&["setup", "key", "test", &key]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("a TLS key of 32 bytes, hash sha256"));
    let text = fs::read_to_string(&key).unwrap();
    assert!(!String::from_utf8_lossy(&checked.stdout).contains(text.trim()), "keys are not shown");

    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let (passed, text) = bench(&format!("nvme-tcp://127.0.0.1:1/{DISK}"), &["--tls-key-file", &key]);
    assert!(!passed && text.contains("mode 0640") && text.contains("chmod 600"), "{text}");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrY:").unwrap();
    let checked = farlane(&["setup", "key", "test", &key]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("CRC-32"), "{said}");
    fs::write(&key, "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrY").unwrap();
    let checked = farlane(&["setup", "key", "test", &key]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("a TLS key has the form"), "{said}");
    let far = farlane(&["measure", "ping", "tcp://127.0.0.1:1", "--tls-key-file", &key]);
    assert_eq!(far.status.code(), Some(2), "{}", String::from_utf8_lossy(&far.stderr));
}

#[test]
fn a_target_off_loopback_serves_no_host_without_authentication() {
    let folder = Folder::new("tls-closed");
    let key = folder.key("key", "sha256");
    let open = ["target", "--listen", "0.0.0.0:0", "--nqn", DISK, "--ram", "1MiB"];
    let refused = farlane(&open);
    let said = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("need no authentication") && said.contains("farlane setup key tls"), "{said}");
    let named = farlane(&[&open[..], &["--host", HOST]].concat());
    assert_eq!(named.status.code(), Some(2), "a name alone proves nothing");
    for more in [&["--insecure"][..], &["--host", HOST, "--tls-key-file", &key]] {
        let mut command = Command::new(&*FARLANE);
        command.args(open).arg("--json").args(more).arg("--control").arg(folder.0.join("control.sock"));
        let (status, said) = Export::of(command).end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
    }
}

#[test]
fn garbage_at_each_stage_does_no_harm() {
    let folder = Folder::new("tls-garbage");
    let key = folder.key("key", "sha256");
    let mut target = target(&folder, &key, &[]);
    let connect = || {
        let stream = TcpStream::connect(&target.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let hello = [&[22, 3, 1, 0, 200][..], &[0xff; 200]].concat();
    let halves =
        [&[22][..], &hello[..5], &hello[..100], &hello, &[22, 3, 3, 0xff, 0xff], &[21, 3, 3, 0, 2, 2, 40]];
    for bytes in halves {
        let mut stream = connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The target closes its side, with or without an alert.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let url = format!("nvme-tcp://{}/{DISK}?hostnqn={HOST}&tls-key-file={key}", target.address);
    let (passed, text) = bench(&url, &[]);
    assert!(passed, "{text}");
    drop(silent);
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// A stranger's TLS: it proves each version of the key's identity, and is answered in NVMe/TCP.
/// Whether there is an openssl.
fn has_openssl() -> bool {
    let is_there = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("SKIPPED: there is no openssl (Debian package openssl)");
    }
    is_there
}

/// An openssl that connects to `address` and proves `psk`.
fn openssl(address: &str, psk: &Psk) -> Command {
    let secret: String = psk.secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut client = Command::new("openssl");
    client.args([
        "s_client",
        "-tls1_3",
        "-connect",
        address,
        "-psk_identity",
        &psk.identity,
        "-psk",
        &secret,
    ]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    client
}

/// An Initialize Connection Request (ICReq): type 0, 128 bytes, everything else 0.
fn request() -> Vec<u8> {
    let mut request = vec![0; 128];
    request[2] = 128;
    request[4] = 128;
    request
}

/// Reads until `wanted` has come.
fn read_until(from: &mut impl Read, wanted: &[u8]) {
    let (mut come, mut byte) = (Vec::new(), [0]);
    while !come.ends_with(wanted) {
        from.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} before {wanted:?}: {come:?}"));
        come.push(byte[0]);
    }
}

#[test]
fn openssl_renews_its_key_and_asks_for_another_one() {
    if !has_openssl() {
        return;
    }
    let folder = Folder::new("tls-openssl-keys");
    let path = folder.key("key", "sha256");
    let key: TlsKey = fs::read_to_string(&path).unwrap().parse().unwrap();
    let target = target(&folder, &path, &[]);
    let (host, disk) = (HOST.parse().unwrap(), DISK.parse().unwrap());
    let psk = key.psk(IdentityVersion::One, Derivation::Specified, &host, &disk);
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] {
        // A line of k has openssl renew its key, and one of K ask for another one of ours, too.
        for command in ["k\n", "K\n"] {
            let mut client = openssl(&target.address, &psk);
            let mut client = client.args(["-ciphersuites", suite]).stderr(Stdio::piped()).spawn().unwrap();
            let mut input = client.stdin.take().unwrap();
            let (mut output, mut log) = (client.stdout.take().unwrap(), client.stderr.take().unwrap());
            input.write_all(&request()).unwrap();
            // Initialize Connection Response (ICResp).
            read_until(&mut output, &[1, 0, 128, 0, 128, 0, 0, 0]);
            input.write_all(command.as_bytes()).unwrap();
            read_until(&mut log, b"KEYUPDATE");
            // A response capsule, which no host sends: the target answers with C2HTermReq.
            input.write_all(&[&[5, 0, 24, 0, 24, 0, 0, 0][..], &[0; 16]].concat()).unwrap();
            read_until(&mut output, &[3, 0, 24, 0]);
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

#[test]
fn openssl_connects_with_each_version_of_the_identity() {
    if !has_openssl() {
        return;
    }
    let folder = Folder::new("tls-openssl");
    let path = folder.key("key", "sha256");
    let key: TlsKey = fs::read_to_string(&path).unwrap().parse().unwrap();
    let target = target(&folder, &path, &[]);
    for version in IdentityVersion::ALL {
        for (host, is_right) in [(HOST, true), ("nqn.2014-08.org.example:other", false)] {
            let (host, disk) = (host.parse().unwrap(), DISK.parse().unwrap());
            let psk = key.psk(version, Derivation::Specified, &host, &disk);
            let mut client = openssl(&target.address, &psk);
            let mut client = client.arg("-quiet").stderr(Stdio::null()).spawn().unwrap();
            let mut input = client.stdin.take().unwrap();
            // A client that was refused reads nothing.
            let _ = input.write_all(&request()).and_then(|()| input.flush());
            let mut answer = [0; 128];
            let read = client.stdout.take().unwrap().read_exact(&mut answer);
            let _ = client.kill();
            let _ = client.wait();
            assert_eq!(read.is_ok(), is_right, "{}", psk.identity);
            // Initialize Connection Response (ICResp).
            assert!(!is_right || (answer[0], answer[4]) == (1, 128), "{answer:?}");
        }
    }
}
