//! What the two ends of a link of several strands tell each other: vendor-defined messages that end at the other end of
//! the link.
//!
//! They travel as packets do, numbered and sent again, in order with what is posted. All have the first double word of
//! their data in common: what they are.

use alloc::vec::Vec;

use engine::Pool;
use pcie::config::ids;
use pcie::wire::{Bdf, Kind, MessageRouting, Packet};

use super::STRANDS_MAX;
use crate::frame::AheadKey;

/// Vendor_Defined Type 1: discarded by who does not know it.
const CODE: u8 = 0x7f;
/// Where in the third double word the vendor is.
const VENDOR_SHIFT: u32 = 32;

const ORDER: u32 = 1;
const COURSES: u32 = 2;
const CLEAR: u32 = 3;

/// Ranges of memory in one message, at most.
pub(super) const RANGES_MAX: usize = 128;
const RANGE_BYTES: usize = 12;

/// So many posted packets of another strand come before what follows on this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct After {
    pub(super) strand: u8,
    /// Counted since the link came up or was reset; wraps.
    pub(super) posted: u32,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// What follows waits for these.
    Order(Vec<After>),
    /// Writes to these ranges of host memory, each an address and a length, need no order but that of this strand.
    Courses { key: AheadKey, strand: u8, ranges: Vec<(u64, u32)> },
    /// What was said of ranges is of no use any more.
    Clear,
}

/// Whether `packet` is such a message: one from outside must not pass for ours.
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
                    put(u32::from(*strand));
                    put(*posted);
                }
            }
            Self::Courses { key, strand, ranges } => {
                put(COURSES);
                put(key.0);
                put(u32::from(*strand));
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

    /// What the peer says; nothing if it makes no sense.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let (words, rest) = payload.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
        if !rest.is_empty() {
            return None;
        }
        let strand = |word: u32| u8::try_from(word).ok().filter(|strand| usize::from(*strand) < STRANDS_MAX);
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
