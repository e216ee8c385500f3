//! Namespaces with protection information: a stock Linux generates and checks it, near and far.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use guest::{Device, Guest, skip};

use crate::support::{Export, FARLANE, json};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/protection.sh");
/// Bytes of a file that a protected block takes.
const STORED: u64 = 4096 + 512;

/// Writes the first blocks of a protected file with our own host, and lets a bit of block 3 rot.
fn write_and_rot(file: &Path, protection: &str) {
    let namespace = format!("{},size=64MiB,protection={protection}", file.display());
    let far = Export::start(&["--namespace", &namespace]);
    let load = ["bench", &far.url(), "--rw", "write", "--verify", "--bs", "4k", "--size", "32k"];
    let reported = json(&[&load[..], &["--runtime", "200ms", "--json"]].concat());
    assert_eq!(
        (&reported["protected_by"], &reported["verified"]),
        (&"host".into(), &true.into()),
        "{reported}"
    );
    drop(far);
    let disk = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let (mut byte, place) = ([0], 3 * STORED + 100);
    disk.read_exact_at(&mut byte, place).unwrap();
    disk.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
}

#[test]
fn linux_generates_and_checks_protection_information() {
    let Some(kit) = skip::kit_or_skip("protection information in a guest") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (near, far) = (path("16.img"), path("64.img"));
    write_and_rot(&near, "16");
    write_and_rot(&far, "64");
    let namespace = |file: &Path, protection: &str| format!("{},protection={protection}", file.display());
    let served = |arguments: &[&str], socket: &Path| {
        let mut command = Command::new(&*FARLANE);
        command.args(arguments).args(["--json", "--vfio-user"]).arg(socket);
        Export::of(command)
    };
    let (near, far) = (namespace(&near, "16"), namespace(&far, "64"));
    let local = served(&["offer", "device", "--serial", "GUARD16", "--namespace", &near], &path("local"));
    let export = Export::start(&["--serial", "GUARD64", "--namespace", &far]);
    let attached = served(&["attach", &export.url()], &path("attached"));
    let plain = ["device", "--serial", "PLAIN", "--ram", "64MiB", "--max-transfer", "1MiB"];
    let plain = served(&plain, &path("plain"));
    let outcome = Guest::builder(kit)
        .unwrap()
        .tools(["nvme", "fio", "mkfs.ext4"])
        .unwrap()
        .limit(Duration::from_secs(180))
        .device(Device::vfio_user(path("local")))
        .device(Device::vfio_user(path("attached")))
        .device(Device::vfio_user(path("plain")))
        .script(SCRIPT)
        .run()
        .unwrap()
        .expect_success();
    for line in [
        "GUARD16: T10-DIF-TYPE1-CRC, verify 1, generate 1",
        "GUARD64: EXT-DIF-TYPE1-CRC64, verify 1, generate 1",
        "GUARD16: a rotten block ends as",
        "GUARD64: a rotten block ends as",
        "GUARD16: fio verified",
        "GUARD64: fio verified",
        "GUARD16: the controller found what Linux generated right",
        "GUARD64: the controller found what Linux generated right",
        "PLAIN: formatted, now T10-DIF-TYPE1-CRC",
        "PLAIN: a file system keeps its file",
        "PLAIN: one command moves 1024 KiB",
        "PLAIN: metadata are kept with 8 bytes",
        "PLAIN: metadata are kept with 16 bytes",
    ] {
        assert!(outcome.output.contains(line), "{line:?} in {}", outcome.output);
    }
    drop((local, attached, plain, export));
}
