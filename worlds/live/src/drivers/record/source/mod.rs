//! Where recorded bytes come from.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use engine::{Instant, Nanos};
use record::format::Content;
use record::packing::Lane;
use record::sequence::SequenceRule;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::datagrams::{Datagrams, Heard};
use super::failing::Failing;
use super::incoming::Incoming;
use super::packets::Packets;

/// How long a producer may take until it is connected to. No signal is heard meanwhile.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);

/// The result of taking bytes from a source.
pub(super) enum Took {
    /// This many bytes.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// It has ended.
    End,
}

enum Kind {
    Listener(TcpListener, Failing),
    Stream(Incoming),
    File(File),
    Datagrams(Box<Datagrams>),
    Packets(Box<Packets>),
    Generator { rate: u64, start: Option<Instant>, made: u64 },
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
    kind: Kind,
    is_over: bool,
    /// Why it ended before its end, if it did.
    broken: Option<String>,
    on_full: OnFull,
    /// It has to wait for room in the buffer, so that its bytes are no reason to wake up.
    is_held: bool,
}

impl Source {
    const fn new(kind: Kind) -> Self {
        Self { kind, is_over: false, broken: None, on_full: OnFull::Wait, is_held: false }
    }

    pub(super) fn datagrams(datagrams: Datagrams) -> Self {
        Self::new(Kind::Datagrams(Box::new(datagrams)))
    }

    pub(super) fn frames(packets: Packets) -> Self {
        Self::new(Kind::Packets(Box::new(packets)))
    }

    /// The same, with this action when the buffer is full.
    #[must_use]
    pub fn on_full(self, on_full: OnFull) -> Self {
        Self { on_full, ..self }
    }

    pub(super) const fn drops(&self) -> bool {
        matches!(self.on_full, OnFull::Drop)
    }

    /// Whether it has packets, and no bytes without bounds.
    pub const fn has_packets(&self) -> bool {
        matches!(self.kind, Kind::Datagrams(_) | Kind::Packets(_))
    }

    /// Records the packets that have come, or declares them lost; about `left` bytes at most.
    /// Returns whether there were any.
    pub(super) fn take_packets(&mut self, lane: &mut Lane<'_>, left: Option<u64>) -> bool {
        match &mut self.kind {
            Kind::Datagrams(datagrams) => datagrams.take(lane, left),
            Kind::Packets(packets) => {
                let has_moved = packets.take(lane, left);
                if has_moved || !packets.is_gone() {
                    return has_moved;
                }
                packets.finish(lane, true);
                self.broken = Some("the interface was deleted".to_owned());
                self.is_over = true;
                true
            }
            _ => false,
        }
    }

    /// The recording ends. With `drain`, packets that have come are recorded first.
    pub(super) fn finish(&mut self, lane: &mut Lane<'_>, drain: bool) {
        match &mut self.kind {
            Kind::Datagrams(datagrams) => datagrams.finish(lane, drain),
            Kind::Packets(packets) => packets.finish(lane, drain),
            _ => {}
        }
    }

    pub(super) fn heard(&self) -> Option<Heard> {
        match &self.kind {
            Kind::Datagrams(datagrams) => Some(datagrams.heard()),
            Kind::Packets(packets) => Some(packets.heard()),
            _ => None,
        }
    }

    /// The rule by which lost packets are found.
    pub fn rule(&self) -> SequenceRule {
        match &self.kind {
            Kind::Datagrams(datagrams) => datagrams.rule(),
            _ => SequenceRule::None,
        }
    }

    /// The content of the recorded bytes.
    pub fn content(&self) -> Content {
        match &self.kind {
            Kind::Datagrams(datagrams) => datagrams.content(),
            Kind::Packets(packets) => Content::Packets(packets.link),
            _ => Content::Bytes,
        }
    }

    /// Accepts one connection at `address` and records its bytes. Returns the address, too.
    ///
    /// # Errors
    /// When the system refuses the address.
    pub fn listen(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((Self::new(Kind::Listener(listener, Failing::default())), bound))
    }

    /// Connects to `address` and records the bytes of the connection.
    ///
    /// # Errors
    /// When there is no answer within 15 s.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECTED_WITHIN)?;
        Ok(Self::new(Kind::Stream(Incoming::new(stream)?)))
    }

    /// Records a file or named pipe to its end; a pipe from the moment on when a process has it
    /// open for writing.
    ///
    /// # Errors
    /// When it can't be opened, or is a directory.
    pub fn file(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A thread that waits for a writer in the call that opens a pipe notices no signal.
        let flags = if kind.is_fifo() { libc::O_NONBLOCK } else { 0 };
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self::new(Kind::File(file)))
    }

    /// Records standard input to its end.
    ///
    /// # Errors
    /// When there is none.
    pub fn standard_input() -> io::Result<Self> {
        Ok(Self::new(Kind::File(File::from(io::stdin().as_fd().try_clone_to_owned()?))))
    }

    /// Makes `rate` bytes a second, without end. The 8 bytes at each multiple of 8 are that place
    /// divided by 8, little-endian, so that they can be checked.
    pub const fn generate(rate: u64) -> Self {
        Self::new(Kind::Generator { rate, start: None, made: 0 })
    }

    /// Whether it waits for room in the buffer from now on.
    pub(super) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Why it ended before its end, if it did.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Puts the bytes that have come into `room`, which is not empty.
    pub(super) fn take(&mut self, now: Instant, room: &mut [u8]) -> Took {
        let result = match &mut self.kind {
            Kind::Listener(listener, failing) => {
                let accepted = listener.accept();
                failing.on_result("accepting a connection", &accepted);
                if let Ok(incoming) = accepted.and_then(|(stream, _)| Incoming::new(stream)) {
                    self.kind = Kind::Stream(incoming);
                }
                return Took::Nothing;
            }
            Kind::Datagrams(_) | Kind::Packets(_) => return Took::Nothing,
            Kind::Stream(incoming) => incoming.read(now, room),
            Kind::File(file) if !is_ready(file.as_fd()) => return Took::Nothing,
            Kind::File(file) => file.read(room),
            Kind::Generator { rate, start, made } => {
                let since = Nanos::new(now.as_nanos() - start.get_or_insert(now).as_nanos());
                let due = u128::from(since.get()) * u128::from(*rate) / 1_000_000_000;
                let bytes = room
                    .len()
                    .min(usize::try_from(due.saturating_sub(u128::from(*made))).unwrap_or(usize::MAX));
                if bytes == 0 {
                    return Took::Nothing;
                }
                generate(*made, &mut room[..bytes]);
                *made += bytes as u64;
                Ok(bytes)
            }
        };
        match result {
            Ok(bytes) if bytes > 0 => Took::Bytes(bytes),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Took::Nothing
            }
            // A producer that vanishes ends its stream, as one that ends it does.
            ended => {
                self.broken = ended.err().map(|error| error.to_string());
                self.is_over = true;
                Took::End
            }
        }
    }

    /// The system says that it has something.
    const fn wake(&mut self) {
        if let Kind::Stream(incoming) = &mut self.kind {
            incoming.wake();
        }
    }

    /// The longest sleep before it has to be looked at, although its descriptor reports nothing.
    fn patience(&self) -> Option<Duration> {
        match &self.kind {
            _ if self.is_over || self.is_held => None,
            Kind::Generator { .. } => Some(Duration::from_millis(1)),
            Kind::Stream(incoming) => incoming.patience().map(Duration::from),
            _ => None,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            _ if self.is_over || self.is_held => None,
            Kind::Listener(_, failing) if failing.fails() => None,
            Kind::Datagrams(datagrams) if datagrams.fails() => None,
            Kind::Listener(listener, _) => Some(listener.as_fd()),
            Kind::Stream(stream) => Some(stream.as_fd()),
            Kind::File(file) => Some(file.as_fd()),
            Kind::Datagrams(datagrams) => Some(datagrams.as_fd()),
            Kind::Packets(packets) => Some(packets.as_fd()),
            Kind::Generator { .. } => None,
        }
    }
}

/// Fills `room` with the bytes of a generator at `place`.
fn generate(place: u64, room: &mut [u8]) {
    let byte = |place: u64| (place / 8).to_le_bytes()[usize::try_from(place % 8).unwrap_or(0)];
    let start = usize::try_from(place.next_multiple_of(8) - place).unwrap_or(0).min(room.len());
    let (start, rest) = room.split_at_mut(start);
    (place..).zip(&mut *start).for_each(|(place, made)| *made = byte(place));
    let place = place + start.len() as u64;
    let (words, end) = rest.as_chunks_mut();
    (place / 8..).zip(&mut *words).for_each(|(value, word)| *word = value.to_le_bytes());
    (place + words.len() as u64 * 8..).zip(end).for_each(|(place, made)| *made = byte(place));
}

/// Whether a read ends at once.
fn is_ready(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// Sleeps until a source has something, one of `others` is readable, or `longest` is over.
pub(super) fn sleep(sources: &mut [Source], others: &[Option<RawFd>], longest: Duration) -> io::Result<()> {
    let longest = sources.iter().filter_map(Source::patience).fold(longest, Duration::min);
    // SAFETY: a medium's ring and a bell are open as long as their owners, which outlive this call.
    let others = others.iter().flatten().map(|other| unsafe { BorrowedFd::borrow_raw(*other) });
    let all = sources.iter().filter_map(Source::descriptor).chain(others);
    let mut polled: Vec<_> = all.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
    let longest = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
    match rustix::event::poll(&mut polled, Some(&longest)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let ready: Vec<_> = polled.iter().map(|one| !one.revents().is_empty()).collect();
    let polled = sources.iter_mut().filter(|source| source.descriptor().is_some());
    polled.zip(ready).filter(|(_, is_ready)| *is_ready).for_each(|(source, _)| source.wake());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::generate;

    #[test]
    fn what_a_generator_makes_does_not_depend_on_how_it_is_cut() {
        let whole: Vec<u8> = (0..40_u64).flat_map(u64::to_le_bytes).collect();
        for from in 0..24 {
            for length in 0..40 {
                let mut room = vec![0xff; length];
                generate(from as u64, &mut room);
                assert_eq!(room, whole[from..from + length], "{length} from {from}");
            }
        }
    }
}
