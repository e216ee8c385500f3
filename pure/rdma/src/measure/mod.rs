//! Measurements of a connection: latency and bandwidth of sends, writes and reads, as perftest
//! (`ib_send_lat`, `ib_write_bw` and their kin) defines them.
//!
//! A [`Client`] asks for one [`Test`] in the private data of its connection. A [`Server`] lends the
//! memory that the test needs, and answers. Both are users of an [`Endpoint`](crate::Endpoint), so
//! they measure any transport. The owner polls them after each event of the endpoint.
//!
//! | | latency | bandwidth |
//! |---|---|---|
//! | send | a message to and fro; half of the time counts | messages as fast as the server takes |
//! | write | a write to and fro; half of the time counts | writes, then an empty message |
//! | read | a read; the whole time counts | reads |
//!
//! perftest's ends poll their memory for a write. Here, an empty message behind the write announces
//! it, so that an end may sleep. The measurement includes that message.
//!
//! A server also answers rdma-core's `rping -c`, which asks for no test. With a [`Desk`], it
//! answers perftest's clients instead. A client also measures with `rping -s` and with perftest's
//! servers ([`Peer`]).
//!
//! # Trust
//!
//! A server accepts tests up to its [`Limits`], and refuses others with a reason. A peer that sends
//! a message that its test does not have at this point loses its connection, and nothing else.

mod client;
mod own;
mod perftest;
mod rping;
mod run;
mod server;
#[cfg(test)]
mod tests;
mod wire;

use alloc::rc::Rc;
use alloc::vec;

use engine::{Buffer, Nanos};

pub use client::{Client, Failure, Output, Peer, Step};
pub use perftest::{Desk, Version};
pub use server::{Limits, Server};
pub use wire::{MESSAGE_LENGTH, Mode, Refusal, Test, Verb};

use crate::{Inline, Operation, SharedPool};

/// The identifiers of work requests that this module posts.
const DATA: u64 = 0;
const NOTICE: u64 = 1;

/// Length in bytes of messages with content: a count, or a region.
const NOTICE_LENGTH: u32 = 16;

/// How long a server waits for a client's next message before it ends the connection. The server
/// does not see the client's reads and writes, so such a test may take this long.
pub const SILENCE_MAX: Nanos = Nanos::from_secs(600);

/// A payload of `size` bytes that are not all alike.
fn pattern(pool: &SharedPool, size: u32) -> Buffer {
    let mut place = Rc::clone(pool).borrow_mut().take(size as usize);
    for (at, byte) in (0_u32..).zip(place.iter_mut()) {
        *byte = at.wrapping_mul(2_654_435_761).to_be_bytes()[0];
    }
    pool.borrow_mut().seal(place)
}

/// A message of `data`.
const fn message(data: Buffer) -> Operation {
    Operation::Send { inline: Inline::EMPTY, data, invalidate: None, immediate: None }
}

/// A message with the content `words`.
fn notice(words: &[u8]) -> Operation {
    Operation::Send { inline: Inline::new(words), data: Buffer::EMPTY, invalidate: None, immediate: None }
}

/// Memory for a peer to read: zeros.
fn zeros(size: u32) -> Buffer {
    Buffer::from(vec![0; size as usize])
}
