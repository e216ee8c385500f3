//! Captures of PCIe packets: those of anybody are understood, ours tell where the time went.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Export, fail, json, succeed};

/// The captures of an SSD, as files; none where they are not there.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folders = [folder.join("nettlp-p4600"), folder];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    if files.is_empty() {
        eprintln!("SKIPPED: there are no captures in {}", folders[1].display());
    }
    files
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_capture_is_read_and_an_ssds_have_the_commands_of_their_names() {
    for path in captures() {
        let stats = json(&["trace", "stats", text(&path), "--json"]);
        assert!(stats["tlps"].as_u64().unwrap() > 0, "{}", path.display());
        assert_eq!(stats["skipped"]["malformed"], 0, "{}", path.display());
        let name = path.file_stem().unwrap().to_string_lossy();
        let [_, kind, blocks] = *name.split('-').collect::<Vec<_>>() else { continue };
        let Some(blocks) = blocks.strip_suffix("blk") else { continue };
        let blocks: u64 = blocks.parse().unwrap();
        let command = &stats["commands"][kind];
        let found = ["count", "blocks", "bytes"].map(|key| command[key].as_u64().unwrap());
        assert_eq!(found, [1, blocks, blocks * 512], "{name}: {stats}");
        // Data alone never make it certain.
        assert_eq!(stats["confidence"], 0.5, "{name}: {stats}");
    }
}

/// A capture of a load on a far SSD, and what the load says of itself.
fn captured(folder: &Path, load: &[&str]) -> (PathBuf, Value) {
    let far = Export::start(&["--ram", "16MiB"]);
    let path = folder.join("load.pcapng");
    // At this rate the file keeps up on any machine: a capture with lost packets has other counts.
    let rate = ["--runtime", "200ms", "--rate", "500"];
    let url = far.url();
    let bench = [&["bench", &url, "--json", "--trace", text(&path)][..], &rate].concat();
    let report = json(&[&bench[..], load].concat());
    assert_eq!(report["errors"], 0, "{report}");
    (path, report)
}

#[test]
fn a_capture_of_ours_has_each_command_with_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    // Transfers of 64 KiB have lists of pages.
    let (path, report) = captured(folder.path(), &["--rw", "randrw", "--bs", "64k", "--iodepth", "4"]);
    let stats = json(&["trace", "stats", text(&path), "--json"]);
    let commands = &stats["commands"];
    let count = |kind: &str| commands[kind]["count"].as_u64().unwrap_or_default();
    assert!(count("read") > 0 && count("write") > 0, "{stats}");
    for kind in ["read", "write"] {
        assert_eq!(commands[kind]["bytes"], count(kind) * 65_536, "{kind}: {stats}");
        assert_eq!(commands[kind]["blocks"], count(kind) * 128, "{kind}: {stats}");
        assert_eq!(commands[kind]["latency_ns"]["count"], count(kind));
    }
    assert!(stats["confidence"].as_f64().unwrap() > 0.99, "{stats}");
    assert_eq!((&stats["unexpected_completions"], &stats["inferred"]), (&0.into(), &0.into()), "{stats}");
    // The report counts what the load measured; the capture has the load's beginning too.
    let measured = report["operations"].as_u64().or(report["latency"]["count"].as_u64()).unwrap_or(1);
    assert!(count("read") + count("write") >= measured, "{report}");
    let chains = json(&["trace", "chain", text(&path), "--json"]);
    let read = chains["chains"].as_array().unwrap().iter().find(|one| one["command"] == "Read").unwrap();
    let steps: Vec<_> = read["hops"].as_array().unwrap().iter().map(|hop| hop["step"].clone()).collect();
    for step in ["doorbell", "entry fetch", "entry", "list fetch", "list", "data", "completion"] {
        assert!(steps.contains(&step.into()), "{step} in {steps:?}");
    }
}

#[test]
fn the_times_of_a_commands_steps_add_up_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randwrite", "--bs", "4k", "--iodepth", "1"]);
    for number in ["1", "9", "20"] {
        let chain = json(&["trace", "chain", text(&path), "--command", number, "--json"]);
        let hops = chain["hops"].as_array().unwrap();
        let sum: u64 = hops.iter().map(|hop| hop["ns"].as_u64().unwrap()).sum();
        assert_eq!(chain["whole_ns"], sum, "{chain}");
        assert!(chain["latency_ns"].as_u64().unwrap() <= sum, "{chain}");
    }
    let chain = json(&["trace", "chain", text(&path), "--command", "20", "--json"]);
    assert_eq!(
        (&chain["command"], &chain["blocks"], &chain["status"]),
        (&"Write".into(), &8.into(), &0.into())
    );
    let shown = succeed(&["trace", "chain", text(&path), "--command", "20"]);
    assert!(shown.contains("data arrived") && shown.contains("LBA"), "{shown}");
    let missing = fail(&["trace", "chain", text(&path), "--command", "99999999"]);
    assert!(missing.contains("--command") && missing.contains("1 to "), "{missing}");
}

#[test]
fn lines_are_packets_transactions_or_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randread", "--bs", "4k", "--iodepth", "1"]);
    let stats = json(&["trace", "stats", text(&path), "--json"]);
    let lines = |level: &str| {
        let shown = succeed(&["trace", "show", text(&path), "--level", level, "--json"]);
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(lines("tlp").len() as u64, stats["tlps"].as_u64().unwrap());
    let commands = lines("command");
    assert_eq!(commands.len() as u64, stats["known"].as_u64().unwrap());
    assert!(commands.iter().any(|one| one["command"] == "Read" && one["bytes"] == 4096));
    assert!(lines("transaction").iter().any(|one| one["completions"] == 1));
    for line in succeed(&["trace", "show", text(&path), "--level", "command"]).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn malformed_files_are_refused_with_the_place_and_a_fabric_has_no_packets() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = captured(folder.path(), &["--rw", "randread", "--bs", "4k", "--iodepth", "1"]);
    let whole = std::fs::read(&path).unwrap();
    let broken = folder.path().join("broken.pcapng");
    std::fs::write(&broken, &whole[..whole.len() / 2 + 1]).unwrap();
    let cut = fail(&["trace", "stats", text(&broken)]);
    assert!(cut.contains("at byte") && cut.contains("ends within a block"), "{cut}");
    std::fs::write(&broken, b"neither pcap nor pcapng").unwrap();
    assert!(fail(&["trace", "stats", text(&broken)]).contains("neither as pcap nor as pcapng"));
    std::fs::write(&broken, b"").unwrap();
    fail(&["trace", "show", text(&broken)]);
    let missing = fail(&["trace", "stats", "/nonexistent/capture"]);
    assert!(missing.contains("/nonexistent/capture"), "{missing}");
    let fabric = ["bench", "nvme-tcp://127.0.0.1:1/nqn.2024-01.io.farlane:x", "--trace", text(&broken)];
    let refused = fail(&[&fabric[..], &["--timeout", "1s"]].concat());
    assert!(refused.contains("do not pass here") || refused.contains("127.0.0.1:1"), "{refused}");
}
