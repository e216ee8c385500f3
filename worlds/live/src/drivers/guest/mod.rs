//! A guest's device slot, live: the monitor's socket, the guest's memory and the function's side.

mod doorbells;
mod event;
mod lanes;
mod local;
mod memory;
mod recorder;
mod shell;
pub(super) mod signal;
mod turned_away;

pub use event::Event;
pub use lanes::{LANES_MAX, LaneStatus, Threads};
pub(super) use memory::errno_of;
pub use recorder::Panel;

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assemblies::Upstream;
use assemblies::guest::{Guest, Input};
use assemblies::watch::Port;
use engine::{Engine, Instant, Nanos, Watch};
use nvme_pcie::controller::{Controller, Statistics};
use nvme_pcie::function::Function;
use pcie::endpoint::Endpoint;
use tunnel::upstream::ConnectionIndex;

use crate::carrier::datagrams;
use crate::carrier::route::Route;
use crate::carrier::{Dial, Link};
use crate::media::Media;
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::tcp_info::TcpInfo;
use crate::sys::unix::{Connection, Listener, Received};
use doorbells::Look;
use local::Local;
use recorder::Recorder;
use shell::{Client, GuestShell, Side};
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

/// Drives a guest's device slot: its monitor's socket, its memory, and the function's side.
pub struct GuestDriver<F> {
    guest: Pump<Guest<OwnedFd>>,
    shell: GuestShell<F>,
    listener: Listener,
    /// A client that connected before the function is there.
    waiting: Option<Connection>,
    turned_away: TurnedAway,
    /// Whether it has been reported that the far end cannot be reached.
    unreachable: bool,
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

    /// Serves the I/O queues of a function in this process by `count` further threads beside this
    /// one. Returns how many there are: none if the function is not in this process, or one thread
    /// alone can use its media.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub fn spread(&mut self, count: usize, threads: &Threads) -> io::Result<usize> {
        match &mut self.shell.side {
            Side::Local(local) => local.spread(count, threads),
            Side::Recorder(_) | Side::Far(_) => Ok(0),
        }
    }

    /// What the controller has done by all threads, if the function is in this process.
    pub fn statistics(&self) -> Option<Statistics> {
        let mut all = self.controller()?.statistics();
        for lane in self.lanes() {
            all.commands += lane.commands;
            all.fetches += lane.fetches;
            all.interrupts += lane.interrupts;
        }
        Some(all)
    }

    /// Makes the thread of a lane panic.
    #[cfg(test)]
    fn plant_panic(&self, index: usize) {
        if let Side::Local(local) = &self.shell.side
            && let Some(lanes) = &local.lanes
        {
            lanes.plant_panic(index);
        }
    }

    /// What the threads beside this one do and have done.
    pub fn lanes(&self) -> Vec<LaneStatus> {
        match &self.shell.side {
            Side::Local(local) => local.lane_status(),
            Side::Recorder(_) | Side::Far(_) => Vec::new(),
        }
    }

    /// Offers the clients of `listener` the registers of a recorder in this process, which are
    /// those of `panel`. The function has the Device Serial Number `serial_number`.
    pub fn recorder(
        guest: Guest<OwnedFd>,
        panel: Box<dyn Panel>,
        serial_number: u64,
        listener: Listener,
        report: F,
    ) -> Self {
        Self::new(guest, Side::Recorder(Box::new(Recorder::new(panel, serial_number))), listener, report)
    }

    fn new(guest: Guest<OwnedFd>, side: Side, listener: Listener, report: F) -> Self {
        Self {
            guest: Pump::new(guest),
            shell: GuestShell::new(side, report),
            listener,
            waiting: None,
            turned_away: TurnedAway::default(),
            unreachable: false,
            looked_at: Instant::ZERO,
            rung_at: Instant::ZERO,
            next_entry: None,
            swept_at: Instant::ZERO,
            stopping: false,
        }
    }

    /// The slot's engines.
    pub const fn guest(&self) -> &Guest<OwnedFd> {
        self.guest.engine()
    }

    /// The watchers of the packets between the guest and the function.
    pub fn watch(&mut self) -> &mut Watch<Port> {
        self.guest.engine_mut().watch()
    }

    /// The endpoint of the function, if that is an SSD in this process.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.shell.side {
            Side::Local(local) => Some(local.function.engine().endpoint()),
            Side::Recorder(_) | Side::Far(_) => None,
        }
    }

    /// The kernel's information on each TCP connection to the far end.
    pub fn tcp_info(&self) -> impl Iterator<Item = TcpInfo> {
        self.links().iter().flat_map(Link::tcp_info)
    }

    /// Counts of the datagrams of each connection to the far end that these carry.
    pub fn datagrams(&self) -> impl Iterator<Item = datagrams::Info> {
        self.links().iter().filter_map(Link::datagrams)
    }

    fn links(&self) -> &[Link] {
        match &self.shell.side {
            Side::Far(links) => links.as_slice(),
            Side::Local(_) | Side::Recorder(_) => &[],
        }
    }

    /// The controller, if the function is in this process.
    pub fn controller(&self) -> Option<&Controller> {
        match &self.shell.side {
            Side::Local(local) => Some(local.function.engine().controller()),
            Side::Recorder(_) | Side::Far(_) => None,
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
                    (self.shell.report)(Event::TurnedAway(connection.peer_process()));
                    self.turned_away.add(now, connection, sources);
                }
                Err(error) => {
                    (self.shell.report)(Event::AcceptFailed(error));
                    return accepted;
                }
            }
        }
    }

    /// Whether another client may wait. A leaving client makes room before its last bytes are read.
    fn has_room(&mut self) -> bool {
        self.waiting.take_if(|waiting| waiting.is_closed_by_peer());
        let leaves = |client: &Client| client.closing.is_some() || client.connection.is_closed_by_peer();
        self.waiting.is_none() && self.shell.client.as_ref().is_none_or(leaves)
    }

    /// Serves the waiting client, if the function is there.
    fn admit(&mut self, now: Instant, sources: &Sources) -> bool {
        if self.shell.client.is_some() || !self.guest.engine().takes_client() {
            return false;
        }
        let Some(connection) = self.waiting.take() else { return false };
        if let Err(error) = sources.add(connection.as_raw_fd(), Attention::EachTurn) {
            (self.shell.report)(Event::AcceptFailed(error));
            return true;
        }
        self.shell.client = Some(Client::new(connection));
        self.guest.engine_mut().handle_input(now, Input::ClientConnected);
        self.guest.exchange(now, &mut self.shell);
        true
    }

    /// Handles the bytes that the client has sent; returns whether there were any.
    fn receive_client(&mut self, clock: Clock, sources: &Sources, news: bool) -> bool {
        let mut busy = false;
        if let Some(client) = self.shell.client.as_mut().filter(|_| self.shell.shared) {
            if !client.at_rest {
                // If the change fails, the socket is looked at in each turn as before.
                client.at_rest = sources.change(client.connection.as_raw_fd(), Attention::OnNews).is_ok();
            } else if !news && !client.unread {
                return false;
            }
        }
        for _ in 0..PIECES_PER_TURN {
            let Some(client) = &mut self.shell.client else { break };
            // Bytes that the function does not take yet stay in the socket.
            client.unread = !self.guest.engine().takes_bytes();
            if client.unread {
                break;
            }
            match client.connection.receive(&mut self.shell.pool) {
                Ok(Received::Nothing) => break,
                Ok(Received::Data(..)) if client.closing.is_some() => continue,
                Ok(Received::Data(bytes, descriptors)) => {
                    let input = Input::ClientReceived { bytes: &bytes, descriptors };
                    self.guest.engine_mut().handle_input(clock.now(), input);
                }
                Ok(Received::Closed) | Err(_) => {
                    let ended = client.closing.is_some();
                    self.shell.drop_client(sources);
                    if !ended {
                        self.guest.engine_mut().handle_input(clock.now(), Input::ClientDisconnected);
                    }
                }
            }
            busy = true;
            self.guest.exchange(clock.now(), &mut self.shell);
            self.shell.flush(sources);
        }
        busy
    }

    /// Passes on the doorbells that were rung in shared memory; returns whether there were any.
    fn look_at_doorbells(&mut self, now: Instant, look: Look) -> bool {
        let Some(doorbells) =
            self.shell.doorbells.as_ref().filter(|_| self.shell.shared && self.guest.engine().takes_rings())
        else {
            return false;
        };
        // The entry is written just before its ring: fetching both at once saves a wait.
        if let Some(address) = self.next_entry {
            self.shell.memory.prefetch(address);
        }
        let mut rung = false;
        doorbells.take(look, |offset, value| {
            rung = true;
            match &mut self.shell.side {
                Side::Local(local) if !self.guest.engine().is_watched() => local.ring(now, offset, value),
                Side::Local(_) | Side::Far(_) => self.guest.engine_mut().ring(now, offset, value),
                // It has no doorbells.
                Side::Recorder(_) => {}
            }
        });
        if rung {
            // The function's answer comes before everything else.
            if let Side::Local(local) = &mut self.shell.side {
                local.exchange(now, self.guest.engine_mut(), &self.shell.memory);
                self.next_entry = local.function.engine().controller().next_entry();
            }
            self.guest.exchange(now, &mut self.shell);
            self.rung_at = now;
        }
        rung
    }

    /// Heeds what lanes have said; returns whether that was anything.
    fn heed_lanes(&mut self, now: Instant) -> bool {
        if let Side::Local(local) = &mut self.shell.side
            && local.lanes.is_some()
            && self.guest.engine().has_memory_by_message()
        {
            local.stay_at_home(now);
        }
        let has_any = self.shell.take_news(now, self.guest.engine_to_poll());
        if has_any {
            // Interrupts and answers may have changed deadlines.
            self.guest.engine_mut();
            self.guest.exchange(now, &mut self.shell);
        }
        has_any
    }

    /// Handles the bytes that the far end has sent; returns whether there were any.
    fn receive_far(&mut self, clock: Clock, sources: &Sources) -> bool {
        let mut busy = false;
        let Side::Far(far) = &self.shell.side else { return false };
        for index in 0..far.len() {
            busy |= self.receive_link(index, clock, sources);
        }
        busy
    }

    /// Dials and receives on the connection `index`; returns whether anything happened.
    fn receive_link(&mut self, index: usize, clock: Clock, sources: &Sources) -> bool {
        let mut busy = false;
        let Side::Far(far) = &mut self.shell.side else { return false };
        let connection = ConnectionIndex(u8::try_from(index).expect("a link has at most 8 connections"));
        if let Some(dialled) = far[index].dial(clock.now(), sources) {
            busy = true;
            let input = match dialled {
                Dial::Path { path, is_away } => {
                    let event = tunnel::Event::of_path(tunnel::paths::PathIndex(path), is_away);
                    (self.shell.report)(Event::Guest(assemblies::guest::Event::Link(event)));
                    return true;
                }
                Dial::Connected => {
                    self.unreachable = false;
                    Input::Connected(connection)
                }
                Dial::Failed(address, error) => {
                    if !core::mem::replace(&mut self.unreachable, true) {
                        (self.shell.report)(Event::DialFailed(address, error));
                    }
                    Input::Disconnected(connection)
                }
            };
            let segment_max = far[index].segment_max();
            self.guest.engine_mut().handle_input(clock.now(), input);
            if let Some(bytes) = segment_max {
                self.guest.engine_mut().set_segment_max(connection, bytes);
            }
            self.guest.exchange(clock.now(), &mut self.shell);
        }
        for _ in 0..PIECES_PER_TURN {
            let Side::Far(far) = &mut self.shell.side else { break };
            // Bytes that the guest's memory does not take yet stay in the socket.
            if !self.guest.engine().takes_packets()
                && self.guest.engine_mut().hold_back(self.looked_at, connection)
            {
                far[index].keep_up(&mut self.shell.pool);
                break;
            }
            let input = match far[index].receive(&mut self.shell.pool, sources) {
                None => break,
                Some(Ok(bytes)) => Input::Received(connection, bytes),
                Some(Err(())) => Input::Disconnected(connection),
            };
            busy = true;
            self.guest.engine_mut().handle_input(clock.now(), input);
            let now = clock.now();
            self.guest.engine_mut().advance(now);
            self.guest.exchange(now, &mut self.shell);
            self.shell.flush(sources);
        }
        busy
    }
}

impl<F: FnMut(Event)> Driver for GuestDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)?;
        match &self.shell.side {
            Side::Local(local) => local.start(sources),
            Side::Recorder(_) | Side::Far(_) => Ok(()),
        }
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let sources = context.sources();
        self.looked_at = context.now;
        let mut busy = self.receive_client(context.clock, sources, context.news);
        if context.news && !self.stopping {
            busy |= self.accept(context.now, sources);
        }
        self.turned_away.close(context.now, &mut self.shell.pool);
        busy |= self.receive_far(context.clock, sources);
        // The engines were given later times during the turn, and their time never goes back.
        let now = if busy { context.clock.now() } else { context.now };
        busy |= self.admit(now, sources);
        let sweeps = now - self.swept_at >= SWEEP_EVERY;
        if sweeps {
            self.swept_at = now;
        }
        busy |= self.heed_lanes(now);
        busy |= self.look_at_doorbells(now, if sweeps { Look::All } else { Look::Usual });
        if self.shell.reap(now)? {
            busy = true;
            self.guest.exchange(now, &mut self.shell);
        }
        // A client that rings by stores rings again before a deadline can matter; see `LOOK_EVERY`.
        let ringing = self.shell.shared && now - self.rung_at < LEISURE;
        if self.guest.wants_settling(now, busy || ringing) {
            busy |= self.guest.settle(now, &mut self.shell);
        }
        busy |= self.heed_lost_memory(now, sources);
        busy |= self.shell.flush(sources);
        busy |= self.shell.close_late(now, sources);
        // Only this call starts the requests that were submitted last.
        busy |= self.shell.reap(now)?;
        if self.stopping && self.shell.has_ended() {
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        match (self.shell.shared, self.look_at_doorbells(context.now, Look::Usual)) {
            (false, _) => Glance::Blind,
            (true, false) => Glance::Nothing,
            (true, true) => Glance::Done,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let dialling = match &self.shell.side {
            Side::Far(far) => far.iter().filter_map(Link::poll_timeout).min(),
            Side::Local(local) => local.poll_timeout(),
            Side::Recorder(_) => None,
        };
        let look = self.shell.shared.then(|| self.looked_at + LOOK_EVERY);
        let silent = self.turned_away.poll_timeout();
        let closing = self.shell.closing_at();
        let own = [dialling, look, silent, closing].into_iter().flatten();
        self.guest.poll_timeout().into_iter().chain(own).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.waiting = None;
        self.guest.engine_mut().close(now, "the guest's end is shutting down");
        self.guest.exchange(now, &mut self.shell);
        if let Side::Local(local) = &mut self.shell.side {
            local.on_stop();
        }
        if let Some(client) = &mut self.shell.client {
            client.close(now);
        }
    }
}

impl<F> fmt::Debug for GuestDriver<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestDriver").field("guest", self.guest.engine()).finish_non_exhaustive()
    }
}
