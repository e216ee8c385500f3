//! Where recorded bytes come from.

mod connection;
mod datagrams;
mod failing;
mod file;
mod generator;
mod incoming;
mod packets;
mod udp;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, RawFd};
use std::path::Path;
use std::time::Duration;

use engine::{Instant, Nanos};
use record::format::Content;
use record::packing::Lane;
use record::sequence::SequenceRule;

use super::real_time;
use crate::reactor::{Attention, Sources};
use connection::Connection;
pub use datagrams::Heard;
use file::Opened;
use generator::Generator;
pub use udp::{Bound, Interface, Udp};

/// How long a producer may take until it is connected to. No signal is heard meanwhile.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);
/// The most bytes of a source that are dropped at once.
const DROPPED_AT_ONCE: usize = 65_536;
/// A call of a source that fails is tried again after this time.
const RETRY: Nanos = Nanos::from_millis(20);

/// The result of taking bytes from a source.
#[derive(Debug)]
pub(super) enum Took {
    /// There was something, and there may be more.
    Something,
    /// Nothing at the moment.
    Nothing,
    /// It has ended; the error says why before its end, if it did.
    End(Option<io::Error>),
}

/// The origin of a source's bytes or packets.
pub(super) trait Feed {
    /// Takes the bytes or packets that have come.
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took;

    /// The system says that the descriptor has something.
    fn wake(&mut self) {}

    /// The descriptor that becomes readable when there is something; `None` if there is none that
    /// can be waited for. [`Took::Nothing`] promises that nothing was left there.
    fn descriptor(&self) -> Option<RawFd>;

    /// When it has to be looked at, although its descriptor reports nothing.
    fn wake_at(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// The recording ends. With `drain`, packets that have come are recorded first.
    fn finish(&mut self, _lane: &mut Lane<'_>, _drain: bool) {}

    /// The counts of packets, if there are any.
    fn heard(&self) -> Option<Heard> {
        None
    }

    /// The rule by which lost packets are found.
    fn rule(&self) -> SequenceRule {
        SequenceRule::None
    }

    /// The content of the recorded bytes.
    fn content(&self) -> Content {
        Content::Bytes
    }
}

/// The recorder's end of a source, at one moment.
pub(super) struct Intake<'a, 'b> {
    pub(super) lane: &'a mut Lane<'b>,
    /// About so many bytes at most.
    pub(super) left: Option<u64>,
    drops: bool,
    is_held: &'a mut bool,
    spare: &'a mut Vec<u8>,
}

impl Intake<'_, '_> {
    /// Calls `read` once with the recorder's room. Without room, the source waits, or its bytes are
    /// read elsewhere and declared lost.
    pub(super) fn read(&mut self, read: impl FnOnce(Instant, &mut [u8]) -> io::Result<usize>) -> Took {
        let now = self.lane.now;
        let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let drops = self.drops && self.lane.taker.is_recording();
        let (result, is_kept) = match self.lane.room() {
            Some(room) => {
                let most = most.min(room.len());
                (read(now, &mut room[..most]), true)
            }
            None if drops => {
                self.spare.resize(DROPPED_AT_ONCE, 0);
                (read(now, &mut self.spare[..most.min(DROPPED_AT_ONCE)]), false)
            }
            None => {
                *self.is_held = true;
                return Took::Nothing;
            }
        };
        match result {
            Ok(0) => Took::End(None),
            Ok(bytes) => {
                match is_kept {
                    true => self.lane.filled(bytes, real_time()),
                    false => self.lane.lose(bytes as u64, real_time().nanos),
                }
                Took::Something
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Took::Nothing,
            // There may be something: the kernel reports it once.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Took::Something,
            // A producer that vanishes ends its stream, as one that ends it does.
            Err(error) => Took::End(Some(error)),
        }
    }
}

/// The action of a source that has bytes when the recorder's buffer is full. Datagrams and packets
/// cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It waits, and loses nothing.
    Wait,
    /// It goes on. Its bytes are taken and declared lost.
    Drop,
}

/// A source of bytes.
pub struct Source {
    feed: Box<dyn Feed>,
    is_over: bool,
    /// Why it ended before its end, if it did.
    broken: Option<String>,
    on_full: OnFull,
    /// It has to wait for room in the buffer.
    is_held: bool,
    /// The descriptor that the loop waits for.
    registered: Option<RawFd>,
}

impl Source {
    pub(super) fn new(feed: impl Feed + 'static) -> Self {
        let (on_full, feed) = (OnFull::Wait, Box::new(feed));
        Self { feed, is_over: false, broken: None, on_full, is_held: false, registered: None }
    }

    /// The same, with this action when the buffer is full.
    #[must_use]
    pub fn on_full(self, on_full: OnFull) -> Self {
        Self { on_full, ..self }
    }

    /// Accepts one connection at `address` and records its bytes. Returns the address, too.
    ///
    /// # Errors
    /// When the system refuses the address.
    pub fn listen(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((Self::new(Connection::listening(listener)), bound))
    }

    /// Connects to `address` and records the bytes of the connection.
    ///
    /// # Errors
    /// When there is no answer within 15 s.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECTED_WITHIN)?;
        Ok(Self::new(Connection::open(stream)?))
    }

    /// Records a file or named pipe to its end; a pipe from the moment on when a process has it
    /// open for writing.
    ///
    /// # Errors
    /// When it can't be opened, or is a directory.
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Opened::open(path)?))
    }

    /// Records standard input to its end.
    ///
    /// # Errors
    /// When there is none.
    pub fn standard_input() -> io::Result<Self> {
        Ok(Self::new(Opened::new(io::stdin().as_fd().try_clone_to_owned()?.into())?))
    }

    /// Makes `rate` bytes a second, without end. The 8 bytes at each multiple of 8 are that place
    /// divided by 8, little-endian, so that they can be checked.
    pub fn generate(rate: u64) -> Self {
        Self::new(Generator::new(rate))
    }

    /// The counts of its packets, if it is one of packets.
    pub(super) fn heard(&self) -> Option<Heard> {
        self.feed.heard()
    }

    /// The rule by which lost packets are found.
    pub fn rule(&self) -> SequenceRule {
        self.feed.rule()
    }

    /// The content of the recorded bytes.
    pub fn content(&self) -> Content {
        self.feed.content()
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it waits for room in the buffer.
    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Why it ended before its end, if it did.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Records the bytes or packets that have come, or declares them lost; about `left` bytes at
    /// most. Returns whether there was anything. `spare` is memory for lost bytes.
    pub(super) fn take(&mut self, lane: &mut Lane<'_>, left: Option<u64>, spare: &mut Vec<u8>) -> bool {
        self.is_held = false;
        let (drops, is_held) = (self.on_full == OnFull::Drop, &mut self.is_held);
        match self.feed.take(&mut Intake { lane, left, drops, is_held, spare }) {
            Took::Something => true,
            Took::Nothing => false,
            Took::End(error) => {
                self.broken = error.map(|error| error.to_string());
                self.is_over = true;
                true
            }
        }
    }

    /// The recording ends. With `drain`, packets that have come are recorded first.
    pub(super) fn finish(&mut self, lane: &mut Lane<'_>, drain: bool) {
        self.feed.finish(lane, drain);
    }

    /// The system says that it has something.
    pub(super) fn wake(&mut self) {
        self.feed.wake();
    }

    /// When it has to be looked at, although its descriptor reports nothing.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        if self.is_over || self.is_held { None } else { self.feed.wake_at(now) }
    }

    /// Has the loop wait for its descriptor, by the name `name`, as long as it goes on.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn register(&mut self, sources: &Sources, name: u32) -> io::Result<()> {
        let wanted = if self.is_over { None } else { self.feed.descriptor() };
        if wanted == self.registered {
            return Ok(());
        }
        self.leave(sources);
        let added = wanted.map_or(Ok(()), |wanted| sources.add_input(wanted, Attention::Named(name)));
        self.registered = wanted;
        match added {
            // A device that is readable at any time can't be waited for, and need not.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            added => added,
        }
    }

    /// Has the loop no longer wait for its descriptor.
    pub(super) fn leave(&mut self, sources: &Sources) {
        self.registered.take().into_iter().for_each(|descriptor| sources.remove(descriptor));
    }
}
