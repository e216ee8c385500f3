//! A card of another process: its registers by messages, its window mapped.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use engine::{Buffer, Engine, Instant, Nanos, Pool};
use niq::{HOST_MEMORY_BYTES, WINDOW_BYTES, registers};
use rustix::event::{EventfdFlags, eventfd};
use vfio_user::client::{Answer, Client, Config, Input, Output, RequestId};
use vfio_user::wire::DmaMap;
use vfio_user::{Errno, InterruptAction, InterruptData, InterruptIndex, RegionIndex};

use super::{WINDOW, new_memory, wait_for, whole};
use crate::reactor::{Pump, Shell};
use crate::sys::clock::Clock;
use crate::sys::shared::SharedMemory;
use crate::sys::unix::{Connection, Received};

/// How long this process waits for an answer before it looks at the time again.
const LOOK: Nanos = Nanos::from_millis(10);

/// A request, and its answer or the error.
type Answered = (RequestId, Result<Answer<OwnedFd>, Errno>);

/// The connection to the process that serves a card.
pub(super) struct CardClient {
    client: Pump<Client<OwnedFd>>,
    shell: ClientShell,
    clock: Clock,
    pool: Pool,
    /// Readable after an interrupt.
    interrupt: OwnedFd,
}

/// The connection to the server, and the answers that have come over it.
struct ClientShell {
    connection: Connection,
    answers: VecDeque<Answered>,
    /// Why the connection is over.
    failed: Option<io::Error>,
}

impl Shell<Client<OwnedFd>> for ClientShell {
    fn pass(&mut self, _: Instant, output: Output<OwnedFd>, client: &mut Client<OwnedFd>) {
        let passed = match output {
            Output::Transmit { bytes, descriptors } => self.send(bytes, descriptors),
            Output::Answered { request, result } => {
                self.answers.push_back((request, result));
                Ok(())
            }
            Output::Negotiated(_) => Ok(()),
            Output::DmaRead { token, .. } => {
                client.dma_read_done(token, Err(Errno::EACCES));
                Ok(())
            }
            Output::DmaWrite { token, .. } => {
                if let Some(token) = token {
                    client.dma_write_done(token, Err(Errno::EACCES));
                }
                Ok(())
            }
            Output::Close { reason } => Err(invalid(reason.to_string())),
        };
        // The first error is the cause of those that follow.
        self.failed = self.failed.take().or(passed.err());
    }
}

impl ClientShell {
    fn send(&mut self, bytes: Buffer, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        self.connection.send(bytes, descriptors).map_err(io::Error::other)?;
        self.connection.flush().map(|_| ()).map_err(failed)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the process that serves the card is gone")
}

/// An error of the connection. The system has several words for a process that is gone.
fn failed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => gone(),
        _ => error,
    }
}

/// An error of a connection over which nothing has come yet.
fn turned_away(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::ConnectionAborted => {
            io::Error::new(kind, "it accepts no user now: one user at a time may have a card")
        }
        _ => error,
    }
}

impl CardClient {
    /// Connects to the card served at `path`, to hear the interrupts of `queue`; returns its window
    /// and the memory that it may reach.
    pub(super) fn connect(
        path: &Path,
        queue: usize,
        clock: Clock,
    ) -> io::Result<(Self, SharedMemory, SharedMemory)> {
        let connection = Connection::connect(path)?;
        let mut client = Pump::new(Client::new(Config::default()));
        client.engine_mut().handle_input(clock.now(), Input::Connected);
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shell = ClientShell { connection, answers: VecDeque::new(), failed: None };
        let mut this = Self { client, shell, clock, pool: Pool::default(), interrupt };
        while this.client.engine().negotiated().is_none() {
            match this.advance().map_err(turned_away)? {
                Some((_, Err(error))) => return Err(invalid(format!("it sends no greeting: {error}"))),
                Some(_) => {}
                None => this.wait()?,
            }
        }
        if this.read(registers::ID)? != registers::ID_VALUE {
            return Err(invalid("it is no low-latency network card; farlane measure nic serve offers one"));
        }
        let window = this.map_window()?;
        let (memory, file) = new_memory("farlane-niq-host", HOST_MEMORY_BYTES)?;
        let length = HOST_MEMORY_BYTES as u64;
        let map = DmaMap { readable: true, writable: true, offset: 0, address: 0, length };
        this.ask(|client, clock| client.map(clock.now(), map, Some(file)))?;
        this.listen(queue)?;
        Ok((this, window, memory))
    }

    /// Has the card signal the interrupts of `queue`.
    fn listen(&mut self, queue: usize) -> io::Result<()> {
        let vector = u32::try_from(queue).map_err(invalid)?;
        let signal = self.interrupt.try_clone()?;
        let (kind, action) = (InterruptIndex::Msix, InterruptAction::Trigger);
        let data = InterruptData::Descriptors(vec![signal]);
        self.ask(|client, clock| client.set_interrupts(clock.now(), kind, action, (vector, 1), data))?;
        Ok(())
    }

    fn map_window(&mut self) -> io::Result<SharedMemory> {
        let answer = self.ask(|client, clock| client.region_info(clock.now(), WINDOW))?;
        let Answer::Region { info, mut descriptors } = answer else {
            return Err(invalid("it does not describe its window"));
        };
        let file = descriptors.pop().filter(|_| info.mappable && info.size == WINDOW_BYTES as u64);
        let file = file.ok_or_else(|| invalid("its window can't be mapped"))?;
        let mut window = SharedMemory::new();
        let mapping = crate::sys::shared::Mapping { offset: info.offset, ..whole(0, WINDOW_BYTES) };
        window.map(file, mapping).map_err(invalid)?;
        Ok(window)
    }

    /// Reads a register.
    pub(super) fn read(&mut self, register: u32) -> io::Result<u32> {
        let answer =
            self.ask(|client, clock| client.read(clock.now(), RegionIndex::BAR0, register.into(), 4))?;
        match answer {
            Answer::Data(data) => data
                .first_chunk()
                .map(|word| u32::from_le_bytes(*word))
                .ok_or_else(|| invalid("a register was cut")),
            _ => Err(invalid("a register was not answered with its value")),
        }
    }

    /// Writes a register.
    pub(super) fn write(&mut self, register: u32, value: u32) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        self.ask(|client, clock| client.write(clock.now(), RegionIndex::BAR0, register.into(), &bytes))
            .map(|_| ())
    }

    /// Writes a register without waiting for the answer.
    pub(super) fn post(&mut self, register: u32, value: u32) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        self.client.engine_mut().write(self.clock.now(), RegionIndex::BAR0, register.into(), &bytes);
        self.hear()
    }

    /// Sends waiting messages, and takes received ones, without waiting.
    pub(super) fn hear(&mut self) -> io::Result<()> {
        while self.advance()?.is_some() {}
        Ok(())
    }

    /// Forgets the interrupts that have come.
    pub(super) fn clear_interrupt(&self) {
        // Nothing has come if this fails.
        let _ = rustix::io::read(&self.interrupt, &mut [0_u8; 8]);
    }

    /// The descriptors that have news when an interrupt or a message comes.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.interrupt.as_fd(), self.shell.connection.as_fd()]
    }

    /// Whether the server is still there.
    pub(super) fn is_alive(&self) -> bool {
        !self.shell.connection.is_closed_by_peer()
    }

    /// Asks and waits for the answer, as long as the client's own limit.
    pub(super) fn ask(
        &mut self,
        ask: impl FnOnce(&mut Client<OwnedFd>, Clock) -> RequestId,
    ) -> io::Result<Answer<OwnedFd>> {
        let request = ask(self.client.engine_mut(), self.clock);
        loop {
            match self.advance()? {
                Some((answered, result)) if answered == request => {
                    return result.map_err(|error| invalid(format!("it answers {error}")));
                }
                Some(_) => {}
                None => self.wait()?,
            }
        }
    }

    /// Waits for a message, or until the client's next look at the time.
    fn wait(&self) -> io::Result<()> {
        let now = self.clock.now();
        let length = self.client.poll_timeout().map_or(LOOK, |at| (at - now).min(LOOK));
        wait_for(&[self.shell.connection.as_fd()], length)
    }

    /// Moves the messages that there are; returns the next answer, or `None` once there is none.
    fn advance(&mut self) -> io::Result<Option<Answered>> {
        loop {
            let now = self.clock.now();
            self.client.exchange(now, &mut self.shell);
            if let Some(answer) = self.shell.answers.pop_front() {
                return Ok(Some(answer));
            }
            if let Some(error) = self.shell.failed.take() {
                return Err(error);
            }
            match self.shell.connection.receive(&mut self.pool).map_err(failed)? {
                Received::Data(bytes, descriptors) => {
                    let input = Input::Received { bytes: &bytes, descriptors };
                    self.client.engine_mut().handle_input(now, input);
                }
                Received::Closed => return Err(gone()),
                Received::Nothing if self.client.settle(now, &mut self.shell) => {}
                Received::Nothing => {
                    self.shell.connection.flush().map_err(failed)?;
                    return Ok(None);
                }
            }
        }
    }
}

impl fmt::Debug for CardClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CardClient({:?})", self.shell.connection)
    }
}
