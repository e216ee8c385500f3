//! A card that this process serves to another over vfio-user.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use engine::{Buffer, Engine, Instant, Nanos, Pool, next_wake};
use niq::{Card, Counts, Fault, QUEUES, WINDOW_BYTES, registers};
use pcie::config::{Bar, BarIndex, Builder, ClassCode, ConfigSpace, Identity, Link, PortType, ids};
use vfio_user::server::{CloseReason, Config, InterruptConfig, Output, RegionConfig, Server};
use vfio_user::wire::DmaMap;
use vfio_user::{Area, Errno, Input, InterruptIndex, RegionIndex};

use super::shm::ROOM;
use super::vectors::Vectors;
use super::wire::{Wire, WireError};
use super::{SLEEP_MAX, TEND_EVERY, WINDOW, window};
use crate::drivers::guest::errno_of;
use crate::reactor::{Attention, Context, Driver, Glance, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::shared::{Mapping, SharedMemory};
use crate::sys::unix::{Connection, Listener, Received};

/// Bytes of the configuration space.
const CONFIG_BYTES: u64 = 4096;
/// Number of pieces taken from the client's connection in a turn.
const PIECES_PER_TURN: usize = 16;
/// Most clients that are accepted or turned away in a turn.
const CLIENTS_PER_TURN: usize = 16;
/// Most packets moved in each direction at a time.
const PACKETS_PER_TURN: usize = 64;

/// An event of a served card.
#[derive(Debug)]
pub enum Served {
    /// A client has come, from this process if the system knows it.
    Client(Option<i32>),
    /// The client has gone. If the card has sent it away, for this reason.
    Gone(Option<CloseReason>),
    /// A client was turned away, because another one uses the card.
    TurnedAway,
    /// A client was turned away, because the system has no descriptor or no memory for it.
    AcceptFailed(io::Error),
    /// The wire's other end has come (`true`) or gone.
    Link(bool),
    /// A fault of the client has stopped a queue.
    Fault(usize, Fault),
    /// The interrupts of a queue can't be signalled; their descriptor is given up.
    SignalFailed(usize, io::Error),
}

/// Serves a card: its client's socket, its window, its wire.
pub struct CardDriver<F> {
    listener: Listener,
    connection: Option<Connection>,
    server: Server<OwnedFd>,
    space: ConfigSpace,
    card: Card,
    /// The counts of the card before it was reset.
    past: Counts,
    faults: [Option<Fault>; QUEUES],
    vectors: Vectors,
    window: SharedMemory,
    window_file: OwnedFd,
    /// The client's memory.
    memory: SharedMemory,
    wire: Wire,
    is_up: bool,
    /// The packet that leaves.
    leaving: Vec<u8>,
    /// The packet that comes, perhaps in parts. Packets that leave meanwhile have no place here.
    coming: Vec<u8>,
    pool: Pool,
    tended_at: Instant,
    now: Instant,
    /// How long the card looks for slots and packets before it says that it sleeps. From then on
    /// its host writes a register when it sends.
    spin: Nanos,
    /// Since when there has been nothing.
    quiet_since: Option<Instant>,
    /// Nothing was there since the card has said that it sleeps.
    has_looked: bool,
    is_stopping: bool,
    report: F,
}

fn config() -> Config {
    let mut config = Config::default();
    config.regions[0] = RegionConfig::new(registers::LENGTH.into());
    let window = RegionConfig::new(WINDOW_BYTES as u64);
    let area = Area { offset: 0, length: WINDOW_BYTES as u64 };
    config.regions[WINDOW.0 as usize] = RegionConfig { areas: vec![area], ..window };
    config.interrupts[InterruptIndex::Msix.slot()] =
        InterruptConfig { count: Vectors::COUNT.into(), all_at_once: false };
    config.regions[RegionIndex::CONFIG.0 as usize] = RegionConfig::new(CONFIG_BYTES);
    config
}

fn space() -> ConfigSpace {
    let identity = Identity {
        vendor: ids::VENDOR,
        device: ids::LOW_LATENCY_NIC,
        revision: 1,
        class: ClassCode::NETWORK,
        subsystem_vendor: ids::VENDOR,
        subsystem: ids::LOW_LATENCY_NIC,
    };
    Builder::endpoint(identity)
        .bar(BarIndex::ZERO, Bar::memory64(registers::LENGTH.into()))
        .bar(BarIndex::new(2), Bar::memory64(WINDOW_BYTES as u64).prefetchable())
        .msix(BarIndex::ZERO, Vectors::COUNT, registers::MSIX_TABLE, registers::MSIX_PENDING)
        .express(PortType::Endpoint, Link::default(), None)
        .build()
}

impl<F: FnMut(Served)> CardDriver<F> {
    /// A card with `address` whose clients come to `listener`, and which is at an end of `wire`.
    /// It runs in a loop that spins for `spin`.
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    pub fn new(listener: Listener, wire: Wire, address: [u8; 6], spin: Nanos, report: F) -> io::Result<Self> {
        let (window, window_file) = window()?;
        Ok(Self {
            listener,
            connection: None,
            server: Server::new(config()),
            space: space(),
            card: Card::new(address),
            past: Counts::default(),
            faults: [None; QUEUES],
            vectors: Vectors::default(),
            window,
            window_file,
            memory: SharedMemory::new(),
            wire,
            is_up: false,
            leaving: vec![0; ROOM],
            coming: vec![0; ROOM],
            pool: Pool::default(),
            tended_at: Instant::ZERO,
            now: Instant::ZERO,
            spin,
            quiet_since: None,
            has_looked: false,
            is_stopping: false,
            report,
        })
    }

    /// The counts of the card for all its clients.
    pub fn counts(&self) -> Counts {
        let mut counts = self.past;
        counts += *self.card.counts();
        counts
    }

    fn reset_card(&mut self) {
        self.past += *self.card.counts();
        self.card.reset();
    }

    fn write_register(&mut self, offset: u64, data: &[u8]) {
        let before = *self.card.counts();
        self.card.register_write(&mut self.window, offset, data);
        if *self.card.counts() == Counts::default() {
            // The client has reset the card, or nothing was counted.
            self.past += before;
        }
    }

    /// Moves packets between the window and the wire; returns whether there were any.
    fn move_packets(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..PACKETS_PER_TURN {
            if !self.wire.has_room() {
                break;
            }
            let Some(length) = self.card.poll_transmit(&mut self.window, &mut self.memory, &mut self.leaving)
            else {
                break;
            };
            self.wire.send(&self.leaving[..length]);
            moved = true;
        }
        for _ in 0..PACKETS_PER_TURN {
            let Some(length) = self.wire.receive(&mut self.coming) else { break };
            self.card.receive(&mut self.window, &mut self.memory, &self.coming[..length]);
            moved = true;
        }
        // The rest of an earlier packet may have left although no packet was moved.
        self.wire.wake();
        if moved {
            self.interrupt_client();
        }
        moved
    }

    /// Interrupts the client if it waits for a packet that has come.
    fn interrupt_client(&mut self) {
        while let Some(queue) = self.card.poll_interrupt(&self.window) {
            if let Err(error) = self.vectors.signal(queue) {
                (self.report)(Served::SignalFailed(queue, error));
            }
        }
    }

    /// Notes that there was something, or nothing. A card that was quiet for a while says that it
    /// sleeps, and looks once more.
    fn rest(&mut self, moved: bool) {
        if moved {
            self.quiet_since = None;
            self.say_asleep(false);
            return;
        }
        if self.card.is_asleep() {
            self.has_looked = true;
        } else if self.now - *self.quiet_since.get_or_insert(self.now) >= self.spin {
            self.say_asleep(true);
        }
    }

    fn say_asleep(&mut self, asleep: bool) {
        if self.card.is_asleep() != asleep {
            self.card.sleep(&mut self.window, asleep);
            self.wire.sleep(asleep);
            self.has_looked = false;
        }
    }

    fn tend(&mut self, now: Instant, has_news: bool) -> Result<(), WireError> {
        if !has_news && now - self.tended_at < TEND_EVERY {
            return Ok(());
        }
        self.tended_at = now;
        self.wire.tend(now)?;
        let is_up = self.wire.is_up();
        if core::mem::replace(&mut self.is_up, is_up) != is_up {
            self.card.set_link(is_up);
            (self.report)(Served::Link(is_up));
        }
        for (queue, known) in self.faults.iter_mut().enumerate() {
            let fault = self.card.fault(queue);
            if let Some(fault) = fault.filter(|_| fault != *known) {
                (self.report)(Served::Fault(queue, fault));
            }
            *known = fault;
        }
        Ok(())
    }

    /// Accepts the clients that have come: one is served, others are turned away. Returns whether
    /// there were any.
    fn accept(&mut self, now: Instant, sources: &Sources) -> bool {
        for count in 0..CLIENTS_PER_TURN {
            match self.listener.accept() {
                Ok(None) => return count > 0,
                Ok(Some(_)) if self.connection.as_ref().is_some_and(|one| !one.is_closed_by_peer()) => {
                    (self.report)(Served::TurnedAway);
                }
                Ok(Some(connection)) => {
                    self.lose_client(sources, None);
                    self.server.handle_input(now, Input::Disconnected);
                    if let Err(error) = self.admit(now, connection, sources) {
                        (self.report)(Served::AcceptFailed(error));
                    }
                }
                Err(error) => {
                    (self.report)(Served::AcceptFailed(error));
                    return count > 0;
                }
            }
        }
        true
    }

    /// Serves a client. It gets a window of its own: the one before may go on writing into its own.
    fn admit(&mut self, now: Instant, connection: Connection, sources: &Sources) -> io::Result<()> {
        let (window, window_file) = window()?;
        sources.add(connection.as_raw_fd(), Attention::OnNews)?;
        (self.window, self.window_file) = (window, window_file);
        (self.report)(Served::Client(connection.peer_process()));
        self.connection = Some(connection);
        self.server.handle_input(now, Input::Connected);
        Ok(())
    }

    /// Forgets the client.
    fn lose_client(&mut self, sources: &Sources, reason: Option<CloseReason>) {
        let Some(connection) = self.connection.take() else { return };
        sources.remove(connection.as_raw_fd());
        self.memory.clear();
        self.reset_card();
        self.space = space();
        self.vectors = Vectors::default();
        (self.report)(Served::Gone(reason));
    }

    fn receive_client(&mut self, clock: Clock, sources: &Sources) -> bool {
        for piece in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.connection else { return piece > 0 };
            match connection.receive(&mut self.pool) {
                Ok(Received::Nothing) => return piece > 0,
                Ok(Received::Data(bytes, descriptors)) => {
                    let input = Input::Received { bytes: &bytes, descriptors };
                    self.server.handle_input(clock.now(), input);
                }
                Ok(Received::Closed) | Err(_) => {
                    self.lose_client(sources, None);
                    self.server.handle_input(clock.now(), Input::Disconnected);
                }
            }
            self.answer(sources);
        }
        true
    }

    /// Carries out the client's requests.
    fn answer(&mut self, sources: &Sources) {
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Transmit { bytes, shared } => self.reply(bytes, shared),
                Output::Map { token, map, descriptor } => {
                    let result = self.map(map, descriptor);
                    self.server.map_done(token, result);
                }
                Output::Unmap { token, address, length } => {
                    self.memory.unmap(address, length);
                    if let Some(token) = token {
                        self.server.unmap_done(token);
                    }
                }
                Output::RegionRead { token, region, offset, length } => {
                    let mut bytes = vec![0; length as usize];
                    let result = self.read(region, offset, &mut bytes).map(|()| &bytes[..]);
                    self.server.read_done(token, result);
                }
                Output::RegionWrite { token, region, offset, data } => {
                    let result = self.write(region, offset, &data);
                    if let Some(token) = token {
                        self.server.write_done(token, result);
                    }
                }
                Output::Reset { token } => {
                    self.reset_card();
                    self.space = space();
                    self.vectors.reset();
                    self.server.reset_done(token, Ok(()));
                }
                Output::Close { reason } => {
                    // It gets the reason, if the protocol has an answer for that.
                    self.flush();
                    self.lose_client(sources, Some(reason));
                }
                Output::SetInterrupts { index: InterruptIndex::Msix, action, start, count, data } => {
                    self.vectors.set(action, (start, count), data);
                }
                // There are no other interrupts, and the card reaches memory by its file alone.
                Output::Negotiated(_)
                | Output::SetInterrupts { .. }
                | Output::DmaData { .. }
                | Output::DmaWritten { .. }
                | Output::DmaFailed { .. } => {}
            }
        }
        self.flush();
    }

    /// Sends waiting messages to the client.
    fn flush(&mut self) {
        if let Some(connection) = &mut self.connection {
            // A client that is gone is found by the next receive.
            let _ = connection.flush();
        }
    }

    fn reply(&mut self, bytes: Buffer, shared: Option<RegionIndex>) {
        let file = shared.filter(|region| *region == WINDOW).and_then(|_| self.window_file.try_clone().ok());
        if let Some(connection) = &mut self.connection
            && connection.send(bytes, file.into_iter().collect()).is_err()
        {
            // The client no longer reads; the next receive finds the end of the connection.
            connection.abort();
        }
    }

    fn map(&mut self, map: DmaMap, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let DmaMap { readable, writable, offset, address, length } = map;
        let descriptor = descriptor.ok_or(Errno::EOPNOTSUPP)?;
        let mapping = Mapping { address, length, offset, readable, writable };
        self.memory.map(descriptor, mapping).map_err(|error| errno_of(&error))
    }

    fn read(&self, region: RegionIndex, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match region {
            RegionIndex::BAR0 if Vectors::has(offset) => self.vectors.read(offset, bytes),
            RegionIndex::BAR0 => self.card.register_read(offset, bytes),
            WINDOW => self.window.read(offset, bytes).map_err(|_| Errno::EINVAL)?,
            _ => {
                for (at, byte) in (offset..).zip(bytes) {
                    let word = u16::try_from(at & !3).map_or(0, |at| self.space.read(at));
                    *byte = word.to_le_bytes()[(at & 3) as usize];
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, region: RegionIndex, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match region {
            RegionIndex::BAR0 if Vectors::has(offset) => self.vectors.write(offset, data),
            RegionIndex::BAR0 => self.write_register(offset, data),
            WINDOW => self.window.write(offset, data).map_err(|_| Errno::EINVAL)?,
            _ => {
                for (at, byte) in (offset..).zip(data) {
                    let Ok(word) = u16::try_from(at & !3) else { break };
                    let lane = (at & 3) as u32;
                    self.space.write(word, u32::from(*byte) << (8 * lane), 1 << lane);
                }
            }
        }
        Ok(())
    }
}

impl<F: FnMut(Served)> Driver for CardDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
        sources.add(self.wire.as_fd().as_raw_fd(), Attention::OnNews)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.now = context.now;
        if self.is_stopping {
            return Ok(Turn::Done);
        }
        let mut busy = false;
        if context.news {
            busy |= self.accept(context.now, sources);
            busy |= self.receive_client(context.clock, sources);
            // The socket may have room again for answers that found none.
            self.flush();
        }
        if self.memory.lost().is_some() {
            self.lose_client(sources, None);
            self.server.handle_input(context.now, Input::Disconnected);
        }
        if engine::fire(&mut self.server, context.now) {
            self.answer(sources);
        }
        self.tend(context.now, context.news).map_err(io::Error::other)?;
        let moved = self.move_packets();
        // A client that writes a register has woken the card, and stores more.
        self.rest(moved || busy);
        busy |= moved;
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, _: &Context<'_>) -> Glance {
        if self.move_packets() {
            self.rest(true);
            return Glance::Done;
        }
        Glance::Nothing
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // A card that has not said that it sleeps is not woken, so it must not wait.
        let may_wait = self.card.is_asleep() && self.has_looked;
        let look = if may_wait { SLEEP_MAX } else { Nanos::ZERO };
        Instant::earlier(Some(self.now + look), next_wake(&self.server, self.now))
    }

    fn on_stop(&mut self, _: Instant) {
        self.is_stopping = true;
    }
}

impl<F> fmt::Debug for CardDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardDriver")
            .field("card", &self.card)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
