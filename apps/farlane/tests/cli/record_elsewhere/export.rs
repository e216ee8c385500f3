//! Exports, read by programs that others wrote: tshark, and the Python packages of MCAP and SigMF.

use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use record::format::LinkType;

use super::packets::{START, packet, record_packets};
use crate::support::{fail, farlane, json};

/// Python with the packages `mcap` and `sigmf`, as `scripts/setup --tests` installs it.
fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/strangers/bin/python")
}

/// Says why a test does not run, so that no one misses it.
fn skip(what: &str) {
    // Past the capture of the test's own output.
    let _ = writeln!(io::stderr(), "SKIPPED: {what}; scripts/setup --tests installs it");
}

/// Runs a program of Python with arguments. Returns its output; `None` if the packages that it
/// needs are not there.
fn run_python(program: &str, arguments: &[&str]) -> Option<String> {
    if !python().exists() {
        skip("no Python with the packages mcap and sigmf");
        return None;
    }
    let output = Command::new(python()).args(["-c", program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The `fields` that tshark reads from each packet of a file; `None` without tshark.
fn tshark(file: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-r", file, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        skip("no tshark");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// An Ethernet frame with a datagram to port 5000, whose payload is a packet's.
fn frame(number: u64) -> Vec<u8> {
    let payload = packet(number);
    let length = u16::try_from(payload.len()).unwrap();
    let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0][..]].concat();
    frame.extend((28 + length).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0x13, 0x88]);
    frame.extend((8 + length).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records a file with chunks of 16 KiB.
fn record_file(directory: &Path, bytes: &[u8]) -> String {
    let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("source"), bytes).unwrap();
    let from = format!("file:{}", at("source"));
    let output = farlane(&["record", "--from", &from, "--to", &at("a.rec"), "--chunk", "16k"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    at("a.rec")
}

#[test]
fn wireshark_reads_packets_with_their_times_from_pcap_and_pcapng() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    record_packets(&at("frames.rec"), LinkType::ETHERNET, 100, frame);
    record_packets(&at("payloads.rec"), LinkType::PAYLOAD, 100, packet);
    for format in ["pcap", "pcapng"] {
        let report = json(&[
            "recording",
            "convert",
            &at("frames.rec"),
            "--to",
            &at("frames"),
            "--format",
            format,
            "--json",
        ]);
        assert_eq!(report["messages"], 100);
        let fields = ["frame.time_epoch", "udp.dstport", "udp.payload"];
        let Some(lines) = tshark(&at("frames"), &fields) else { return };
        assert_eq!(lines.len(), 100, "{format}");
        for (number, line) in (0..).zip(&lines) {
            let words: Vec<_> = line.split('\t').collect();
            let nanos = START + number * 1_000_000;
            let time = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
            assert_eq!(words, [&*time, "5000", &hex(&packet(number))], "{format} {number}");
        }
        json(&[
            "recording",
            "convert",
            &at("payloads.rec"),
            "--to",
            &at("payloads"),
            "--format",
            format,
            "--json",
        ]);
        let lines = tshark(&at("payloads"), &["frame.len"]).unwrap();
        assert!(
            lines.iter().map(|line| line.parse::<usize>().unwrap()).eq((0..100).map(|n| packet(n).len()))
        );
    }
    // A chunk of the middle is gone: its packets are not there, and a comment says so.
    let mut harmed = std::fs::read(at("frames.rec")).unwrap();
    harmed[4 * 131_072 + 500] ^= 1;
    std::fs::write(at("frames.rec"), harmed).unwrap();
    let recovered = json(&["recording", "recover", &at("frames.rec"), "--json"]);
    let missing = recovered["new_gaps"][0]["bytes"].as_u64().unwrap();
    let report = json(&[
        "recording",
        "convert",
        &at("frames.rec"),
        "--to",
        &at("rest"),
        "--format",
        "pcapng",
        "--json",
    ]);
    assert_eq!((&report["messages"], &report["bytes_lost"]), (&70.into(), &missing.into()));
    let lines = tshark(&at("rest"), &["frame.comment"]).unwrap();
    let reported: Vec<_> = (0..).zip(&lines).filter(|(_, line)| !line.is_empty()).collect();
    let text = format!("farlane: {missing} bytes of the stream were lost before this packet");
    assert_eq!(reported, [(30, &text)]);
}

#[test]
fn the_reader_of_mcap_finds_every_message_of_every_stream() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    record_packets(&at("packets.rec"), LinkType::PAYLOAD, 100, packet);
    let bytes: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let recording = record_file(directory.path(), &bytes);
    json(&["recording", "convert", &at("packets.rec"), "--to", &at("packets.mcap"), "--json"]);
    json(&["recording", "convert", &recording, "--to", &at("bytes.mcap"), "--json"]);
    let program = "
import hashlib, sys
from mcap.reader import make_reader
for path in sys.argv[1:]:
    reader = make_reader(open(path, 'rb'), validate_crcs=True)
    messages = list(reader.iter_messages())
    digest = hashlib.sha256(b''.join(message.data for _, _, message in messages)).hexdigest()
    statistics = reader.get_summary().statistics
    assert statistics.message_count == len(messages)
    topics = sorted({channel.topic for _, channel, _ in messages})
    print(len(messages), messages[0][2].log_time, digest, *topics)
";
    let Some(found) = run_python(program, &[&at("packets.mcap"), &at("bytes.mcap")]) else { return };
    let lines: Vec<Vec<_>> = found.lines().map(|line| line.split(' ').collect()).collect();
    let all: Vec<u8> = (0..100).flat_map(packet).collect();
    assert_eq!(lines[0], ["100", &START.to_string(), &sha256(&all), "udp://127.0.0.1:5000"]);
    assert_eq!((lines[1][0], lines[1][2]), ("5", &*sha256(&bytes)));
}

#[test]
fn the_package_of_sigmf_validates_the_samples_and_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> = (0..40_000_u16).flat_map(u16::to_le_bytes).collect();
    let recording = record_file(directory.path(), &bytes);
    // A chunk is gone: 16,256 bytes from 2 x 16,256 on.
    let mut harmed = std::fs::read(&recording).unwrap();
    harmed[5 * 16_384 + 500] ^= 1;
    std::fs::write(&recording, harmed).unwrap();
    json(&["recording", "recover", &recording, "--json"]);
    let words = ["--format", "sigmf", "--datatype", "ci16_le", "--sample-rate", "2.4e6", "--json"];
    let report =
        json(&[&["recording", "convert", &recording, "--to", &at("radio.sigmf-meta")], &words[..]].concat());
    assert_eq!((&report["bytes"], &report["bytes_lost"]), (&63_744.into(), &16_256.into()));
    let program = "
import sys, sigmf
file = sigmf.sigmffile.fromfile(sys.argv[1])
file.validate()
print(len(file.read_samples()), file.get_global_field('core:sample_rate'), len(file.get_captures()))
print([note['core:sample_start'] for note in file.get_annotations()])
";
    let Some(found) = run_python(program, &[&at("radio.sigmf-meta")]) else { return };
    assert_eq!(found.lines().collect::<Vec<_>>(), ["15936 2400000.0 2", "[8128]"]);
}

#[test]
fn bytes_leave_by_range_and_what_cannot_be_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> = (0..40_000_u16).flat_map(u16::to_le_bytes).collect();
    let recording = record_file(directory.path(), &bytes);
    let words = ["--format", "raw", "--from-offset", "30001", "--bytes", "20000", "--json"];
    let report = json(&[&["recording", "convert", &recording, "--to", &at("part")], &words[..]].concat());
    assert_eq!(report["bytes"], 20_000);
    assert!(std::fs::read(at("part")).unwrap() == bytes[30_001..50_001]);
    let unnamed = fail(&["recording", "convert", &recording, "--to", &at("p.wav")]);
    assert!(unnamed.contains("names no format") && unnamed.contains("expected .pcapng"), "{unnamed}");
    let refused = fail(&["recording", "convert", &recording, "--to", &at("p"), "--format", "pcapng"]);
    assert!(refused.contains("raw, mcap and sigmf take bytes"), "{refused}");
    let refused =
        fail(&["recording", "convert", &recording, "--to", &at("p"), "--format", "raw", "--ram", "1MiB"]);
    assert!(refused.contains("unexpected argument '--ram'"), "{refused}");
    let refused = fail(&["export", "--ram", "1MiB", "--to", &at("p")]);
    assert!(refused.contains("unexpected argument '--ram'"), "{refused}");
    let refused = fail(&["recording", "convert", &recording]);
    assert!(refused.contains("--to <FILE>"), "{refused}");
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(bytes))
}
