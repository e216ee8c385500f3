//! Messages between the two ends of a link with several strands: vendor-defined messages that end
//! at the other end of the link.
//!
//! The messages travel like packets: numbered, sent again, and in order with posted packets. The
//! first double word of their data has the type of message.

use alloc::vec::Vec;

use engine::Pool;
use pcie::config::ids;
use pcie::switch::Strand;
use pcie::wire::{Bdf, Kind, MessageRouting, Packet};
use serde::{Deserialize, Serialize};

use super::STRANDS_MAX;
use crate::frame::AheadKey;

/// Vendor_Defined Type 1: a receiver that does not know the message discards it.
const CODE: u8 = 0x7f;
/// Shift of the vendor ID in the last two double words of the header.
const VENDOR_SHIFT: u32 = 32;

const ORDER: u32 = 1;
const COURSES: u32 = 2;
const CLEAR: u32 = 3;

/// The most ranges of memory in one message.
pub(super) const RANGES_MAX: usize = 128;
const RANGE_BYTES: usize = 12;

/// A count of another strand's posted packets, which come before everything that follows on this
/// strand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct After {
    pub(super) strand: Strand,
    /// Posted packets since the link came up or was reset; wraps.
    pub(super) posted: u32,
}

/// The contents of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Later packets wait for these packets.
    Order(Vec<After>),
    /// Writes to these ranges of host memory need only the order of this strand. A range is an
    /// address and a length.
    Courses { key: AheadKey, strand: Strand, ranges: Vec<(u64, u32)> },
    /// All ranges sent before are void.
    Clear,
}

/// Whether `packet` is a message of the link itself. A packet from outside must not pass for one.
pub(super) fn is_message(packet: &Packet) -> bool {
    let Kind::Message(message) = &packet.header.kind else { return false };
    message.routing == MessageRouting::Local && message.code == CODE && vendor(message.body) == ids::VENDOR
}

fn vendor(body: u64) -> u16 {
    let [_, _, high, low, ..] = body.to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl Message {
    pub(super) fn packet(&self, pool: &mut Pool) -> Packet {
        let mut bytes = Vec::new();
        let mut put = |word: u32| bytes.extend_from_slice(&word.to_be_bytes());
        match self {
            Self::Order(after) => {
                put(ORDER);
                for After { strand, posted } in after {
                    put(u32::from(strand.0));
                    put(*posted);
                }
            }
            Self::Courses { key, strand, ranges } => {
                put(COURSES);
                put(key.0);
                put(u32::from(strand.0));
                for (address, length) in ranges {
                    let (high, low) = (address >> 32, address & u64::from(u32::MAX));
                    for half in [high, low] {
                        put(u32::try_from(half).unwrap_or(u32::MAX));
                    }
                    put(*length);
                }
            }
            Self::Clear => put(CLEAR),
        }
        let body = u64::from(ids::VENDOR) << VENDOR_SHIFT;
        let data = pool.copy(&bytes);
        Packet::message_with_data(Bdf::default(), MessageRouting::Local, CODE, body, data)
    }

    /// Decodes the peer's message; `None` if it makes no sense.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let (words, rest) = payload.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
        if !rest.is_empty() {
            return None;
        }
        let strand =
            |word: u32| u8::try_from(word).ok().map(Strand).filter(|strand| strand.index() < STRANDS_MAX);
        match words.next()? {
            ORDER => {
                let mut after = Vec::new();
                while let Some(word) = words.next() {
                    if after.len() == STRANDS_MAX {
                        return None;
                    }
                    after.push(After { strand: strand(word)?, posted: words.next()? });
                }
                Some(Self::Order(after))
            }
            COURSES => {
                let (key, strand) = (AheadKey(words.next()?), strand(words.next()?)?);
                let count = words.len() / (RANGE_BYTES / 4);
                if key == AheadKey::ALL || count > RANGES_MAX || !words.len().is_multiple_of(RANGE_BYTES / 4)
                {
                    return None;
                }
                let mut ranges = Vec::with_capacity(count);
                while let Some(high) = words.next() {
                    let address = u64::from(high) << 32 | u64::from(words.next()?);
                    ranges.push((address, words.next()?));
                }
                Some(Self::Courses { key, strand, ranges })
            }
            CLEAR => words.next().is_none().then_some(Self::Clear),
            _ => None,
        }
    }
}
