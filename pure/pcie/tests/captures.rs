//! TLPs of real captures decode completely, and encode to the same bytes again.
//!
//! The captures are Ethernet frames (some with a VLAN tag) of UDP datagrams. NetTLP carries one TLP
//! in each datagram, behind its own sequence number (2 bytes) and time stamp (4 bytes). Each frame
//! was cut at 128 bytes: of a longer TLP, the length and the first bytes are known.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use farlane_pcie::wire::{Head, Kind, MemoryOperation, Tag, Tlp};

/// A TLP of a capture.
struct Captured {
    /// The bytes that were captured.
    bytes: Vec<u8>,
    /// Length of the TLP on the wire, in bytes.
    length: usize,
}

/// The captured bytes of each frame of a pcap file.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
    const MICROSECOND_MAGIC: u32 = 0xa1b2_c3d4;
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert!([NANOSECOND_MAGIC, MICROSECOND_MAGIC].contains(&word(0)), "not a pcap file");
    assert_eq!(word(20), 1, "the link is not Ethernet");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let length = word(at + 8) as usize;
        frames.push(&file[at + 16..at + 16 + length]);
        at += 16 + length;
    }
    frames
}

/// The TLP in a frame.
fn tlp_of(frame: &[u8]) -> Captured {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let ip = if half(12) == 0x8100 { 18 } else { 14 };
    assert_eq!((half(ip - 2), frame[ip + 9]), (0x0800, 17), "not UDP over IPv4");
    let udp = ip + usize::from(frame[ip] & 15) * 4;
    let end = udp + usize::from(half(udp + 4));
    let start = udp + 8 + 6;
    Captured { bytes: frame[start..end.min(frame.len())].to_vec(), length: end - start }
}

fn captures() -> Option<Vec<(PathBuf, Vec<Captured>)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let mut folders = vec![root.clone()];
    let mut captures = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            eprintln!("SKIPPED: there are no captures in {}", folder.display());
            return None;
        };
        for path in entries.map(|entry| entry.expect("a folder that can be listed").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pcap") {
                let file = std::fs::read(&path).expect("a file that can be read");
                captures.push((path, frames(&file).into_iter().map(tlp_of).collect()));
            }
        }
    }
    captures.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(captures)
}

/// The whole TLP; payload bytes that were not captured are zero.
fn whole(captured: &Captured) -> Vec<u8> {
    let mut bytes = captured.bytes.clone();
    bytes.resize(captured.length, 0);
    bytes
}

#[test]
fn every_captured_tlp_decodes_and_re_encodes_to_the_same_bytes() {
    let Some(captures) = captures() else { return };
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (path, tlps) in &captures {
        for (index, captured) in tlps.iter().enumerate() {
            let place = format!("{} frame {}", path.display(), index + 1);
            let head = Head::parse(&captured.bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(head.tlp_len(), captured.length, "{place}");
            let bytes = whole(captured);
            let tlp = Tlp::<&[u8]>::parse(&bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
            let mut again = vec![0; tlp.encoded_len()];
            assert_eq!(tlp.emit(&mut again), captured.length, "{place}");
            assert_eq!(again[..captured.bytes.len()], captured.bytes, "{place}");
            assert_eq!((tlp.header, tlp.header.reserved), (head.header, 0), "{place}");
            let kind = match &tlp.header.kind {
                Kind::Memory(request) if request.operation == MemoryOperation::Read => "MRd",
                Kind::Memory(request) if request.operation == MemoryOperation::Write => "MWr",
                Kind::Completion(completion) if completion.data => "CplD",
                _ => panic!("{place}: {tlp} is not in these captures"),
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    assert_eq!(captures.len(), 12);
    assert_eq!(counts, HashMap::from([("MRd", 120), ("MWr", 218), ("CplD", 232)]));
}

/// Reads that wait for completions, by tag: the address and the number of bytes left. The capture
/// shows a tag used again shortly before the last completion of its earlier use.
type Waiting = HashMap<Tag, VecDeque<(u64, u32)>>;

#[test]
fn completions_of_an_ssd_s_reads_count_down_the_requested_bytes() {
    let Some(captures) = captures() else { return };
    let ssd = captures.iter().filter(|(path, _)| path.to_string_lossy().contains("p4600-write"));
    let mut finished = 0;
    for (path, tlps) in ssd {
        let mut waiting = Waiting::new();
        for (index, captured) in tlps.iter().enumerate() {
            let place = format!("{} frame {}", path.display(), index + 1);
            let head = Head::parse(&captured.bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
            let header = head.header;
            let reads = waiting.entry(header.tag()).or_default();
            let Kind::Completion(completion) = header.kind else {
                reads.push_back((header.first_byte_address().unwrap(), header.byte_length()));
                continue;
            };
            let (address, left) = reads.front_mut().expect("a read of that tag");
            assert_eq!(u32::from(completion.byte_count), *left, "{place}");
            assert_eq!(u64::from(completion.lower_address), *address % 128, "{place}");
            let bytes = u32::from(header.length) * 4;
            (*address, *left) = (*address + u64::from(bytes), *left - bytes);
            if *left == 0 {
                reads.pop_front();
                finished += 1;
            }
        }
        assert!(waiting.values().all(VecDeque::is_empty), "{}: unanswered reads", path.display());
    }
    assert_eq!(finished, 109);
}
