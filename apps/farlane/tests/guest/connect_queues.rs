//! A bare guest makes a subsystem a block device with two queues: each has a thread and a host of
//! its own, which lose their connections independently.

use std::process::Command;
use std::time::Duration;

use guest::{Guest, skip};

use crate::support::proxy::Proxy;
use crate::support::{Export, FARLANE, stripped};

const SCRIPT: &str = include_str!("scripts/connect_queues.sh");
const NQN: &str = "nqn.2026-01.io.farlane:queues";
const LIMIT: Duration = Duration::from_secs(120);

/// Lines that [`SCRIPT`] prints when all goes well.
const SAID: [&str; 14] = [
    "too few descriptors are named",
    "connected with two queues",
    "the second queue has a thread",
    "fio verified",
    "both queues have requests",
    "the status names the queues",
    "idle sleeps",
    "fio verified while a queue lost its connection",
    "the other queue went on",
    "the same block device",
    "fio verified while farlane was killed",
    "it stays when farlane ends",
    "disconnected",
    "the kernel has no complaint",
];

#[test]
fn each_queue_of_a_block_device_has_a_thread_and_a_host() {
    let Some(kit) = skip::kit_or_skip("a subsystem as a block device with two queues") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--namespace"]);
    command.arg(format!("{},block=4096", image.display()));
    let target = Export::of(command);
    let proxy = Proxy::to(&target.address, |_, _| None);
    let mut builder = Guest::builder(kit)
        .unwrap()
        .memory_mib(1024)
        .limit(LIMIT * 4)
        .tools(["fio", "mkfs.ext4", "fsck.ext4"])
        .unwrap()
        .modules(["ublk_drv"])
        .unwrap()
        .user_network()
        .unwrap();
    builder.initramfs().program("usr/bin/farlane", &stripped(folder.path())).unwrap();
    let port = proxy.address.port();
    let mut guest = builder.script(format!("PORT={port} NQN={NQN}\n{SCRIPT}")).start().unwrap();
    guest.expect("cut a connection", LIMIT).unwrap_or_else(|error| panic!("{error}"));
    proxy.cut_one();
    guest.tell("cut").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    assert_eq!(proxy.cuts(), 1, "{}", outcome.output);
    for line in SAID {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
}
