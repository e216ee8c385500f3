//! Finds the addresses of a command's data, as far as lookahead follows its PRP entries or its SGL.
//!
//! The walk ends at anything that a controller would refuse, and leaves the refusal to the
//! controller. It also ends at a list that needs more than one read.

use nvme::pointer::{self, DataPointer, Direction, PageSize, Segment, Step};
use nvme::wire::SubmissionQueueEntry;

use crate::transfer::Transfer;

/// The longest list that is read at once, in bytes. A list does not cross a multiple of this
/// length.
const LIST_MAX: u64 = 4096;
/// The most lists that a command may have.
const LISTS_MAX: u32 = 64;

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read this list, for [`Walk::on_list`].
    List { address: u64, length: u32 },
    /// All data is found, or the rest cannot be found.
    Done,
}

/// The progress of following one command's data pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    walk: pointer::Walk,
    lists: u32,
}

impl Walk {
    /// Begins with `entry`, which makes this transfer. `data` is called with the address and length
    /// of each piece found.
    pub(crate) fn start(
        entry: &SubmissionQueueEntry,
        transfer: Transfer,
        page: PageSize,
        data: &mut impl FnMut(u64, u64),
    ) -> (Self, Next) {
        let direction = if transfer.to_controller { Direction::ToController } else { Direction::ToHost };
        let (walk, step) =
            pointer::Walk::start(DataPointer::of(entry), transfer.length, page, direction, &mut keep(data));
        let mut walk = Self { walk, lists: 0 };
        let next = walk.next(step);
        (walk, next)
    }

    /// Continues with the bytes of the list that was requested last.
    pub(crate) fn on_list(&mut self, bytes: &[u8], data: &mut impl FnMut(u64, u64)) -> Next {
        let step = self.walk.on_list(bytes, &mut keep(data));
        self.next(step)
    }

    fn next(&mut self, step: Step) -> Next {
        let Step::ReadList { address, length } = step else { return Next::Done };
        self.lists += 1;
        // A list that crosses the end of a 4 KiB page would arrive in two parts, in any order.
        let whole = address % LIST_MAX + u64::from(length) <= LIST_MAX;
        if self.lists <= LISTS_MAX && whole { Next::List { address, length } } else { Next::Done }
    }
}

/// Passes on the pieces that memory can have. A bit bucket is no memory.
fn keep(data: &mut impl FnMut(u64, u64)) -> impl FnMut(Segment) {
    |segment| {
        let length = u64::from(segment.length);
        if let Some(address) = segment.address
            && address.checked_add(length).is_some()
        {
            data(address, length);
        }
    }
}
