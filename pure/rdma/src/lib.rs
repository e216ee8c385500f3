//! RDMA verbs as an engine (InfiniBand Architecture Specification, volume 1, chapters 10 and 11).
//!
//! A wire protocol owns a [`QueuePair`] and moves its bytes. What uses the connection, such as NVMe
//! over RDMA, sees an [`Endpoint`] only: it posts [`SendRequest`]s and [`ReceiveRequest`]s, polls
//! [`WorkCompletion`]s, and lends memory to the peer by [`Endpoint::register`].
//!
//! Memory passes by ownership, as [`Buffer`](engine::Buffer)s: a receive request has no place of
//! its own, and its completion brings the bytes. Nothing is copied that came in one piece.
//!
//! # Trust
//!
//! A peer names memory by a key, and each access is checked against the [`ProtectionDomain`]: the
//! key must be of a region that is lent to that queue pair, the right must be there, and the bytes
//! must lie within it. A wrong access ends that queue pair and no other. Keys are random, so that a
//! stale or guessed one names nothing.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod completion_queue;
mod endpoint;
pub mod fuzz;
mod local;
pub mod measure;
mod memory;
mod queue_pair;
mod receive_queue;
mod work;

use alloc::rc::Rc;
use core::cell::RefCell;

use engine::Pool;

pub use completion_queue::{CompletionQueue, SharedCompletionQueue};
pub use endpoint::{Disconnected, Endpoint, Event, Limits, PRIVATE_DATA_MAX};
pub use local::{LocalConfig, LocalEndpoint};
pub use memory::{AccessError, Exposure, Key, ProtectionDomain, RegisterError, Remote, SharedDomain};
pub use queue_pair::{Config, QueuePair, QueuePairId, State, TransitionError};
pub use receive_queue::{ReceiveQueue, SharedReceiveQueue};
pub use work::{Done, Inline, Operation, PostError, ReceiveRequest, SendRequest, WorkCompletion, WorkError};

/// A pool of blocks that several queue pairs share.
pub type SharedPool = Rc<RefCell<Pool>>;
