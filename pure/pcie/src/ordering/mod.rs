//! The transaction ordering rules (section 2.4.1) and the flow-control credits.

mod credits;
#[cfg(test)]
mod tests;

pub use credits::{Credit, Credits, DATA_CREDIT_BYTES};

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::wire::{Bdf, Header, Kind, MemoryOperation, Packet};

/// Maximum number of posted packets ahead that are compared with an ID-ordered packet before the
/// packet is held back.
const ID_ORDERING_SEARCH_MAX: usize = 8;

/// A kind of traffic with its own flow-control credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Posted requests (P): memory writes and messages.
    Posted,
    /// Non-posted requests (NP), which are answered by completions.
    NonPosted,
    /// Completions (Cpl).
    Completion,
}

impl Lane {
    /// Number of lanes.
    pub const COUNT: usize = 3;
    /// All lanes, in the order of [`Lane::index`].
    pub const ALL: [Self; Self::COUNT] = [Self::Posted, Self::NonPosted, Self::Completion];

    /// The lane that a packet with this header travels in.
    pub const fn of(header: &Header) -> Self {
        match &header.kind {
            Kind::Completion(_) => Self::Completion,
            _ if header.is_posted() => Self::Posted,
            _ => Self::NonPosted,
        }
    }
    /// Index of the lane in arrays over all lanes: 0, 1 or 2.
    pub const fn index(self) -> usize {
        match self {
            Self::Posted => 0,
            Self::NonPosted => 1,
            Self::Completion => 2,
        }
    }
}

/// Number of data credits, of 16 bytes each, that `packet`'s payload takes.
///
/// # Panics
/// When the payload is 64 GiB or longer, which no buffer is.
pub fn data_credits(packet: &Packet) -> u32 {
    u32::try_from(packet.payload.len().div_ceil(DATA_CREDIT_BYTES)).expect("a payload is smaller than 64 GiB")
}

/// An entry of the ordering table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// "No": must not pass, because passing would break the producer/consumer model.
    Never,
    /// "Y/N": may pass or stay behind; both are correct.
    May,
    /// "Yes": must be able to pass, because otherwise a cycle of full buffers would deadlock.
    Must,
}

/// Looks up in the ordering table whether `later` may pass `earlier`, which arrived before it.
pub fn passing(later: &Header, earlier: &Header) -> Passing {
    match (Lane::of(later), Lane::of(earlier)) {
        (Lane::Posted | Lane::Completion, Lane::NonPosted) => Passing::Must,
        (Lane::Posted | Lane::NonPosted, Lane::Completion) | (Lane::NonPosted, Lane::NonPosted) => {
            Passing::May
        }
        (Lane::Completion, Lane::Completion) if same_transaction(later, earlier) => Passing::Never,
        (Lane::Completion, Lane::Completion) => Passing::May,
        (_, Lane::Posted) if relaxed(later) => Passing::May,
        (_, Lane::Posted) if later.traits.attributes().id_ordering && origin(later) != origin(earlier) => {
            Passing::May
        }
        (_, Lane::Posted) => Passing::Never,
    }
}

/// Whether Relaxed Ordering lets `later` pass a posted request. On a read request the bit applies
/// to the completions, not to the request.
fn relaxed(later: &Header) -> bool {
    let speaks_of_itself = match later.kind {
        Kind::Memory(request) => {
            !matches!(request.operation, MemoryOperation::Read | MemoryOperation::ReadLocked)
        }
        Kind::Io(_) | Kind::Config(_) => false,
        Kind::Message(_) | Kind::Completion(_) => true,
    };
    later.traits.attributes().relaxed_ordering && speaks_of_itself
}

fn same_transaction(one: &Header, other: &Header) -> bool {
    match (&one.kind, &other.kind) {
        (Kind::Completion(one), Kind::Completion(other)) => {
            (one.requester, one.tag) == (other.requester, other.tag)
        }
        _ => false,
    }
}

/// The function that sent a TLP: the requester of a request, the completer of a completion.
const fn origin(header: &Header) -> Bdf {
    match &header.kind {
        Kind::Memory(request) => request.requester,
        Kind::Io(request) => request.requester,
        Kind::Config(request) => request.requester,
        Kind::Message(message) => message.requester,
        Kind::Completion(completion) => completion.completer,
    }
}

/// Decides whether a packet may be sent on, and takes the packet's credits if it may.
pub trait Allowance {
    /// Takes one header credit and `data` data credits of `lane`, or takes nothing if they do not
    /// suffice. Returns whether they sufficed.
    fn take(&mut self, lane: Lane, data: u32) -> bool;
}

/// An [`Allowance`] without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unbounded;

impl Allowance for Unbounded {
    fn take(&mut self, _: Lane, _: u32) -> bool {
        true
    }
}

/// The lane whose first packet arrived the earliest.
const fn oldest(arrivals: &[u64; Lane::COUNT]) -> Lane {
    let [posted, non_posted, completion] = *arrivals;
    if posted <= non_posted && posted <= completion {
        Lane::Posted
    } else if non_posted <= completion {
        Lane::NonPosted
    } else {
        Lane::Completion
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    arrival: u64,
    packet: Packet,
}

/// Packets in transit in one direction of a link, in three lanes that are each first in, first out.
///
/// The next packet to leave is the oldest one that the ordering table and the credits allow. Every
/// call takes constant time. Once the lanes have grown to their working size, nothing is allocated.
/// The queue has no limit of its own: the caller of [`Queue::push`] has taken a credit for the
/// packet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    lanes: [VecDeque<Entry>; Lane::COUNT],
    arrivals: u64,
    bytes: usize,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }
    /// Number of waiting packets.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }
    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }
    /// Total length in bytes of the waiting packets' payloads.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the packet that has just arrived.
    pub fn push(&mut self, packet: Packet) {
        self.bytes += packet.payload.len();
        let entry = Entry { arrival: self.arrivals, packet };
        self.arrivals += 1;
        self.lanes[Lane::of(&entry.packet.header).index()].push_back(entry);
    }

    /// Removes the oldest packet that may go now, if any.
    pub fn pop(&mut self, allowance: &mut impl Allowance) -> Option<Packet> {
        let mut arrivals = Lane::ALL.map(|lane| self.arrival_of(lane));
        for _ in Lane::ALL {
            let lane = oldest(&arrivals);
            if arrivals[lane.index()] == u64::MAX {
                return None;
            }
            let entry = self.lanes[lane.index()].front()?;
            if self.in_order(lane, entry) && allowance.take(lane, data_credits(&entry.packet)) {
                let packet = self.lanes[lane.index()].pop_front()?.packet;
                self.bytes -= packet.payload.len();
                return Some(packet);
            }
            arrivals[lane.index()] = u64::MAX;
        }
        None
    }

    /// The packet that would go next if credits were unlimited, if any.
    pub fn peek(&self) -> Option<&Packet> {
        let heads = Lane::ALL.into_iter().filter_map(|lane| Some((lane, self.lanes[lane.index()].front()?)));
        heads.min_by_key(|(_, entry)| entry.arrival).map(|(_, entry)| &entry.packet)
    }

    /// Drops every packet, as when the link goes down.
    pub fn clear(&mut self) {
        self.lanes.iter_mut().for_each(VecDeque::clear);
        self.bytes = 0;
    }

    /// Arrival number of the first packet in `lane`; the maximum for an empty lane.
    fn arrival_of(&self, lane: Lane) -> u64 {
        self.lanes[lane.index()].front().map_or(u64::MAX, |entry| entry.arrival)
    }

    /// Whether `entry`, the first packet in `lane`, may pass all posted packets that arrived before
    /// it. No other packet can hold it back, because each lane keeps its order.
    fn in_order(&self, lane: Lane, entry: &Entry) -> bool {
        if lane == Lane::Posted {
            return true;
        }
        let header = &entry.packet.header;
        let posted = &self.lanes[Lane::Posted.index()];
        let mut ahead = posted.iter().take_while(|posted| posted.arrival < entry.arrival);
        if relaxed(header) {
            return true;
        }
        // One `next` after the search shows whether there are packets beyond the limit of the
        // search.
        let searched = ahead.by_ref().take(ID_ORDERING_SEARCH_MAX);
        for posted in searched {
            if passing(header, &posted.packet.header) == Passing::Never {
                return false;
            }
        }
        ahead.next().is_none()
    }
}
