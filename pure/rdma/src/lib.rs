//! RDMA verbs as an engine (InfiniBand Architecture Specification, volume 1, chapters 10 and 11).
//!
//! A wire protocol owns a [`QueuePair`] and moves its bytes. The user of the connection, such as
//! NVMe over RDMA, sees only an [`Endpoint`]: it posts [`SendRequest`]s and [`ReceiveRequest`]s,
//! polls [`WorkCompletion`]s, and lends memory to the peer by [`Endpoint::register`].
//!
//! Memory passes by ownership, as [`Buffer`](engine::Buffer)s: a receive request has no memory of
//! its own, and its completion brings the bytes. Data that arrive in one piece are not copied.
//!
//! # Trust
//!
//! A peer names memory by a key, and each access is checked against the [`ProtectionDomain`]: the
//! region must be lent to that queue pair, with that right, and contain all the bytes. An invalid
//! access ends that queue pair and no other. Keys are random, so that a stale or guessed key names
//! nothing.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
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

pub use completion_queue::{CompletionQueue, SharedCompletionQueue};
pub use engine::SharedPool;

pub use endpoint::{Disconnected, Endpoint, Event, Limits, PRIVATE_DATA_MAX};
pub use local::{LocalConfig, LocalEndpoint};
pub use memory::{AccessError, Exposure, Key, ProtectionDomain, RegisterError, Remote, SharedDomain};
pub use queue_pair::{Config, QueuePair, QueuePairId, State, TransitionError};
pub use receive_queue::{ReceiveQueue, SharedReceiveQueue};
pub use work::{Done, Inline, Operation, PostError, ReceiveRequest, SendRequest, WorkCompletion, WorkError};
