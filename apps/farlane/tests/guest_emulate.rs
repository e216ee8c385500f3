//! Stock Linux guests whose disk is behind a network that is not there: `farlane export`, `farlane emulate`, `farlane attach`.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use guest::{Device, Guest, skip};

use support::{Export, FARLANE};

/// What is done in the guest.
const SCRIPT: &str = include_str!("guest/emulate.sh");
/// How long a guest may take for something.
const LIMIT: Duration = Duration::from_secs(120);

/// Boots a guest over the network of a scenario, and has it use its disk.
fn used_over(scenario: &str) {
    // One guest at a time: they are interpreted, and would wait for each other's processors.
    static TURN: Mutex<()> = Mutex::new(());
    let Some(kit) = skip::kit_or_skip(scenario) else { return };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(scenario);
    let directory = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "32MiB"]);
    let mut network = between(&far.address, &link);
    let socket: PathBuf = directory.path().join("ssd");
    let mut command = Command::new(FARLANE);
    command.args(["attach", &network.url(), "--json", "--vfio-user"]).arg(&socket);
    let mut near = Export::of(command);
    let builder = Guest::builder(kit).unwrap().tools(["fio", "mkfs.ext4", "fsck.ext4"]).unwrap();
    let builder = builder.device(Device::vfio_user(socket)).boot_limit(LIMIT).limit(LIMIT * 2);
    let outcome = builder.script(SCRIPT).run().unwrap().expect_success();
    for line in ["a file came back", "fsck clean", "fio verified", "nothing in the kernel's log"] {
        assert!(outcome.output.contains(line), "{line:?} in {}", outcome.output);
    }
    let (status, said) = near.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    let (_, _) = network.end_by("INT");
    let counters = loop {
        let line = network.next_line();
        if line["end"] == true {
            break line;
        }
    };
    assert!(counters["there"]["bytes"].as_u64().unwrap() > 1 << 20, "{counters}");
    let (boot, elapsed) = (outcome.boot.as_secs_f64(), outcome.elapsed.as_secs_f64());
    eprintln!("{scenario}: booted in {boot:.1} s, ran {elapsed:.1} s\n{}{said}{counters}", outcome.output);
}

/// `farlane emulate` between whoever comes and `to`.
fn between(to: &str, link: &Path) -> Export {
    let mut command = Command::new(FARLANE);
    command.args(["emulate", "--connect", to, "--json", "--every", "0", "--link"]).arg(link);
    Export::of(command)
}

#[test]
fn a_guest_uses_its_disk_over_gigabit_ethernet() {
    used_over("tcp-1g.toml");
}

#[test]
fn a_guest_uses_its_disk_over_time_sensitive_networking() {
    used_over("tsn-1g.toml");
}

#[test]
fn a_guest_boots_and_uses_its_disk_over_5g() {
    used_over("5g.toml");
}
