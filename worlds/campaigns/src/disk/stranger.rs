//! A stranger that dials a far end and sends nonsense.

use engine::{Instant, Nanos, Rng};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};

use super::crowd::greeting;

/// The longest pause between two actions.
const PAUSE_MAX: Nanos = Nanos::from_millis(40);
/// The largest number of random bytes sent at once.
const NONSENSE_MAX: u64 = 600;

/// A node that dials a far end and sends nonsense.
#[derive(Debug)]
pub(super) struct StrangerNode {
    peer: NodeId,
    rng: Rng,
    connection: Option<ConnectionId>,
    next_at: Instant,
    pub(super) gone: bool,
}

impl StrangerNode {
    pub(super) const fn new(peer: NodeId, rng: Rng) -> Self {
        Self { peer, rng, connection: None, next_at: Instant::from_nanos(1), gone: false }
    }

    pub(super) fn handle<P>(
        &mut self,
        context: &mut Context<'_, P>,
        connection: ConnectionId,
        event: &StreamEvent,
    ) {
        match event {
            StreamEvent::Opened => {
                let bytes = self.nonsense();
                context.send(connection, &bytes);
            }
            StreamEvent::Closed(_) => self.connection = None,
            _ => {}
        }
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        if self.gone {
            self.connection.take().into_iter().for_each(|connection| context.close(connection));
            return None;
        }
        if self.next_at <= context.now() {
            self.next_at = context.now() + Nanos::new(self.rng.below(PAUSE_MAX.get()) + 1);
            // The stranger hangs up, says more, or holds the line.
            match self.connection {
                Some(connection) if self.rng.one_in(2) => {
                    context.close(connection);
                    self.connection = None;
                }
                Some(connection) if self.rng.one_in(2) => {
                    let bytes = self.nonsense();
                    context.send(connection, &bytes);
                }
                Some(_) => {}
                None => self.connection = Some(context.dial(self.peer)),
            }
        }
        Some(self.next_at)
    }

    /// Random bytes, or a greeting with a flipped bit.
    fn nonsense(&mut self) -> Vec<u8> {
        let bound = if self.rng.one_in(2) { 1 + self.rng.below(NONSENSE_MAX) } else { 0 };
        let mut bytes = vec![0; usize::try_from(bound).expect("a few hundred")];
        self.rng.fill(&mut bytes);
        if bytes.is_empty() {
            bytes = greeting(&mut self.rng.fork("greeting")).to_vec();
            let place = usize::try_from(self.rng.below(bytes.len() as u64)).expect("a short greeting");
            bytes[place] ^= 1 << self.rng.below(8);
            if self.rng.one_in(4) {
                bytes.truncate(place);
            }
        }
        bytes
    }
}
