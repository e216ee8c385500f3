//! The other end: how well it is known, and its messages one by one.

use alloc::vec::Vec;

use engine::Instant;

use crate::stream::{Message, Piece, Stream};
use crate::version::Negotiated;
use crate::wire::HeaderError;

/// Whether there is another end, and how well it is known.
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
    /// Whether its version should have come by `now`.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        matches!(self, Self::AwaitingVersion { until } if *until <= now)
    }
    /// When it is late; once it is known, what it owes is, from `owed` on.
    pub(crate) fn deadline(&self, owed: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Away => None,
            Self::AwaitingVersion { until } => Some(*until),
            Self::Ready(_) => owed,
        }
    }
}

/// An end that takes the other one's messages.
pub(crate) trait End<D> {
    fn peer(&self) -> &Peer;
    fn stream(&mut self) -> &mut Stream<D>;
    fn on_message(&mut self, now: Instant, message: Message<'_, D>);
    /// Where the next message begins is not known: the other end has to go.
    fn on_bad_header(&mut self, error: HeaderError);

    /// Takes a piece of the stream apart.
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
