//! Clients that can't be served, as there is one already.
//!
//! Each is heard once before its connection is closed: QEMU 11 aborts where a connection ends before QEMU has sent its first
//! message, and says what failed where it ends afterwards.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use engine::{Instant, Nanos, Pool};

use crate::reactor::{Attention, Sources};
use crate::unix::Connection;

/// How many are kept at once; one more closes the oldest.
const KEPT_MAX: usize = 8;
/// How long one may say nothing.
const SILENCE_MAX: Nanos = Nanos::from_secs(1);

/// The connections that are yet to be closed, the oldest first, with the time at which each is closed in any case.
#[derive(Default)]
pub(super) struct TurnedAway(VecDeque<(Instant, Connection)>);

impl TurnedAway {
    /// Keeps a connection until its client has said something; closes it at once if the kernel can't tell when.
    pub(super) fn add(&mut self, now: Instant, connection: Connection, sources: &Sources) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        if sources.add(connection.as_raw_fd(), Attention::OnNews).is_ok() {
            self.0.push_back((now + SILENCE_MAX, connection));
        }
    }

    /// Closes the connections whose clients have said something, have left, or have said nothing for long enough.
    pub(super) fn close(&mut self, now: Instant, pool: &mut Pool) {
        self.0.retain_mut(|(until, connection)| {
            let stays = now < *until && !connection.has_news();
            if !stays {
                // Bytes that nobody has taken would reach the client as a reset instead of an end.
                let _ = connection.receive(pool);
            }
            stays
        });
    }

    /// When a connection is to be closed whose client says nothing.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}
