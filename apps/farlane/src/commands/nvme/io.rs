//! `farlane flush`, `write-zeroes`, `verify-blocks` and `dsm`.

use nvme::wire::{DatasetRange, IoOpcode, NamespaceId, SubmissionQueueEntry};
use serde_json::json;

use super::{IO, Payload, done, entry, with};
use crate::args::{AtNamespaceArgs, BlocksArgs, DsmArgs, WriteZeroesArgs};
use crate::error::Error;

/// Deallocate (DEAC) of Write Zeroes, in CDW12.
const DEALLOCATE: u32 = 1 << 25;
/// Force Unit Access (FUA), in CDW12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Attribute – Deallocate (AD) of Dataset Management, in CDW11.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// The most ranges of a Dataset Management command.
const RANGES_MAX: usize = 256;

pub(super) fn flush(args: &AtNamespaceArgs) -> Result<(), Error> {
    let id = args.namespace;
    let command = nvme::host::command::flush(NamespaceId(id));
    with(&args.at.target, |session| session.command("Flush", IO, command, Payload::None))?;
    done(&args.at, "NVMe Flush: success\n", &json!({ "nsid": id }))
}

pub(super) fn write_zeroes(args: &WriteZeroesArgs) -> Result<(), Error> {
    let (id, blocks) = (args.place.namespace, u32::from(args.blocks.block_count) + 1);
    let command = nvme::host::command::on_blocks(
        IoOpcode::WriteZeroes,
        NamespaceId(id),
        args.blocks.start_block,
        blocks,
    );
    let cdw12 = command.cdw12
        | if args.deac { DEALLOCATE } else { 0 }
        | if args.force_unit_access { FORCE_UNIT_ACCESS } else { 0 };
    let command = SubmissionQueueEntry { cdw12, ..command };
    with(&args.place.at.target, |session| session.command("Write Zeroes", IO, command, Payload::None))?;
    done(&args.place.at, "NVME Write Zeroes Success\n", &json!({ "nsid": id, "blocks": blocks }))
}

pub(super) fn verify(args: &BlocksArgs) -> Result<(), Error> {
    let (id, blocks) = (args.place.namespace, u32::from(args.blocks.block_count) + 1);
    let command =
        nvme::host::command::on_blocks(IoOpcode::Verify, NamespaceId(id), args.blocks.start_block, blocks);
    with(&args.place.at.target, |session| session.command("Verify", IO, command, Payload::None))?;
    done(&args.place.at, "NVME Verify Success\n", &json!({ "nsid": id, "blocks": blocks }))
}

pub(super) fn dataset_management(args: &DsmArgs) -> Result<(), Error> {
    if args.slbs.len() != args.blocks.len() || args.slbs.len() > RANGES_MAX {
        let (value, expected) =
            (args.blocks.len() as u64, format!("as many as --slbs, at most {RANGES_MAX}"));
        return Err(Error::Range { what: "the number of --blocks", value, expected });
    }
    let mut data = Vec::new();
    for (starting_lba, blocks) in args.slbs.iter().zip(&args.blocks) {
        let range = DatasetRange { context: 0, blocks: *blocks, starting_lba: *starting_lba };
        let mut bytes = [0; DatasetRange::LENGTH];
        range.emit(&mut bytes);
        data.extend(bytes);
    }
    let id = args.place.namespace;
    let command = SubmissionQueueEntry {
        cdw10: u32::try_from(args.slbs.len() - 1).unwrap_or(u32::MAX),
        cdw11: if args.ad { ATTRIBUTE_DEALLOCATE } else { 0 },
        ..entry(IoOpcode::DatasetManagement, id)
    };
    with(&args.place.at.target, |session| {
        session.command("Dataset Management", IO, command, Payload::Sent(&data))
    })?;
    done(&args.place.at, "NVMe DSM: success\n", &json!({ "nsid": id, "ranges": args.slbs.len() }))
}
