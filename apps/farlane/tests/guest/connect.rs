//! A bare guest makes a far SSD a block device by one command, and keeps it through the deaths of
//! both ends: over the kernel's user-space block driver, and over its NVMe/TCP initiator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use guest::{Guest, Running, skip};
use serde_json::Value;

use crate::support::schema::{all_faults, schema};
use crate::support::{Export, FARLANE};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/connect.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(120);

/// Lines that [`SCRIPT`] prints when all goes well.
const SAID: [&str; 29] = [
    "nothing at first",
    "connected",
    "listed",
    "discards are offered",
    "captured",
    "idle sleeps",
    "files are as they were written",
    "fio verified",
    "trimmed",
    "what is mounted stays",
    "fio verified while the far end was killed",
    "the same block device",
    "fio verified while farlane was killed",
    "it stays when farlane ends",
    "files are as they were after all that",
    "fsck clean",
    "discarded",
    "disconnected",
    "read-only",
    "I/O fails in time",
    "and succeeds again",
    "disconnected again",
    "a device of another process is waited for",
    "connected by shm",
    "connected by udp",
    "connected by quic",
    "connected by nvme-tcp",
    "connected by nvme-rdma",
    "the kernel has no complaint",
];

/// The program without what only a debugger reads, since the guest keeps the program in memory.
fn stripped(folder: &Path) -> PathBuf {
    let place = folder.join("farlane");
    match Command::new("strip").arg("-o").arg(&place).arg(&*FARLANE).status() {
        Ok(status) if status.success() => place,
        _ => PathBuf::from(&*FARLANE),
    }
}

fn expect(guest: &mut Running, words: &str) {
    guest.expect(words, LIMIT).unwrap_or_else(|error| panic!("{error}"));
}

/// Has a guest with these `modules` use a far SSD by a block device made over `over`. The guest
/// sees `limits`.
fn use_a_far_ssd(over: &str, modules: &[&str], limits: &str) {
    let Some(kit) = skip::kit_or_skip("a far SSD as a block device of Linux") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let disk = format!("{},block=4096", image.display());
    // A host that was killed is held for as long as it takes to be sure of that.
    let export = |address: &str| Export::at(address, &["--namespace", &disk, "--hold", "2s"]);
    let mut far = export("127.0.0.1:0");
    let address = far.address.clone();
    let port = address.rsplit_once(':').unwrap().1;
    let mut builder = Guest::builder(kit)
        .unwrap()
        .memory_mib(1024)
        .limit(LIMIT * 4)
        .tools(["fio", "mkfs.ext4", "fsck.ext4"])
        .unwrap()
        .modules(modules.iter().copied())
        .unwrap()
        .user_network()
        .unwrap();
    builder.initramfs().program("usr/bin/farlane", &stripped(folder.path())).unwrap();
    let mut guest = builder.script(format!("PORT={port} OVER={over}\n{SCRIPT}")).start().unwrap();
    expect(&mut guest, "kill the far end");
    far.kill();
    sleep(Duration::from_secs(2));
    far = export(&address);
    guest.tell("restarted").unwrap();
    expect(&mut guest, "take the far end away");
    far.kill();
    guest.tell("away").unwrap();
    expect(&mut guest, "bring it back");
    let _far = export(&address);
    guest.tell("restarted").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    // The guest is interpreted: only the proportion says something.
    let latency = outcome.output.lines().find(|line| line.starts_with("latency"));
    eprintln!("{over}: {}", latency.unwrap_or_default());
    for (name, key) in [("connect", "device"), ("disconnect", "disconnected")] {
        let reported = outcome.output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let reported = reported.filter(|value| value[key].is_string()).collect::<Vec<_>>();
        assert!(!reported.is_empty(), "{name} in {}", outcome.output);
        for value in reported {
            assert_eq!(all_faults(&schema(name), &value), Vec::<String>::new(), "{name}: {value}");
        }
    }
    for line in SAID.into_iter().chain([limits]) {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
}

#[test]
fn a_bare_guest_keeps_a_far_ssd_by_the_user_space_block_driver() {
    use_a_far_ssd("ublk", &["ublk_drv"], "limits 4096 128 write back, 1");
}

#[test]
fn a_bare_guest_keeps_a_far_ssd_by_its_own_initiator() {
    use_a_far_ssd("nvme-tcp", &["nvme-tcp"], "limits 4096 128 write back, 1");
}
