//! Captures of NVMe/RDMA by a network's sniffer: each command of a session is found, with its data.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use crate::support::dumpcap::{Capture, stay_on_one_processor};
use crate::support::{Export, FARLANE, json};
use serde_json::Value;

const NQN: &str = "nqn.2026-01.io.farlane:sniffed";

/// The statistics of `trace stats` about a capture of a verified load by `provider`, and the load's
/// report; none where no capture is possible.
fn sniffed(provider: &str, listen: &str, filter: impl Fn(&str) -> String) -> Option<(Value, Value)> {
    stay_on_one_processor();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args([
        "target",
        "--json",
        "--nqn",
        NQN,
        "--ram",
        "16MiB",
        "--rdma",
        &format!("{provider},{listen}"),
    ]);
    command.arg("--control").arg(folder.path().join("control"));
    let target = Export::of(command);
    let file = folder.path().join("sniffed.pcapng");
    let capture = match Capture::of("lo", &filter(&target.address), &file) {
        Ok(capture) => capture,
        Err(why) => {
            let _ = writeln!(io::stderr(), "SKIPPED a capture of {provider}: {why}");
            return None;
        }
    };
    let url = format!("nvme-rdma://{}/{NQN}?provider={provider}", target.address);
    // A rate without loss, so that no packet is sent again.
    let load = ["bench", &url, "--rw", "randrw", "--bs", "16k", "--iodepth", "4", "--size", "4MiB"];
    let report =
        json(&[&load[..], &["--rate_iops", "200", "--runtime", "500ms", "--verify", "--json"]].concat());
    assert_eq!(report["errors"], 0, "{report}");
    capture.finish();
    Some((json(&["observe", "trace", "stats", text(&file), "--json"]), report))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Each read and write has all its data; the load verified itself with reads, and set itself up.
fn assert_session((stats, report): &(Value, Value)) {
    let commands = &stats["commands"];
    let count = |kind: &str| commands[kind]["count"].as_u64().unwrap_or_default();
    assert!(count("read") + count("write") >= report["operations"].as_u64().unwrap_or(50), "{stats}");
    for kind in ["read", "write"] {
        assert!(count(kind) > 5, "{stats}");
        assert_eq!(commands[kind]["blocks"], count(kind) * 32, "{kind}: {stats}");
        assert_eq!(commands[kind]["bytes"], count(kind) * 16_384, "{kind}: {stats}");
    }
    assert!(count("fabrics: connect") >= 2, "{stats}");
    assert_eq!((&stats["unexpected_completions"], &stats["dropped"]), (&0.into(), &0.into()), "{stats}");
    assert!(stats["confidence"].as_f64().unwrap() > 0.99, "{stats}");
}

#[test]
fn iwarps_messages_are_understood() {
    let filter = |address: &str| format!("tcp port {}", address.rsplit(':').next().unwrap());
    if let Some(found) = sniffed("iwarp", "127.0.0.1:0", filter) {
        assert_session(&found);
    }
}

#[test]
fn roces_datagrams_are_understood() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let listen = format!("127.109.{high}.{low}:4420");
    let filter = |address: &str| format!("udp port 4791 and host {}", address.rsplit_once(':').unwrap().0);
    if let Some(found) = sniffed("roce", &listen, filter) {
        assert_session(&found);
    }
}
