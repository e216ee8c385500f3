//! A Linux without any software of ours uses a far PCIe SSD: with its own NVMe/TCP initiator,
//! through a target, from a far end.

use std::process::Command;
use std::time::Duration;

use guest::{Guest, skip};

use crate::support::{Export, FARLANE};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/far.sh");
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(120);
const NQN: &str = "nqn.2026-01.io.farlane:far";

#[test]
fn linux_uses_a_far_pcie_ssd_with_its_own_initiator() {
    let Some(kit) = skip::kit_or_skip("Linux's initiator on a far PCIe SSD") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::File::create(path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    let disk = format!("{},block=4096", path("disk.img"));
    let export = |address: &str| Export::at(address, &["--namespace", &disk]);
    let mut far = export("127.0.0.1:0");
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--namespace", &far.url()]);
    command.args(["--control", &path("control")]);
    let target = Export::of(command);
    let port = target.address.rsplit_once(':').unwrap().1;
    let script = format!("PORT={port} NQN={NQN}\n{SCRIPT}");
    let builder = Guest::builder(kit).unwrap().tools(["nvme", "fio"]).unwrap();
    let builder = builder.modules(["nvme-tcp"]).unwrap().user_network().unwrap();
    let mut guest = builder.limit(LIMIT * 2).script(script).start().unwrap();
    guest.expect("writing", LIMIT).unwrap_or_else(|error| panic!("{error}\n{}", target.said()));
    let address = far.address.clone();
    far.kill();
    std::thread::sleep(Duration::from_secs(2));
    let _again = export(&address);
    target.wait_for("is back");
    guest.tell("restarted").unwrap();
    let outcome = guest.finish().unwrap().expect_success();
    for line in [
        "it has the far end's blocks",
        "fio verified",
        "discarded",
        "it reads as zeroes",
        "fio verified while the far end was away",
        "the kernel saw nothing",
    ] {
        assert!(outcome.output.lines().any(|one| one == line), "{line:?} in {}", outcome.output);
    }
}
