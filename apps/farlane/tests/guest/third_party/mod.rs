//! A foreign NVMe controller at the far end: QEMU's own, unchanged, behind `farlane export
//! --vfio-user`.

mod bridge;
use std::io::{self, Write as _};
use std::process::Command;
use std::sync::atomic::Ordering;

use guest::skip;
use serde_json::Value;

use self::bridge::ThirdParty;
use crate::support::running::wait_for_listener;
use crate::support::{Export, FARLANE, json, succeed};

/// How long, in seconds, a load of half a second takes at most on a machine that is not so busy
/// that the emulated controller stands still: the data sent ahead are then given up.
const RUNTIME_MAX: f64 = 2.0;
/// How often a load is tried until it was in time.
const TRIES: usize = 5;

/// Runs a load, and verifies it where it writes. Returns its report.
fn load(url: &str, more: &[&str]) -> Value {
    let mut load = vec!["bench", url, "--bs", "4k", "--size", "256KiB", "--timeout", "30s", "--json"];
    let verified = if more.contains(&"randread") { Value::Null } else { true.into() };
    load.extend((verified != Value::Null).then_some("--verify"));
    let report = json(&[&load[..], more].concat());
    assert_eq!((&report["errors"], &report["verified"]), (&0.into(), &verified), "{report}");
    report
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} in {of}"))
}

#[test]
fn a_controller_of_qemus_is_looked_ahead_for_like_ours() {
    let Some(kit) = skip::kit_or_skip("QEMU's NVMe controller at the far end") else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk");
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let device = ThirdParty::start(kit, directory.path(), &image, "device");
    let socket = directory.path().join("device");
    wait_for_listener(&socket);
    let far = Export::start(&["--vfio-user", socket.to_str().unwrap()]);
    assert!(succeed(&["nvme", "identify", &far.url()]).contains("QEMU NVMe Ctrl"));
    for workload in ["randwrite", "randread", "randrw"] {
        let tries = (0..TRIES).map(|_| {
            let before = device.reads.load(Ordering::Relaxed);
            let report = load(&far.url(), &["--rw", workload, "--iodepth", "4", "--runtime", "500ms"]);
            (u64::from(device.reads.load(Ordering::Relaxed) - before), report)
        });
        let mut in_time = tries.filter(|(_, report)| report["runtime_s"].as_f64().unwrap() < RUNTIME_MAX);
        let Some((asked, report)) = in_time.next() else {
            let _ = writeln!(io::stderr(), "SKIPPED lookahead for QEMU's controller: too busy a machine");
            return;
        };
        let ahead = &report["lookahead"];
        eprintln!("{workload}: {asked} reads of the controller's, {ahead}");
        // The controller asked for every entry and all data, and hardly any of its reads had to go
        // to the host.
        assert!(asked > 20 && count(ahead, "reads") < asked / 10, "{asked}, {report}");
    }
    let bare =
        load(&far.url(), &["--rw", "randrw", "--iodepth", "4", "--runtime", "500ms", "--no-lookahead"]);
    assert_eq!(bare["lookahead"], Value::Null, "{bare}");

    let link = directory.path().join("link.toml");
    std::fs::write(&link, "[link]\nlatency = \"10ms\"\n").unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["model", "emulate", "--connect", &far.address, "--json", "--link"]).arg(&link);
    let network = Export::of(command);
    let report = load(&network.url(), &["--rw", "randwrite", "--iodepth", "1", "--runtime", "2s"]);
    eprintln!("10 ms each way: {report}");
    // The controller reads a page in 64 pieces. Without lookahead, each would be a round trip.
    assert!(count(&report["lookahead"], "reads") < 20, "{report}");
}
