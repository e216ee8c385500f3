//! Wireshark's iWARP dissector understands the messages of both ends.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use engine::{Buffer, Engine, Entropy, Instant, Rng};
use farlane_iwarp::{Config, Connection, Input, Revision};
use rdma::{
    Endpoint, Exposure, Inline, Operation, ProtectionDomain, QueuePairId, ReceiveRequest, Remote,
    SendRequest, SharedDomain, SharedPool,
};

const NOW: Instant = Instant::ZERO;
/// Ports of the two ends in the capture.
const PORTS: [u16; 2] = [40_000, 40_001];
/// Link type of a capture whose packets begin with the IP header (LINKTYPE_RAW).
const RAW: u32 = 101;
/// Data of the longest segment: it fits into a packet.
const SEGMENT_BYTES: u32 = 1400;

/// A capture file of one TCP connection.
struct Capture {
    file: Vec<u8>,
    /// Sequence numbers of the two ends.
    next: [u32; 2],
}

impl Capture {
    fn new() -> Self {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, RAW] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        let mut capture = Self { file, next: [1000, 2000] };
        for (from, flags) in [(0, 0x02), (1, 0x12)] {
            capture.packet(from, flags, b"");
            capture.next[from] += 1;
        }
        capture.packet(0, 0x10, b"");
        capture
    }

    /// Adds a packet of the end `from`.
    fn packet(&mut self, from: usize, flags: u8, data: &[u8]) {
        let length = u16::try_from(40 + data.len()).unwrap();
        let mut bytes = vec![0x45, 0];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        for end in [from, 1 - from] {
            bytes.extend_from_slice(&[192, 0, 2, u8::try_from(end).unwrap() + 1]);
        }
        for end in [from, 1 - from] {
            bytes.extend_from_slice(&PORTS[end].to_be_bytes());
        }
        bytes.extend_from_slice(&self.next[from].to_be_bytes());
        bytes.extend_from_slice(&if flags & 0x10 == 0 { 0 } else { self.next[1 - from] }.to_be_bytes());
        bytes.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend_from_slice(data);
        let captured = u32::from(length);
        for word in [0, 0, captured, captured] {
            self.file.extend_from_slice(&word.to_le_bytes());
        }
        self.file.extend_from_slice(&bytes);
        self.next[from] = self.next[from].wrapping_add(u32::try_from(data.len()).unwrap());
    }
}

/// Settings with the revision that Wireshark 4.0 supports: it does not recognise a frame of
/// revision 2 as MPA.
fn config(seed: u64, crc: bool) -> Config {
    let pool = SharedPool::default();
    let domain = ProtectionDomain::new(8, pool.clone(), Entropy::Seeded(Rng::from_seed(seed)));
    let base = Config::new(SharedDomain::new(domain.into()), pool, QueuePairId(7));
    Config { crc, revision: Revision::One, segment_bytes: SEGMENT_BYTES, ..base }
}

/// Carries bytes between the ends until neither sends any more. The capture has one packet for each
/// FPDU, as MPA requires.
fn carry(ends: &mut [Connection; 2], capture: &mut Capture) {
    loop {
        let mut is_idle = true;
        for from in 0..2 {
            let bytes: Vec<u8> = ends[from].outbox().slices().flatten().copied().collect();
            ends[from].sent(bytes.len());
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let length = match rest {
                    [b'M', b'P', b'A', ..] => rest.len(),
                    [high, low, ..] => {
                        let length = usize::from(u16::from_be_bytes([*high, *low]));
                        (2 + length).next_multiple_of(4) + 4
                    }
                    [_] | [] => panic!("a cut FPDU"),
                };
                capture.packet(from, 0x18, &rest[..length]);
                rest = &rest[length..];
                is_idle = false;
            }
            ends[1 - from].handle_input(NOW, Input::Received(Buffer::copy_from_slice(&bytes)));
        }
        if is_idle {
            return;
        }
    }
}

/// Every kind of message that error-free ends send, then a refused read.
fn session(crc: bool) -> Vec<u8> {
    let mut capture = Capture::new();
    let mut ends =
        [Connection::connect(NOW, config(1, crc), b"who I am"), Connection::accept(NOW, config(2, crc))];
    carry(&mut ends, &mut capture);
    ends[1].accept(b"who answers");
    carry(&mut ends, &mut capture);
    let [near, far] = &mut ends;
    for id in 0..4 {
        near.post_receive(ReceiveRequest { id, length_max: 10_000 }).unwrap();
        far.post_receive(ReceiveRequest { id, length_max: 10_000 }).unwrap();
    }
    let bytes: Vec<u8> = (0..5000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let read = far.register(Exposure::Read(Buffer::copy_from_slice(&bytes))).unwrap();
    let write = far.register(Exposure::Write(5000)).unwrap();
    let message = |data: &[u8], invalidate| Operation::Send {
        inline: Inline::new(b"abc"),
        data: Buffer::copy_from_slice(data),
        invalidate,
        immediate: None,
    };
    let outside = Remote { address: read.address + 4999, length: 2, ..read };
    let operations = [
        message(b"", None),
        message(&bytes, None),
        Operation::Write { data: Buffer::copy_from_slice(&bytes[..4097]), remote: write },
        Operation::Read { remote: read },
        message(b"", Some(write.key)),
        Operation::Read { remote: outside },
    ];
    for (id, operation) in (0..).zip(operations) {
        near.post_send(SendRequest { id, operation, signalled: true }).unwrap();
    }
    carry(&mut ends, &mut capture);
    capture.file
}

/// The `fields` of the packets that match `filter`, as tshark prints them: a line for each packet.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-o", "tcp.try_heuristic_first:TRUE"]);
    // The NFS over RDMA dissector would claim any message.
    command.args(["--disable-protocol", "rpcordma"]).args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Wireshark's complaints about a packet: malformed, or a warning or error of a protocol other than
/// of the made-up TCP connection.
const COMPLAINTS: &str = "_ws.malformed || _ws.expert.group == 0x07000000 || \
                          (iwarp_mpa && _ws.expert.severity >= 0x00600000 && !tcp.analysis.flags)";

#[test]
fn wireshark_understands_both_ends() {
    if let Err(error) = Command::new("tshark").arg("--version").output() {
        eprintln!("SKIPPED: Wireshark's view of iWARP: tshark can't be run ({error})");
        return;
    }
    for crc in [true, false] {
        let directory = std::env::temp_dir();
        let file = directory.join(format!("farlane-iwarp-{}-{crc}.pcap", std::process::id()));
        std::fs::write(&file, session(crc)).unwrap();
        let complaints = tshark(&file, COMPLAINTS, &["frame.number", "_ws.expert.message"]);
        let packets = tshark(&file, "tcp.len > 0", &["frame.number"]).lines().count();
        let understood = tshark(&file, "iwarp_mpa", &["iwarp_rdma.opcode"]);
        let terminated = tshark(
            &file,
            "iwarp_rdma.terminate",
            &["iwarp_rdma.term_layer", "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_errcode_rdma"],
        );
        let requested = tshark(&file, "iwarp_mpa.key.req", &["iwarp_mpa.rev", "iwarp_mpa.crc_flag"]);
        let mut show = Command::new("tshark");
        show.arg("-r").arg(&file).args(["-o", "tcp.try_heuristic_first:TRUE", "-O", "iwarp_mpa"]);
        let shown = String::from_utf8(show.output().unwrap().stdout).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(complaints, "");
        assert_eq!(understood.lines().count(), packets, "a packet was not recognised as iWARP");
        let mut opcodes = BTreeMap::<&str, usize>::new();
        for opcode in understood.lines().filter(|line| !line.is_empty()) {
            *opcodes.entry(opcode).or_default() += 1;
        }
        // Writes, read requests, responses, messages, one that invalidates, and the Terminate.
        let expected = [("0x00", 3), ("0x01", 2), ("0x02", 4), ("0x03", 5), ("0x04", 1), ("0x07", 1)];
        assert_eq!(opcodes, BTreeMap::from(expected));
        assert_eq!(terminated, "0x00\t0x01\t0x01\n", "RDMAP, remote protection, base or bounds");
        assert_eq!(requested, format!("1\t{}\n", u8::from(crc)));
        assert!(!shown.contains("Bad CRC"), "{shown}");
        assert_eq!(shown.matches("Good CRC").count(), if crc { 16 } else { 0 });
    }
}
