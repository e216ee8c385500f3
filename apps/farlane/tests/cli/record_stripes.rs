//! One recording over several media: the share of each, missing media, and the state after a kill.

use std::fs;

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, json, succeed};

/// The length of this test's recordings of `generate:`, in bytes.
const BYTES: usize = 8 << 20;

/// The first `count` bytes of what `generate:` makes.
fn generated(count: usize) -> Vec<u8> {
    (0..count as u64 / 8).flat_map(u64::to_le_bytes).collect()
}

/// The last report of a recorder.
fn recorded(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(succeed(arguments).lines().last().unwrap()).unwrap()
}

struct Media {
    directory: tempfile::TempDir,
}

impl Media {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// The paths of three members, in the order in which they are recorded to.
    fn members(&self) -> [String; 3] {
        ["a", "b", "c"].map(|name| self.at(name))
    }
}

#[test]
fn a_striped_recording_is_proved_replayed_and_exported_from_all_members_in_any_order() {
    let media = Media::new();
    let [a, b, c] = &media.members();
    let error = recorded(&[
        "record",
        "--from",
        "generate:40MB",
        "--to",
        a,
        "--to",
        b,
        "--to",
        c,
        "--size",
        "8MB",
        "--chunk",
        "64k",
        "--json",
    ]);
    assert_eq!((&error["bytes_stored"], &error["certified"]), (&BYTES.into(), &true.into()), "{error}");
    // Each member has its share of about 134 chunks.
    for path in [a, b, c] {
        let length = fs::metadata(path).unwrap().len();
        assert!((43 << 16..=49 << 16).contains(&length), "{path} has {length} bytes");
    }
    let proved = json(&["recording", "verify", c, a, b, "--json"]);
    assert_eq!((&proved["ok"], &proved["bytes"]), (&true.into(), &BYTES.into()), "{proved}");
    assert_eq!(proved["sha256"], error["sha256"]);
    let out = media.at("out");
    succeed(&["recording", "replay", b, c, a, "--to", &out, "--speed", "max"]);
    assert!(fs::read(&out).unwrap() == generated(BYTES), "the replay has other bytes");
    succeed(&["recording", "convert", a, b, c, "--to", &out, "--format", "raw"]);
    assert!(fs::read(&out).unwrap() == generated(BYTES), "the export has other bytes");
    assert_eq!(json(&["recording", "info", a, b, c, "--json"])["bytes"], BYTES);

    let error = fail(&["recording", "verify", a, c]);
    assert!(error.contains("over 3 members") && error.contains("member 1 is missing"), "{error}");
    let error = fail(&["recording", "replay", b, "--to", &out]);
    assert!(error.contains("member 0, 2 is missing"), "{error}");
    let error = fail(&["recording", "info", a, b, b, c]);
    assert!(error.contains("member 1 of 3 is named twice"), "{error}");
    let other = media.at("other");
    succeed(&["record", "--from", "generate:9MB", "--to", &other, "--size", "1MB"]);
    let error = fail(&["recording", "verify", a, b, &other]);
    assert!(error.contains("member 3") && error.contains("another recording"), "{error}");
    let error = fail(&["recording", "verify", &other, &other]);
    assert!(error.contains("no members of a set"), "{error}");
    // The present file is not overwritten, and the message names it.
    let error =
        fail(&["record", "--from", "generate:1MB", "--to", &media.at("new"), "--to", b, "--size", "1MB"]);
    assert!(error.contains(b), "{error}");
}

#[test]
fn a_striped_recording_that_was_killed_is_recovered_and_a_lost_label_is_written_again() {
    let media = Media::new();
    let [a, b, c] = &media.members();
    let control = media.at("control");
    let recorder = Running::start(&[
        "record",
        "--from",
        "generate:20MB",
        "--to",
        a,
        "--to",
        b,
        "--to",
        c,
        "--chunk",
        "32k",
        "--control",
        &control,
    ]);
    wait_for_listener(&control);
    let status = || json(&["record", "ctl", &control, "status", "--json"]);
    wait_until("something is durable", || status()["bytes_acknowledged"].as_u64() > Some(4 << 20));
    let error = fail(&["recording", "recover", a, b, c]);
    assert!(error.contains("being written"), "{error}");
    let acknowledged = status()["bytes_acknowledged"].as_u64().unwrap();
    recorder.signal("KILL");
    recorder.output();
    // The label of one member is torn off.
    let mut bytes = fs::read(b).unwrap();
    bytes[..4096].fill(0xee);
    fs::write(b, &bytes).unwrap();
    let recovered = json(&["recording", "recover", a, c, b, "--json"]);
    assert!(recovered["bytes"].as_u64().unwrap() >= acknowledged, "{recovered} of {acknowledged}");
    assert_eq!(json(&["recording", "verify", b, a, c, "--json"])["ok"], true);
    let error = fail(&["recording", "verify", b]);
    assert!(error.contains("member 0, 2 is missing"), "{error}");
}

#[test]
fn a_ring_is_striped_too() {
    let media = Media::new();
    let [a, b, c] = &media.members();
    let reported = recorded(&[
        "record",
        "--from",
        "generate:90MB",
        "--to",
        a,
        "--to",
        b,
        "--to",
        c,
        "--chunk",
        "16k",
        "--ring",
        "6MiB",
        "--size",
        "20MB",
        "--json",
    ]);
    assert!(reported["bytes_overwritten"].as_u64().unwrap() > 10_000_000, "{reported}");
    let length: u64 = [a, b, c].map(|path| fs::metadata(path).unwrap().len()).iter().sum();
    assert!(length <= (6 << 20) + (3 << 14), "{length} bytes");
    let proved = json(&["recording", "verify", a, b, c, "--json"]);
    assert_eq!((&proved["ok"], &proved["bytes"]), (&true.into(), &reported["bytes_stored"]), "{proved}");
}
