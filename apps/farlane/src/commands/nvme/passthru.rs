//! `farlane admin-passthru` and `io-passthru`: any command, as its user builds it.

use nvme::wire::{NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use serde_json::json;

use super::{Payload, dump, read_file, show_data, with};
use crate::args::PassthruArgs;
use crate::commands::{print, print_json_of_nvme_cli};
use crate::error::Error;

/// The most bytes that a command may transfer here.
const LENGTH_MAX: u32 = 1 << 20;

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
    // Bits 1:0 of an opcode say which way its data go, and a host that is told otherwise would
    // put them where nobody reads them.
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
        return print(&dump(&command.emit()));
    }
    let (result, data) =
        with(&args.at.target, |session| session.command("the command", queue, command, payload))?;
    let data = if args.read { data } else { Vec::new() };
    if args.raw_binary {
        return show_data(&args.at, true, "", &data);
    }
    if args.at.is_json() {
        return print_json_of_nvme_cli(&json!({ "result": result, "data": data }));
    }
    print(&format!("NVMe command result:{result:08x}\n{}", dump(&data)))
}
