//! rdma-core's `rping`, as the client of a measurement server and as the server of a client.
//!
//! `rping` sends no private data. For each ping, the client names a region, which the server reads,
//! and then a second one, to which the server writes the same bytes back. Each step of the server
//! ends with a message, whose contents do not count.

mod client;
mod server;

pub(super) use client::Pings;
pub(super) use server::{Rping, is_rping};

use super::NOTICE_LENGTH;
use crate::{Key, Remote};

/// Length in bytes of a message: address, key and length of memory, big endian.
const MESSAGE_BYTES: usize = NOTICE_LENGTH as usize;

fn emit(remote: Remote) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..8].copy_from_slice(&remote.address.to_be_bytes());
    bytes[8..12].copy_from_slice(&remote.key.0.to_be_bytes());
    bytes[12..].copy_from_slice(&remote.length.to_be_bytes());
    bytes
}

fn parse(message: &[u8]) -> Option<Remote> {
    let message: &[u8; MESSAGE_BYTES] = message.try_into().ok()?;
    let (address, rest) = message.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    Some(Remote {
        address: u64::from_be_bytes(*address),
        key: Key(u32::from_be_bytes(*key)),
        length: u32::from_be_bytes(rest.try_into().ok()?),
    })
}
