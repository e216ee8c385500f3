//! Stock Linux guests whose disk is behind an emulated network: `farlane export`, `farlane
//! model emulate`, `farlane attach`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use guest::{Device, Guest, Kit, Outcome, skip};
use serde_json::Value;

use crate::support::{Export, FARLANE};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/emulate.sh");
/// Script of what a guest does with an SSD on the same machine.
const USE: &str = include_str!("scripts/use.sh");
/// Lines that the guest prints when all goes well.
const LINES: [&str; 13] = [
    "a file came back",
    "fsck clean",
    "fio verified",
    "discarded",
    "formatted",
    "controller reset",
    "function reset",
    "bound anew",
    "copied and compared",
    "logs answered",
    "fio verified it all",
    "bound 20 times",
    "nothing in the kernel's log",
];
/// How long a guest may take for one thing.
const LIMIT: Duration = Duration::from_secs(120);

/// A far end, the network of a scenario, and a guest that has booted with them and ended.
struct Booted {
    outcome: Outcome,
    network: Export,
    /// The near end's standard error.
    said: String,
    /// The near end's last report, as JSON.
    reported: Value,
    _far: Export,
}

/// Boots a guest over the network of a scenario and lets it run a script. `attach` has further
/// arguments of the near end.
fn boot(kit: &Kit, scenario: &str, attach: &[&str], script: &str) -> Booted {
    // One guest at a time: guests are interpreted, and would wait for each other's processors.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(scenario);
    let directory = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "64MiB"]);
    let network = between(&far.address, &link);
    let socket: PathBuf = directory.path().join("ssd");
    let mut command = Command::new(&*FARLANE);
    command.args(["attach", &network.url(), "--json", "--vfio-user"]).arg(&socket).args(attach);
    let mut near = Export::of(command);
    let tools = ["fio", "lspci", "mkfs.ext4", "fsck.ext4", "nvme"];
    let builder = Guest::builder(kit).unwrap().tools(tools).unwrap();
    let builder = builder.device(Device::vfio_user(socket)).boot_limit(LIMIT).limit(LIMIT * 3);
    let outcome = builder.script(script).run().unwrap().expect_success();
    let (status, said) = near.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    let reported = near.next_line();
    let (boot, elapsed) = (outcome.boot.as_secs_f64(), outcome.elapsed.as_secs_f64());
    eprintln!("{scenario}: booted in {boot:.1} s, ran {elapsed:.1} s\n{}{said}", outcome.output);
    Booted { outcome, network, said, reported, _far: far }
}

/// Lets a guest use its disk over the network of a scenario, including everything that is done on
/// the same machine.
fn used_over(scenario: &str) {
    let Some(kit) = skip::kit_or_skip(scenario) else { return };
    let script = format!("{SCRIPT}\n{}", USE.replace("fio verified", "fio verified it all"));
    let Booted { outcome, mut network, reported, .. } = boot(kit, scenario, &[], &script);
    for line in LINES {
        assert!(outcome.output.contains(line), "{line:?} in {}", outcome.output);
    }
    let ahead = &reported["lookahead"];
    let count = |name: &str| ahead[name].as_u64().unwrap();
    // The far end had to ask for little, compared with what went ahead.
    assert!(count("entries") > 500 && count("reads") < count("pieces") / 4, "{reported}");
    assert_eq!(
        (&reported["completion_timeouts"], &reported["given_up"]),
        (&0.into(), &0.into()),
        "{reported}"
    );
    let (_, _) = network.end_by("INT");
    let counters = loop {
        let line = network.next_line();
        if line["end"] == true {
            break line;
        }
    };
    assert!(counters["there"]["bytes"].as_u64().unwrap() > 1 << 20, "{counters}");
    eprintln!("{scenario}: {counters}");
}

/// Starts `farlane model emulate` in front of `to`.
fn between(to: &str, link: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["model", "emulate", "--connect", to, "--json", "--every", "0", "--link"]).arg(link);
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

#[test]
fn a_root_complex_that_waits_for_10_ms_has_no_disk_over_5g() {
    let Some(kit) = skip::kit_or_skip("a root complex that gives up") else { return };
    let script = "lspci -nn; ls /sys/class/nvme/* /dev/nvme* 2>/dev/null || echo \"there is no SSD\"";
    let remedies_off = ["--no-lookahead", "--no-shadow", "--completion-timeout", "10ms"];
    let Booted { outcome, said, reported, .. } = boot(kit, "5g.toml", &remedies_off, script);
    assert!(outcome.output.contains("there is no SSD"), "{}", outcome.output);
    assert!(!outcome.output.contains("[0108]"), "{}", outcome.output);
    assert!(reported["completion_timeouts"].as_u64().unwrap() > 0, "{reported}");
    for words in ["completion timeout: configuration", "no answer within 10 ms", "slot is empty"] {
        assert!(said.contains(words), "{words} in {said}");
    }
}
