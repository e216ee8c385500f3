//! A recorder's registers: a stock Linux starts a recording by them, watches it and stops it.

use std::time::Duration;

use guest::{Device, Guest, skip};

use crate::support::json;
use crate::support::running::{Running, wait_for_listener};

const SCRIPT: &str = include_str!("scripts/recorder.sh");

#[test]
fn linux_starts_watches_and_stops_a_recording() {
    let Some(kit) = skip::kit_or_skip("a recorder's registers in a guest") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (socket, recording) = (path("registers"), path("a.rec"));
    let (socket_text, recording) = (socket.to_str().unwrap(), recording.to_str().unwrap());
    let source = ["record", "--from", "generate:20MB", "--to", recording, "--on-demand"];
    let recorder = Running::start(&[&source[..], &["--registers", socket_text, "--json"]].concat());
    wait_for_listener(&socket);
    let outcome = Guest::builder(kit)
        .unwrap()
        .limit(Duration::from_secs(60))
        .device(Device::vfio_user(socket.clone()))
        .command_line("iomem=relaxed")
        .script(SCRIPT)
        .run()
        .unwrap()
        .expect_success();
    let reported = &outcome.output;
    for line in
        ["class 0x118000", "version 0x00000001, capabilities 0x00000001", "chunks of 131072 B, 256 of them"]
    {
        assert!(reported.contains(line), "{line}: {reported}");
    }
    recorder.signal("INT");
    let output = String::from_utf8(recorder.output().stdout).unwrap();
    let end: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    let account = format!("in {} stored {} lost {}", end["bytes_in"], end["bytes_stored"], end["bytes_lost"]);
    assert!(reported.contains(&account), "the certificate says {account}: {reported}");
    assert_eq!(json(&["recording", "verify", recording, "--json"])["ok"], true);
}
