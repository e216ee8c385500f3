//! Linux's own ends of NVMe/RDMA, in a guest whose kernel does RDMA over TCP (siw), with ours.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use guest::{Guest, skip};

use support::{Export, FARLANE, succeed};

/// Script of what a guest does with our target.
const USE: &str = include_str!("guest_scripts/rdma.sh");
/// Script of a guest with the kernel's target.
const OFFER: &str = include_str!("guest_scripts/rdma_nvmet.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(60);
const NQN: &str = "nqn.2026-01.io.farlane:guest";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// Lines that [`USE`] prints when all goes well.
const SAID: [&str; 13] = [
    "an RDMA link is there",
    "discovered",
    "an unknown subsystem is refused",
    "subsystem listed",
    "identified",
    "copied and compared",
    "fio verified",
    "discarded",
    "controller reset",
    "nothing in the kernel's log",
    "fio verified through a restart",
    "two paths to one disk",
    "fio verified by two paths",
];

/// Ports of loopback that nobody listens on.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All are taken before any is given back.
    let taken = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    taken.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

#[test]
fn the_kernels_host_uses_our_target() {
    let Some(kit) = skip::built_kit_or_skip("the kernel's NVMe/RDMA host over siw") else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let [port, tcp] = free_ports();
    let target = || {
        let mut command = Command::new(FARLANE);
        command.args(["target", "--json", "--nqn", NQN, "--serial", "RDMA", "--namespace"]).arg(&image);
        command.args(["--rdma", &format!("iwarp,127.0.0.1:{port}"), "--listen", &format!("127.0.0.1:{tcp}")]);
        for port in [tcp, port] {
            command.args(["--advertise", &format!("10.0.2.2:{port}")]);
        }
        command.arg("--control").arg(directory.path().join("control"));
        Export::of(command)
    };
    let mut running = target();
    let script = format!("PORT={port} TCP={tcp} NQN={NQN} HOST={HOST}\n{USE}");
    let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio", "rdma"]).unwrap();
    let builder = builder.user_network().unwrap().limit(LIMIT * 3).script(script);
    let mut guest = builder.start().unwrap();
    guest.expect("running", LIMIT * 3).unwrap_or_else(|error| panic!("{error}\n{}", running.said()));
    running.kill();
    running = target();
    guest.tell("restarted").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    for line in SAID {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
    drop(running);
}

#[test]
fn our_host_uses_the_kernels_target() {
    let Some(kit) = skip::built_kit_or_skip("the kernel's NVMe/RDMA target over siw") else { return };
    let [port] = free_ports();
    let builder = Guest::builder(kit).unwrap().memory_mib(768).limit(LIMIT * 3).tools(["rdma"]).unwrap();
    let mut guest = builder.forward(port, 4420).unwrap().script(OFFER).start().unwrap();
    guest.expect("ready", LIMIT).unwrap();
    let at = format!("nvme-rdma://127.0.0.1:{port}");
    let url = format!("{at}/nqn.2014-08.org.example:kernel?provider=iwarp&queues=2");
    let found = succeed(&["discover", &at]);
    assert!(found.contains("rdma") && found.contains("nqn.2014-08.org.example:kernel"), "{found}");
    assert!(succeed(&["identify", &url]).contains("Linux"));
    succeed(&["ping", &url, "--count", "20"]);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, copy) = (path("source"), path("copy"));
    let bytes: Vec<u8> =
        (0..1_000_448_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    std::fs::write(&source, &bytes).unwrap();
    succeed(&["write", &url, "--input", &source]);
    succeed(&["read", &url, "--length", "1000448", "--output", &copy]);
    assert!(std::fs::read(&copy).unwrap() == bytes);
    for size in ["512", "4k", "64k"] {
        let job = ["--rw", "randrw", "--bs", size, "--iodepth", "16", "--runtime", "500ms", "--verify"];
        succeed(&[&["bench", &url][..], &job[..]].concat());
    }
    guest.tell("end").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert!(outcome.output.contains("nothing in the kernel's log"), "{}", outcome.output);
}
