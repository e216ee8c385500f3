//! The host's memory, with a record of its former contents: each read of a device can be judged by
//! the values that it may give.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The address of the memory's first byte.
pub(super) const BASE: u64 = 0x1_0000_0000;
/// Fills unused memory.
pub(super) const CANARY: [u8; 8] = *b"\xca\x9a\x27\xf0nary";
/// Number of writes that are remembered. A read whose past reaches further back is accepted.
const HISTORY: usize = 1 << 14;

/// A moment in the life of memory: the number of writes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

#[derive(Debug)]
struct Change {
    address: u64,
    before: Vec<u8>,
}

/// The host's memory, and the writes that it has seen.
#[derive(Debug)]
pub(super) struct HostMemory {
    bytes: Vec<u8>,
    changes: VecDeque<Change>,
    /// Number of writes so far.
    moment: Moment,
}

/// Memory that the host and the judges share. No engine sees it.
pub(super) type Shared = Rc<RefCell<HostMemory>>;

impl HostMemory {
    pub(super) fn new(length: usize) -> Shared {
        let mut bytes = CANARY.repeat(length.div_ceil(CANARY.len()));
        bytes.truncate(length);
        Rc::new(RefCell::new(Self { bytes, changes: VecDeque::new(), moment: Moment(0) }))
    }

    /// The current moment.
    pub(super) const fn moment(&self) -> Moment {
        self.moment
    }

    fn place(&self, address: u64, length: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        (start.checked_add(length)? <= self.bytes.len()).then_some(start)
    }

    /// The bytes at `address`, if all of them are in memory.
    pub(super) fn slice(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.place(address, length).map(|start| &self.bytes[start..start + length])
    }

    /// Writes `bytes` at `address`, if all of them are in memory.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        let Some(start) = self.place(address, bytes.len()) else { return };
        let place = &mut self.bytes[start..start + bytes.len()];
        self.moment.0 += 1;
        self.changes.push_back(Change { address, before: place.to_vec() });
        place.copy_from_slice(bytes);
        if self.changes.len() > HISTORY {
            self.changes.pop_front();
        }
    }

    /// Checks that each of `bytes` was in its place at `address` at some moment from `since` on.
    /// The error is the index of the first byte that was not.
    pub(super) fn judge(&self, since: Moment, address: u64, bytes: &[u8]) -> Result<(), usize> {
        let Some(now) = self.slice(address, bytes.len()) else { return Err(0) };
        if now == bytes {
            return Ok(());
        }
        let later = usize::try_from(self.moment.0 - since.0).unwrap_or(usize::MAX);
        if later > self.changes.len() {
            return Ok(());
        }
        let mut wrong: Vec<usize> = (0..bytes.len()).filter(|&at| now[at] != bytes[at]).collect();
        for change in self.changes.iter().rev().take(later) {
            wrong.retain(|&at| {
                let within = (address + at as u64).checked_sub(change.address);
                let before = within.and_then(|within| change.before.get(usize::try_from(within).ok()?));
                before != Some(&bytes[at])
            });
        }
        wrong.first().map_or(Ok(()), |&at| Err(at))
    }
}
