//! The programs in `examples/`, run as their first lines say.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::running::wait_for_listener;
use crate::support::{Export, FARLANE, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:ssd";

/// Cargo builds the examples into a folder beside the program, with every test of the package.
fn example(name: &str) -> Command {
    let path: PathBuf = Path::new(&*FARLANE).with_file_name("examples").join(name);
    assert!(path.exists(), "{}: cargo build --package farlane --examples builds it", path.display());
    Command::new(path)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_host_reads_the_first_block_of_a_target() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = Command::new(&*FARLANE);
    target.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "1MiB", "--control"]);
    target.arg(directory.path().join("control"));
    let target = Export::of(target);
    let block = directory.path().join("block");
    std::fs::write(&block, [0xa5; 512]).unwrap();
    succeed(&[
        "use",
        "write",
        &format!("nvme-tcp://{}/{NQN}", target.address),
        "--input",
        block.to_str().unwrap(),
    ]);
    let read = example("nvme_tcp_host").args([&target.address, NQN]).output().unwrap();
    let said = String::from_utf8(read.stdout).unwrap();
    assert!(read.status.success() && said.contains("Successful Completion"), "{said}");
    assert!(said.contains(&["a5"; 16].join(", ")), "{said}");
    let refused = example("nvme_tcp_host").args([&target.address, "nqn.2026-01.io.farlane:other"]).output();
    let refused = refused.unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("Connect Invalid Parameters"), "{said}");
}

#[test]
fn a_far_end_offers_the_counter() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("counter");
    let device = example("vfio_user_device").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
    let _device = Killed(device);
    wait_for_listener(&socket);
    let far = Export::start(&["--vfio-user", socket.to_str().unwrap()]);
    let shown = succeed(&["observe", "lspci", "-v", &far.url()]);
    let counter = shown.split("\n\n").find(|function| function.contains("System peripheral")).expect(&shown);
    assert!(counter.contains("(32-bit, non-prefetchable) [size=4K]"), "{shown}");
}

#[test]
fn a_link_is_the_same_every_time() {
    let run = || {
        let output = example("simulated_link").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run();
    assert!(first.starts_with("1000 round trips of 64 B in ") && first.contains("median "), "{first}");
    assert_eq!(first, run());
}

#[test]
fn two_processes_exchange_a_packet_through_their_cards() {
    let directory = tempfile::tempdir().unwrap();
    let wire = directory.path().join("wire");
    let mut waits = example("nic_packets");
    let waits = waits.arg(&wire).arg("wait").stdout(Stdio::piped()).spawn().unwrap();
    let sent = example("nic_packets").arg(&wire).arg("send").output().unwrap();
    let said = String::from_utf8(sent.stdout).unwrap();
    assert!(sent.status.success() && said.starts_with("hello came back after"), "{said}");
    let waited = waits.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(waited.stdout).unwrap(), "hello came and went back\n");
}
