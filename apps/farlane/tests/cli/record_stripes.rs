//! One recording over several media: what each holds, what is missing, and what a kill leaves.

use std::fs;

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, json, succeed};

/// What the recordings of this test take from `generate:`, in bytes.
const BYTES: usize = 8 << 20;

/// The first `count` bytes of what `generate:` makes.
fn generated(count: usize) -> Vec<u8> {
    (0..count as u64 / 8).flat_map(u64::to_le_bytes).collect()
}

/// What a recorder tells in the end.
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
    let told = recorded(&[
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
    assert_eq!((&told["bytes_stored"], &told["certified"]), (&BYTES.into(), &true.into()), "{told}");
    // Each member has its share of about 134 chunks.
    for path in [a, b, c] {
        let length = fs::metadata(path).unwrap().len();
        assert!((43 << 16..=49 << 16).contains(&length), "{path} has {length} bytes");
    }
    let proved = json(&["recording", "verify", c, a, b, "--json"]);
    assert_eq!((&proved["ok"], &proved["bytes"]), (&true.into(), &BYTES.into()), "{proved}");
    assert_eq!(proved["sha256"], told["sha256"]);
    let out = media.at("out");
    succeed(&["recording", "replay", b, c, a, "--to", &out, "--speed", "max"]);
    assert!(fs::read(&out).unwrap() == generated(BYTES), "the replay has other bytes");
    succeed(&["recording", "convert", a, b, c, "--to", &out, "--format", "raw"]);
    assert!(fs::read(&out).unwrap() == generated(BYTES), "the export has other bytes");
    assert_eq!(json(&["recording", "info", a, b, c, "--json"])["bytes"], BYTES);

    let told = fail(&["recording", "verify", a, c]);
    assert!(told.contains("over 3 members") && told.contains("member 1 is missing"), "{told}");
    let told = fail(&["recording", "replay", b, "--to", &out]);
    assert!(told.contains("member 0, 2 is missing"), "{told}");
    let told = fail(&["recording", "info", a, b, b, c]);
    assert!(told.contains("member 1 of 3 is named twice"), "{told}");
    let other = media.at("other");
    succeed(&["record", "--from", "generate:9MB", "--to", &other, "--size", "1MB"]);
    let told = fail(&["recording", "verify", a, b, &other]);
    assert!(told.contains("number 3") && told.contains("another recording"), "{told}");
    let told = fail(&["recording", "verify", &other, &other]);
    assert!(told.contains("no members of a set"), "{told}");
    // What is there is not overwritten, and the message names it.
    let told =
        fail(&["record", "--from", "generate:1MB", "--to", &media.at("new"), "--to", b, "--size", "1MB"]);
    assert!(told.contains(b), "{told}");
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
    let told = fail(&["recording", "recover", a, b, c]);
    assert!(told.contains("being written"), "{told}");
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
    let told = fail(&["recording", "verify", b]);
    assert!(told.contains("member 0, 2 is missing"), "{told}");
}

#[test]
fn a_ring_is_striped_too() {
    let media = Media::new();
    let [a, b, c] = &media.members();
    let told = recorded(&[
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
    assert!(told["bytes_overwritten"].as_u64().unwrap() > 10_000_000, "{told}");
    let length: u64 = [a, b, c].map(|path| fs::metadata(path).unwrap().len()).iter().sum();
    assert!(length <= (6 << 20) + (3 << 14), "{length} bytes");
    let proved = json(&["recording", "verify", a, b, c, "--json"]);
    assert_eq!((&proved["ok"], &proved["bytes"]), (&true.into(), &told["bytes_stored"]), "{proved}");
}
