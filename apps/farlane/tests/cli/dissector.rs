//! Wireshark, with our dissector, decodes captures of ours and the tunnel as we do ourselves.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::dumpcap::{Capture, stay_on_one_processor};
use crate::support::{Export, fail, json, succeed};
use serde_json::Value;

/// A filter for packets and frames that the dissector, or Wireshark itself, can't make sense of.
const COMPLAINTS: &str = "_ws.malformed || _ws.lua.error || _ws.expert.group == 0x07000000";

/// A folder with the dissector, as a user installs it. `None`, and a word of it, if there is
/// no tshark.
fn installed() -> Option<(tempfile::TempDir, PathBuf)> {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(io::stderr(), "SKIPPED Wireshark's dissector: there is no tshark");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = json(&[
        "observe",
        "trace",
        "dissector",
        "--install",
        "--to",
        folder.path().to_str().unwrap(),
        "--json",
    ]);
    let path = PathBuf::from(said["path"].as_str().unwrap());
    Some((folder, path))
}

/// The values of `fields` of each packet that `filter` selects, a line for each packet.
fn tshark(script: &Path, file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(file);
    command.args(["-Y", filter, "-T", "fields", "-E", "aggregator=;"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("farlane.lua:"), "{said}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// How often each of `values` occurs.
fn counted(values: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts
}

/// Our own words for each packet of a capture of ours.
fn shown(file: &Path) -> Vec<Value> {
    let lines = succeed(&["observe", "trace", "show", file.to_str().unwrap(), "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Loads a far SSD, with each packet captured into `file`.
fn load(url: &str, file: &Path) {
    let load =
        ["--rw", "randrw", "--bs", "16k", "--iodepth", "4", "--runtime", "200ms", "--rate_iops", "500"];
    succeed(&[&["bench", url, "--capture", file.to_str().unwrap()][..], &load].concat());
}

#[test]
fn wireshark_decodes_each_field_of_a_capture_as_we_do() {
    let Some((folder, script)) = installed() else { return };
    let far = Export::start(&["--ram", "16MiB"]);
    let file = folder.path().join("load.pcapng");
    load(&far.url(), &file);
    assert_eq!(tshark(&script, &file, COMPLAINTS, &["frame.number"]), [""; 0]);
    let fields =
        ["farlane.capture.direction", "pcie.tlp.requester", "pcie.tlp.tag", "pcie.tlp.payload_length"];
    let fields = [&["pcie.tlp.summary"], &fields[..]].concat();
    let (theirs, ours) = (tshark(&script, &file, "pcie.tlp", &fields), shown(&file));
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        // A packet without data has no length of a payload.
        let bytes = ours["bytes"].as_u64().filter(|bytes| *bytes > 0);
        let text = |key: &str| ours[key].as_str().unwrap();
        let expected = [
            text("tlp").to_owned(),
            u8::from(text("direction") == "up").to_string(),
            text("requester").to_owned(),
            format!("0x{:04x}", ours["tag"].as_u64().unwrap()),
            bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        ];
        assert_eq!(*theirs, expected.join("\t"));
    }
    // A filter finds what a person looks for: 64 bytes are a submission queue entry.
    let entries = tshark(&script, &file, "pcie.tlp.type == MRd && pcie.tlp.bytes == 64", &["frame.number"]);
    // A busy machine carries out few in the time of the load.
    assert!(entries.len() > 5, "{} entries", entries.len());
}

#[test]
fn wireshark_decodes_the_tunnel_and_finds_the_packets_that_passed() {
    let Some((folder, script)) = installed() else { return };
    stay_on_one_processor();
    let far = Export::start(&["--ram", "16MiB"]);
    let port = far.address.rsplit(':').next().unwrap();
    let [wire, file] = ["wire.pcapng", "load.pcapng"].map(|name| folder.path().join(name));
    let capture = match Capture::start(port, &wire) {
        Ok(capture) => capture,
        Err(why) => {
            let _ = writeln!(io::stderr(), "SKIPPED Wireshark on the tunnel: {why}");
            return;
        }
    };
    load(&far.url(), &file);
    // Data sent ahead have frames of their own.
    succeed(&["bench", &far.url(), "--rw", "randwrite", "--bs", "4k", "--runtime", "100ms"]);
    capture.finish();
    assert_eq!(tshark(&script, &wire, COMPLAINTS, &["frame.number"]), [""; 0]);
    let kinds = tshark(&script, &wire, "farlane", &["farlane.kind"]);
    let kinds = counted(kinds.iter().flat_map(|line| line.split(';')).map(str::to_owned));
    for kind in ["0x01", "0x02", "0x04", "0x10", "0x12", "0x13", "0x14", "0x18", "0x20", "0x21"] {
        assert!(kinds.contains_key(kind), "{kind} in {kinds:?}");
    }
    // Every frame behind the handshake has its digest.
    let digests = tshark(&script, &wire, "farlane.digest", &["farlane.digest"]);
    let digests = digests.iter().flat_map(|line| line.split(';')).count();
    let handshakes = kinds["0x01"] + kinds["0x02"];
    assert_eq!(digests, kinds.values().sum::<usize>() - handshakes);
    // Each packet that passed the host's port by memory address also passed the tunnel.
    let passed = tshark(&script, &wire, "tcp.stream == 0 && pcie.tlp", &["pcie.tlp.summary"]);
    let passed = counted(passed.iter().flat_map(|line| line.split(';')).map(str::to_owned));
    let of_memory = |text: &String| text.starts_with("MRd") || text.starts_with("MWr");
    let ours = shown(&file).into_iter().map(|one| one["tlp"].as_str().unwrap().to_owned());
    for (packet, count) in counted(ours.filter(of_memory)) {
        assert_eq!(passed.get(&packet), Some(&count), "{packet}");
    }
}

#[test]
fn hostile_frames_are_malformed_and_nothing_more() {
    let Some((folder, script)) = installed() else { return };
    let far = Export::start(&["--ram", "16MiB"]);
    let [file, broken] = ["load.pcapng", "broken.pcap"].map(|name| folder.path().join(name));
    load(&far.url(), &file);
    // A thousand frames of random bytes in a file of link type USER0.
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 1 << 16, 147] {
        bytes.extend(word.to_le_bytes());
    }
    for seed in 0..1_000_u32 {
        let random = |salt: u32| (seed * 131 + salt).wrapping_mul(0x9e37_79b9).to_be_bytes()[0];
        let mut frame = vec![1, 8, random(98) % 2, 0, 0, 0, 0, 0];
        frame.extend((0..random(99) % 64).map(|at| random(at.into())));
        let length = u32::try_from(frame.len()).unwrap();
        for word in [0, seed, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(&broken, bytes).unwrap();
    assert_eq!(tshark(&script, &broken, "_ws.lua.error", &["frame.number"]), [""; 0]);
    let stats = json(&["observe", "trace", "stats", broken.to_str().unwrap(), "--json"]);
    let refused = stats["skipped"]["malformed"].as_u64().unwrap();
    assert!(refused > 500, "{stats}");
    let theirs = tshark(&script, &broken, "pcie.tlp.malformed", &["frame.number"]).len() as u64;
    // Rules beyond the form of a packet, such as those of byte enables, are ours alone.
    assert!(theirs > 500 && theirs <= refused + stats["tlps"].as_u64().unwrap(), "{theirs} of {stats}");
}

#[test]
fn the_dissector_goes_where_wireshark_looks_for_it() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(&*crate::support::FARLANE);
    let output = command
        .args(["observe", "trace", "dissector", "--install"])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let path = home.path().join(".local/lib/wireshark/plugins/farlane.lua");
    assert_eq!(std::fs::read_to_string(path).unwrap(), succeed(&["observe", "trace", "dissector"]));
    let refused = fail(&["observe", "trace", "dissector", "--install", "--to", "/proc/nothing"]);
    assert!(refused.contains("/proc/nothing"), "{refused}");
}
