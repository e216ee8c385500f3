//! A command between its entry and its completion, as described by its entry.

use alloc::vec::Vec;

use nvme::wire::{AdminOpcode, IoOpcode, SubmissionQueueEntry};

use super::PAGE;
use super::sgl::Descriptor;
use crate::command::{Command, Kind};

/// A command in progress.
pub(super) struct UnderWay {
    pub(super) command: Command,
    /// Where its lists are: of pages, or of descriptors.
    pub(super) lists: Vec<u64>,
    pub(super) pages: Vec<u64>,
    /// Where its data begin that an SGL describes, and whether one does.
    pub(super) extents: Vec<u64>,
    pub(super) is_described: bool,
    /// Whether its data are an Identify Namespace data structure.
    pub(super) identifies: bool,
}

/// A command that begins with `entry` of `queue`, in a namespace whose blocks have `block` bytes.
pub(super) fn under_way(queue: u16, entry: &SubmissionQueueEntry, block: u64) -> UnderWay {
    let kind = if queue == 0 { Kind::Admin(entry.opcode) } else { Kind::Io(entry.opcode) };
    let mut command = Command::new(kind);
    command.queue = Some(queue);
    command.id = Some(entry.command_id.0);
    command.namespace = Some(entry.namespace.0).filter(|id| *id != 0);
    let has_blocks = matches!(
        IoOpcode::from(entry.opcode),
        IoOpcode::Read | IoOpcode::Write | IoOpcode::Compare | IoOpcode::WriteZeroes | IoOpcode::Verify
    );
    if queue != 0 && has_blocks {
        command.lba = Some(entry.starting_lba());
        command.blocks = Some((entry.cdw12 & 0xffff) + 1);
    }
    // Bits 1:0 of an opcode say whether there are data. An SGL needs no list.
    let [first, second] = entry.data_pointer;
    let is_described = Descriptor::of(entry).is_some();
    let has_data = entry.opcode & 0b11 != 0 && first != 0 && !is_described;
    let (first, second) = (Some(first).filter(|_| has_data), Some(second).filter(|it| has_data && *it != 0));
    // The second pointer is a list when the data reach beyond a second page.
    let length = command.blocks.map_or(0, |blocks| u64::from(blocks) * block);
    let reaches = first.map_or(0, |first| first % PAGE) + length;
    let list = second.filter(|_| reaches > 2 * PAGE);
    let pages = first.into_iter().chain(second.filter(|_| list.is_none())).map(|it| it / PAGE).collect();
    let identifies = kind == Kind::Admin(AdminOpcode::Identify.into()) && entry.cdw10 & 0xff == 0;
    let lists = list.into_iter().collect();
    UnderWay { command, lists, pages, extents: Vec::new(), is_described, identifies }
}

/// The bytes of a block, from the beginning of an Identify Namespace data structure.
pub(super) fn block_of(page: &[u8]) -> Option<u64> {
    // Formatted LBA Size (FLBAS), and the LBA Data Size (LBADS) of that format.
    let format = usize::from(page.get(26)? & 0xf);
    let shift = *page.get(128 + 4 * format + 2)?;
    (9..=16).contains(&shift).then(|| 1 << shift)
}
