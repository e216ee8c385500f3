//! NVMe/RDMA by iWARP and by RoCE: our host and our target, with no RDMA card and no driver.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::support::{Export, FARLANE, fail, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:rdma";

/// The carrier of RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Iwarp,
    Roce,
}

use Provider::{Iwarp, Roce};

impl Provider {
    const ALL: [Self; 2] = [Iwarp, Roce];

    /// Its name in URLs and arguments.
    const fn name(self) -> &'static str {
        match self {
            Iwarp => "iwarp",
            Roce => "roce",
        }
    }

    /// The carrier that a target reports for its ports.
    const fn carries(self) -> &'static str {
        match self {
            Iwarp => "NVMe/RDMA by iWARP",
            Roce => "NVMe/RDMA by RoCEv2",
        }
    }

    /// Its name in a discovery log.
    const fn listed(self) -> &'static str {
        match self {
            Iwarp => "iwarp",
            Roce => "roce-v2",
        }
    }

    /// An address to listen at. One program has RoCE at an address, so each target gets its own.
    fn listen(self) -> String {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        match self {
            Iwarp => "127.0.0.1:0".to_owned(),
            Roce => format!("127.{}.{high}.{low}:4420", 110 + NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// A running target with one port of NVMe/RDMA and one of NVMe/TCP.
struct Stage {
    provider: Provider,
    target: Export,
    rdma: String,
    tcp: String,
    directory: tempfile::TempDir,
}

impl Stage {
    fn set(provider: Provider, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--nqn", NQN, "--ram", "64MiB"]);
        let at = format!("{},{}", provider.name(), provider.listen());
        command.args(["--listen", "127.0.0.1:0", "--rdma", &at]).args(more);
        command.arg("--control").arg(directory.path().join("control"));
        let mut target = Export::of(command);
        let (tcp, rdma) = (target.announcement.clone(), target.next_line());
        assert_eq!((&tcp["fabric"], &rdma["fabric"]), (&"NVMe/TCP".into(), &provider.carries().into()));
        let address = |line: &serde_json::Value| line["listening"].as_str().unwrap().to_owned();
        Self { provider, rdma: address(&rdma), tcp: address(&tcp), target, directory }
    }

    fn url(&self) -> String {
        format!("nvme-rdma://{}/{NQN}?provider={}", self.rdma, self.provider.name())
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
    Provider::ALL.into_iter().for_each(use_namespace);
}

fn use_namespace(provider: Provider) {
    let stage = Stage::set(provider, &[]);
    for at in [
        format!("nvme-rdma://{}?provider={}", stage.rdma, provider.name()),
        format!("nvme-tcp://{}", stage.tcp),
    ] {
        let found = json(&["use", "discover", &at, "--json"]);
        let ports: Vec<_> =
            found["records"].as_array().unwrap().iter().filter(|one| one["subnqn"] == NQN).collect();
        assert_eq!(ports.len(), 2, "{found}");
        assert_eq!((&ports[0]["trtype"], &ports[1]["trtype"]), (&"tcp".into(), &"rdma".into()));
        assert_eq!(ports[1]["rdma_prtype"], provider.listed());
    }
    let (url, source, copy) = (stage.url(), stage.path("source"), stage.path("copy"));
    let bytes = noise(1_000_448);
    std::fs::write(&source, &bytes).unwrap();
    succeed(&["use", "write", &url, "--input", &source]);
    // Data written by RDMA are read by TCP, and the other way round.
    for from in [&url, &format!("nvme-tcp://{}/{NQN}", stage.tcp)] {
        succeed(&["use", "read", from, "--length", "1000448", "--output", &copy]);
        assert!(std::fs::read(&copy).unwrap() == bytes, "{from}");
        std::fs::remove_file(&copy).unwrap();
    }
    for size in ["512", "4k", "128k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "32", "--runtime", "300ms", "--verify"];
        succeed(&[&["bench", &format!("{url}&queues=2")][..], &job[..]].concat());
    }
    succeed(&["measure", "ping", &url, "--count", "20"]);
    let status = succeed(&["target", "status", "--control", &stage.path("control")]);
    assert!(status.contains(&format!("listening at {} for {}", stage.rdma, provider.carries())), "{status}");
}

#[test]
fn each_subsystem_of_several_cores_is_reached() {
    Provider::ALL.into_iter().for_each(use_cores);
}

fn use_cores(provider: Provider) {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("target.toml");
    let subsystem =
        |name: &str| format!("[[subsystem]]\nnqn = \"{name}\"\n[[subsystem.namespace]]\nram = \"16MiB\"\n");
    let names = ["nqn.2026-01.io.farlane:first", "nqn.2026-01.io.farlane:second"];
    let (listen, name) = (provider.listen(), provider.name());
    let port = format!("[[port]]\nlisten = \"{listen}\"\nrdma = \"{name}\"\n");
    std::fs::write(&config, format!("{port}{}{}", subsystem(names[0]), subsystem(names[1]))).unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--cores", "2", "--config"]).arg(&config);
    command.arg("--control").arg(directory.path().join("control"));
    let target = Export::of(command);
    for name in names {
        let url = format!("nvme-rdma://{}/{name}?queues=2&provider={}", target.address, provider.name());
        let job = ["--rw", "randrw", "--bs", "16k", "--iodepth", "8", "--runtime", "300ms", "--verify"];
        succeed(&[&["bench", &url][..], &job[..]].concat());
    }
}

#[test]
fn a_host_survives_the_end_of_its_target() {
    Provider::ALL.into_iter().for_each(survive);
}

fn survive(provider: Provider) {
    let mut stage = Stage::set(provider, &[]);
    let address = format!("{},{}", provider.name(), stage.rdma);
    let mut bench = Command::new(&*FARLANE);
    let url = format!("{}&ctrl-loss-tmo=20", stage.url());
    bench.args(["bench", &url, "--rw", "randread", "--bs", "4k", "--iodepth", "16", "--runtime", "3s"]);
    let bench = bench.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    stage.target.kill();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--nqn", NQN, "--ram", "64MiB", "--rdma", &address, "--control"]);
    command.arg(stage.path("again"));
    let _again = Export::of(command);
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("no errors"), "{said}");
}

#[test]
fn a_path_by_rdma_and_one_by_tcp_are_used_as_one() {
    Provider::ALL.into_iter().for_each(use_two_fabrics);
}

fn use_two_fabrics(provider: Provider) {
    let mut stage = Stage::set(provider, &["--ana-groups", "1"]);
    let name = provider.name();
    let url = format!("nvme-rdma://{},tcp@{}/{NQN}?provider={name}&ctrl-loss-tmo=20", stage.rdma, stage.tcp);
    let begin = |load: &[&str]| {
        let mut bench = Command::new(&*FARLANE);
        bench.args(["bench", &url, "--bs", "4k", "--iodepth", "16"]).args(load);
        bench.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let end = |bench: std::process::Child| {
        let output = bench.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("no errors"), "{said}");
    };
    // Each path is taken away while the other is there.
    let verified = begin(&["--rw", "randrw", "--runtime", "2s", "--verify"]);
    let (control, pause) = (stage.path("control"), || std::thread::sleep(Duration::from_millis(500)));
    for (port, state) in
        [(&stage.rdma, "inaccessible"), (&stage.rdma, "optimized"), (&stage.tcp, "inaccessible")]
    {
        pause();
        succeed(&["target", "ana", "--control", &control, "--port", port, "--state", state]);
    }
    end(verified);
    succeed(&["target", "ana", "--control", &control, "--state", "optimized"]);
    // A target that comes back with one of its ports is enough.
    let read = begin(&["--rw", "randread", "--runtime", "2s"]);
    pause();
    stage.target.kill();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--nqn", NQN, "--ram", "64MiB", "--listen", &stage.tcp, "--control"]);
    command.arg(stage.path("again"));
    let _again = Export::of(command);
    end(read);
}

/// A host that must encrypt is kept out where nothing encrypts, and one that must authenticate
/// does so.
#[test]
fn a_host_must_prove_who_it_is() {
    Provider::ALL.into_iter().for_each(prove);
}

fn prove(provider: Provider) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (key, secret, host) = (path("host.tls"), path("host.secret"), "nqn.2014-08.org.example:host");
    succeed(&["setup", "key", "tls", &key]);
    succeed(&["setup", "key", "dhchap", &secret]);

    let stage = Stage::set(provider, &["--host", host, "--tls-key-file", &key]);
    let url = format!("{}&hostnqn={host}", stage.url());
    let wrong = fail(&["nvme", "identify", &url, "--timeout", "2s"]);
    assert!(wrong.contains("Connect Invalid Host"), "{wrong}");
    let found =
        succeed(&["use", "discover", &format!("nvme-rdma://{}?provider={}", stage.rdma, provider.name())]);
    assert!(!found.contains(NQN), "{found}");

    let stage = Stage::set(provider, &["--host", host, "--dhchap-secret-file", &secret]);
    let url = format!("{}&hostnqn={host}", stage.url());
    let wrong = fail(&["nvme", "identify", &url, "--timeout", "2s"]);
    assert!(wrong.contains("demands authentication"), "{wrong}");
    succeed(&["nvme", "identify", &format!("{url}&dhchap-secret-file={secret}")]);
}

#[test]
fn strangers_are_turned_away() {
    let stage = Stage::set(Iwarp, &[]);
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
    // A host of NVMe/TCP at a port of RDMA, and the other way round, get the remedy.
    let quick = ["--timeout", "2s"];
    let wrong =
        fail(&[&["nvme", "identify", &format!("nvme-tcp://{}/{NQN}", stage.rdma)][..], &quick].concat());
    assert!(wrong.contains("or nvme-rdma://HOST:PORT"), "{wrong}");
    let wrong =
        fail(&[&["nvme", "identify", &format!("nvme-rdma://{}/{NQN}", stage.tcp)][..], &quick].concat());
    assert!(wrong.contains("RDMA") || wrong.contains("MPA"), "{wrong}");
    let url = stage.url();
    succeed(&["nvme", "identify", &url]);
}

#[test]
fn strange_datagrams_are_dropped() {
    let stage = Stage::set(Roce, &[]);
    let at = stage.rdma.replace(":4420", ":4791");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 12, 28, 280, 4096] {
        socket.send_to(&noise(length), &at).unwrap();
        socket.send_to(&vec![0; length as usize], &at).unwrap();
    }
    succeed(&["nvme", "identify", &stage.url()]);
    // A host that asks for a port without a listener is refused.
    let wrong = stage.url().replace(":4420", ":4421");
    let wrong = fail(&["nvme", "identify", &wrong, "--timeout", "2s"]);
    assert!(wrong.contains("no service listens at that port"), "{wrong}");
    // A second target cannot have the address, and says why.
    let rdma = format!("roce,{}", stage.rdma);
    let control = stage.path("second");
    let second = ["target", "--nqn", NQN, "--ram", "16MiB", "--rdma", &rdma, "--control", &control];
    assert!(fail(&second).contains("UDP port 4791"));
    for at in ["roce,127.0.0.1:0", "roce,0.0.0.0:4420"] {
        let wrong = ["target", "--nqn", NQN, "--ram", "16MiB", "--insecure", "--rdma", at];
        assert!(fail(&wrong).contains("name"), "{at}");
    }
}

#[test]
fn what_rdma_does_not_have_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("host.tls").to_str().unwrap().to_owned();
    succeed(&["setup", "key", "tls", &key]);
    let url = format!("nvme-rdma://127.0.0.1:1/{NQN}");
    let wrong = fail(&["nvme", "identify", &url, "--tls-key-file", &key]);
    assert!(wrong.contains("NVMe/RDMA has no encryption"), "{wrong}");
    let mixed = format!("nvme-tcp://127.0.0.1:1,rdma@127.0.0.1:2/{NQN}");
    let wrong = fail(&["nvme", "identify", &mixed, "--tls-key-file", &key]);
    assert!(wrong.contains("NVMe/RDMA has no encryption"), "{wrong}");
    let wrong = fail(&["nvme", "identify", &format!("{url}?hdgst=on")]);
    assert!(wrong.contains("'hdgst' can't be set with nvme-rdma://"), "{wrong}");
    let wrong = fail(&["nvme", "identify", &format!("{url}?provider=pigeons")]);
    assert!(wrong.contains("'pigeons' is no provider of RDMA; expected iwarp, roce or verbs"), "{wrong}");
    let open = ["target", "--nqn", NQN, "--ram", "16MiB", "--rdma", "0.0.0.0:0"];
    assert!(fail(&open).contains("--insecure"));
}
