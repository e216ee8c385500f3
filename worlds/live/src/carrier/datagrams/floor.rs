//! The cost of a machine's bare frames without any of our protocol: the floor to compare our
//! figures with.

use std::io;

use datagrams::PACKET_KINDS;
use engine::Nanos;

use super::ethernet::{self, Ethernet};
use super::frames::Frames;
use super::options::Options;
use crate::sys::clock::Clock;

/// How long one side waits for the other before it gives up.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Bytes of a frame's payload before its padding: those by which AF_XDP finds its receiver.
const HEAD: usize = 12;
/// The name of the side that begins, by which AF_XDP recognises frames for it.
const FIRST: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// One side of a ping-pong of bare frames. It spins.
#[derive(Debug)]
pub struct Rally {
    frames: Frames,
    clock: Clock,
}

impl Rally {
    /// Opens the interface that `place` names, for the side that begins or for the other.
    ///
    /// # Errors
    /// When there is no such interface, or this process may not send bare frames.
    pub fn open(place: Ethernet, begins: bool) -> io::Result<Self> {
        let mut frames = Frames::open(place, &Options::default())?;
        frames.open_lane(begins.then_some(FIRST));
        Ok(Self { frames, clock: Clock::start() })
    }

    /// Where this side is: `IFACE/MAC`.
    pub fn name(&self) -> String {
        self.frames.name()
    }

    /// Sends each of `count` frames back.
    ///
    /// # Errors
    /// When the interface fails, or nothing comes for long.
    pub fn answer(&mut self, count: u32) -> io::Result<()> {
        for _ in 0..count {
            let (from, mut bytes) = self.next()?;
            bytes[4..HEAD].copy_from_slice(&FIRST);
            self.frames.send(from, &bytes, bytes.len());
        }
        Ok(())
    }

    /// Sends `count` frames with payloads of `length` bytes to the far side called `far`
    /// (`IFACE/MAC`), each when the one before has come back, and returns how long each took.
    ///
    /// # Errors
    /// When `far` is no such name, the interface fails, or nothing comes back for long.
    pub fn round_trips(&mut self, far: &str, length: usize, count: u32) -> io::Result<Vec<Nanos>> {
        let (place, station) = Ethernet::with_station(far).map_err(io::Error::other)?;
        let to = self.frames.reached(station);
        let mut bytes = vec![0; length.max(HEAD)];
        bytes[1] = *PACKET_KINDS.start();
        bytes[4..6].copy_from_slice(&datagrams::names_of(place.port));
        let one = |_| {
            let since = self.clock.now();
            self.frames.send(to, &bytes, bytes.len());
            self.next()?;
            Ok(self.clock.now() - since)
        };
        (0..count).map(one).collect()
    }

    /// The next frame, and whose it is.
    fn next(&mut self) -> io::Result<(std::net::SocketAddr, Vec<u8>)> {
        let (since, mut came) = (self.clock.now(), None);
        loop {
            let now = self.clock.now();
            self.frames.look(now, |from, bytes| {
                if bytes.len() >= HEAD && ethernet::station(from).is_some() {
                    came = Some((from, bytes.to_vec()));
                }
            })?;
            match came.take() {
                Some(came) => return Ok(came),
                None if now - since > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }
}
