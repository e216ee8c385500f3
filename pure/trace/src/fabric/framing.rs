//! The framing of a stream: PDUs of NVMe/TCP, or messages of RDMA.

use alloc::collections::VecDeque;

use super::Event;
use super::mpa::Mpa;
use super::pdus::{Pdus, plausible};
use crate::seen::Mark;

/// Cuts the bytes of one direction of a connection.
#[derive(Debug, Default)]
pub(super) enum Framing {
    /// No byte of the stream was seen.
    #[default]
    Unknown,
    Tcp(Pdus),
    Rdma(Mpa),
}

impl Framing {
    /// The framing of a stream that begins with these bytes, if it is a known one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match plausible(bytes) {
            Some(_) => Some(Self::Tcp(Pdus::default())),
            None => Mpa::of(bytes).map(Self::Rdma),
        }
    }

    /// Whether the rest of the stream is lost.
    pub(super) const fn is_lost(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Tcp(pdus) => pdus.is_lost(),
            Self::Rdma(mpa) => mpa.is_lost(),
        }
    }

    /// Appends to `found` the units that end within `bytes`, which passed at `at`.
    pub(super) fn take(&mut self, at: Mark, bytes: &[u8], found: &mut VecDeque<Event>) {
        if matches!(self, Self::Unknown) {
            // A stream of neither framing is lost in the same way as PDUs are.
            *self = Self::of(bytes).unwrap_or_else(|| Self::Tcp(Pdus::default()));
        }
        match self {
            Self::Unknown => {}
            Self::Tcp(pdus) => pdus.take(at, bytes, |pdu| found.push_back(Event::of(&pdu))),
            Self::Rdma(mpa) => {
                mpa.take(at, bytes, |message, begun| found.push_back(Event::Rdma(message, begun, at)));
            }
        }
    }

    /// Skips bytes that were not captured. Returns false if the position in the stream is lost.
    pub(super) fn skip(&mut self, at: Mark, bytes: u32, found: &mut VecDeque<Event>) -> bool {
        match self {
            Self::Unknown => false,
            Self::Tcp(pdus) => pdus.skip(at, bytes, |pdu| found.push_back(Event::of(&pdu))),
            Self::Rdma(mpa) => mpa.skip(bytes),
        }
    }
}
