//! The parts that every Farlane protocol engine is made of.
//!
//! An *engine* is a pure state machine: it owns no socket, clock, thread or host memory. Inputs and
//! the time go in, outputs are polled out, and the world around the engine (live or simulated) does
//! the rest. Start at [`Engine`] for the contract and [`settle`] for the calling rule.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod buffer;
mod contract;
mod crc;
mod deadlines;
mod entropy;
#[doc(hidden)]
pub mod fuzz;
mod loan;
mod origin;
mod outbox;
mod queue;
mod rng;
mod script;
pub mod state;
mod time;
mod watch;

pub use buffer::{Buffer, BufferMut, Pool, SharedPool};
pub use contract::{Engine, drain, fire, next_wake, settle};
pub use crc::{CRC32_POLYNOMIAL, Crc32, Crc32c, crc32, crc32c};
pub use deadlines::{DeadlineList, Deadlines};
pub use entropy::Entropy;
pub use loan::{Lender, Loan};
pub use origin::Origin;
pub use outbox::Outbox;
pub use queue::pop;
pub use rng::Rng;
pub use script::{Asker, Script, Step};
pub use time::{Instant, Nanos};
pub use watch::{Watch, Watched, Watcher};
