//! Connections by number.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use rdma::QueuePairId;

use crate::connection::Connection;

/// Bits of a queue pair's number that index the connection.
const INDEX_BITS: u32 = 14;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// The other bits count how often the slot was used. Zero is skipped, because queue pairs 0 and 1
/// are reserved.
const GENERATIONS: u32 = (1 << (24 - INDEX_BITS)) - 1;
/// The most connections.
pub(super) const SLOTS_MAX: usize = 1 << INDEX_BITS;

/// The index of a connection and its generation, which is also the number of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    const fn new(index: u32, generation: u32) -> Self {
        Self(generation << INDEX_BITS | index)
    }

    const fn index(self) -> usize {
        (self.0 & INDEX_MASK) as usize
    }

    pub(super) const fn of_queue_pair(number: u32) -> Self {
        Self(number)
    }

    pub(super) const fn queue_pair(self) -> QueuePairId {
        QueuePairId(self.0)
    }

    /// An identifier for connection management: the index of the connection, and random bits.
    pub(super) const fn identifier(self, random: u32) -> u32 {
        random & !INDEX_MASK | self.0 & INDEX_MASK
    }
}

#[derive(Debug)]
struct Place {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// The connections of a device.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: Vec<Place>,
    /// Free slots. The one that has been free for the longest time is used next.
    free: VecDeque<u32>,
}

impl Table {
    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Reserves a free slot. `start` is the first generation of a new slot.
    pub(super) fn reserve(&mut self, max: usize, start: u32) -> Option<Slot> {
        if self.len() >= max.min(SLOTS_MAX) {
            return None;
        }
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => {
                self.places.push(Place { generation: start % GENERATIONS + 1, connection: None });
                u32::try_from(self.places.len()).ok()? - 1
            }
        };
        Some(Slot::new(index, self.places[index as usize].generation))
    }

    /// Puts a connection into its reserved slot.
    pub(super) fn put(&mut self, slot: Slot, connection: Connection) {
        self.places[slot.index()].connection = Some(Box::new(connection));
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Connection> {
        let place = self.places.get(slot.index())?;
        place.connection.as_deref().filter(|connection| connection.pair.id() == slot.queue_pair())
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        let place = self.places.get_mut(slot.index())?;
        place.connection.as_deref_mut().filter(|connection| connection.pair.id() == slot.queue_pair())
    }

    /// The slot of the connection with the identifier that peers use.
    pub(super) fn find(&self, identifier: u32) -> Option<Slot> {
        let place = self.places.get((identifier & INDEX_MASK) as usize)?;
        let connection = place.connection.as_deref()?;
        (connection.identifiers.local == identifier).then(|| Slot(connection.pair.id().0))
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Box<Connection>> {
        self.get(slot)?;
        let place = self.places.get_mut(slot.index())?;
        place.generation = place.generation % GENERATIONS + 1;
        self.free.push_back(slot.0 & INDEX_MASK);
        place.connection.take()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.iter().map(|connection| Slot::of_queue_pair(connection.pair.id().0))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().filter_map(|place| place.connection.as_deref())
    }
}
