//! Times of launch for the datagrams that a socket sends, and counts of those that missed them.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;

use engine::Nanos;
use network_models::tsn::launch::Launcher;

use super::options::Launch;
use crate::sys::clock;
use crate::sys::outgoing;

/// Bytes of the link that a frame takes beside its payload: head, tag, check sequence, preamble
/// and gap.
const AROUND: u64 = 14 + 4 + 4 + 20;
/// The most reports that one look takes.
const REPORTS_MAX: usize = 64;

/// Gives the sent datagrams their times of launch.
#[derive(Debug)]
pub(super) struct Launching {
    launcher: Launcher,
    /// Bytes of headers that the system adds to a datagram.
    headers: u64,
    missed: Cell<u64>,
}

impl Launching {
    /// Has `sockets` send datagrams of at most `longest` bytes, to which the system adds `headers`
    /// bytes, at times of launch.
    ///
    /// # Errors
    /// When the kernel has no such times, or not every datagram fits a window.
    pub(super) fn new<'a, S: AsRawFd + 'a>(
        launch: &Launch,
        sockets: impl Iterator<Item = &'a S>,
        longest: usize,
        headers: u64,
    ) -> io::Result<Self> {
        for socket in sockets {
            outgoing::enable_launch(socket)?;
        }
        let whole = longest as u64 + headers + AROUND;
        let launcher = Launcher::new(launch.windows, launch.lead, whole).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("times of launch: {error}"))
        })?;
        Ok(Self { launcher, headers, missed: Cell::new(0) })
    }

    /// When a datagram of `length` bytes leaves that is sent now.
    pub(super) fn next(&mut self, length: usize) -> Nanos {
        self.launcher.next(clock::network(), length as u64 + self.headers + AROUND)
    }

    /// How many datagrams have missed their times of launch.
    pub(super) const fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// Counts the datagrams that missed their time, as `socket` reports them.
    pub(super) fn heed(&self, socket: &impl AsRawFd) {
        let missed = outgoing::take_missed(socket, REPORTS_MAX);
        if missed > 0 {
            self.missed.set(self.missed.get() + missed);
            let all = self.missed.get();
            tracing::warn!(missed = all, "{all} datagrams missed their times of launch and were not sent");
        }
    }
}
