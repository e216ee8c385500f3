//! `farlane nvme admin-passthru` and `io-passthru`: any command, as its user builds it.

use nvme::wire::{NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Payload, dump, read_file, show_list, with};
use crate::args::{PassthruArgs, Printed};
use crate::error::{Error, NvmeError};

/// The most bytes that a command may transfer here.
const LENGTH_MAX: u32 = 1 << 20;

/// A command, or its result.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Passed<'a> {
    /// The command that --dry-run does not send.
    Command {
        /// Its submission queue entry.
        command: &'a [u8],
    },
    /// The command has ended.
    Ended {
        /// Dword 0 of the completion queue entry.
        result: u32,
        /// Data that the command read.
        data: &'a [u8],
    },
}

pub(super) fn run(args: &PassthruArgs, queue: QueueId) -> Result<(), Error> {
    if args.data_len > LENGTH_MAX {
        let expected = format!("at most {LENGTH_MAX}");
        return Err(Error::Range { what: "--data-len", value: args.data_len.into(), expected });
    }
    let command = SubmissionQueueEntry {
        opcode: args.opcode,
        flags: args.flags,
        namespace: NamespaceId(args.namespace),
        cdw2: args.cdw2,
        cdw3: args.cdw3,
        cdw10: args.cdw10,
        cdw11: args.cdw11,
        cdw12: args.cdw12,
        cdw13: args.cdw13,
        cdw14: args.cdw14,
        cdw15: args.cdw15,
        ..SubmissionQueueEntry::EMPTY
    };
    // Bits 1:0 of an opcode give the direction of its data. A host with the wrong direction would
    // put them where no program reads them.
    let (to, from) = (args.opcode & 0b01 != 0, args.opcode & 0b10 != 0);
    if args.data_len > 0 && (args.write && !to || args.read && !from) {
        return Err(Error::DataDirection { opcode: args.opcode });
    }
    let mut sent = match (&args.input_file, args.write) {
        (Some(path), true) => read_file(path, args.data_len.into())?,
        _ => Vec::new(),
    };
    sent.resize(args.data_len as usize, 0);
    let payload = match (args.write, args.read) {
        (true, _) if args.data_len > 0 => Payload::Sent(&sent),
        (_, true) => Payload::Wanted(args.data_len),
        _ => Payload::None,
    };
    if args.dry_run {
        let bytes = command.emit();
        return show_list(args.at.printing, &bytes, || Passed::Command { command: &bytes }, || dump(&bytes));
    }
    if args.at.printing.form() == Printed::Binary && !args.read {
        return Err(NvmeError::NoBytes { why: "the command reads no data without --read".to_owned() }.into());
    }
    let (result, data) =
        with(&args.at.target, |session| session.command("the command", queue, command, payload))?;
    let data = if args.read { data } else { Vec::new() };
    let json = || Passed::Ended { result, data: &data };
    let text = || format!("NVMe command result:{result:08x}\n{}", dump(&data));
    show_list(args.at.printing, &data, json, text)
}
