//! The process that has a device: its socket, and the descriptors by which it signals interrupts.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use assemblies::external_device::{self, ExternalDevice, Input, Output};
use engine::{Instant, Nanos, Pool};
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::Event;
use super::backing::{Backing, Reaping};
use crate::reactor::{Attention, Sources};
use crate::sys::unix::{Connection, Received};

/// Number of pieces taken from the server in a turn, so that hosts are not starved.
const PIECES_PER_TURN: usize = 16;
/// The first pause before another try to connect; each pause is twice as long, up to
/// [`REDIAL_MAX`].
const REDIAL: Nanos = Nanos::from_millis(50);
const REDIAL_MAX: Nanos = Nanos::from_secs(1);
/// While more bytes than this wait for the server, hosts' bytes for it are not read.
const UNSENT_MAX: usize = 256 << 10;
/// Number of signalled descriptors that are taken in one call.
const NEWS_MAX: usize = 64;

/// The connection to the process that has a device.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    connection: Option<Connection>,
    /// The engine has closed the connection, which is dropped when everything is sent.
    closing: bool,
    /// When to try to connect again.
    redial_at: Instant,
    redial: Nanos,
    /// Whether it has been reported that no process serves the socket.
    is_logged: bool,
    /// Reports which vectors were signalled.
    epoll: OwnedFd,
    vectors: Vec<OwnedFd>,
    /// Vectors that were signalled while bytes that the server had sent before were unread.
    signalled: Vec<u16>,
    /// Number of bytes that must be received before these signals are passed on.
    unread: usize,
    pool: Pool,
}

impl Server {
    /// A server with the socket at `path`, not connected yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            connection: None,
            closing: false,
            redial_at: Instant::ZERO,
            redial: REDIAL,
            is_logged: false,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            vectors: Vec::new(),
            signalled: Vec::new(),
            unread: 0,
            pool: Pool::default(),
        })
    }

    /// Connects if it is time to; returns whether a connection was made.
    fn dial<F: FnMut(Event)>(&mut self, world: &mut Reaping<'_, ExternalDevice<OwnedFd>, F>) -> bool {
        if self.connection.is_some() || world.now < self.redial_at {
            return false;
        }
        let watched = |connection: Connection| {
            world.sources.add(connection.as_raw_fd(), Attention::EachTurn).map(|()| connection)
        };
        match Connection::connect(&self.path).and_then(watched) {
            Ok(connection) => {
                self.connection = Some(connection);
                self.is_logged = false;
                world.inputs.push_back(Input::Connected);
                true
            }
            Err(error) => {
                if !core::mem::replace(&mut self.is_logged, true) {
                    (world.report)(Event::NoServer(error));
                }
                self.wait(world.now);
                false
            }
        }
    }

    fn wait(&mut self, now: Instant) {
        self.redial_at = now + self.redial;
        self.redial = (self.redial * 2).min(REDIAL_MAX);
    }

    /// Takes the server's messages. Signals are passed on only after everything that the server had
    /// sent before them. Bytes that come after them delay no signal.
    fn receive(&mut self, throttled: bool, inputs: &mut VecDeque<Input<OwnedFd>>) -> io::Result<Socket> {
        if throttled {
            return Ok(Socket::Quiet);
        }
        if self.signalled.is_empty() {
            self.collect_signals()?;
            if !self.signalled.is_empty() {
                self.unread = self.connection.as_ref().map_or(0, Connection::unread);
            }
        }
        let mut state = Socket::Quiet;
        for _ in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.connection else { return Ok(Socket::Quiet) };
            if self.unread == 0 && !self.signalled.is_empty() {
                state = Socket::Busy;
                inputs.extend(self.signalled.drain(..).map(Input::Signalled));
            }
            match connection.receive(&mut self.pool) {
                Ok(Received::Nothing) => {
                    if !self.signalled.is_empty() {
                        state = Socket::Busy;
                    }
                    inputs.extend(self.signalled.drain(..).map(Input::Signalled));
                    return Ok(state);
                }
                Ok(Received::Data(bytes, descriptors)) => {
                    self.unread = self.unread.saturating_sub(bytes.len());
                    if !self.closing {
                        inputs.push_back(Input::Received(bytes, descriptors));
                    }
                }
                Ok(Received::Closed) | Err(_) => return Ok(Socket::Closed),
            }
            state = Socket::Busy;
        }
        Ok(state)
    }

    /// Notes which vectors the server has signalled.
    fn collect_signals(&mut self) -> io::Result<()> {
        if self.vectors.is_empty() {
            return Ok(());
        }
        let zero = rustix::event::Timespec::default();
        loop {
            let mut news =
                [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
                    NEWS_MAX];
            let count = match epoll::wait(&self.epoll, &mut news[..], Some(&zero)) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            for event in &news[..count] {
                let index = event.data.u64();
                let vector = usize::try_from(index).ok().and_then(|index| self.vectors.get(index));
                let mut counter = [0; 8];
                if let (Some(descriptor), Ok(index)) = (vector, u16::try_from(index))
                    && rustix::io::read(descriptor, &mut counter).is_ok()
                {
                    self.signalled.push(index);
                }
            }
            // A vector that is signalled again and again must not keep this loop going.
            if count < NEWS_MAX || self.signalled.len() >= self.vectors.len() {
                return Ok(());
            }
        }
    }

    /// Copies of the descriptors of the first `count` vectors. A vector's descriptor stays the same
    /// as long as the connection.
    fn ends(&mut self, count: u16) -> io::Result<Vec<OwnedFd>> {
        while self.vectors.len() < usize::from(count) {
            let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let data = epoll::EventData::new_u64(self.vectors.len() as u64);
            epoll::add(&self.epoll, &descriptor, data, epoll::EventFlags::IN)?;
            self.vectors.push(descriptor);
        }
        self.vectors[..usize::from(count)].iter().map(OwnedFd::try_clone).collect()
    }

    fn drop_connection(&mut self, now: Instant, sources: &Sources) {
        if let Some(connection) = self.connection.take() {
            sources.remove(connection.as_raw_fd());
        }
        self.closing = false;
        self.signalled.clear();
        for descriptor in self.vectors.drain(..) {
            // The server may keep its copy of the descriptor for longer than we do.
            let _ = epoll::delete(&self.epoll, &descriptor);
        }
        self.wait(now);
    }
}

/// The result of a look at the socket.
enum Socket {
    Quiet,
    Busy,
    Closed,
}

impl Backing for Server {
    type Device = ExternalDevice<OwnedFd>;

    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.epoll.as_raw_fd(), Attention::EachTurn)
    }

    fn on_output(
        &mut self,
        output: Output<OwnedFd>,
        inputs: &mut VecDeque<Input<OwnedFd>>,
        report: &mut impl FnMut(Event),
    ) {
        match output {
            Output::Transmit(bytes, descriptors) => {
                if let Some(connection) = &mut self.connection
                    && connection.send(bytes, descriptors).is_err()
                {
                    // The server takes no more bytes; the next receive finds the end of the
                    // connection.
                    connection.abort();
                }
            }
            Output::Close => self.closing = self.connection.is_some(),
            Output::Descriptors(count) => {
                let ends = self.ends(count).unwrap_or_else(|error| {
                    report(Event::NoDescriptors(error));
                    Vec::new()
                });
                inputs.push_back(Input::Descriptors(ends));
            }
            Output::Event(event) => {
                if matches!(event, external_device::Event::Ready(_)) {
                    self.redial = REDIAL;
                }
                report(Event::ExternalDevice(event));
            }
        }
    }

    fn reap<F: FnMut(Event)>(
        &mut self,
        device: &ExternalDevice<OwnedFd>,
        world: &mut Reaping<'_, ExternalDevice<OwnedFd>, F>,
    ) -> io::Result<bool> {
        let busy = self.dial(world);
        match self.receive(device.is_throttled(), world.inputs)? {
            Socket::Quiet if self.closing && self.connection.as_ref().is_some_and(|it| it.unsent() == 0) => {
                self.drop_connection(world.now, world.sources);
                Ok(true)
            }
            Socket::Quiet => Ok(busy),
            Socket::Busy => Ok(true),
            Socket::Closed => {
                if !self.closing {
                    world.inputs.push_back(Input::Disconnected);
                }
                self.drop_connection(world.now, world.sources);
                Ok(true)
            }
        }
    }

    fn flush(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        match connection.flush() {
            Ok(sent) => sent > 0,
            Err(_) => {
                // The next receive finds the end of the connection.
                connection.abort();
                true
            }
        }
    }

    fn has_room(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.unsent() < UNSENT_MAX)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.is_none().then_some(self.redial_at)
    }
}

#[cfg(test)]
mod tests {
    use engine::Buffer;

    use super::*;
    use crate::sys::unix::Listener;

    #[test]
    fn a_flood_of_messages_delays_no_interrupt() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&folder.path().join("device")).unwrap();
        let mut server = Server::new(listener.path()).unwrap();
        server.connection = Some(Connection::connect(listener.path()).unwrap());
        let mut device = listener.accept().unwrap().expect("the far end waits");
        let vector = server.ends(1).unwrap().remove(0);
        // A message with a descriptor is a piece of its own.
        let mut flood = |count: usize| {
            for _ in 0..count {
                device.send(Buffer::zeroed(1), vec![vector.try_clone().unwrap()]).unwrap();
            }
            device.flush().unwrap();
        };
        let before = PIECES_PER_TURN + 4;
        flood(before);
        rustix::io::write(&vector, &1_u64.to_ne_bytes()).unwrap();
        let mut inputs = VecDeque::new();
        server.receive(false, &mut inputs).unwrap();
        flood(PIECES_PER_TURN);
        server.receive(false, &mut inputs).unwrap();
        let signalled = inputs.iter().position(|input| matches!(input, Input::Signalled(0)));
        assert_eq!(signalled, Some(before));
    }
}
