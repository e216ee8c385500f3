//! A far end that another process goes on with.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use assemblies::far::{Input, Seats};
use engine::{Engine, Instant, Nanos};
use tunnel::downstream;

use super::{Event, FarDriver};
use crate::media::Media;
use crate::sys::clock::Clock;
use crate::sys::digest::crc32c;
use crate::sys::entropy;

/// The pause between two looks at media that still work.
const LOOK_EVERY: Duration = Duration::from_micros(50);

impl<F: FnMut(Event)> FarDriver<F> {
    /// Brings the far end to rest: lets go of the connections to hosts, which come back and resume
    /// their sessions, and waits until no medium works, for `patience` at most. A far end that
    /// rests takes no connection until [`FarDriver::wake`]. Returns whether it rests.
    ///
    /// # Errors
    /// When io_uring itself fails, which a healthy kernel does not.
    pub fn rest(&mut self, clock: Clock, patience: Nanos) -> io::Result<bool> {
        self.resting = true;
        let mut now = clock.now().max(self.latest);
        for peer in &mut self.shell.peers {
            if peer.closing.replace(Instant::ZERO).is_none() {
                let input = downstream::Input::Disconnected(peer.id);
                self.far.engine_mut().handle_input(now, Input::Network(input));
            }
            peer.stream.close();
        }
        let until = now + patience;
        loop {
            self.far.exchange(now, &mut self.shell);
            let inputs = &mut self.shell.inputs;
            let media = self.shell.backing.media_to_change();
            let done = media.reap(&mut |completion| inputs.push_back(completion))?;
            let is_quiet = media.in_flight() == 0 && inputs.is_empty();
            now = clock.now().max(now);
            self.latest = now;
            if is_quiet {
                return Ok(true);
            }
            if now >= until {
                return Ok(false);
            }
            if done == 0 {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Serves hosts again after [`FarDriver::rest`].
    pub const fn wake(&mut self) {
        self.resting = false;
    }

    /// Goes on with the engines of another process, which have come to rest there.
    #[must_use]
    pub fn succeeding(mut self, mut far: Seats) -> Self {
        far.adopt(&entropy::system(), crc32c);
        *self.far.engine_mut() = far;
        self
    }

    /// The media of the SSD.
    pub const fn media(&self) -> &Media {
        self.shell.backing.media()
    }

    /// Gives the SSD other media with the same contents. Returns the former ones.
    pub fn exchange_media(&mut self, media: Media) -> Media {
        std::mem::replace(self.shell.backing.media_to_change(), media)
    }

    /// A copy of the listening socket's descriptor, for another process.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn listening_socket(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Whether hosts may come by another way than TCP, which another process could not go on with.
    pub const fn has_other_ways(&self) -> bool {
        self.quic.is_some() || self.shm.is_some() || !self.datagrams.is_empty()
    }
}
