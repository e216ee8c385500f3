//! A guest's device slot, live: the monitor's socket, the guest's memory and the function's side.

mod doorbells;
mod event;
mod local;
mod memory;
mod signal;
mod turned_away;

pub use event::Event;

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use engine::{Engine, Instant, Nanos, Pool, fire, next_wake};
use machine::guest::{Guest, Input, Output};
use nvme_pcie::controller::Controller;
use nvme_pcie::function::{self, Function};
use tunnel::upstream::{PortIndex, Upstream};

use crate::carrier::route::Route;
use crate::carrier::{Dial, Link};
use crate::media::Media;
use crate::reactor::{Attention, Context, Driver, Glance, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::shared::{Mapping, SharedMemory};
use crate::sys::unix::{Connection, Listener, Received};
use doorbells::{Doorbells, Look};
use local::Local;
use memory::errno_of;
use signal::Signaller;
use turned_away::TurnedAway;

/// Number of pieces taken from one connection in a turn, so that none starves the others.
const PIECES_PER_TURN: usize = 16;

/// How often shared doorbells are looked at in an idle loop: rarely enough to spare the processor.
const LOOK_EVERY: Nanos = Nanos::from_millis(2);

/// How often a spinning loop looks at all shared doorbells; a queue's first ring waits for this.
const SWEEP_EVERY: Nanos = Nanos::from_micros(50);

/// For this long after a ring, deadlines are not looked at, since the next ring may come at once.
/// Shorter than [`LOOK_EVERY`], after which deadlines are looked at.
const LEISURE: Nanos = Nanos::from_micros(20);

/// Where the slot's function is.
enum Side {
    Local(Box<Local>),
    /// At a far end, over these connections.
    Far(Vec<Link>),
}

struct Client {
    connection: Connection,
    /// The connection is to be closed when everything is sent.
    closing: bool,
    /// The client rings by stores and seldom sends bytes: its socket is looked at on news only.
    at_rest: bool,
}

/// Drives a guest's device slot: its monitor's socket, its memory, and the function's side.
pub struct GuestDriver<F> {
    guest: Guest<OwnedFd>,
    side: Side,
    listener: Listener,
    listening: bool,
    client: Option<Client>,
    /// A client that connected before the function is there.
    waiting: Option<Connection>,
    turned_away: TurnedAway,
    memory: SharedMemory,
    vectors: Vec<Option<Signaller>>,
    doorbells: Option<Doorbells>,
    /// A client may have the doorbells mapped, and then rings them without a message.
    shared: bool,
    pool: Pool,
    report: F,
    /// Whether it has been reported that the far end cannot be reached.
    unreachable: bool,
    wake: Option<Instant>,
    /// Deadlines may have changed since `wake` was computed. They are checked when there is time.
    unsettled: bool,
    /// When the last turn was.
    looked_at: Instant,
    /// When a shared doorbell was last seen rung; `swept_at` is when all were last looked at.
    rung_at: Instant,
    /// The memory address of the entry that the next ring will announce.
    next_entry: Option<u64>,
    swept_at: Instant,
    stopping: bool,
}

impl<F: FnMut(Event)> GuestDriver<F> {
    /// Offers the clients of `listener` the function at the far end that `route` leads to. `report`
    /// is called with each event.
    pub fn over_tcp(guest: Guest<OwnedFd>, route: Route, listener: Listener, report: F) -> Self {
        let connections = guest.upstream().map_or(1, Upstream::connections);
        let links = vec![route; connections].into_iter().map(Link::new).collect();
        Self::new(guest, Side::Far(links), listener, report)
    }

    /// Offers the clients of `listener` a function in this process.
    pub fn direct(
        guest: Guest<OwnedFd>,
        function: Function,
        media: Media,
        listener: Listener,
        report: F,
    ) -> Self {
        Self::new(guest, Side::Local(Box::new(Local::new(function, media))), listener, report)
    }

    fn new(guest: Guest<OwnedFd>, side: Side, listener: Listener, report: F) -> Self {
        Self {
            guest,
            side,
            listener,
            listening: false,
            client: None,
            waiting: None,
            turned_away: TurnedAway::default(),
            memory: SharedMemory::new(),
            vectors: Vec::new(),
            doorbells: None,
            shared: false,
            pool: Pool::default(),
            report,
            unreachable: false,
            wake: None,
            unsettled: true,
            looked_at: Instant::ZERO,
            rung_at: Instant::ZERO,
            next_entry: None,
            swept_at: Instant::ZERO,
            stopping: false,
        }
    }

    /// The slot's engines.
    pub const fn guest(&self) -> &Guest<OwnedFd> {
        &self.guest
    }

    /// The controller, if the function is in this process.
    pub fn controller(&self) -> Option<&Controller> {
        match &self.side {
            Side::Local(local) => Some(local.function.controller()),
            Side::Far(_) => None,
        }
    }

    fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.listening {
            sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
            self.listening = true;
        }
        match &mut self.side {
            Side::Local(local) => local.register(sources),
            Side::Far(_) => Ok(()),
        }
    }

    /// Accepts the clients that have come: one is served, further ones wait or are turned away.
    fn accept(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut accepted = false;
        loop {
            match self.listener.accept() {
                Ok(None) => return accepted,
                Ok(Some(connection)) if self.has_room() => {
                    self.waiting = Some(connection);
                    accepted = true;
                }
                Ok(Some(connection)) => {
                    (self.report)(Event::TurnedAway(connection.peer_process()));
                    self.turned_away.add(now, connection, sources);
                }
                Err(error) => {
                    (self.report)(Event::AcceptFailed(error));
                    return accepted;
                }
            }
        }
    }

    /// Whether another client may wait. A leaving client makes room before its last bytes are read.
    fn has_room(&mut self) -> bool {
        self.waiting.take_if(|waiting| waiting.is_closed_by_peer());
        let leaves = |client: &Client| client.closing || client.connection.is_closed_by_peer();
        self.waiting.is_none() && self.client.as_ref().is_none_or(leaves)
    }

    /// Serves the waiting client, if the function is there.
    fn admit(&mut self, now: Instant, sources: &Sources) -> bool {
        if self.client.is_some() || !self.guest.takes_client() {
            return false;
        }
        let Some(connection) = self.waiting.take() else { return false };
        if let Err(error) = sources.add(connection.as_raw_fd(), Attention::EachTurn) {
            (self.report)(Event::AcceptFailed(error));
            return true;
        }
        self.client = Some(Client { connection, closing: false, at_rest: false });
        self.guest.handle_input(now, Input::ClientConnected);
        self.exchange(now);
        true
    }

    /// Handles the bytes that the client has sent; returns whether there were any.
    fn receive_client(&mut self, clock: Clock, sources: &Sources, news: bool) -> bool {
        let mut busy = false;
        if let Some(client) = self.client.as_mut().filter(|_| self.shared) {
            if !client.at_rest {
                // If the change fails, the socket is looked at in each turn as before.
                client.at_rest = sources.change(client.connection.as_raw_fd(), Attention::OnNews).is_ok();
            } else if !news {
                return false;
            }
        }
        for _ in 0..PIECES_PER_TURN {
            let Some(client) = &mut self.client else { break };
            // Bytes that the function does not take yet stay in the socket.
            if !self.guest.takes_bytes() {
                break;
            }
            match client.connection.receive(&mut self.pool) {
                Ok(Received::Nothing) => break,
                Ok(Received::Data(..)) if client.closing => continue,
                Ok(Received::Data(bytes, descriptors)) => {
                    let input = Input::ClientReceived { bytes: &bytes, descriptors };
                    self.guest.handle_input(clock.now(), input);
                }
                Ok(Received::Closed) | Err(_) => {
                    let ended = client.closing;
                    self.drop_client(sources);
                    if !ended {
                        self.guest.handle_input(clock.now(), Input::ClientDisconnected);
                    }
                }
            }
            busy = true;
            self.exchange(clock.now());
            self.flush(sources);
        }
        busy
    }

    fn drop_client(&mut self, sources: &Sources) {
        if let Some(client) = self.client.take() {
            sources.remove(client.connection.as_raw_fd());
        }
        self.memory.clear();
        self.vectors.clear();
        // The next client gets a file of its own: whoever has this one may go on writing to it.
        (self.doorbells, self.shared) = (None, false);
    }

    /// Passes on the doorbells that were rung in shared memory; returns whether there were any.
    fn look_at_doorbells(&mut self, now: Instant, look: Look) -> bool {
        let Some(doorbells) = self.doorbells.as_ref().filter(|_| self.shared && self.guest.takes_rings())
        else {
            return false;
        };
        // The entry is written just before its ring: fetching both at once saves a wait.
        if let Some(address) = self.next_entry {
            self.memory.prefetch(address);
        }
        let mut rung = false;
        doorbells.take(look, |offset, value| {
            rung = true;
            match &mut self.side {
                Side::Local(local) => local.ring(now, offset, value),
                Side::Far(_) => self.guest.ring(now, offset, value),
            }
        });
        if rung {
            // The function's answer comes before everything else.
            if let Side::Local(local) = &mut self.side {
                local.exchange(now, &mut self.guest, &self.memory);
                self.next_entry = local.function.controller().next_entry();
            }
            self.exchange(now);
            self.rung_at = now;
        }
        rung
    }

    /// The file of doorbells, to be sent with the description of its region.
    fn share(&mut self) -> Vec<OwnedFd> {
        let Some(place) = self.guest.doorbells() else { return Vec::new() };
        if self.doorbells.as_ref().is_none_or(|doorbells| doorbells.place() != place) {
            match Doorbells::new(place) {
                Ok(doorbells) => self.doorbells = Some(doorbells),
                Err(error) => (self.report)(Event::NoDoorbells(error)),
            }
        }
        let shared = self.doorbells.as_ref().and_then(|doorbells| doorbells.share().ok());
        self.shared |= shared.is_some();
        shared.into_iter().collect()
    }

    /// Handles the bytes that the far end has sent; returns whether there were any.
    fn receive_far(&mut self, clock: Clock, sources: &Sources) -> bool {
        let mut busy = false;
        let Side::Far(far) = &self.side else { return false };
        for index in 0..far.len() {
            busy |= self.receive_link(index, clock, sources);
        }
        busy
    }

    /// Dials and receives on the connection `index`; returns whether anything happened.
    fn receive_link(&mut self, index: usize, clock: Clock, sources: &Sources) -> bool {
        let mut busy = false;
        let Side::Far(far) = &mut self.side else { return false };
        let port = PortIndex(u8::try_from(index).expect("a link has at most 8 connections"));
        if let Some(dialled) = far[index].dial(clock.now(), sources) {
            busy = true;
            let input = match dialled {
                Dial::Path { path, is_away } => {
                    let event = tunnel::Event::of_path(tunnel::paths::PathIndex(path), is_away);
                    (self.report)(Event::Guest(machine::guest::Event::Link(event)));
                    return true;
                }
                Dial::Connected => {
                    self.unreachable = false;
                    Input::Connected(port)
                }
                Dial::Failed(address, error) => {
                    if !core::mem::replace(&mut self.unreachable, true) {
                        (self.report)(Event::DialFailed(address, error));
                    }
                    Input::Disconnected(port)
                }
            };
            self.guest.handle_input(clock.now(), input);
            self.exchange(clock.now());
        }
        for _ in 0..PIECES_PER_TURN {
            let Side::Far(far) = &mut self.side else { break };
            let input = match far[index].receive(&mut self.pool, sources) {
                None => break,
                Some(Ok(bytes)) => Input::Received(port, bytes),
                Some(Err(())) => Input::Disconnected(port),
            };
            busy = true;
            self.guest.handle_input(clock.now(), input);
            let now = clock.now();
            self.guest.advance(now);
            self.exchange(now);
            self.flush(sources);
        }
        busy
    }

    /// Passes outputs to the world, and its answers back in, until all engines are quiet. Returns
    /// whether there were any outputs. Afterwards, deadlines may have changed.
    fn exchange(&mut self, now: Instant) -> bool {
        self.unsettled = true;
        let mut busy = false;
        loop {
            let mut again = false;
            while let Some(output) = self.guest.poll_output() {
                busy = true;
                again |= self.on_output(now, output);
            }
            if let Side::Local(local) = &mut self.side {
                let moved = local.exchange(now, &mut self.guest, &self.memory);
                again |= moved;
                busy |= moved;
            }
            if !again {
                return busy;
            }
        }
    }

    /// Handles one output of the engines; returns whether the local function has something to do.
    fn on_output(&mut self, now: Instant, output: Output<OwnedFd>) -> bool {
        match output {
            Output::ReadMemory { token, address, length } => {
                let length = usize::try_from(length).expect("at most 4 KiB");
                let mut bytes = self.pool.take(length);
                let data = self.memory.read(address, &mut bytes).ok().map(|()| self.pool.seal(bytes));
                self.guest.memory_read_done(token, address, length, data);
            }
            Output::WriteMemory { address, data } => {
                if self.memory.write(address, &data).is_err() {
                    self.guest.memory_write_failed(address, data.len());
                }
            }
            Output::Signal { vector } => self.signal(vector),
            Output::Packet(packet) => {
                if let Side::Local(local) = &mut self.side {
                    local.function.handle_input(now, function::Input::Packet(packet));
                    return true;
                }
            }
            Output::Transmit(port, bytes) => {
                if let Side::Far(far) = &mut self.side {
                    far[usize::from(port.0)].send(bytes);
                }
            }
            output => self.on_rare_output(now, output),
        }
        false
    }

    fn on_rare_output(&mut self, now: Instant, output: Output<OwnedFd>) {
        match output {
            Output::Connect(port) | Output::Close(port) => {
                if let Side::Far(far) = &mut self.side {
                    let link = &mut far[usize::from(port.0)];
                    if matches!(output, Output::Connect(_)) { link.connect(now) } else { link.close() }
                }
            }
            Output::Reply { bytes, shared } => {
                let descriptors = if shared.is_some() { self.share() } else { Vec::new() };
                if let Some(client) = &mut self.client
                    && client.connection.send(bytes, descriptors).is_err()
                {
                    // The client no longer reads; the next receive finds the end of the connection.
                    client.connection.abort();
                }
            }
            Output::CloseClient => {
                if let Some(client) = &mut self.client {
                    client.closing = true;
                }
            }
            Output::Map { token, address, length, offset, readable, writable, descriptor } => {
                let mapping = Mapping { address, length, offset, readable, writable };
                let result = self.memory.map(descriptor, mapping).map_err(|error| {
                    let errno = errno_of(&error);
                    (self.report)(Event::MapFailed(address, error));
                    errno
                });
                self.guest.map_done(token, result);
            }
            Output::Unmap { address, length } => self.memory.unmap(address, length),
            Output::Vector { vector, descriptor } => {
                if vector >= self.vectors.len() {
                    self.vectors.resize_with(vector + 1, || None);
                }
                self.vectors[vector] = descriptor.map(Signaller::new);
            }
            Output::ClearDoorbells => {
                if let Some(doorbells) = &self.doorbells {
                    doorbells.clear();
                }
            }
            Output::Event(event) => (self.report)(Event::Guest(event)),
            Output::ReadMemory { .. }
            | Output::WriteMemory { .. }
            | Output::Signal { .. }
            | Output::Packet(_)
            | Output::Transmit(..) => {}
        }
    }

    fn signal(&mut self, vector: usize) {
        let Some(Some(signaller)) = self.vectors.get(vector) else { return };
        if let Err(error) = signaller.signal() {
            (self.report)(Event::SignalFailed(vector, error));
            // One report is enough.
            self.vectors[vector] = None;
        }
    }

    /// Fires the deadlines that are due, and computes the next deadline.
    fn settle(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while self.wake.is_some_and(|at| at <= now) || self.unsettled {
            busy |= fire(&mut self.guest, now);
            if let Side::Local(local) = &mut self.side {
                busy |= fire(&mut local.function, now);
            }
            busy |= self.exchange(now);
            let local = match &self.side {
                Side::Local(local) => next_wake(&local.function, now),
                Side::Far(_) => None,
            };
            self.wake = [next_wake(&self.guest, now), local].into_iter().flatten().min();
            self.unsettled = false;
        }
        busy
    }

    /// Sends what waits, and closes a client's connection that is to end.
    fn flush(&mut self, sources: &Sources) -> bool {
        let mut busy = false;
        if let Some(client) = &mut self.client {
            let sent = client.connection.flush();
            busy |= sent.as_ref().is_ok_and(|sent| *sent > 0);
            if client.closing && (sent.is_err() || client.connection.unsent() == 0) {
                self.drop_client(sources);
                busy = true;
            }
        }
        if let Side::Far(far) = &mut self.side {
            for link in far {
                busy |= link.flush(sources);
            }
        }
        busy
    }

    fn reap(&mut self, now: Instant) -> io::Result<bool> {
        let Side::Local(local) = &mut self.side else { return Ok(false) };
        if let Some(notice) = local.notice() {
            (self.report)(Event::State(notice));
        }
        local.reap(now)
    }

    fn has_ended(&self) -> bool {
        self.client.is_none()
            && match &self.side {
                Side::Local(local) => !local.is_busy(),
                Side::Far(far) => !far.iter().any(Link::is_connected),
            }
    }
}

impl<F: FnMut(Event)> Driver for GuestDriver<F> {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.looked_at = context.now;
        self.register(sources)?;
        let mut busy = self.receive_client(context.clock, sources, context.news);
        if context.news && !self.stopping {
            busy |= self.accept(context.now, sources);
        }
        self.turned_away.close(context.now, &mut self.pool);
        busy |= self.receive_far(context.clock, sources);
        // The engines were given later times during the turn, and their time never goes back.
        let now = if busy { context.clock.now() } else { context.now };
        busy |= self.admit(now, sources);
        let sweeps = now - self.swept_at >= SWEEP_EVERY;
        if sweeps {
            self.swept_at = now;
        }
        busy |= self.look_at_doorbells(now, if sweeps { Look::All } else { Look::Usual });
        if self.reap(now)? {
            busy = true;
            self.exchange(now);
        }
        // A client that rings by stores rings again before a deadline can matter; see `LOOK_EVERY`.
        let ringing = self.shared && now - self.rung_at < LEISURE;
        if !(busy || ringing) || self.wake.is_some_and(|at| at <= now) {
            busy |= self.settle(now);
        }
        busy |= self.heed_lost_memory(now, sources);
        busy |= self.flush(sources);
        // Only this call starts the requests that were submitted last.
        busy |= self.reap(now)?;
        if self.stopping && self.has_ended() {
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, now: Instant) -> Glance {
        match (self.shared, self.look_at_doorbells(now, Look::Usual)) {
            (false, _) => Glance::Blind,
            (true, false) => Glance::Nothing,
            (true, true) => Glance::Done,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let dialling = match &self.side {
            Side::Far(far) => far.iter().filter_map(Link::poll_timeout).min(),
            Side::Local(local) => local.poll_timeout(),
        };
        let look = self.shared.then(|| self.looked_at + LOOK_EVERY);
        let silent = self.turned_away.poll_timeout();
        self.wake.into_iter().chain(dialling).chain(look).chain(silent).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.waiting = None;
        self.guest.close(now, "the guest's end is shutting down");
        self.exchange(now);
        if let Side::Local(local) = &mut self.side {
            local.on_stop();
        }
        if let Some(client) = &mut self.client {
            client.closing = true;
        }
    }
}

impl<F> fmt::Debug for GuestDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestDriver").field("guest", &self.guest).finish_non_exhaustive()
    }
}
