//! Clients that cannot be served, because another client is connected already.
//!
//! Each client is heard once before its connection is closed. QEMU 11 aborts when a connection ends
//! before QEMU has sent its first message; afterwards, QEMU reports the failure.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use engine::{Instant, Nanos, Pool};

use crate::reactor::{Attention, Sources};
use crate::sys::unix::Connection;

/// Number of connections that are kept at once; one more closes the oldest.
const KEPT_MAX: usize = 8;
/// How long a kept client may say nothing.
const SILENCE_MAX: Nanos = Nanos::from_secs(1);

/// The connections that are yet to be closed, oldest first, each with the time at which it is
/// closed in any case.
#[derive(Default)]
pub(super) struct TurnedAway(VecDeque<(Instant, Connection)>);

impl TurnedAway {
    /// Keeps a connection until its client has sent something. Closes the connection at once if it
    /// cannot be registered with the kernel.
    pub(super) fn add(&mut self, now: Instant, connection: Connection, sources: &Sources) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        if sources.add(connection.as_raw_fd(), Attention::OnNews).is_ok() {
            self.0.push_back((now + SILENCE_MAX, connection));
        }
    }

    /// Closes the connections whose clients have sent something, have left, or have been silent for
    /// too long.
    pub(super) fn close(&mut self, now: Instant, pool: &mut Pool) {
        self.0.retain_mut(|(until, connection)| {
            let stays = now < *until && !connection.has_news();
            if !stays {
                // Unread bytes would reach the client as a reset instead of an end.
                let _ = connection.receive(pool);
            }
            stays
        });
    }

    /// When the oldest connection is closed if its client stays silent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}
