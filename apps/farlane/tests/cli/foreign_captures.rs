//! Captures that other programs made: their units of time and their link types.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{farlane, json};

/// Bytes of a pcap file's header and of a packet's.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Bytes of an Ethernet header.
const ETHERNET_HEADER: usize = 14;

/// Makes the header of another link type from an Ethernet header.
type Header<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// A file of the shared cases, if they are there.
fn case(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases").join(name);
    if !path.exists() {
        let _ = writeln!(io::stderr(), "SKIPPED: there is no {}", path.display());
        return None;
    }
    Some(path)
}

fn stats(path: &Path) -> Value {
    json(&["observe", "trace", "stats", path.to_str().unwrap(), "--json"])
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())).unwrap()
}

/// The packets of a pcap file: the header of each, and its bytes.
fn packets(file: &[u8]) -> Vec<(&[u8], &[u8])> {
    let (mut found, mut at) = (Vec::new(), FILE_HEADER);
    while at < file.len() {
        let (header, rest) = file[at..].split_at(PACKET_HEADER);
        let length = word(header, 8);
        found.push((header, &rest[..length]));
        at += PACKET_HEADER + length;
    }
    found
}

/// The same pcap file with another link type, and another header before each IP packet.
fn with_link(file: &[u8], link: u32, header: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut other = [&file[..20], &link.to_le_bytes()].concat();
    for (head, frame) in packets(file) {
        let changed = [header(&frame[..ETHERNET_HEADER]), frame[ETHERNET_HEADER..].to_vec()].concat();
        let grown = changed.len().cast_signed() - frame.len().cast_signed();
        let length = |at| u32::try_from(word(head, at).strict_add_signed(grown)).unwrap().to_le_bytes();
        other.extend([&head[..8], &length(8), &length(12), &changed].concat());
    }
    other
}

/// A pcap file as pcapng, with stamps in units of 2 to the minus `exponent` seconds that count from
/// `offset`.
fn as_pcapng(file: &[u8], exponent: u8, offset: u64) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let options =
        [&[9, 0, 1, 0, 0x80 | exponent, 0, 0, 0][..], &[14, 0, 8, 0], &offset.to_le_bytes(), &[0; 4]];
    let interface = [&[1, 0, 0, 0, 0, 0, 4, 0][..], &options.concat()].concat();
    let mut other = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    let unit = if file[..4] == [0x4d, 0x3c, 0xb2, 0xa1] { 1 } else { 1_000 };
    for (head, frame) in packets(file) {
        let seconds = u128::try_from(word(head, 0)).unwrap() - u128::from(offset);
        let nanos = u128::try_from(word(head, 4) * unit).unwrap();
        let stamp = (seconds << exponent) + (nanos << exponent).div_ceil(1_000_000_000);
        let stamp = u64::try_from(stamp).unwrap();
        let words = [0, u32::try_from(stamp >> 32).unwrap(), u32::try_from(stamp & 0xffff_ffff).unwrap()];
        let packet = [&words.map(u32::to_le_bytes).concat()[..], &head[8..16], frame].concat();
        other.extend(block(6, &packet));
    }
    other
}

#[test]
fn stamps_in_powers_of_two_give_the_latencies_of_the_same_stamps_in_powers_of_ten() {
    let (Some(one), Some(other)) = (case("ethernet-reference.pcap"), case("pcapng-times-in-2^-32-s.pcapng"))
    else {
        return;
    };
    let expected = stats(&one);
    assert!(expected["known"].as_u64().unwrap() > 0, "{expected}");
    let latency = |of: &Value, kind: &str| of["commands"][kind]["latency_ns"]["p50"].as_u64().unwrap();
    let same = |found: &Value| {
        for (kind, _) in expected["commands"].as_object().unwrap() {
            let (one, other) = (latency(&expected, kind), latency(found, kind));
            assert!(one.abs_diff(other) <= one / 500 + 1, "{kind}: {one} and {other} ns");
        }
    };
    same(&stats(&other));
    let (file, folder) = (std::fs::read(&one).unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("changed.pcapng");
    for (exponent, offset) in [(32, 0), (30, 1_000_000_000), (33, 1_500_000_000)] {
        std::fs::write(&path, as_pcapng(&file, exponent, offset)).unwrap();
        same(&stats(&path));
    }
}

#[test]
fn a_session_is_found_in_every_link_type_that_carries_it() {
    let Some(reference) = case("ethernet-reference.pcap") else { return };
    let expected = stats(&reference);
    let file = std::fs::read(&reference).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.pcap");
    let kind = |ethernet: &[u8]| ethernet[12..].to_vec();
    let headers: [(u32, Header<'_>); 9] = [
        (101, &|_| Vec::new()),
        (0, &|_| vec![2, 0, 0, 0]),
        (108, &|_| vec![0, 0, 0, 2]),
        (113, &|ethernet| [vec![0; 14], kind(ethernet)].concat()),
        (276, &|ethernet| [kind(ethernet), vec![0; 18]].concat()),
        (1, &|ethernet| [&ethernet[..12], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2], &kind(ethernet)].concat()),
        // With four bytes of a frame check sequence, as the link type says.
        (1 | 0x2400_0000, &|ethernet| ethernet.to_vec()),
        (192, &|ethernet| [&[0, 0, 8, 0, 1, 0, 0, 0], ethernet].concat()),
        (197, &|ethernet| [&[0; 8][..], &[2], &[0; 9], ethernet].concat()),
    ];
    for (link, header) in headers {
        std::fs::write(&path, with_link(&file, link, header)).unwrap();
        let found = stats(&path);
        assert_eq!(found["commands"], expected["commands"], "link type {link}");
    }
    if let Some(any) = case("tcpdump-i-any-sll2.pcap") {
        let found = stats(&any);
        assert!(found["known"].as_u64().unwrap() > 0, "{found}");
    }
}

#[test]
fn a_link_type_that_is_not_known_is_named_with_the_count_of_its_frames() {
    let Some(reference) = case("ethernet-reference.pcap") else { return };
    let file = std::fs::read(&reference).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.pcap");
    std::fs::write(&path, with_link(&file, 195, <[u8]>::to_vec)).unwrap();
    let output = farlane(&["observe", "trace", "stats", path.to_str().unwrap()]);
    let reported = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames = packets(&file).len();
    let line = format!("frames of link type 195, which is not known: {frames}");
    assert!(reported.contains(&line), "{reported}");
    for command in [&["stats"][..], &["show"], &["show", "--level", "command"], &["chain"]] {
        let output = farlane(&[&["observe", "trace"], command, &[path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        let errors = String::from_utf8_lossy(&output.stderr).replace('│', " ");
        let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(errors.contains("no packet in it was decoded") && errors.contains("195"), "{errors}");
    }
}
