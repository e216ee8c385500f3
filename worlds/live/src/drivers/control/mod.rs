//! A socket through which a running program is asked questions: a line in, a line out.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, IoSlice, PipeReader, PipeWriter, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use engine::Pool;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg, socket_with,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::reactor::{Attention, Sources};
use crate::sys::unix::{BindError, Connection, Listener, Received};

/// The most bytes of a request.
pub const REQUEST_MAX: usize = 64 << 10;
/// The most clients at once; further ones wait.
const CLIENTS_MAX: usize = 8;
/// The time within which a client must have asked.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// The time within which a client must take some of its answer, and then some more.
const TAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a client waits until it is let in, and how long for the next part of the answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The time within which a client must have the whole answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The most bytes of an answer that are sent in a turn. A long one would keep others waiting.
const SENT_PER_TURN: usize = 64 << 10;

/// The most descriptors that come with a request.
const DESCRIPTORS_MAX: usize = 4;

/// A client's request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The line, without its newline.
    pub line: &'a str,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// The answer to a client.
#[derive(Debug)]
pub enum Reply {
    /// This line.
    Now(String),
    /// The line that another thread sends and then wakes the loop. If it sends none, the client is
    /// turned away.
    Later(Receiver<String>),
}

impl From<String> for Reply {
    fn from(line: String) -> Self {
        Self::Now(line)
    }
}

/// How far a client has come.
enum Stage {
    /// It has not asked yet.
    Asking,
    /// It waits for the answer.
    Waiting(Receiver<String>),
    /// The number of bytes of its answer that were passed on.
    Answered(Vec<u8>, usize),
}

struct Client {
    connection: Connection,
    /// When it was let in, or last took some of its answer.
    since: Instant,
    /// The bytes of its answer that it had not taken then.
    left: usize,
    request: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    stage: Stage,
}

/// The program's side of a control socket.
pub struct Control {
    listener: Listener,
    /// Ends the loop's sleep when the latest client must have asked or taken something.
    timer: OwnedFd,
    clients: Vec<Client>,
    pool: Pool,
}

impl Control {
    /// Listens at `path`, which from then on only this user may use.
    ///
    /// # Errors
    /// When the path is taken, or can't be created.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let listener = Listener::bind_for_owner(path)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(io::Error::from)?;
        Ok(Self { listener, timer, clients: Vec::new(), pool: Pool::new(1 << 20) })
    }

    /// The path where it listens.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// Makes clients and their deadlines wake the loop.
    ///
    /// # Errors
    /// When the kernel can't report news of the socket.
    pub fn start(&self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
        sources.add(self.timer.as_raw_fd(), Attention::OnNews)
    }

    /// Takes the requests of clients, and sends each the result of `answer`. Returns whether there
    /// was anything.
    ///
    /// # Errors
    /// When the socket can't be waited for; this is possible at the first call only.
    pub fn turn<R: Into<Reply>>(
        &mut self,
        sources: &Sources,
        mut answer: impl FnMut(Request<'_>) -> R,
    ) -> io::Result<bool> {
        let mut busy = false;
        // A client that can't be let in asks again: the program and its other clients go on.
        while self.clients.len() < CLIENTS_MAX
            && let Ok(Some(connection)) = self.listener.accept()
        {
            if sources.add(connection.as_raw_fd(), Attention::OnNews).is_err() {
                continue;
            }
            self.clients.push(Client {
                connection,
                since: Instant::now(),
                left: 0,
                request: Vec::new(),
                descriptors: Vec::new(),
                stage: Stage::Asking,
            });
            // All that came before must have asked by then, too.
            set_off(&self.timer);
            busy = true;
        }
        let Self { clients, pool, timer, .. } = self;
        clients.retain_mut(|client| {
            let since = client.since;
            let lasts = client.turn(pool, &mut answer, &mut busy);
            if client.since != since {
                set_off(timer);
            }
            if !lasts {
                sources.remove(client.connection.as_raw_fd());
                // A client may wait for the place, which the kernel reports only once.
                busy = true;
            }
            lasts
        });
        Ok(busy)
    }
}

/// Has `timer` wake the loop once, when a client that now begins to ask or to take is late.
fn set_off(timer: &OwnedFd) {
    let Ok(it_value) = Timespec::try_from(ASK_WITHIN.max(TAKE_WITHIN)) else { return };
    let once = Itimerspec { it_interval: Timespec::default(), it_value };
    // The kernel refuses a timer only for an invalid time.
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
}

impl Client {
    /// Serves the client; returns whether it stays.
    fn turn<R: Into<Reply>>(
        &mut self,
        pool: &mut Pool,
        answer: &mut impl FnMut(Request<'_>) -> R,
        busy: &mut bool,
    ) -> bool {
        let mut has_ended = false;
        loop {
            match self.connection.receive(pool) {
                Ok(Received::Nothing) => break,
                Ok(Received::Data(bytes, descriptors)) => {
                    *busy = true;
                    self.descriptors.extend(descriptors);
                    self.descriptors.truncate(DESCRIPTORS_MAX);
                    self.request.extend_from_slice(&bytes);
                    if self.request.len() > REQUEST_MAX {
                        return false;
                    }
                }
                // A client may end its side once it has asked, and still read the answer.
                Ok(Received::Closed) => {
                    has_ended = true;
                    break;
                }
                Err(_) => return false,
            }
        }
        let end = self.request.iter().position(|byte| *byte == b'\n');
        if end.is_none() && (has_ended || self.since.elapsed() >= ASK_WITHIN) {
            return false;
        }
        if let (Stage::Asking, Some(end)) = (&self.stage, end) {
            let line = String::from_utf8_lossy(&self.request[..end]).into_owned();
            tracing::debug!(request = line, "asked through the control socket");
            let descriptors = std::mem::take(&mut self.descriptors);
            self.stage = match answer(Request { line: &line, descriptors }).into() {
                Reply::Now(line) => Stage::Answered(line.into_bytes(), 0),
                Reply::Later(line) => Stage::Waiting(line),
            };
        }
        if let Stage::Waiting(line) = &self.stage {
            match line.try_recv() {
                Ok(line) => self.stage = Stage::Answered(line.into_bytes(), 0),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        let Stage::Answered(line, sent) = &mut self.stage else { return true };
        if self.connection.unsent() == 0 && *sent <= line.len() {
            *busy = true;
            let piece = &line[*sent..line.len().min(*sent + SENT_PER_TURN)];
            *sent += piece.len();
            let is_last = *sent == line.len();
            for piece in piece.chunks(Pool::LENGTH_MAX).chain(is_last.then_some(&b"\n"[..])) {
                if self.connection.send(pool.copy(piece), Vec::new()).is_err() {
                    return false;
                }
            }
            // Nothing is left, the newline neither.
            *sent += usize::from(is_last);
        }
        if self.connection.flush().is_err() {
            return false;
        }
        let left = line.len() + 1 - *sent + self.connection.unsent();
        if left != self.left {
            (self.left, self.since) = (left, Instant::now());
        }
        left > 0 && self.since.elapsed() < TAKE_WITHIN
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({}, {} clients)", self.path().display(), self.clients.len())
    }
}

/// The bytes that wait in a [`pipe`], where the system allows it.
const PIPE_BYTES: usize = 1 << 20;

/// A pipe for the bytes that a program sends on after its answer.
///
/// # Errors
/// When no descriptor is left.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    // With less room, the same bytes pass in more turns.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer))
}

/// Whether a process still has the reading end of a pipe, by its writing end.
pub fn is_read(writer: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(writer, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let has_news = matches!(poll(&mut polled, Some(&now)), Ok(1..));
    !(has_news && polled[0].revents().contains(PollFlags::ERR))
}

/// Asks the program that listens at `path`; returns its answer without the newline.
///
/// # Errors
/// When no process listens there, or there is no answer in time.
pub fn ask(path: &Path, request: &str) -> io::Result<String> {
    ask_with(path, request, &[])
}

/// Asks like [`ask`], and gives the program `descriptors`.
///
/// # Errors
/// When no process listens there, or there is no answer in time.
pub fn ask_with(path: &Path, request: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<String> {
    converse(path, request, descriptors).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let seconds = ANSWER_MAX.as_secs();
            let text = format!("no answer within {seconds} s; does the process that listens still run?");
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        _ => error,
    })
}

/// Connects to the program that listens at `path`. One that is stopped takes no connections, and a
/// connection waits until there is room among those that it has not taken; hence `patience`, within
/// which the program must also take each part of the request.
fn dial(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn converse(path: &Path, request: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<String> {
    let mut socket = dial(path, ANSWER_MAX)?;
    let (line, mut sent) = (format!("{request}\n").into_bytes(), 0);
    if !descriptors.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("a request takes at most 4 descriptors"));
        }
        sent = sendmsg(&socket, &[IoSlice::new(&line)], &mut rights, SendFlags::NOSIGNAL)?;
    }
    socket.write_all(&line[sent..])?;
    let until = Instant::now() + ANSWERED_WITHIN;
    let mut answer = String::new();
    Patient { socket, until }.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is cut off")),
    }
}

/// A program's answer, up to a time: one that sends a byte now and then is not heard for ever.
struct Patient {
    socket: UnixStream,
    until: Instant,
}

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = ANSWERED_WITHIN.as_secs();
                let text = format!(
                    "the answer has not ended within {seconds} s; is it a process of farlane that listens?"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.socket.set_read_timeout(Some(left.min(ANSWER_MAX)))?;
            match self.socket.read(bytes) {
                // The time for all of it is over first.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && left < ANSWER_MAX => {}
                result => return result,
            }
        }
    }
}
