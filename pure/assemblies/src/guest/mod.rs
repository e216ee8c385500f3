//! A guest's device slot: one function, which a virtual machine's monitor reaches over vfio-user.
//!
//! The slot's own root complex enumerates the function and gives it addresses. The guest's accesses
//! become TLPs. The function's reads and writes of memory reach the guest's memory. The function's
//! interrupts become signals. Registers that the slot itself sets are shadowed here: the guest's
//! writes to them stay in the slot; `docs/attach.md` says more.

mod access;
mod config;
mod device;
mod event;
mod function;
mod hot_plug;
mod interrupts;
mod memory;
mod operations;
mod remembered;
mod setup;
mod shadow;
#[cfg(test)]
mod tests;
mod timeouts;

pub use config::Config;
pub use event::{Event, Offer};
pub use pcie::root_complex::MemoryReadToken;
pub use vfio_user::Errno;
pub use vfio_user::RegionIndex;
pub use vfio_user::server::Token;
pub use vfio_user::wire::DmaMap;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Deadlines, Engine, Entropy, Instant, Pool, Watch};
use pcie::root_complex::RootComplex;
use pcie::wire::Packet;
use tunnel::session;
use tunnel::upstream::{self, ConnectionIndex, PortIndex};
use vfio_user::server::{self, Server};

use access::Accesses;
use function::Slot;
use memory::ByMessage;
use setup::Running;

use crate::Upstream;
use crate::near::switch;
use crate::root_port::RootPort;
use crate::watch::{Direction, Port};

/// Limit, in bytes, on the payload queued for the link to the far end; a doorbell write has 4.
/// Above it, nothing more is taken from the client.
const TUNNEL_BYTES_MAX: usize = 256 << 10;
/// The only port of the switch.
const PORT: PortIndex = PortIndex(0);

/// Inputs of the slot.
#[derive(Debug)]
pub enum Input<'a, D> {
    /// The connection to the far end that [`Output::Connect`] asked for is open.
    Connected(ConnectionIndex),
    /// A piece of the far end's byte stream on this port's connection, cut anywhere.
    Received(ConnectionIndex, Buffer),
    /// A connection to the far end ended, or could not be made.
    Disconnected(ConnectionIndex),
    /// A packet from the function that is attached directly.
    Packet(Packet),
    /// A client has connected. Allowed only while [`Guest::takes_client`] is true.
    ClientConnected,
    /// A piece of the client's byte stream, with the descriptors that came with its last message.
    ClientReceived {
        /// The piece of the stream, cut anywhere.
        bytes: &'a [u8],
        /// The descriptors that came with the last message in `bytes`.
        descriptors: Vec<D>,
    },
    /// The client has disconnected.
    ClientDisconnected,
}

/// Outputs of the slot: requests to the world, and events.
#[derive(Debug)]
pub enum Output<D> {
    /// Dial the far end for this connection. Connections are numbered from 0;
    /// [`Upstream::connections`] says how many there may be. Answer with [`Input::Connected`]
    /// or [`Input::Disconnected`].
    Connect(ConnectionIndex),
    /// Append these bytes to the stream to the far end on this port's connection.
    Transmit(ConnectionIndex, Buffer),
    /// End the connection to the far end once all bytes output before this are on their way.
    Close(ConnectionIndex),
    /// A packet for the function that is attached directly.
    Packet(Packet),
    /// Append this message to the stream to the client.
    Reply {
        /// The whole message.
        bytes: Buffer,
        /// The region whose shared file goes with the first byte of the message, if any.
        shared: Option<RegionIndex>,
    },
    /// End the client's connection once all replies before this are on their way.
    CloseClient,
    /// Memory of the guest may be used from now on. Answer with [`Guest::map_done`].
    Map {
        /// Names the request in [`Guest::map_done`].
        token: Token,
        /// The memory: its guest address, its length, where it begins in the file, and what the
        /// function may do with it.
        map: DmaMap,
        /// The file that holds the memory.
        descriptor: D,
    },
    /// Memory of the guest must not be used any more from now on.
    Unmap {
        /// First guest address of the memory.
        address: u64,
        /// Length of the memory in bytes.
        length: u64,
    },
    /// The function reads the guest's memory. Answer with [`Guest::memory_read_done`], best
    /// at once.
    ReadMemory {
        /// Names the read in [`Guest::memory_read_done`].
        token: MemoryReadToken,
        /// First guest address of the read, a multiple of 4.
        address: u64,
        /// Length of the read in bytes: 4..=4096, a multiple of 4.
        length: u32,
    },
    /// The function writes the guest's memory. Call [`Guest::memory_write_failed`] where no memory
    /// is mapped.
    WriteMemory {
        /// First guest address of the write.
        address: u64,
        /// The bytes to write.
        data: Buffer,
    },
    /// From now on this descriptor signals the vector. Without a descriptor, the guest no longer
    /// listens to the vector.
    Vector {
        /// Number of the vector, from 0.
        vector: usize,
        /// The descriptor that signals the vector.
        descriptor: Option<D>,
    },
    /// Signal a vector that has a descriptor. All writes output before this must be visible first.
    Signal {
        /// Number of the vector, from 0.
        vector: usize,
    },
    /// Forget the values in the shared doorbells: they mean nothing any more.
    ClearDoorbells,
    /// An event for the application.
    Event(Event),
}

/// Where an NVMe controller has doorbells that a client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Where the doorbells begin in BAR 0, in bytes; on a page boundary.
    pub offset: u64,
    /// Length of the doorbells in bytes, a multiple of the page size.
    pub length: u64,
    /// Size of BAR 0 in bytes. The client maps the doorbell file at `offset` of BAR 0.
    pub region_length: u64,
    /// Number of doorbells there can be at most.
    pub count: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Enumerate again, because a function could not be set up.
    Retry,
}

/// Counters of a guest's slot since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Accesses of the client to the configuration space.
    pub config_accesses: u64,
    /// Accesses of the client to registers and memory of the function.
    pub bar_accesses: u64,
    /// Reads by the function outside of the guest's memory; each is answered with
    /// Unsupported Request.
    pub reads_refused: u64,
    /// Writes by the function outside of the guest's memory; each is dropped.
    pub writes_dropped: u64,
    /// Doorbells that were rung in shared memory.
    pub rings: u64,
    /// Interrupt vectors that were signalled.
    pub signals: u64,
    /// Accesses of the client that waited for an answer of the function. Each counts as one
    /// round trip, however many registers it asked for. All other accesses were answered here,
    /// or were posted.
    pub waited: u64,
    /// Round trips of resets that the client waited for.
    pub reset_trips: u64,
    /// Round trips that the function waited for the guest's memory. Reads that came together count
    /// as one.
    pub read_trips: u64,
    /// Accesses that were given up because the function did not answer in time.
    pub given_up: u64,
    /// Number of mappings of the guest's memory.
    pub maps: u64,
}

impl Statistics {
    /// Round trips to the function and back that either side waited for.
    pub const fn round_trips(&self) -> u64 {
        self.waited + self.reset_trips + self.read_trips
    }
}

/// A guest's device slot: the root complex, the link to one function, and the vfio-user server that
/// offers the function to a virtual machine's monitor.
#[derive(Debug)]
pub struct Guest<D> {
    config: Config,
    port: RootPort,
    /// Whether there may be a function below.
    link_up: bool,
    /// The connection to the far end is lost but may come back; nothing answers meanwhile.
    held: bool,
    phase: Phase,
    /// A reset is due because the last client left the function as it was.
    reset_due: bool,
    /// The function did not take its latest reset, and has the state of before.
    is_unreset: bool,
    slot: Option<Box<Slot>>,
    server: Option<Server<D>>,
    client: bool,
    accesses: Accesses,
    /// Requests of accesses that are under way at the root complex.
    requests: usize,
    by_message: ByMessage,
    script_serial: u64,
    timers: Deadlines<Timer>,
    /// Completion timeouts already reported, and when the next report may be made.
    timeouts_reported: u64,
    timeouts_quiet_until: Instant,
    /// Accesses outside of the guest's memory not yet reported, and when the next report may
    /// be made.
    untold: u64,
    quiet_until: Instant,
    pool: Pool,
    outputs: VecDeque<Output<D>>,
    statistics: Statistics,
    /// When the function last read the guest's memory.
    read_at: Option<Instant>,
    /// Reads that came from the function itself. Lookahead reads memory too.
    reads_of_function: u64,
    now: Instant,
}

/// How far the slot is with its function.
#[derive(Debug)]
enum Phase {
    /// There is no usable function.
    Absent,
    /// The root complex enumerates.
    Enumerating,
    /// The function is being set up or reset.
    Scripted(Box<Running>, function::Purpose),
    /// The function is in use.
    Present,
    /// No function answered in time: a client that connects now finds an empty slot.
    Empty,
}

impl<D: 'static> Guest<D> {
    /// A slot whose function is at the far end of a tunnel. The slot dials the far end as soon as
    /// its outputs are first polled.
    pub fn over_tunnel(config: Config, session: session::Config, entropy: impl Into<Entropy>) -> Self {
        let mut upstream = crate::upstream(&switch(1), [session].into(), entropy);
        // The function uses the guest's addresses, and the guest does not know the address windows
        // of this switch.
        upstream.redirect();
        if let Some(lookahead) = upstream.interposer_mut() {
            lookahead.set_interrupts(setup::INTERRUPT_WINDOW.start);
        }
        Self::new(config, |root| RootPort::over_tunnels(root, upstream))
    }

    /// A slot whose function is on the link itself, without switch and tunnel. Enumeration starts
    /// at once.
    pub fn direct(config: Config, now: Instant) -> Self {
        let mut guest = Self::new(config, RootPort::direct);
        guest.now = now;
        guest.link_up = true;
        guest.enumerate();
        guest
    }

    fn new(config: Config, port: impl FnOnce(RootComplex) -> RootPort) -> Self {
        let mut root = RootComplex::new(config.root);
        root.set_interrupt_window(setup::INTERRUPT_WINDOW);
        Self {
            port: port(root),
            config,
            link_up: false,
            held: false,
            phase: Phase::Absent,
            reset_due: false,
            is_unreset: false,
            slot: None,
            server: None,
            client: false,
            accesses: Accesses::default(),
            requests: 0,
            by_message: ByMessage::default(),
            script_serial: 0,
            timers: Deadlines::new(),
            timeouts_reported: 0,
            timeouts_quiet_until: Instant::ZERO,
            untold: 0,
            quiet_until: Instant::ZERO,
            pool: Pool::default(),
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
            read_at: None,
            reads_of_function: 0,
            now: Instant::ZERO,
        }
    }

    /// Whether memory of the guest can be reached by messages to the client alone, which this slot
    /// sends.
    pub const fn has_memory_by_message(&self) -> bool {
        self.by_message.is_any()
    }

    /// Whether a client may connect: the function is present or has not answered in time, no reset
    /// is due, and no client is connected.
    pub fn takes_client(&self) -> bool {
        let there = matches!(self.phase, Phase::Present | Phase::Empty);
        !self.client && self.server.is_some() && !self.reset_due && there
    }
    /// Whether a client is connected.
    pub const fn has_client(&self) -> bool {
        self.client
    }
    /// Whether more of the client's bytes should be taken. Both the queue here and the queue to the
    /// far end have limits.
    pub fn takes_bytes(&self) -> bool {
        let queued = self.upstream().map_or(0, |upstream| upstream.queued_bytes(PORT));
        self.accesses.has_room() && queued < TUNNEL_BYTES_MAX
    }
    /// Whether more of the far end's bytes should be taken: what the function asks of memory that
    /// is reached by message waits here, up to a limit.
    pub fn takes_packets(&self) -> bool {
        self.by_message.has_room()
    }
    /// Defers the bytes of a connection to the far end; see
    /// [`tunnel::Upstream::hold_back`].
    pub fn hold_back(&mut self, now: Instant, connection: ConnectionIndex) -> bool {
        self.port.hold_back(now.max(self.now), connection)
    }
    /// Where the doorbells are that the client may have mapped, if there are any.
    pub fn doorbells(&self) -> Option<Doorbells> {
        let slot = self.slot.as_ref().filter(|_| self.config.doorbells)?;
        function::doorbells_of(&slot.target.function)
    }
    /// Whether shared doorbells may be looked at: a client is connected, its earlier requests have
    /// begun, bytes are taken, and the function is present.
    pub fn takes_rings(&self) -> bool {
        self.client
            && self.takes_bytes()
            && matches!(self.phase, Phase::Present)
            && !self.accesses.is_waiting()
    }
    /// A doorbell in shared memory was rung: `value` was stored at `offset` of BAR 0.
    pub fn ring(&mut self, now: Instant, offset: u64, value: u32) {
        self.note_time(now);
        self.statistics.rings += 1;
        let data = self.pool.copy(&value.to_le_bytes());
        self.write_memory(RegionIndex::BAR0, offset, &data);
    }
    /// Whether the guest can use the function, if it has it plugged in; `None` while that is being
    /// found out. The client that knows a former function can't use another one in its place.
    pub fn is_usable(&self) -> Option<bool> {
        let is_replaced = self.slot.as_ref().is_some_and(|slot| slot.replaced.is_some());
        match self.phase {
            Phase::Present | Phase::Scripted(_, function::Purpose::Reset(_)) => Some(true),
            _ if !self.link_up || is_replaced => Some(false),
            _ => None,
        }
    }
    /// The function that is offered, if one was found.
    pub fn offer(&self) -> Option<Offer> {
        self.slot.as_ref().map(|slot| slot.offer())
    }
    /// The upstream end of the tunnel, if there is a tunnel.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.port.upstream()
    }
    /// The root complex, for its statistics.
    pub const fn root(&self) -> &RootComplex {
        self.port.root()
    }
    /// Counters of this slot since its start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Sets the time to `now`: outputs polled after this call leave at `now`.
    pub fn advance(&mut self, now: Instant) {
        self.note_time(now);
        self.port.advance(now);
    }

    /// Says how long segments of a connection that was just made may be, as
    /// [`tunnel::Upstream::set_segment_max`] does.
    pub fn set_segment_max(&mut self, connection: ConnectionIndex, bytes: usize) {
        self.port.set_segment_max(connection, bytes);
    }

    /// Asks the far end how it is now; see [`tunnel::session::Session::ping`].
    pub fn ping(&mut self, now: Instant) {
        self.note_time(now);
        self.port.ping(now);
    }

    /// Ends the session in order and sends the far end `text` as the reason.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.note_time(now);
        self.port.close(now, text);
    }

    /// Whether this slot's packets have a watcher. Work that a world may do without packets, it
    /// does by packets then.
    pub const fn is_watched(&self) -> bool {
        self.port.is_watched()
    }

    /// The watchers of this slot's packets, and of the bytes of its connections to the far end.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        self.port.watch()
    }

    /// Answers [`Output::Map`].
    pub fn map_done(&mut self, token: Token, result: Result<(), Errno>) {
        if let Some(server) = &mut self.server {
            server.map_done(token, result);
        }
    }

    fn note_time(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        self.now = now;
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Moves the parts' outputs to each other until nothing more is received. With `transmit`, also
    /// until the tunnel has output everything that it has for the world.
    fn circulate(&mut self, transmit: bool) {
        loop {
            while let Some(output) = self.port.poll_root(self.now) {
                self.on_root(output);
            }
            if let Some(output) = self.server.as_mut().and_then(Server::poll_output) {
                self.on_server(output);
                continue;
            }
            if self.run_operations() {
                continue;
            }
            if !transmit && !self.port.has_received() {
                return;
            }
            match self.port.poll_link() {
                None => return,
                Some(upstream::Output::Tlp { packet, from }) => {
                    self.port.handle_packet(self.now, packet, from.as_ref().map(|(_, arrival)| arrival));
                }
                Some(upstream::Output::Transmit { connection, bytes }) => {
                    self.outputs.push_back(Output::Transmit(connection, bytes));
                }
                Some(upstream::Output::Connect { connection }) => {
                    self.outputs.push_back(Output::Connect(connection))
                }
                Some(upstream::Output::CloseConnection { connection }) => {
                    self.outputs.push_back(Output::Close(connection));
                }
                Some(upstream::Output::Event { event, .. }) => self.on_link(event),
            }
        }
    }

    fn server_input(&mut self, input: server::Input<'_, D>) {
        if let Some(server) = &mut self.server {
            server.handle_input(self.now, input);
        }
    }

    /// When the oldest waiting access or reset runs out of patience.
    fn access_deadline(&self) -> Option<Instant> {
        let script = match &self.phase {
            Phase::Scripted(_, purpose) => purpose.since(),
            _ => None,
        };
        let oldest = self.accesses.oldest();
        oldest.into_iter().chain(script).min().map(|since| since + self.config.patience)
    }
}

impl<D: 'static> Engine for Guest<D> {
    type Input<'a> = Input<'a, D>;
    type Output = Output<D>;

    fn handle_input(&mut self, now: Instant, input: Input<'_, D>) {
        self.note_time(now);
        match input {
            Input::Connected(connection) => self.port.on_network(now, upstream::Input::Connected(connection)),
            Input::Received(connection, bytes) => {
                self.port.on_network(now, upstream::Input::Received(connection, bytes));
            }
            Input::Disconnected(connection) => {
                self.port.on_network(now, upstream::Input::Disconnected(connection))
            }
            Input::Packet(packet) => self.port.handle_packet(now, packet, None),
            Input::ClientConnected => {
                self.client = true;
                self.server_input(server::Input::Connected);
            }
            Input::ClientReceived { bytes, descriptors } => {
                self.server_input(server::Input::Received { bytes, descriptors });
            }
            Input::ClientDisconnected => {
                self.server_input(server::Input::Disconnected);
                self.circulate(false);
                self.on_client_gone(None);
            }
        }
        self.circulate(false);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.note_time(now);
        self.port.handle_timeout(now);
        self.report_timeouts();
        if let Some(server) = &mut self.server {
            server.handle_timeout(now);
        }
        while let Some(Timer::Retry) = self.timers.expire(now) {
            if self.link_up && matches!(self.phase, Phase::Absent) {
                self.enumerate();
            }
        }
        self.wake_script();
        self.give_up_late();
    }

    fn poll_output(&mut self) -> Option<Output<D>> {
        if self.outputs.is_empty() {
            self.circulate(true);
        }
        let output = self.outputs.pop_front();
        if let Some(Output::Transmit(port, bytes)) = &output {
            self.port.show_bytes(self.now, Direction::Down, *port, bytes);
        }
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let script = match &self.phase {
            Phase::Scripted(running, _) => running.wake,
            _ => None,
        };
        let server = self.server.as_ref().and_then(Server::poll_timeout);
        [server, script, self.timers.earliest(), self.access_deadline()]
            .into_iter()
            .fold(self.port.poll_timeout(), Instant::earlier)
    }
}
