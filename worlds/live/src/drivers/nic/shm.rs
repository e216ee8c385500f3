//! A wire of shared memory: rings of cache lines between two processes.
//!
//! The first end that comes listens at a Unix socket. The second connects, makes the memory and
//! passes its descriptor. A byte says that the first has taken it. The socket stays: further bytes
//! wake an end that sleeps, and its end is the death of the peer.
//!
//! A packet of up to 60 bytes is one line of the ring. Before a longer one goes a line with its
//! length, which is shorter than any packet.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use engine::{Instant, Nanos, Pool};
use lines::INLINE_MAX;
use niq::{PACKET_MAX, PACKET_MIN};
use rustix::event::epoll;

use super::wire::WireError;
use crate::carrier::shm::{Rings, ring};
use crate::sys::descriptors::is_exhaustion;
use crate::sys::unix::{BindError, Connection, Listener, Received};

/// The message with the descriptor of the memory: the name and version of its layout.
pub(super) const GREETING: &[u8] = b"farlane niq wire 3\n";
/// Most pieces that one look takes from the socket: an end is woken by one byte.
const PIECES_A_LOOK: usize = 16;
/// Most ends that one look lets in or turns away.
const ENDS_A_LOOK: usize = 16;
/// How long an end that has connected may say nothing.
const SILENCE_MAX: Nanos = Nanos::from_secs(1);
/// Bytes of the line that says how long the next packet is.
const LENGTH: usize = 4;
/// Bytes of room that a packet is received into: the largest, and a line that is taken whole.
pub(super) const ROOM: usize = PACKET_MAX + 64;
/// How often an end without a peer looks for one.
const LOOK: Nanos = Nanos::from_millis(50);

const _: () = assert!(LENGTH < PACKET_MIN);

/// An end of a wire of shared memory.
pub(super) struct Shm {
    path: PathBuf,
    listener: Option<Listener>,
    connection: Option<Connection>,
    /// The memory that this end has passed, until the other says that it has taken it.
    passed: Option<Rings>,
    /// The rings that are shared with the peer. Without a connection, the peer is gone, and the
    /// packets in them are the last.
    rings: Option<Rings>,
    /// Readable while the listener or the connection has news.
    news: OwnedFd,
    /// A packet that is not sent whole yet, and how much of it is sent.
    unsent: Vec<u8>,
    sent: usize,
    /// The packet is long, and the line with its length is not sent yet.
    owes_length: bool,
    /// The length of the long packet that comes now, and how much of it has come.
    coming: Option<usize>,
    came: usize,
    /// This end sleeps or is about to, whether a peer is there or not.
    is_asleep: bool,
    /// The deadline for the greeting of a peer that has connected.
    greet_by: Instant,
    look_at: Instant,
    pool: Pool,
}

impl Shm {
    pub(super) fn open(path: PathBuf) -> Result<Self, WireError> {
        let mut shm = Self {
            path,
            listener: None,
            connection: None,
            passed: None,
            rings: None,
            news: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?,
            unsent: Vec::with_capacity(PACKET_MAX),
            sent: 0,
            owes_length: false,
            coming: None,
            came: 0,
            is_asleep: false,
            greet_by: Instant::ZERO,
            look_at: Instant::ZERO,
            pool: Pool::default(),
        };
        shm.meet()?;
        Ok(shm)
    }

    pub(super) const fn is_up(&self) -> bool {
        self.rings.is_some() && self.connection.is_some()
    }

    /// Connects to the other end if it listens, or listens.
    fn meet(&mut self) -> Result<(), WireError> {
        if let Ok(mut connection) = Connection::connect(&self.path) {
            let rings = Rings::pass(&mut connection, GREETING)?;
            if connection.flush().is_ok() {
                self.watch(&connection)?;
                (self.connection, self.passed) = (Some(connection), Some(rings));
            }
            return Ok(());
        }
        match Listener::bind(&self.path) {
            Ok(listener) => {
                self.watch(&listener)?;
                self.listener = Some(listener);
            }
            // Another end came at the same moment; the next look finds it.
            Err(BindError::InUse) => {}
            Err(error) => return Err(WireError::Bind(error)),
        }
        Ok(())
    }

    /// Has news of `descriptor` end a sleep, until it is closed.
    fn watch(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.news, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    /// Uses the memory that both ends have now.
    fn begin(&mut self, rings: Rings) {
        self.rings = Some(rings);
        self.unsent.clear();
        (self.sent, self.owes_length, self.coming, self.came) = (0, false, None, 0);
        // A peer that comes to an end that sleeps has to wake it.
        self.sleep(self.is_asleep);
    }

    fn lose(&mut self) {
        (self.rings, self.connection) = (None, None);
    }

    pub(super) fn tend(&mut self, now: Instant) -> Result<(), WireError> {
        self.heed();
        if self.listener.is_some() {
            self.accept(now);
            self.heed();
        } else if self.connection.is_none() && self.rings.is_none() && now >= self.look_at {
            self.look_at = now + LOOK;
            match self.meet() {
                // The next look may find a descriptor free.
                Err(WireError::Bind(BindError::Io(error)) | WireError::Io(error))
                    if is_exhaustion(&error) => {}
                result => return result,
            }
        }
        Ok(())
    }

    /// Lets another end in. A wire has two: further ends are turned away.
    fn accept(&mut self, now: Instant) {
        if self.rings.is_none() && now >= self.greet_by {
            // It says nothing, and others may come.
            self.connection = None;
        }
        for _ in 0..ENDS_A_LOOK {
            // A process without free descriptors turns away ends that connect. An end comes again.
            let Some(Ok(Some(connection))) = self.listener.as_ref().map(Listener::accept) else { return };
            // The last packets of a peer that left are received before another comes.
            let is_free = self.connection.is_none() && self.rings.is_none();
            if is_free && self.watch(&connection).is_ok() {
                self.connection = Some(connection);
                self.greet_by = now + SILENCE_MAX;
            }
        }
    }

    /// Takes messages from the socket: the peer's memory or its confirmation that it has taken this
    /// end's, and wake-ups. Finds out whether the peer is there.
    fn heed(&mut self) {
        for _ in 0..PIECES_A_LOOK {
            let Some(connection) = &mut self.connection else { return };
            match connection.receive(&mut self.pool) {
                Ok(Received::Data(..)) if self.rings.is_some() => {}
                Ok(Received::Data(bytes, descriptors)) => self.greet(&bytes, descriptors),
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) | Err(_) => (self.connection, self.passed) = (None, None),
            }
        }
    }

    /// Begins with a peer, if its greeting is that of an end.
    fn greet(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) {
        if let Some(rings) = self.passed.take() {
            return self.begin(rings);
        }
        match (Rings::take(GREETING, bytes, descriptors), &mut self.connection) {
            (Ok(rings), Some(connection)) => {
                // The byte says that the memory is taken.
                ring(connection);
                self.begin(rings);
            }
            _ => self.connection = None,
        }
    }

    /// Announces to the peer whether it has to wake this end.
    pub(super) fn sleep(&mut self, asleep: bool) {
        self.is_asleep = asleep;
        let Some(Rings { memory, end }) = &mut self.rings else { return };
        if end.sleep(memory, asleep).is_err() {
            self.lose();
        }
    }

    #[inline]
    pub(super) fn wake(&mut self) {
        let (Some(rings), Some(connection)) = (&mut self.rings, &mut self.connection) else { return };
        if rings.wake(connection).is_err() {
            self.lose();
        }
    }

    /// Continues a packet that is not sent whole; returns whether another may follow.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        if self.unsent.is_empty() {
            return true;
        }
        self.push();
        self.unsent.is_empty()
    }

    fn push(&mut self) {
        let (Some(Rings { memory, end }), Some(_)) = (&mut self.rings, &self.connection) else {
            return self.unsent.clear();
        };
        if self.owes_length {
            let length = u32::try_from(self.unsent.len()).unwrap_or(u32::MAX).to_le_bytes();
            match end.send(memory, &length) {
                Ok(LENGTH) => self.owes_length = false,
                Ok(_) => return,
                Err(_) => return self.lose(),
            }
        }
        match end.send(memory, &self.unsent[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(_) => return self.lose(),
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
    }

    #[inline]
    pub(super) fn send(&mut self, packet: &[u8]) {
        let (Some(Rings { memory, end }), Some(_)) = (&mut self.rings, &self.connection) else { return };
        let is_long = packet.len() > INLINE_MAX;
        if !is_long {
            match end.send(memory, packet) {
                Ok(count) if count == packet.len() => return,
                Ok(_) => {}
                Err(_) => return self.lose(),
            }
        }
        self.unsent.extend_from_slice(packet);
        self.owes_length = is_long;
        self.push();
    }

    #[inline]
    pub(super) fn receive(&mut self, packet: &mut [u8]) -> Option<usize> {
        let Rings { memory, end } = self.rings.as_mut()?;
        loop {
            // A line is taken only into room for a whole line, and packets do not share lines.
            let room = self.coming.map_or(INLINE_MAX, |length| (length - self.came).max(INLINE_MAX));
            let count = match end.receive(memory, &mut packet[self.came..self.came + room]) {
                Ok(0) => {
                    if self.connection.is_none() {
                        self.lose();
                    }
                    return None;
                }
                Ok(count) => count,
                Err(_) => {
                    self.lose();
                    return None;
                }
            };
            let Some(length) = self.coming else {
                if count != LENGTH {
                    return Some(count);
                }
                let length = u32::from_le_bytes([packet[0], packet[1], packet[2], packet[3]]);
                let Some(length) = usize::try_from(length).ok().filter(|length| fits(*length)) else {
                    self.lose();
                    return None;
                };
                (self.coming, self.came) = (Some(length), 0);
                continue;
            };
            self.came += count;
            if self.came > length {
                // The peer has mixed packets up.
                self.lose();
                return None;
            }
            if self.came == length {
                (self.coming, self.came) = (None, 0);
                return Some(length);
            }
        }
    }
}

const fn fits(length: usize) -> bool {
    length > INLINE_MAX && length <= PACKET_MAX
}

impl AsFd for Shm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

impl fmt::Debug for Shm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shm({}, up: {})", self.path.display(), self.is_up())
    }
}
