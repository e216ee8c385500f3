//! NVMe/RDMA by iWARP: our host and our target, with no RDMA card and no driver.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use support::{Export, FARLANE, fail, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:rdma";

/// A running target with one port of NVMe/RDMA and one of NVMe/TCP.
struct Stage {
    target: Export,
    rdma: String,
    tcp: String,
    directory: tempfile::TempDir,
}

impl Stage {
    fn set(more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(FARLANE);
        command.args(["target", "--json", "--nqn", NQN, "--ram", "64MiB"]);
        command.args(["--listen", "127.0.0.1:0", "--rdma", "iwarp,127.0.0.1:0"]).args(more);
        command.arg("--control").arg(directory.path().join("control"));
        let mut target = Export::of(command);
        let (tcp, rdma) = (target.announcement.clone(), target.next_line());
        assert_eq!((&tcp["fabric"], &rdma["fabric"]), (&"NVMe/TCP".into(), &"NVMe/RDMA by iWARP".into()));
        let address = |line: &serde_json::Value| line["listening"].as_str().unwrap().to_owned();
        Self { rdma: address(&rdma), tcp: address(&tcp), target, directory }
    }

    fn url(&self) -> String {
        format!("nvme-rdma://{}/{NQN}", self.rdma)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Bytes that repeat nowhere.
fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

#[test]
fn a_namespace_is_found_and_used() {
    let stage = Stage::set(&[]);
    for at in [format!("nvme-rdma://{}", stage.rdma), format!("nvme-tcp://{}", stage.tcp)] {
        let found = json(&["discover", &at, "--json"]);
        let ports: Vec<_> = found.as_array().unwrap().iter().filter(|one| one["subnqn"] == NQN).collect();
        assert_eq!(ports.len(), 2, "{found}");
        assert_eq!((&ports[0]["trtype"], &ports[1]["trtype"]), (&"tcp".into(), &"rdma".into()));
        assert_eq!(ports[1]["rdma_prtype"], "iwarp");
    }
    let (url, source, copy) = (stage.url(), stage.path("source"), stage.path("copy"));
    let bytes = noise(1_000_448);
    std::fs::write(&source, &bytes).unwrap();
    succeed(&["write", &url, "--input", &source]);
    // What came by RDMA is read by TCP, and the other way round.
    for from in [&url, &format!("nvme-tcp://{}/{NQN}", stage.tcp)] {
        succeed(&["read", from, "--length", "1000448", "--output", &copy]);
        assert!(std::fs::read(&copy).unwrap() == bytes, "{from}");
        std::fs::remove_file(&copy).unwrap();
    }
    for size in ["512", "4k", "128k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "32", "--runtime", "300ms", "--verify"];
        succeed(&[&["bench", &format!("{url}?queues=2&provider=iwarp")][..], &job[..]].concat());
    }
    succeed(&["ping", &url, "--count", "20"]);
    let status = succeed(&["target", "status", "--control", &stage.path("control")]);
    assert!(status.contains(&format!("listening at {} for NVMe/RDMA by iWARP", stage.rdma)), "{status}");
}

#[test]
fn a_connection_moves_to_the_core_of_its_subsystem() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("target.toml");
    let subsystem =
        |name: &str| format!("[[subsystem]]\nnqn = \"{name}\"\n[[subsystem.namespace]]\nram = \"16MiB\"\n");
    let names = ["nqn.2026-01.io.farlane:first", "nqn.2026-01.io.farlane:second"];
    let port = "[[port]]\nlisten = \"127.0.0.1:0\"\nrdma = \"iwarp\"\n";
    std::fs::write(&config, format!("{port}{}{}", subsystem(names[0]), subsystem(names[1]))).unwrap();
    let mut command = Command::new(FARLANE);
    command.args(["target", "--json", "--cores", "2", "--config"]).arg(&config);
    command.arg("--control").arg(directory.path().join("control"));
    let target = Export::of(command);
    for name in names {
        let url = format!("nvme-rdma://{}/{name}?queues=2", target.address);
        let job = ["--rw", "randrw", "--bs", "16k", "--iodepth", "8", "--runtime", "300ms", "--verify"];
        succeed(&[&["bench", &url][..], &job[..]].concat());
    }
}

#[test]
fn a_host_survives_the_end_of_its_target() {
    let mut stage = Stage::set(&[]);
    let address = stage.rdma.clone();
    let mut bench = Command::new(FARLANE);
    let url = format!("{}?ctrl-loss-tmo=20", stage.url());
    bench.args(["bench", &url, "--rw", "randread", "--bs", "4k", "--iodepth", "16", "--runtime", "3s"]);
    let bench = bench.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    stage.target.kill();
    let mut command = Command::new(FARLANE);
    command.args(["target", "--json", "--nqn", NQN, "--ram", "64MiB", "--rdma", &address, "--control"]);
    command.arg(stage.path("again"));
    let _again = Export::of(command);
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("no errors"), "{said}");
}

/// A host that must encrypt is kept out where nothing encrypts, and one that must authenticate
/// does so.
#[test]
fn a_host_must_prove_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (key, secret, host) = (path("host.tls"), path("host.secret"), "nqn.2014-08.org.example:host");
    succeed(&["key", "tls", &key]);
    succeed(&["key", "dhchap", &secret]);

    let stage = Stage::set(&["--host", host, "--tls-key-file", &key]);
    let url = format!("{}?hostnqn={host}", stage.url());
    let wrong = fail(&["identify", &url, "--timeout", "2s"]);
    assert!(wrong.contains("Connect Invalid Host"), "{wrong}");
    let found = succeed(&["discover", &format!("nvme-rdma://{}", stage.rdma)]);
    assert!(!found.contains(NQN), "{found}");

    let stage = Stage::set(&["--host", host, "--dhchap-secret-file", &secret]);
    let url = format!("{}?hostnqn={host}", stage.url());
    let wrong = fail(&["identify", &url, "--timeout", "2s"]);
    assert!(wrong.contains("demands authentication"), "{wrong}");
    succeed(&["identify", &format!("{url}&dhchap-secret-file={secret}")]);
}

#[test]
fn strangers_are_turned_away() {
    let stage = Stage::set(&[]);
    // Neither garbage nor the first words of NVMe/TCP do any harm.
    let initialise: Vec<u8> = [0, 0, 128, 0, 128, 0, 0, 0].into_iter().chain([0; 120]).collect();
    for bytes in [noise(4096), initialise, b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"MPA ID Req Frame".to_vec()] {
        let mut stream = TcpStream::connect(&stage.rdma).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096, "{answer:?}");
    }
    // A host of NVMe/TCP at a port of RDMA, and the other way round, are told what to try.
    let quick = ["--timeout", "2s"];
    let wrong = fail(&[&["identify", &format!("nvme-tcp://{}/{NQN}", stage.rdma)][..], &quick].concat());
    assert!(wrong.contains("or nvme-rdma://HOST:PORT"), "{wrong}");
    let wrong = fail(&[&["identify", &format!("nvme-rdma://{}/{NQN}", stage.tcp)][..], &quick].concat());
    assert!(wrong.contains("RDMA") || wrong.contains("MPA"), "{wrong}");
    let url = stage.url();
    succeed(&["identify", &url]);
}

#[test]
fn what_rdma_does_not_have_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("host.tls").to_str().unwrap().to_owned();
    succeed(&["key", "tls", &key]);
    let url = format!("nvme-rdma://127.0.0.1:1/{NQN}");
    let wrong = fail(&["identify", &url, "--tls-key-file", &key]);
    assert!(wrong.contains("NVMe/RDMA has no encryption"), "{wrong}");
    let wrong = fail(&["identify", &format!("{url}?hdgst=on")]);
    assert!(wrong.contains("'hdgst' can't be set with nvme-rdma://"), "{wrong}");
    let wrong = fail(&["identify", &format!("{url}?provider=pigeons")]);
    assert!(wrong.contains("'pigeons' is no provider of RDMA; expected iwarp"), "{wrong}");
    let open = ["target", "--nqn", NQN, "--ram", "16MiB", "--rdma", "0.0.0.0:0"];
    assert!(fail(&open).contains("--insecure"));
}
