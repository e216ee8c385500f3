//! `farlane nvme flush`, `write-zeroes`, `write-uncor`, `verify`, `compare`, `copy` and
//! `dsm`.

use nvme::wire::{CopyRange, DatasetRange, IoOpcode, LongCopyRange, NamespaceId, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{IO, OfNamespace, Payload, done, entry, read_file, with};
use crate::args::{AtNamespaceArgs, BlocksArgs, CompareBlocksArgs, CopyArgs, DsmArgs, WriteZeroesArgs};
use crate::error::Error;

/// Deallocate (DEAC) of Write Zeroes, in CDW12.
const DEALLOCATE: u32 = 1 << 25;
/// Force Unit Access (FUA), in CDW12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Limited Retry (LR), in CDW12.
const LIMITED_RETRY: u32 = 1 << 31;
/// The most bytes that one command transfers here.
const TRANSFER_MAX: u64 = 1 << 20;
/// Attribute – Deallocate (AD) of Dataset Management, in CDW11.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// The most ranges of a Dataset Management command.
const RANGES_MAX: usize = 256;

/// The blocks that a command was about.
#[derive(Serialize, JsonSchema)]
pub(super) struct Blocks {
    /// Namespace identifier.
    nsid: u32,
    /// Number of blocks.
    blocks: u32,
}

/// The blocks that were compared.
#[derive(Serialize, JsonSchema)]
pub(super) struct Compared {
    /// Namespace identifier.
    nsid: u32,
    /// Number of blocks.
    blocks: u32,
    /// Their bytes.
    bytes: u64,
}

/// The ranges of blocks that a command was about.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ranges {
    /// Namespace identifier.
    nsid: u32,
    /// Number of ranges.
    ranges: usize,
}

pub(super) fn flush(args: &AtNamespaceArgs) -> Result<(), Error> {
    let id = args.namespace;
    let command = nvme::host::command::flush(NamespaceId(id));
    with(&args.at.target, |session| session.command("Flush", IO, command, Payload::None))?;
    done(&args.at, "NVMe Flush: success\n", &OfNamespace { nsid: id })
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
    done(&args.place.at, "NVME Write Zeroes Success\n", &Blocks { nsid: id, blocks })
}

pub(super) fn verify(args: &BlocksArgs) -> Result<(), Error> {
    let (id, blocks) = (args.place.namespace, u32::from(args.blocks.block_count) + 1);
    let command =
        nvme::host::command::on_blocks(IoOpcode::Verify, NamespaceId(id), args.blocks.start_block, blocks);
    with(&args.place.at.target, |session| session.command("Verify", IO, command, Payload::None))?;
    done(&args.place.at, "NVME Verify Success\n", &Blocks { nsid: id, blocks })
}

pub(super) fn write_uncorrectable(args: &BlocksArgs) -> Result<(), Error> {
    let (id, blocks) = (args.place.namespace, u32::from(args.blocks.block_count) + 1);
    let (opcode, lba) = (IoOpcode::WriteUncorrectable, args.blocks.start_block);
    let command = nvme::host::command::on_blocks(opcode, NamespaceId(id), lba, blocks);
    with(&args.place.at.target, |session| {
        session.command("Write Uncorrectable", IO, command, Payload::None)
    })?;
    done(&args.place.at, "NVME Write Uncorrectable Success\n", &Blocks { nsid: id, blocks })
}

pub(super) fn compare(args: &CompareBlocksArgs) -> Result<(), Error> {
    let (id, count) = (args.place.namespace, u32::from(args.blocks.block_count) + 1);
    let data = read_file(&args.data, TRANSFER_MAX)?;
    let bytes = with(&args.place.at.target, |session| {
        let namespace = session.namespace(id)?;
        let whole = u64::from(count) * u64::from(namespace.block_bytes);
        let wanted = args.data_size.unwrap_or(whole);
        let limit = u64::from(session.identity()?.transfer_bytes_max).min(TRANSFER_MAX);
        let range = |what, value, expected| Err(Error::Range { what, value, expected });
        if wanted != whole {
            return range("--data-size", wanted, format!("{whole}, the bytes of {count} blocks"));
        }
        if whole > limit {
            return range(
                "--block-count",
                (count - 1).into(),
                format!("blocks of at most {limit} B together"),
            );
        }
        if (data.len() as u64) < whole {
            return range(
                "the length of --data",
                data.len() as u64,
                format!("{whole}, the bytes of {count} blocks"),
            );
        }
        let sent = &data[..usize::try_from(whole).expect("a megabyte")];
        let command = nvme::host::command::on_blocks(
            IoOpcode::Compare,
            NamespaceId(id),
            args.blocks.start_block,
            count,
        );
        let cdw12 = command.cdw12 | if args.force_unit_access { FORCE_UNIT_ACCESS } else { 0 };
        session.command("Compare", IO, SubmissionQueueEntry { cdw12, ..command }, Payload::Sent(sent))?;
        Ok(whole)
    })?;
    done(&args.place.at, "compare: Success\n", &Compared { nsid: id, blocks: count, bytes })
}

pub(super) fn copy(args: &CopyArgs) -> Result<(), Error> {
    if args.slbs.len() != args.blocks.len() || args.slbs.len() > RANGES_MAX {
        let (value, expected) =
            (args.blocks.len() as u64, format!("as many as --slbs, at most {RANGES_MAX}"));
        return Err(Error::Range { what: "the number of --blocks", value, expected });
    }
    let mut data = Vec::new();
    for (starting_lba, zeros_based_blocks) in args.slbs.iter().copied().zip(args.blocks.iter().copied()) {
        match args.format {
            0 => {
                let mut bytes = [0; CopyRange::LENGTH];
                CopyRange { starting_lba, zeros_based_blocks }.emit(&mut bytes);
                data.extend(bytes);
            }
            _ => {
                let mut bytes = [0; LongCopyRange::LENGTH];
                LongCopyRange { starting_lba, zeros_based_blocks }.emit(&mut bytes);
                data.extend(bytes);
            }
        }
    }
    let id = args.place.namespace;
    let command = entry(IoOpcode::Copy, id).with_starting_lba(args.sdlba);
    let cdw12 = u32::try_from(args.slbs.len() - 1).unwrap_or(u32::MAX)
        | u32::from(args.format) << 8
        | if args.force_unit_access { FORCE_UNIT_ACCESS } else { 0 }
        | if args.limited_retry { LIMITED_RETRY } else { 0 };
    let command = SubmissionQueueEntry { cdw12, ..command };
    with(&args.place.at.target, |session| session.command("Copy", IO, command, Payload::Sent(&data)))?;
    done(&args.place.at, "NVMe Copy: success\n", &Ranges { nsid: id, ranges: args.slbs.len() })
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
    done(&args.place.at, "NVMe DSM: success\n", &Ranges { nsid: id, ranges: args.slbs.len() })
}
