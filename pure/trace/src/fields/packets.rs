//! Headers of RoCEv2 (InfiniBand Architecture 1.4, chapter 9 and annex A17).

use alloc::format;
use alloc::string::String;

use super::{Held, Wanted, entry_of};

/// Bytes of the base header (BTH), and of the CRC at the end (ICRC).
const BASE: usize = 12;
const CRC: usize = 4;

/// A header between the base header and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extended {
    /// RETH: memory of the receiver.
    Remote,
    /// AETH: how far the receiver is.
    Acknowledge,
    /// Immediate data.
    Immediate,
    /// IETH: a key that ends.
    Invalidate,
    /// DETH: the sender of a datagram.
    Datagram,
    /// AtomicETH, and the answer.
    Atomic,
    AtomicAnswer,
}

impl Extended {
    const fn length(self) -> usize {
        match self {
            Self::Remote => 16,
            Self::Acknowledge | Self::Immediate | Self::Invalidate => 4,
            Self::Datagram | Self::AtomicAnswer => 8,
            Self::Atomic => 28,
        }
    }
}

/// The kind of a packet: its name, its extended headers, and whether a message begins with its
/// payload (table 38 of the specification).
const fn kind(opcode: u8) -> Option<(&'static str, &'static [Extended], bool)> {
    use Extended as Of;
    Some(match opcode {
        0 => ("Send First", &[], true),
        1 => ("Send Middle", &[], false),
        2 => ("Send Last", &[], false),
        3 => ("Send Last with Immediate", &[Of::Immediate], false),
        4 => ("Send Only", &[], true),
        5 => ("Send Only with Immediate", &[Of::Immediate], true),
        6 => ("RDMA Write First", &[Of::Remote], false),
        7 => ("RDMA Write Middle", &[], false),
        8 => ("RDMA Write Last", &[], false),
        9 => ("RDMA Write Last with Immediate", &[Of::Immediate], false),
        10 => ("RDMA Write Only", &[Of::Remote], false),
        11 => ("RDMA Write Only with Immediate", &[Of::Remote, Of::Immediate], false),
        12 => ("RDMA Read Request", &[Of::Remote], false),
        13 => ("RDMA Read Response First", &[Of::Acknowledge], false),
        14 => ("RDMA Read Response Middle", &[], false),
        15 => ("RDMA Read Response Last", &[Of::Acknowledge], false),
        16 => ("RDMA Read Response Only", &[Of::Acknowledge], false),
        17 => ("Acknowledge", &[Of::Acknowledge], false),
        18 => ("Atomic Acknowledge", &[Of::Acknowledge, Of::AtomicAnswer], false),
        19 => ("Compare and Swap", &[Of::Atomic], false),
        20 => ("Fetch and Add", &[Of::Atomic], false),
        22 => ("Send Last with Invalidate", &[Of::Invalidate], false),
        23 => ("Send Only with Invalidate", &[Of::Invalidate], true),
        0x64 => ("datagram", &[Of::Datagram], false),
        0x81 => ("congestion notification (CNP)", &[], false),
        _ => return None,
    })
}

/// The meaning of an acknowledgement's syndrome.
fn syndrome(byte: u8) -> String {
    match (byte >> 5, byte & 31) {
        (0, credits) => format!("ACK, credits {credits}"),
        (1, time) => format!("RNR NAK, timer {time}"),
        (3, 0) => "NAK: PSN sequence error".into(),
        (3, 1) => "NAK: invalid request".into(),
        (3, 2) => "NAK: remote access error".into(),
        (3, 3) => "NAK: remote operational error".into(),
        _ => format!("{byte:#04x}"),
    }
}

/// The number in these bytes, big-endian; none if they were not captured.
fn number(bytes: &[u8], from: usize, to: usize) -> Option<u64> {
    let raw = bytes.get(from..to)?;
    Some(raw.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Describes a datagram.
pub(super) fn describe(held: &mut Held, bytes: &[u8], wanted: Option<Wanted>) {
    let Some(&[opcode, flags, ..]) = bytes.first_chunk::<BASE>() else { return };
    let field = |from, to| number(bytes, from, to).unwrap_or(0);
    let known = kind(opcode);
    let name = known.map_or("unknown", |(name, ..)| name);
    let yes = |is_set: bool| if is_set { "yes" } else { "no" };
    held.names.push(name);
    held.field("packet (OpCode)", format!("{name} ({opcode:#04x})"), 0..1);
    held.field("solicited event (SE)", yes(flags >> 7 == 1), 1..2);
    held.field("padding (PadCnt)", format!("{} B", flags >> 4 & 3), 1..2);
    held.field("partition (P_Key)", format!("{:#06x}", field(2, 4)), 2..4);
    held.field("queue pair (DestQP)", format!("{:#08x}", field(5, 8)), 5..8);
    held.field("wants an acknowledgement (A)", yes(bytes[8] >> 7 == 1), 8..9);
    held.field("sequence number (PSN)", field(9, 12), 9..12);
    let Some((_, headers, begins)) = known else { return };
    let mut at = BASE;
    for header in headers {
        extended(held, bytes, *header, at);
        at += header.length();
    }
    let end = bytes.len().saturating_sub(CRC);
    let padding = usize::from(flags >> 4 & 3);
    if at + padding < end {
        held.field("payload", format!("{} B", end - padding - at), at..end - padding);
    }
    if at <= end {
        held.field("CRC (ICRC)", format!("{:#010x}", field(end, bytes.len())), end..bytes.len());
    }
    if begins {
        held.entry = entry_of(bytes.get(at..end).unwrap_or_default(), wanted);
    }
}

/// Describes a header that begins at `at`, as far as it was captured.
fn extended(held: &mut Held, bytes: &[u8], header: Extended, at: usize) {
    let mut field = |name, from: usize, to: usize, show: &dyn Fn(u64) -> String| {
        if let Some(value) = number(bytes, at + from, at + to) {
            held.field(name, show(value), at + from..at + to);
        }
    };
    let decimal = |value| format!("{value}");
    let key = |value| format!("{value:#010x}");
    let address = |value| format!("{value:#018x}");
    match header {
        Extended::Remote => {
            field("address (VA)", 0, 8, &address);
            field("key (R_Key)", 8, 12, &key);
            field("bytes (DMALen)", 12, 16, &decimal);
        }
        Extended::Acknowledge => {
            field("syndrome", 0, 1, &|byte| syndrome(byte.to_le_bytes()[0]));
            field("messages done (MSN)", 1, 4, &decimal);
        }
        Extended::Immediate => field("immediate data (ImmDt)", 0, 4, &key),
        Extended::Invalidate => field("key that ends (R_Key)", 0, 4, &key),
        Extended::Datagram => {
            field("key of the queue (Q_Key)", 0, 4, &key);
            field("sender's queue pair (SrcQP)", 5, 8, &|value| format!("{value:#08x}"));
        }
        Extended::Atomic => {
            field("address (VA)", 0, 8, &address);
            field("key (R_Key)", 8, 12, &key);
            field("swapped or added", 12, 20, &address);
            field("compared", 20, 28, &address);
        }
        Extended::AtomicAnswer => field("previous value", 0, 8, &address),
    }
}
