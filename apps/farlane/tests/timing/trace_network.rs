//! Captures of NVMe/TCP by others: each command is found, however the network treated segments.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::dumpcap::{Capture, stay_on_one_processor};
use crate::support::{Export, FARLANE, json, succeed};
use serde_json::Value;

const NQN: &str = "nqn.2026-01.io.farlane:captured";

fn stats(path: &Path) -> Value {
    json(&["observe", "trace", "stats", path.to_str().unwrap(), "--json"])
}

/// A capture of loads on a target, and the commands of each: reads, and writes by R2T and in
/// capsules. None where nothing can be captured.
fn captured(folder: &Path) -> Option<(PathBuf, [u64; 3])> {
    stay_on_one_processor();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "64MiB"]);
    command.arg("--control").arg(folder.join("control"));
    let target = Export::of(command);
    let path = folder.join("session.pcapng");
    let capture = match Capture::start(target.address.rsplit(':').next().unwrap(), &path) {
        Ok(capture) => capture,
        Err(why) => {
            let _ = writeln!(io::stderr(), "SKIPPED a capture of NVMe/TCP: {why}");
            return None;
        }
    };
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    let loads = [("randread", "16k"), ("randwrite", "16k"), ("randwrite", "4k")].map(|(workload, size)| {
        // One at a time: late commands of a busy machine would share a segment, of which a capture
        // that is cut has the first alone.
        let load =
            ["--rw", workload, "--bs", size, "--iodepth", "1", "--rate_iops", "200", "--runtime", "500ms"];
        let report = json(&[&["bench", &url, "--json"][..], &load].concat());
        assert_eq!(report["errors"], 0, "{report}");
        // At most 100: commands that are late when the time is over are left out.
        report["commands"].as_u64().unwrap()
    });
    capture.finish();
    Some((path, loads))
}

/// Runs one of Wireshark's programs on a capture; returns its output file.
fn changed(folder: &Path, program: &str, arguments: &[&str], from: &[&Path]) -> PathBuf {
    let to = folder.join("changed.pcapng");
    let mut command = Command::new(program);
    command.args(arguments);
    if program == "mergecap" {
        command.arg("-w").arg(&to).args(from);
    } else {
        command.args(from).arg(&to);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    to
}

#[test]
fn each_command_of_a_session_is_found_as_the_network_left_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some((path, [read, by_r2t, in_capsules])) = captured(folder.path()) else { return };
    let found = stats(&path);
    let commands = &found["commands"];
    let counts =
        |of: &Value, kind: &str| ["count", "blocks", "bytes"].map(|key| of[kind][key].as_u64().unwrap());
    let [reads, read_blocks, read_bytes] = counts(commands, "read");
    let [writes, write_blocks, write_bytes] = counts(commands, "write");
    assert!(read > 50 && reads >= read && writes >= by_r2t + in_capsules, "{read} of {found}");
    assert_eq!((read_blocks * 512, read_bytes), (reads * 16_384, reads * 16_384));
    assert_eq!(write_blocks * 512, write_bytes, "the digests of data are none of them");
    assert_eq!((&found["confidence"], &found["gaps"]), (&1.0.into(), &0.into()), "{found}");
    assert!(counts(commands, "fabrics: connect")[0] >= 6, "{found}");
    // Commands that wait for events of the controller never end.
    assert!(found["unfinished"].as_u64().unwrap() <= 3, "{found}");

    // Each segment twice, as after lost acknowledgements.
    let twice = stats(&changed(folder.path(), "mergecap", &[], &[&path, &path]));
    assert_eq!(twice["commands"], found["commands"], "{twice}");
    assert_eq!((&twice["pdus"], &twice["gaps"]), (&found["pdus"], &0.into()));
    // The first hundred frames are missing: the session was there before.
    let later = stats(&changed(folder.path(), "editcap", &[], &[&path]));
    assert_eq!(later["pdus"], found["pdus"]);
    let to = folder.path().join("later.pcapng");
    assert!(Command::new("editcap").arg(&path).arg(&to).arg("1-100").status().unwrap().success());
    let later = stats(&to);
    let count = |of: &Value| counts(&of["commands"], "read")[0] + counts(&of["commands"], "write")[0];
    assert!(count(&later) >= count(&found) - 50, "{later} of {found}");
    // Frames cut behind their heads, as by dumpcap -s 200.
    let cut = stats(&changed(folder.path(), "editcap", &["-s", "200"], &[&path]));
    assert!(count(&cut) >= count(&found) * 9 / 10, "{cut} of {found}");

    let chains = json(&["observe", "trace", "chain", path.to_str().unwrap(), "--json"]);
    let chains = chains["chains"].as_array().unwrap();
    let steps = |kind: &str| {
        let chain = chains.iter().find(|one| one["command"] == kind).unwrap();
        let hops = chain["hops"].as_array().unwrap();
        hops.iter().map(|hop| hop["step"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(steps("Read"), ["command capsule", "data", "completion"]);
    assert_eq!(steps("Write"), ["command capsule", "R2T", "data arrived", "completion"]);
    let shown = succeed(&["observe", "trace", "show", path.to_str().unwrap(), "--level", "command"]);
    assert!(shown.contains("fabrics: Connect") && shown.contains("Write"), "{shown}");
}
