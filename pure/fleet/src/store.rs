//! The contract with the store.
//!
//! A store is a linearizable map from keys to objects. Each change has the next **revision**. A
//! transaction compares revisions of keys, and the term of the leader that sends it, and applies
//! either all of its writes or none. Its answer may be lost: [`Answer::Unknown`] is normal. The
//! controller then stands for another term, so that the store refuses the writes later.
//!
//! Watchers get events in the order of revisions. A store may have forgotten the events that a
//! watcher has missed, which the watcher learns by [`Event::Compacted`].

use alloc::vec::Vec;

use crate::object::{Key, Object};

/// The number of a change of the store; 0 for a key without an object.
pub type Revision = u64;

/// Changes that the store applies together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The term in which the sender was elected. The store refuses the transactions of another.
    pub term: u64,
    /// The revisions that keys must have.
    pub compares: Vec<(Key, Revision)>,
    /// The new objects; `None` deletes.
    pub writes: Vec<(Key, Option<Object>)>,
}

/// The answer of the store to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The writes were applied, with this revision.
    Done(Revision),
    /// A key had another revision, or the sender is not the leader: nothing was applied.
    Conflict,
    /// The writes may have been applied, or may be applied later.
    Unknown,
}

/// What a store reports to a controller that watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key has another object, or none.
    Changed {
        /// The number of the change.
        revision: Revision,
        /// What has changed.
        key: Key,
        /// The new object.
        object: Option<Object>,
    },
    /// All objects at a revision, each with the revision of its last change.
    Listed {
        /// The number with which the list was asked for.
        number: u64,
        /// The revision of the list.
        revision: Revision,
        /// The objects.
        objects: Vec<(Key, Revision, Object)>,
    },
    /// Events were missed: the controller asks for a list.
    Compacted,
}
