//! Frames of iWARP: MPA, DDP and RDMAP (RFC 5044, 5041, 5040).

use alloc::format;

use iwarp::wire::{CRC_LENGTH, Header, LENGTH_FIELD, Opcode, ReadRequest, fpdu_length};

use super::chain::Link;
use super::{Held, Wanted, entry_of};
use crate::command::Step;

/// A frame (FPDU), by its length and its header.
pub(super) struct Frame {
    /// Bytes of header and payload (ULPDU_Length).
    length: u16,
    header: Header,
}

impl Link for Frame {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, segment) = bytes.split_first_chunk::<LENGTH_FIELD>()?;
        let length = u16::from_be_bytes(*length);
        let header = Header::parse(segment).ok()?;
        (usize::from(length) >= header.length()).then_some(Self { length, header })
    }

    fn length(&self) -> usize {
        fpdu_length(self.length)
    }

    fn is_of(&self, bytes: &[u8], wanted: Wanted) -> bool {
        let is_send = matches!(self.header, Header::Untagged { opcode: Opcode::Send { .. }, .. });
        let is_capsule = matches!(wanted.step, Step::Capsule | Step::Completion);
        let payload = bytes.get(LENGTH_FIELD + self.header.length()..).unwrap_or_default();
        is_send && is_capsule && entry_of(payload, Some(wanted)).is_some()
    }
}

const fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Write => "RDMA Write",
        Opcode::ReadRequest => "RDMA Read Request",
        Opcode::ReadResponse => "RDMA Read Response",
        Opcode::Send { invalidates: true, .. } => "Send with Invalidate",
        Opcode::Send { .. } => "Send",
        Opcode::Terminate => "Terminate",
    }
}

/// Describes the frame that begins at `start`.
pub(super) fn describe(held: &mut Held, bytes: &[u8], start: usize, wanted: Option<Wanted>) {
    let Some(frame) = Frame::parse(&bytes[start..]) else { return };
    let whole = frame.length();
    let shown = whole.min(bytes.len() - start);
    let at = |from: usize, to: usize| start + from.min(shown)..start + to.min(shown);
    // The header begins behind the length.
    let of = |from: usize, to: usize| at(LENGTH_FIELD + from, LENGTH_FIELD + to);
    let (opcode, last) = match frame.header {
        Header::Tagged { opcode, last, .. } | Header::Untagged { opcode, last, .. } => (opcode, last),
    };
    held.names.push(name(opcode));
    held.field("frame (FPDU)", name(opcode), at(0, whole));
    held.field("length (ULPDU_Length)", frame.length, at(0, LENGTH_FIELD));
    held.field("last of its message (L)", if last { "yes" } else { "no" }, of(0, 1));
    match frame.header {
        Header::Tagged { key, address, .. } => {
            held.field("key (STag)", format!("{:#010x}", key.0), of(2, 6));
            held.field("address (TO)", format!("{address:#018x}"), of(6, 14));
        }
        Header::Untagged { opcode, invalidate, number, offset, .. } => {
            if matches!(opcode, Opcode::Send { invalidates: true, .. }) {
                held.field("key that ends (STag)", format!("{:#010x}", invalidate.0), of(2, 6));
            }
            held.field("queue (QN)", u32::from(bytes.get(start + 11).copied().unwrap_or(0)), of(6, 10));
            held.field("message (MSN)", number, of(10, 14));
            held.field("offset in it (MO)", offset, of(14, 18));
        }
    }
    let header = frame.header.length();
    let payload = bytes.get(start + LENGTH_FIELD + header..).unwrap_or_default();
    let length = usize::from(frame.length);
    let payload = &payload[..payload.len().min(length - header)];
    if opcode == Opcode::ReadRequest
        && let Some(request) = payload.first_chunk().map(ReadRequest::parse)
    {
        held.field("to key (SinkSTag)", format!("{:#010x}", request.sink.0), of(18, 22));
        held.field("to address (SinkTO)", format!("{:#018x}", request.sink_address), of(22, 30));
        held.field("bytes (RDMARDSZ)", request.source.length, of(30, 34));
        held.field("from key (SrcSTag)", format!("{:#010x}", request.source.key.0), of(34, 38));
        held.field("from address (SrcTO)", format!("{:#018x}", request.source.address), of(38, 46));
    } else if length > header {
        held.field("payload", format!("{} B", length - header), of(header, length));
    }
    held.field("CRC", format!("{CRC_LENGTH} B"), at(whole - CRC_LENGTH, whole));
    if held.entry.is_none() && matches!(opcode, Opcode::Send { .. }) {
        held.entry = entry_of(payload, wanted);
    }
}
