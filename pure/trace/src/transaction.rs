//! Split transactions: requests together with their completions.

use alloc::collections::{BTreeMap, VecDeque};

use engine::{Instant, Nanos};
use pcie::wire::{Bdf, CompletionStatus, Header, Kind, Tag};

use super::seen::{Direction, Seen};

/// The most requests that wait for completions at once. Beyond it, the oldest of a tag is dropped.
pub const WAITING_MAX: usize = 65_536;

/// A request that has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Which way the request passed.
    pub direction: Direction,
    /// The request's header.
    pub request: Header,
    /// The requester.
    pub requester: Bdf,
    /// Address of the first byte of a memory request; 0 for other requests.
    pub address: u64,
    /// Number of bytes that a memory read requests; 0 for other requests.
    pub bytes: u32,
    /// When the request passed.
    pub begun: Instant,
    /// When the last completion passed.
    pub ended: Instant,
    /// The number of completions.
    pub completions: u32,
    /// The status of the last completion.
    pub status: CompletionStatus,
}

impl Transaction {
    /// Whether it reads or writes a configuration space.
    pub const fn is_configuration(&self) -> bool {
        matches!(self.request.kind, Kind::Config(_))
    }

    /// The time from the request to its last completion.
    pub fn length(&self) -> Nanos {
        self.ended - self.begun
    }
}

struct Waiting {
    transaction: Transaction,
    /// Number of bytes that have not arrived yet.
    left: u32,
}

type Place = (Direction, Bdf, Tag);

/// The requests that wait for completions.
#[derive(Default)]
pub struct Transactions {
    waiting: BTreeMap<Place, VecDeque<Waiting>>,
    count: usize,
    dropped: u64,
    /// Completions that answer no request of the capture.
    orphans: u64,
}

impl core::fmt::Debug for Transactions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Transactions").field("waiting", &self.count).finish_non_exhaustive()
    }
}

const fn place(direction: Direction, requester: Bdf, tag: Tag) -> Place {
    (direction, requester, tag)
}

impl Transactions {
    /// Shows the next packet. Returns the request that the packet answers, and whether the packet
    /// is its last completion.
    pub fn see(&mut self, seen: &Seen<'_>) -> Option<(Transaction, bool)> {
        match seen.header.kind {
            Kind::Completion(completion) => {
                let place = place(seen.direction.opposite(), completion.requester, completion.tag);
                self.answer(place, seen, completion.status)
            }
            _ if seen.header.is_non_posted() => {
                self.ask(seen);
                None
            }
            _ => None,
        }
    }

    fn ask(&mut self, seen: &Seen<'_>) {
        let (requester, tag) = (seen.header.requester(), seen.header.tag());
        let (address, bytes) = seen.read().unwrap_or_default();
        let transaction = Transaction {
            direction: seen.direction,
            request: *seen.header,
            requester,
            address,
            bytes,
            begun: seen.at,
            ended: seen.at,
            completions: 0,
            status: CompletionStatus::Success,
        };
        let place = place(seen.direction, requester, tag);
        if self.count >= WAITING_MAX {
            self.dropped += 1;
            // Without an older one of the same tag, this one is not followed.
            let Some(of_tag) = self.waiting.get_mut(&place) else { return };
            of_tag.pop_front();
            self.count -= 1;
        }
        let of_tag = self.waiting.entry(place).or_default();
        of_tag.push_back(Waiting { transaction, left: bytes });
        self.count += 1;
    }

    fn answer(
        &mut self,
        place: Place,
        seen: &Seen<'_>,
        status: CompletionStatus,
    ) -> Option<(Transaction, bool)> {
        let Some(waiting) = self.waiting.get_mut(&place).and_then(VecDeque::front_mut) else {
            self.orphans += 1;
            return None;
        };
        let bytes = u32::from(seen.header.length) * 4;
        waiting.left = waiting.left.saturating_sub(bytes);
        waiting.transaction.ended = seen.at;
        waiting.transaction.completions += 1;
        waiting.transaction.status = status;
        let (transaction, has_ended) =
            (waiting.transaction, waiting.left == 0 || status != CompletionStatus::Success);
        if has_ended {
            self.count -= 1;
            let of_tag = self.waiting.get_mut(&place)?;
            of_tag.pop_front();
            if of_tag.is_empty() {
                self.waiting.remove(&place);
            }
        }
        Some((transaction, has_ended))
    }

    /// The number of requests that wait for completions.
    pub const fn waiting(&self) -> usize {
        self.count
    }

    /// The number of requests that were given up because too many waited.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number of completions whose request is not in the capture.
    pub const fn orphans(&self) -> u64 {
        self.orphans
    }
}
