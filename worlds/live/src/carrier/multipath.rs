//! One stream over several TCP connections, of which the fastest counts: `tunnel::paths` in the
//! live world.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use engine::{Buffer, Engine, Instant, Nanos, Pool};
use tunnel::paths::{GroupId, Input, KEPT_BYTES_MAX, Output, PATHS_MAX, PathIndex, Paths, Preamble, Token};

use crate::carrier::Received;
use crate::carrier::identity::Fingerprint;
use crate::carrier::route::Route;
use crate::carrier::stream::ByteStream;
use crate::carrier::tcp::{Connection, Dialer, Dialled, keep_short};
use crate::reactor::{Attention, Pump, Shell, Sources};
use crate::sys::entropy;
use crate::sys::tcp_info::TcpInfo;

/// The most bytes of a path that the kernel may hold unsent. Bytes that are still with us can be
/// left out.
const UNSENT_MAX: u32 = 64 << 10;
/// How many pieces without new bytes one connection may bring in a row before others have a turn.
const PIECES_MAX: usize = 64;
/// The most bytes that are taken ahead of the stream's user: more than a session ever has under
/// way.
const AHEAD_MAX: u64 = KEPT_BYTES_MAX;
/// The least size in bytes of a piece of bytes that are taken ahead.
const GATHERED: usize = 64 << 10;
/// How often dialling is looked at: before the first path is there, and later.
const LOOK_FIRST: Nanos = Nanos::from_millis(1);
const LOOK_LATER: Nanos = Nanos::from_millis(20);
/// The first pause before a lost path is dialled again, and the longest pause.
const PAUSE: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_secs(2);
/// A path that lived at least this long is dialled again soon.
const LIVED: Nanos = Nanos::from_secs(5);

/// The state of one path.
#[derive(Debug, Default)]
struct Slot {
    connection: Option<Connection>,
    /// At the end that dials: how the path is dialled.
    dialling: Option<Dialling>,
}

#[derive(Debug)]
struct Dialling {
    dialer: Dialer,
    /// When the dialler is looked at next.
    look: Instant,
    /// The pause before dialling again when the path is lost.
    pause: Nanos,
    joined: Instant,
    /// The latest attempt, or the connection, has failed.
    has_failed: bool,
    /// The value of `has_failed` that was reported last.
    is_reported: bool,
}

/// One stream over several TCP connections.
#[derive(Debug)]
pub(crate) struct JoinedPaths {
    paths: Pump<Paths>,
    slots: [Slot; PATHS_MAX],
    /// Bytes of the stream that have come and were not taken.
    ready: VecDeque<Buffer>,
    /// Those behind `ready` that came while the user took none. They are copied, because they may
    /// have come in small pieces of large blocks.
    gathered: Vec<u8>,
    gathers: bool,
    /// The number of all these bytes.
    ahead: u64,
    /// The time of the turn.
    now: Instant,
    /// The index of the path that is looked at first.
    first: usize,
    peer: SocketAddr,
    /// The key that the other end has proved on its first path.
    key: Option<Fingerprint>,
    /// A path is there, or was.
    begun: bool,
    over: bool,
    /// Why a path could not be dialled, at the latest failure.
    failure: Option<(SocketAddr, io::Error)>,
}

impl JoinedPaths {
    /// Dials all paths of `route`.
    ///
    /// # Panics
    /// When a path has no address.
    pub(crate) fn dialling(route: &Route, now: Instant) -> Self {
        let mut group = GroupId([0; 16]);
        entropy::system().fill(&mut group.0);
        let mut joined = Self::new(Paths::dialling(group), route.addresses[0], now);
        let paths = core::iter::once(&route.addresses).chain(&route.others);
        for (slot, addresses) in joined.slots.iter_mut().zip(paths) {
            let dialer = Dialer::along(route, addresses, now);
            slot.dialling = Some(Dialling {
                dialer,
                look: now,
                pause: PAUSE,
                joined: now,
                has_failed: false,
                is_reported: false,
            });
        }
        joined
    }

    /// Makes the end that was dialled, whose first path began with `preamble`.
    pub(crate) fn accepting(preamble: &Preamble, peer: SocketAddr, now: Instant) -> Self {
        let token = Token(entropy::system().next_u64().max(1));
        Self::new(Paths::accepting(preamble.group, token), peer, now)
    }

    fn new(paths: Paths, peer: SocketAddr, now: Instant) -> Self {
        Self {
            paths: Pump::new(paths),
            slots: Default::default(),
            ready: VecDeque::new(),
            gathered: Vec::new(),
            gathers: false,
            ahead: 0,
            now,
            first: 0,
            peer,
            key: None,
            begun: false,
            over: false,
            failure: None,
        }
    }

    /// The kernel's information on each present path.
    pub(crate) fn tcp_info(&self) -> impl Iterator<Item = TcpInfo> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref()?.info())
    }

    /// The key that the other end has proved. All paths must be of one key.
    pub(crate) const fn key(&self) -> Option<Fingerprint> {
        self.key
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether a path that begins with `preamble` is one of these.
    pub(crate) fn is_ours(&self, preamble: &Preamble) -> bool {
        !self.over && self.paths.engine().is_ours(preamble)
    }

    /// Adds an accepted path, with the bytes that came on it after the preamble.
    pub(crate) fn accept(&mut self, path: PathIndex, connection: Connection, rest: Buffer) {
        let index = usize::from(path.0);
        self.join(index, connection);
        if !rest.is_empty() {
            self.input(Input::Received(path, rest));
        }
    }

    fn join(&mut self, index: usize, connection: Connection) {
        // If this fails, only some bytes are sent needlessly.
        let _ = keep_short(&connection, UNSENT_MAX);
        self.peer = connection.peer();
        self.key = connection.key();
        // This closes an earlier connection of the path.
        self.slots[index].connection = Some(connection);
        self.begun = true;
        self.input(Input::Joined(path_index(index)));
    }

    /// The outcome of dialling: `Ok` when a path is there, or was, `Err` when all have failed,
    /// `None` while undecided.
    pub(crate) fn dialled(&mut self) -> Option<Result<(), (SocketAddr, io::Error)>> {
        if self.begun {
            return Some(Ok(()));
        }
        let mut dialling = self.slots.iter().filter_map(|slot| slot.dialling.as_ref());
        if dialling.all(|it| it.has_failed) { self.failure.take().map(Err) } else { None }
    }

    /// The next path that has gone away or come back since the last call: its number, and whether
    /// it is away. `None` before the first path and after the end.
    pub(crate) fn news(&mut self) -> Option<(u8, bool)> {
        if !self.begun || self.over {
            return None;
        }
        let of_slot = |(slot, number): (&mut Slot, u8)| {
            let dialling = slot.dialling.as_mut()?;
            let is_new =
                core::mem::replace(&mut dialling.is_reported, dialling.has_failed) != dialling.has_failed;
            is_new.then_some((number, dialling.has_failed))
        };
        self.slots.iter_mut().zip(0..).find_map(of_slot)
    }

    /// Does the due work: acknowledges, gives up paths, dials. Returns whether anything was done.
    pub(crate) fn turn(&mut self, now: Instant, sources: &Sources) -> bool {
        self.now = self.now.max(now);
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            connection.turn(now);
        }
        let now = self.now;
        let is_due = self.paths.due().is_some_and(|at| at <= now);
        let mut busy = is_due && self.with_links(|paths, links| paths.settle(now, links));
        for index in 0..PATHS_MAX {
            busy |= self.dial(index, sources);
        }
        busy
    }

    fn dial(&mut self, index: usize, sources: &Sources) -> bool {
        let (now, begun) = (self.now, self.begun);
        let slot = &mut self.slots[index];
        let Some(dialling) = &mut slot.dialling else { return false };
        if self.over || slot.connection.is_some() || dialling.look > now {
            return false;
        }
        dialling.look = now + if begun { LOOK_LATER } else { LOOK_FIRST };
        match dialling.dialer.poll(now) {
            Dialled::Waiting => false,
            Dialled::Began(descriptor) => {
                if let Err(error) = sources.add(descriptor, Attention::EachTurn) {
                    dialling.has_failed = true;
                    self.failure = Some((self.peer, error));
                }
                true
            }
            Dialled::Failed(address, error) => {
                dialling.has_failed = true;
                self.failure = Some((address, error));
                true
            }
            Dialled::Connected(connection) => {
                (dialling.joined, dialling.has_failed) = (now, false);
                self.join(index, connection);
                true
            }
        }
    }

    /// The time of the next call to [`JoinedPaths::turn`], if any.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let of_slot = |slot: &Slot| match (&slot.connection, &slot.dialling) {
            (Some(connection), _) => connection.poll_timeout(),
            (None, Some(dialling)) if !self.over => {
                dialling.dialer.poll_timeout().map(|at| at.max(dialling.look))
            }
            _ => None,
        };
        self.slots.iter().filter_map(of_slot).chain(self.paths.due()).min()
    }

    fn input(&mut self, input: Input) {
        self.paths.engine_mut().handle_input(self.now, input);
        self.exchange();
    }

    fn exchange(&mut self) {
        let now = self.now;
        self.with_links(|paths, links| paths.exchange(now, links));
    }

    /// Has the engine and its surroundings do `what`.
    fn with_links(&mut self, what: impl FnOnce(&mut Pump<Paths>, &mut Links<'_>) -> bool) -> bool {
        let Self { paths, slots, ready, gathered, gathers, ahead, over, .. } = self;
        what(paths, &mut Links { slots, ready, gathered, gathers: *gathers, ahead, over })
    }

    pub(crate) fn send(&mut self, bytes: Buffer) {
        self.paths.engine_mut().send(self.now, bytes);
        self.exchange();
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn receive(&mut self, pool: &mut Pool) -> Received {
        for step in 0..PATHS_MAX {
            let index = (self.first + step) % PATHS_MAX;
            for _ in 0..PIECES_MAX {
                if let Some(bytes) = self.next_ready() {
                    return Received::Data(bytes);
                }
                if !self.take(index, pool) {
                    break;
                }
            }
            if let Some(bytes) = self.next_ready() {
                self.first = (index + 1) % PATHS_MAX;
                return Received::Data(bytes);
            }
        }
        if self.over { Received::Closed } else { Received::Nothing }
    }

    fn next_ready(&mut self) -> Option<Buffer> {
        let bytes = match self.ready.pop_front() {
            Some(bytes) => bytes,
            None if self.gathered.is_empty() => return None,
            None => {
                let bytes = Buffer::copy_from_slice(&self.gathered);
                self.gathered.clear();
                bytes
            }
        };
        self.ahead -= bytes.len() as u64;
        Some(bytes)
    }

    /// Takes the next bytes of a path. Returns whether there was anything.
    fn take(&mut self, index: usize, pool: &mut Pool) -> bool {
        let Some(connection) = &mut self.slots[index].connection else { return false };
        let path = path_index(index);
        match connection.receive(pool) {
            Ok(Received::Nothing) => return false,
            Ok(Received::Data(bytes)) => self.input(Input::Received(path, bytes)),
            Ok(Received::Closed) | Err(_) => {
                self.slots[index].lose(self.now);
                self.input(Input::Lost(path));
            }
        }
        true
    }

    /// Receives while the user takes none of the stream's bytes: a path without bytes counts as
    /// lost in the end, and so does a stream without acknowledgements.
    pub(crate) fn keep_up(&mut self, pool: &mut Pool) {
        self.gathers = true;
        for index in 0..PATHS_MAX {
            for _ in 0..PIECES_MAX {
                if self.ahead >= AHEAD_MAX || !self.take(index, pool) {
                    break;
                }
            }
        }
        self.gathers = false;
    }

    /// Sends as much as the system takes; returns the number of bytes taken.
    pub(crate) fn flush(&mut self) -> usize {
        let mut sent = 0;
        for index in 0..PATHS_MAX {
            while let Some(connection) = &mut self.slots[index].connection {
                // The next receive sees a failure.
                sent += connection.flush().unwrap_or(0);
                let path = path_index(index);
                if connection.unsent() > 0 || !self.paths.engine().is_filled(path) {
                    break;
                }
                self.input(Input::Drained(path));
            }
        }
        sent
    }

    /// The number of bytes of the stream that the other end has not acknowledged.
    pub(crate) fn unsent(&self) -> usize {
        usize::try_from(self.paths.engine().unacknowledged()).unwrap_or(usize::MAX)
    }

    /// Acknowledges received bytes to the peer, and announces that nothing more will be sent.
    pub(crate) fn close(&mut self) {
        self.paths.engine_mut().conclude(self.now);
        self.exchange();
        self.flush();
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            connection.close();
        }
    }
}

/// The surroundings of the paths for one exchange: their connections, and the bytes of the stream
/// that have come.
struct Links<'a> {
    slots: &'a mut [Slot; PATHS_MAX],
    ready: &'a mut VecDeque<Buffer>,
    gathered: &'a mut Vec<u8>,
    gathers: bool,
    ahead: &'a mut u64,
    over: &'a mut bool,
}

impl Shell<Paths> for Links<'_> {
    fn pass(&mut self, now: Instant, output: Output, _: &mut Paths) {
        match output {
            Output::Transmit(path, bytes) => {
                let connection = &mut self.slots[usize::from(path.0)].connection;
                if let Some(connection) = connection
                    && connection.send(bytes).is_err()
                {
                    // The next receive sees the end of the connection.
                    connection.abort();
                }
            }
            Output::Deliver(bytes) => self.deliver(bytes),
            Output::Drop(path, _) => self.slots[usize::from(path.0)].lose(now),
            Output::End(_) => {
                *self.over = true;
                self.slots.iter_mut().for_each(|slot| slot.lose(now));
            }
        }
    }
}

impl Links<'_> {
    fn deliver(&mut self, bytes: Buffer) {
        *self.ahead += bytes.len() as u64;
        if !self.gathers && self.gathered.is_empty() {
            return self.ready.push_back(bytes);
        }
        self.gathered.extend_from_slice(&bytes);
        if self.gathered.len() >= GATHERED {
            self.ready.push_back(Buffer::copy_from_slice(self.gathered));
            self.gathered.clear();
        }
    }
}

impl Slot {
    /// Drops the path's connection, and has the path dialled again if this end dials.
    fn lose(&mut self, now: Instant) {
        if self.connection.take().is_none() {
            return;
        }
        if let Some(dialling) = &mut self.dialling {
            dialling.has_failed = true;
            let lived = now - dialling.joined >= LIVED;
            dialling.pause = if lived { PAUSE } else { (dialling.pause * 2).min(PAUSE_MAX) };
            dialling.look = now + dialling.pause;
            dialling.dialer.restart(dialling.look);
        }
    }
}

fn path_index(index: usize) -> PathIndex {
    PathIndex(u8::try_from(index).expect("there are four paths at most"))
}

/// Each path is registered when it is dialled or accepted, and unregistered when it is closed.
impl ByteStream for JoinedPaths {
    fn peer(&self) -> SocketAddr {
        self.peer()
    }
    fn tcp_info(&self) -> Vec<TcpInfo> {
        self.tcp_info().collect()
    }
    fn key(&self) -> Option<Fingerprint> {
        self.key()
    }
    fn unregister(&self, _sources: &Sources) {}
    fn turn(&mut self, now: Instant, sources: &Sources) -> bool {
        self.turn(now, sources)
    }
    fn news(&mut self) -> Option<(u8, bool)> {
        self.news()
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
    fn send(&mut self, bytes: Buffer) {
        self.send(bytes);
    }
    fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        Ok(self.receive(pool))
    }
    fn keep_up(&mut self, pool: &mut Pool) {
        self.keep_up(pool);
    }
    fn flush(&mut self) -> io::Result<usize> {
        Ok(self.flush())
    }
    fn unsent(&self) -> usize {
        self.unsent()
    }
    fn close(&mut self) -> bool {
        self.close();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use engine::{drain, fire};

    use super::*;
    use crate::carrier::tcp::Listener;
    use crate::reactor::Reactor;
    use crate::sys::clock::Clock;

    /// Lets the dialling end do its due work, and passes bytes between it and its socket.
    fn turn_near(near: &mut Paths, wire: &mut TcpStream, now: Instant) {
        let path = PathIndex(0);
        let mut room = [0; 4096];
        while let Ok(count @ 1..) = wire.read(&mut room) {
            near.handle_input(now, Input::Received(path, Buffer::copy_from_slice(&room[..count])));
        }
        fire(near, now);
        drain(near, |output| match output {
            Output::Transmit(_, bytes) => wire.write_all(&bytes).unwrap(),
            Output::Deliver(_) => {}
            Output::Drop(..) | Output::End(_) => panic!("{output:?}"),
        });
        near.handle_input(now, Input::Drained(path));
    }

    /// The end that dials, its socket, and the end that was dialled.
    fn two_ends(start: Instant) -> (Paths, TcpStream, JoinedPaths) {
        let group = GroupId([7; 16]);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let wire = TcpStream::connect(listener.address()).unwrap();
        wire.set_nonblocking(true).unwrap();
        let connection = loop {
            if let Some(connection) = listener.accept().unwrap() {
                break connection;
            }
        };
        let preamble = Preamble { group, path: PathIndex(0), token: None };
        let mut far = JoinedPaths::accepting(&preamble, connection.peer(), start);
        far.accept(PathIndex(0), connection, Buffer::EMPTY);
        let mut near = Paths::dialling(group);
        near.handle_input(start, Input::Joined(PathIndex(0)));
        // A far end takes the preamble before it knows the preamble's session.
        assert!(matches!(near.poll_output(), Some(Output::Transmit(..))));
        (near, wire, far)
    }

    #[test]
    fn a_stream_whose_bytes_are_left_unread_lasts() {
        let start = Instant::from_nanos(1_000_000_000);
        let (mut near, mut wire, mut far) = two_ends(start);
        near.send(start, Buffer::copy_from_slice(b"hello"));
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
        let mut pool = Pool::default();
        // Longer than either end tolerates silence or a lack of acknowledgements.
        for step in 0..60 {
            let now = start + Nanos::from_millis(250) * step;
            turn_near(&mut near, &mut wire, now);
            far.turn(now, reactor.sources());
            far.keep_up(&mut pool);
            far.flush();
        }
        assert_eq!(far.ahead, 5);
        let received = far.receive(&mut pool);
        assert!(matches!(&received, Received::Data(bytes) if bytes[..] == *b"hello"), "{received:?}");
        assert_eq!((far.ahead, near.unacknowledged()), (0, 0));
    }

    #[test]
    fn bytes_that_are_left_unread_take_no_memory_for_their_pieces() {
        let start = Instant::from_nanos(1_000_000_000);
        let (mut near, mut wire, mut far) = two_ends(start);
        let mut pool = Pool::default();
        (0..1000).for_each(|_| near.send(start, Buffer::copy_from_slice(b"x")));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while far.ahead < 1000 && std::time::Instant::now() < until {
            turn_near(&mut near, &mut wire, start);
            far.keep_up(&mut pool);
            far.flush();
        }
        assert_eq!((far.ahead, far.ready.len(), far.gathered.len()), (1000, 0, 1000));
        near.send(start, Buffer::copy_from_slice(b"y"));
        turn_near(&mut near, &mut wire, start);
        let mut received = Vec::new();
        while received.len() < 1001 && std::time::Instant::now() < until {
            if let Received::Data(bytes) = far.receive(&mut pool) {
                received.extend_from_slice(&bytes);
            }
        }
        assert_eq!((received, far.ahead), ([&[b'x'; 1000][..], b"y"].concat(), 0));
    }
}
