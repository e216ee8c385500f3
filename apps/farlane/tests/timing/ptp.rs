//! The clocks of two ends whose machines follow one grandmaster.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Export, FARLANE, json};

/// Answers at `place` for as long as the test runs, as `ptp4l` answers GET TIME_STATUS_NP: the
/// clock is 40 ns ahead of the grandmaster that is named by eight equal bytes.
fn ptp(folder: &TempDir, grandmaster: u8) -> String {
    let place: PathBuf = folder.path().join(format!("ptp-{grandmaster}"));
    let server = UnixDatagram::bind(&place).unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 128];
        while let Ok((length, from)) = server.recv_from(&mut room) {
            let mut answer = [room[..length].to_vec(), vec![0; 50]].concat();
            answer[46] = 2;
            answer[51] = 52;
            answer[54..62].copy_from_slice(&40_i64.to_be_bytes());
            answer[95] = 1;
            answer[96..104].fill(grandmaster);
            let _ = server.send_to(&answer, from.as_pathname().unwrap());
        }
    });
    place.to_str().unwrap().to_owned()
}

/// A network whose ways take 20 ms and 1 ms in front of `to`.
fn uneven(to: &str, folder: &Path) -> Export {
    let link = folder.join("link.toml");
    std::fs::write(&link, "[link]\n[link.there]\nlatency = \"20ms\"\n[link.back]\nlatency = \"1ms\"\n")
        .unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["model", "emulate", "--connect", to, "--json", "--every", "0", "--link"]).arg(&link);
    Export::of(command)
}

/// The report of a near end with this option about the far end's clock: the offset, if both follow
/// one clock, and its error.
fn clock(url: &str, further: &[&str]) -> (Option<i64>, i64) {
    let reported: Value = json(&[&["measure", "ping", url, "--count", "5", "--json"], further].concat());
    (reported["clock"]["offset_ns"].as_i64(), reported["clock"]["error_ns"].as_i64().unwrap())
}

#[test]
fn one_grandmaster_makes_one_way_times_true() {
    let folder = tempfile::tempdir().unwrap();
    let (same, other) = (ptp(&folder, 7), ptp(&folder, 9));
    let far = Export::start(&["--ram", "16MiB", "--ptp", &same]);
    far.wait_for("the network's time is known to within");
    let network = uneven(&far.address, folder.path());
    let url = network.url();
    // An exchange takes 21 ms and bounds the offset to half of it. The offset is off by 9.5 ms.
    let (none, alone) = clock(&url, &[]);
    assert!(alone > 10_000_000 && none.is_none(), "{alone}");
    // Another grandmaster's time says nothing.
    let (none, strange) = clock(&url, &["--ptp", &other]);
    assert!(strange > 10_000_000 && none.is_none(), "{strange}");
    let (offset, known) = clock(&url, &["--ptp", &same]);
    assert!(known < 5_000_000 && offset.is_some(), "{known}");
}
