//! PDUs of NVMe/TCP (NVMe TCP Transport Specification 1.0, 3.6).

use alloc::format;
use alloc::string::String;

use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};
use nvme_tcp::wire::{
    CommonHeader, DIGEST_LENGTH, DataHeader, FatalErrorStatus, Flags, PduKind, TerminateRequest,
};

use super::chain::Link;
use super::{Entry, Held, Wanted};
use crate::command::Step;
use crate::fabric::plausible;

/// A PDU, by its common header.
pub(super) struct Pdu(CommonHeader);

impl Link for Pdu {
    fn parse(bytes: &[u8]) -> Option<Self> {
        plausible(bytes).map(Self)
    }

    fn length(&self) -> usize {
        usize::try_from(self.0.length).unwrap_or(usize::MAX)
    }

    fn is_of(&self, bytes: &[u8], Wanted { step, id }: Wanted) -> bool {
        let body = &bytes[CommonHeader::LENGTH..];
        let id_at = |at: usize| body.get(at..at + 2).map(|raw| u16::from_le_bytes([raw[0], raw[1]]));
        let found = match (self.0.kind, step) {
            (PduKind::CommandCapsule, Step::Capsule) => id_at(2),
            (PduKind::ResponseCapsule, Step::Completion) => id_at(12),
            (PduKind::ReadyToTransfer, Step::ReadyToTransfer)
            | (PduKind::HostData, Step::DataArrived)
            | (PduKind::ControllerData, Step::Data | Step::Completion) => id_at(0),
            _ => None,
        };
        found == Some(id)
    }
}

const fn name(kind: PduKind) -> &'static str {
    match kind {
        PduKind::InitializeRequest => "ICReq",
        PduKind::InitializeResponse => "ICResp",
        PduKind::HostTerminate => "H2CTermReq",
        PduKind::ControllerTerminate => "C2HTermReq",
        PduKind::CommandCapsule => "CapsuleCmd",
        PduKind::ResponseCapsule => "CapsuleResp",
        PduKind::HostData => "H2CData",
        PduKind::ControllerData => "C2HData",
        PduKind::ReadyToTransfer => "R2T",
    }
}

/// The names of the flags that are set.
fn flags(flags: Flags) -> String {
    let names = [
        (Flags::HEADER_DIGEST, "HDGSTF"),
        (Flags::DATA_DIGEST, "DDGSTF"),
        (Flags::LAST_PDU, "LAST_PDU"),
        (Flags::SUCCESS, "SUCCESS"),
    ];
    let mut text = format!("{:#04x}", flags.0);
    for (_, name) in names.iter().filter(|(flag, _)| flags.has(*flag)) {
        text += " ";
        text += name;
    }
    text
}

/// Describes the PDU that begins at `start`.
pub(super) fn describe(held: &mut Held, bytes: &[u8], start: usize, wanted: Option<Wanted>) {
    let pdu = &bytes[start..];
    let Some(common) = plausible(pdu) else { return };
    let length = usize::try_from(common.length).unwrap_or(usize::MAX).min(pdu.len());
    let pdu = &pdu[..length];
    let at = |from: usize, to: usize| start + from.min(length)..start + to.min(length);
    held.names.push(name(common.kind));
    held.field("PDU", name(common.kind), at(0, length));
    held.field("PDU type", format!("{:#04x}", common.kind.raw()), at(0, 1));
    held.field("flags", flags(common.flags), at(1, 2));
    held.field("header length (HLEN)", common.header_length, at(2, 3));
    held.field("data offset (PDO)", common.data_offset, at(3, 4));
    held.field("PDU length (PLEN)", common.length, at(4, 8));
    body(held, pdu, start, common.kind);
    let header = usize::from(common.header_length);
    if common.flags.has(Flags::HEADER_DIGEST) && common.kind.may_have_digest() {
        held.field("header digest (HDGST)", hex(pdu, header), at(header, header + DIGEST_LENGTH));
    }
    let is_data_digest = common.flags.has(Flags::DATA_DIGEST) && common.kind.may_have_data();
    let (offset, whole) =
        (usize::from(common.data_offset), usize::try_from(common.length).unwrap_or(usize::MAX));
    let end = whole - if is_data_digest { DIGEST_LENGTH.min(whole) } else { 0 };
    if offset > 0 && offset < end {
        held.field("data", format!("{} B", end - offset), at(offset, end));
    }
    if is_data_digest {
        held.field("data digest (DDGST)", hex(pdu, end), at(end, end + DIGEST_LENGTH));
    }
    let is_wanted = |wanted: &Wanted| Pdu(common).is_of(pdu, *wanted);
    if held.entry.is_none() && wanted.as_ref().is_some_and(is_wanted) {
        held.entry = entry(pdu, common.kind);
    }
}

/// Four bytes as a number, where they were captured.
fn hex(pdu: &[u8], at: usize) -> String {
    let word = pdu.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or_else(|| "not captured".into(), |word| format!("{:#010x}", u32::from_le_bytes(*word)))
}

fn entry(pdu: &[u8], kind: PduKind) -> Option<Entry> {
    let entry = pdu.get(CommonHeader::LENGTH..)?;
    Some(match kind {
        PduKind::CommandCapsule => Entry::Submission(SubmissionQueueEntry::parse(entry.first_chunk()?)),
        PduKind::ResponseCapsule => Entry::Completion(CompletionQueueEntry::parse(entry.first_chunk()?)),
        _ => return None,
    })
}

/// Describes the PDU behind its common header, as far as it was captured.
fn body(held: &mut Held, pdu: &[u8], start: usize, kind: PduKind) {
    let at = |from: usize, to: usize| start + from..start + to;
    let half = |at: usize| pdu.get(at..at + 2).map(|raw| u16::from_le_bytes([raw[0], raw[1]]));
    let word = |at: usize| pdu.get(at..)?.first_chunk().map(|raw| u32::from_le_bytes(*raw));
    match kind {
        PduKind::InitializeRequest | PduKind::InitializeResponse => {
            let is_request = kind == PduKind::InitializeRequest;
            let (Some(version), Some(limit)) = (half(8), word(12)) else { return };
            held.field("PDU format version (PFV)", version, at(8, 10));
            let alignment = if is_request { "data alignment (HPDA)" } else { "data alignment (CPDA)" };
            held.field(alignment, pdu[10], at(10, 11));
            held.field("digests (DGST)", format!("{:#04x}", pdu[11]), at(11, 12));
            let name =
                if is_request { "R2Ts at once, less one (MAXR2T)" } else { "data of a PDU (MAXH2CDATA)" };
            held.field(name, limit, at(12, 16));
        }
        PduKind::HostTerminate | PduKind::ControllerTerminate => {
            let Some(header) = pdu.first_chunk() else { return };
            let fault = TerminateRequest::parse(header).fault;
            let status: FatalErrorStatus = fault.status;
            held.field("fatal error status (FES)", format!("{:#06x}, {status}", status.raw()), at(8, 10));
            held.field("fatal error information (FEI)", format!("{:#010x}", fault.information), at(10, 14));
        }
        PduKind::CommandCapsule => {
            let (Some(opcode), Some(id)) = (pdu.get(8), half(10)) else { return };
            held.field("opcode (OPC)", format!("{opcode:#04x}"), at(8, 9));
            held.field("identifier (CID)", format!("{id:#06x}"), at(10, 12));
        }
        PduKind::ResponseCapsule => {
            let (Some(head), Some(id), Some(status)) = (half(16), half(20), half(22)) else { return };
            held.field("head of the submission queue (SQHD)", head, at(16, 18));
            held.field("identifier (CID)", format!("{id:#06x}"), at(20, 22));
            held.field("status", format!("{:#06x}", status >> 1), at(22, 24));
        }
        PduKind::HostData | PduKind::ControllerData | PduKind::ReadyToTransfer => {
            let Some(data) = pdu.first_chunk().map(DataHeader::parse) else { return };
            let is_request = kind == PduKind::ReadyToTransfer;
            held.field("command (CCCID)", format!("{:#06x}", data.command.0), at(8, 10));
            if kind != PduKind::ControllerData {
                held.field("transfer tag (TTAG)", format!("{:#06x}", data.tag), at(10, 12));
            }
            let [offset, length] = match is_request {
                true => ["requested offset (R2TO)", "requested bytes (R2TL)"],
                false => ["offset of the data (DATAO)", "bytes of the data (DATAL)"],
            };
            held.field(offset, data.offset, at(12, 16));
            held.field(length, data.length, at(16, 20));
        }
    }
}
