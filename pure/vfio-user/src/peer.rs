//! The other end: how well it is known, and its messages one by one.

use alloc::vec::Vec;

use engine::Instant;

use crate::stream::{Message, Piece, Stream};
use crate::version::Negotiated;
use crate::wire::HeaderError;

/// Whether there is another end, and whether its version is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Away,
    AwaitingVersion { until: Instant },
    Ready(Negotiated),
}

impl Peer {
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self, Self::Away)
    }
    pub(crate) const fn negotiated(&self) -> Option<Negotiated> {
        match self {
            Self::Ready(negotiated) => Some(*negotiated),
            _ => None,
        }
    }
    /// Whether the other end's version should have come by `now`.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        matches!(self, Self::AwaitingVersion { until } if *until <= now)
    }
    /// When the other end is late: with its version, or, once the version is known, with an answer
    /// that is due at `owed`.
    pub(crate) fn deadline(&self, owed: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Away => None,
            Self::AwaitingVersion { until } => Some(*until),
            Self::Ready(_) => owed,
        }
    }
}

/// An end that handles the other end's messages.
pub(crate) trait End<D> {
    fn peer(&self) -> &Peer;
    fn stream(&mut self) -> &mut Stream<D>;
    fn on_message(&mut self, now: Instant, message: Message<'_, D>);
    /// Handles a bad header. The start of the next message is unknown, so the connection must end.
    fn on_bad_header(&mut self, error: HeaderError);

    /// Handles all messages in a piece of the stream.
    fn on_received(&mut self, now: Instant, bytes: &[u8], descriptors: Vec<D>) {
        let mut piece = Piece::new(bytes, descriptors);
        // The stream lends out a message while the end works on it.
        let mut stream = core::mem::take(self.stream());
        while !self.peer().is_away() {
            match stream.next(&mut piece) {
                Ok(Some(message)) => self.on_message(now, message),
                Ok(None) => {
                    *self.stream() = stream;
                    return;
                }
                Err(error) => self.on_bad_header(error),
            }
        }
    }
}
