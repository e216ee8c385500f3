//! A guest's device slot: one function, which a virtual machine's monitor reaches over vfio-user.
//!
//! A root complex of ours enumerates what is below and gives it addresses. The guest's accesses become TLPs, the
//! function's reads and writes of memory reach the guest's, its interrupts become signals. What the guest writes into
//! registers that are ours to set is kept here; see `docs/attach.md`.

mod access;
mod config;
mod device;
mod event;
mod function;
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

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Deadlines, Engine, Entropy, Instant, Pool};
use pcie::root_complex::{self, RootComplex};
use pcie::wire::Packet;
use tunnel::session;
use tunnel::upstream::{self, PortIndex, Upstream};
use vfio_user::server::{self, Server};

use access::Accesses;
use function::Slot;
use memory::ByMessage;
use setup::Running;

use crate::near::switch;

/// Payload bytes (a doorbell has 4) that wait for the link to the far end, above which nothing more is taken from the client.
const TUNNEL_BYTES_MAX: usize = 256 << 10;
/// The only port of the switch.
const PORT: PortIndex = PortIndex(0);

/// What is below the root port.
#[derive(Debug)]
enum Below {
    /// A switch with one port, and the tunnel behind it.
    Tunnel(Box<Upstream>),
    /// A function on the link itself, in the hands of the world.
    Link,
}

/// What the world tells the slot.
#[derive(Debug)]
pub enum Input<'a, D> {
    /// A connection to the far end that was asked for is there.
    Connected(PortIndex),
    /// A piece of the far end's byte stream on it, cut anywhere.
    Received(PortIndex, Buffer),
    /// A connection to the far end ended, or could not be made.
    Disconnected(PortIndex),
    /// A packet from the function that is attached directly.
    Packet(Packet),
    /// A client has connected; only when [`Guest::takes_client`] says so.
    ClientConnected,
    /// A piece of the client's byte stream, and the descriptors that came with its last message.
    ClientReceived {
        /// The bytes.
        bytes: &'a [u8],
        /// The descriptors.
        descriptors: Vec<D>,
    },
    /// The client has gone.
    ClientDisconnected,
}

/// What the slot asks of the world, or tells it.
#[derive(Debug)]
pub enum Output<D> {
    /// Dial the far end, for this connection of those that there may be ([`Upstream::connections`], of which the first is 0); answered by
    /// [`Input::Connected`] or [`Input::Disconnected`].
    Connect(PortIndex),
    /// Append these bytes to its stream to the far end.
    Transmit(PortIndex, Buffer),
    /// End the connection to the far end once all bytes before this are on their way.
    Close(PortIndex),
    /// A packet for the function that is attached directly.
    Packet(Packet),
    /// Append this message to the stream to the client.
    Reply {
        /// The message.
        bytes: Buffer,
        /// The region whose shared file goes with the first byte, if any.
        shared: Option<RegionIndex>,
    },
    /// End the client's connection once all replies before this are on their way.
    CloseClient,
    /// Memory of the guest may be used from now on. Answer with [`Guest::map_done`].
    Map {
        /// Names the request.
        token: Token,
        /// The guest's address.
        address: u64,
        /// Bytes.
        length: u64,
        /// Where it begins in the file.
        offset: u64,
        /// Whether the function may read it.
        readable: bool,
        /// Whether the function may write it.
        writable: bool,
        /// The file.
        descriptor: D,
    },
    /// Memory of the guest must not be used any more, from now on.
    Unmap {
        /// The guest's address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// The function reads the guest's memory. Answer with [`Guest::memory_read_done`], best at once.
    ReadMemory {
        /// Names the read.
        token: MemoryReadToken,
        /// The guest's address, a multiple of 4.
        address: u64,
        /// Bytes, 4..=4096, a multiple of 4.
        length: u32,
    },
    /// The function writes the guest's memory. Where none is mapped, say so with [`Guest::memory_write_failed`].
    WriteMemory {
        /// The guest's address.
        address: u64,
        /// The bytes.
        data: Buffer,
    },
    /// From now on a vector is signalled by this descriptor; by none when nobody wants to hear of it.
    Vector {
        /// Which.
        vector: usize,
        /// By what.
        descriptor: Option<D>,
    },
    /// Signal a vector, behind the writes before it. It has a descriptor.
    Signal {
        /// Which.
        vector: usize,
    },
    /// What was stored in shared doorbells is of no meaning any more.
    ClearDoorbells,
    /// For the application.
    Event(Event),
}

/// Where an NVMe controller has doorbells that a client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Where in BAR 0 they begin, on a page.
    pub offset: u64,
    /// Bytes, whole pages.
    pub length: u64,
    /// Bytes of BAR 0: the client maps the file that it is given at `offset`.
    pub region_length: u64,
    /// How many there can be.
    pub count: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Enumerate again: a function could not be set up.
    Retry,
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Accesses of the client to the configuration space.
    pub config_accesses: u64,
    /// Accesses of the client to registers and memory of the function.
    pub bar_accesses: u64,
    /// Reads of the function outside of the guest's memory: answered with Unsupported Request.
    pub reads_refused: u64,
    /// Writes of the function outside of the guest's memory: dropped.
    pub writes_dropped: u64,
    /// Doorbells that were rung in shared memory.
    pub rings: u64,
    /// Vectors that were signalled.
    pub signals: u64,
    /// Accesses of the client that waited for an answer of the function: a round trip each, however many registers it asked
    /// for. All others were answered here, or posted.
    pub waited: u64,
    /// Round trips of resets that the client waited for.
    pub reset_trips: u64,
    /// Round trips that the function waited for the guest's memory: reads that came together are one.
    pub read_trips: u64,
    /// Accesses that were given up because the function did not answer.
    pub given_up: u64,
    /// Maps of the guest's memory.
    pub maps: u64,
}

impl Statistics {
    /// Round trips to the function and back that either side waited for.
    pub const fn round_trips(&self) -> u64 {
        self.waited + self.reset_trips + self.read_trips
    }
}

/// A guest's device slot. See the module.
#[derive(Debug)]
pub struct Guest<D> {
    config: Config,
    root: RootComplex,
    below: Below,
    /// Whether there may be a function below.
    link_up: bool,
    /// The connection to the far end is lost and may be back: nothing answers meanwhile.
    held: bool,
    phase: Phase,
    /// A reset is due: the client that has gone has left the function as it was.
    reset_due: bool,
    slot: Option<Box<Slot>>,
    server: Option<Server<D>>,
    client: bool,
    accesses: Accesses,
    /// Requests of accesses under way at the root complex.
    requests: usize,
    by_message: ByMessage,
    script_serial: u64,
    timers: Deadlines<Timer>,
    /// Completion timeouts that were told of, and until when no more are.
    timeouts_told: u64,
    timeouts_quiet_until: Instant,
    /// Accesses outside of the guest's memory that were not told of, and until when none is.
    untold: u64,
    quiet_until: Instant,
    pool: Pool,
    outputs: VecDeque<Output<D>>,
    statistics: Statistics,
    /// When the function last read the guest's memory.
    read_at: Option<Instant>,
    /// How many reads have come from the function itself, where lookahead reads memory too.
    reads_of_function: u64,
    now: Instant,
}

/// How far the function is.
#[derive(Debug)]
enum Phase {
    /// There is none that could be used.
    Absent,
    /// The root complex enumerates.
    Enumerating,
    /// It is being set up or reset.
    Scripted(Box<Running>, function::Purpose),
    /// It is in use.
    Present,
    /// Nothing has answered in time: the slot is an empty one for whoever comes now.
    Empty,
}

impl<D: 'static> Guest<D> {
    /// A slot whose function is at the far end of a tunnel, which is dialled as soon as this is first settled.
    pub fn over_tunnel(config: Config, session: session::Config, entropy: impl Into<Entropy>) -> Self {
        let mut upstream = Upstream::new(&switch(1), [session].into(), entropy);
        // The function's addresses are the guest's, who knows nothing of what this switch has where.
        upstream.redirect();
        upstream.set_interrupts(setup::INTERRUPT_WINDOW.start);
        Self::new(config, Below::Tunnel(Box::new(upstream)))
    }

    /// A slot whose function is on the link itself, enumerated at once: no switch, no tunnel.
    pub fn direct(config: Config, now: Instant) -> Self {
        let mut guest = Self::new(config, Below::Link);
        guest.now = now;
        guest.link_up = true;
        guest.enumerate();
        guest
    }

    fn new(config: Config, below: Below) -> Self {
        let mut root = RootComplex::new(config.root);
        root.set_interrupt_window(setup::INTERRUPT_WINDOW);
        Self {
            root,
            config,
            below,
            link_up: false,
            held: false,
            phase: Phase::Absent,
            reset_due: false,
            slot: None,
            server: None,
            client: false,
            accesses: Accesses::default(),
            requests: 0,
            by_message: ByMessage::default(),
            script_serial: 0,
            timers: Deadlines::new(),
            timeouts_told: 0,
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

    /// Whether a client may connect: the function is there, or has not answered in time, and nobody uses it.
    pub fn takes_client(&self) -> bool {
        let there = matches!(self.phase, Phase::Present | Phase::Empty);
        !self.client && self.server.is_some() && !self.reset_due && there
    }
    /// Whether a client is connected.
    pub const fn has_client(&self) -> bool {
        self.client
    }
    /// Whether more of the client's bytes should be taken: what waits has a limit, here and on the way to the far end.
    pub fn takes_bytes(&self) -> bool {
        let queued = self.upstream().map_or(0, |upstream| upstream.queued_bytes(PORT));
        self.accesses.has_room() && queued < TUNNEL_BYTES_MAX
    }
    /// Where there are doorbells that the client may have mapped.
    pub fn doorbells(&self) -> Option<Doorbells> {
        let slot = self.slot.as_ref().filter(|_| self.config.doorbells)?;
        function::doorbells_of(&slot.target.function)
    }
    /// Whether doorbells may be looked at: what the client has asked for before is done, and the function is there.
    pub fn takes_rings(&self) -> bool {
        self.client
            && self.takes_bytes()
            && matches!(self.phase, Phase::Present)
            && !self.accesses.is_waiting()
    }
    /// A doorbell in shared memory was rung: `value` was stored at `offset` of BAR 0.
    pub fn ring(&mut self, now: Instant, offset: u64, value: u32) {
        self.tell(now);
        self.statistics.rings += 1;
        let data = self.pool.copy(&value.to_le_bytes());
        self.write_memory(RegionIndex::BAR0, offset, &data);
    }
    /// The function that is offered, if one was found.
    pub fn offer(&self) -> Option<Offer> {
        self.slot.as_ref().map(|slot| slot.offer())
    }
    /// The tunnel's end, where there is a tunnel.
    pub const fn upstream(&self) -> Option<&Upstream> {
        match &self.below {
            Below::Tunnel(upstream) => Some(upstream),
            Below::Link => None,
        }
    }
    /// The root complex, for its statistics.
    pub const fn root(&self) -> &RootComplex {
        &self.root
    }
    /// What has happened since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Tells the time: what is polled next leaves now.
    pub fn advance(&mut self, now: Instant) {
        self.tell(now);
        if let Below::Tunnel(upstream) = &mut self.below {
            upstream.advance(now);
        }
    }

    /// Asks the far end how it is now; see [`tunnel::session::Session::ping`].
    pub fn ping(&mut self, now: Instant) {
        self.tell(now);
        if let Below::Tunnel(upstream) = &mut self.below {
            upstream.ping(now, PORT);
        }
    }

    /// Ends the session in order, telling the far end `text`.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.tell(now);
        if let Below::Tunnel(upstream) = &mut self.below {
            upstream.close(now, PORT, text);
        }
    }

    /// Answers [`Output::Map`].
    pub fn map_done(&mut self, token: Token, result: Result<(), Errno>) {
        if let Some(server) = &mut self.server {
            server.map_done(token, result);
        }
    }

    fn tell(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        self.now = now;
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Moves what the parts have for each other until nothing more is received; `transmit`: until the tunnel has said
    /// everything that it has for the world too.
    fn circulate(&mut self, transmit: bool) {
        loop {
            while let Some(output) = self.root.poll_output() {
                self.on_root(output);
            }
            if let Some(output) = self.server.as_mut().and_then(Server::poll_output) {
                self.on_server(output);
                continue;
            }
            if self.run_operations() {
                continue;
            }
            let Below::Tunnel(upstream) = &mut self.below else { return };
            if !transmit && !upstream.has_received() {
                return;
            }
            match upstream.poll_output() {
                None => return,
                Some(upstream::Output::Tlp { packet, .. }) => {
                    self.root.handle_input(self.now, root_complex::Input::Packet(packet));
                }
                Some(upstream::Output::Transmit { port, bytes }) => {
                    self.outputs.push_back(Output::Transmit(port, bytes));
                }
                Some(upstream::Output::Connect { port }) => self.outputs.push_back(Output::Connect(port)),
                Some(upstream::Output::CloseConnection { port }) => {
                    self.outputs.push_back(Output::Close(port));
                }
                Some(upstream::Output::Event { event, .. }) => self.on_link(event),
            }
        }
    }

    fn tunnel_input(&mut self, input: upstream::Input) {
        if let Below::Tunnel(upstream) = &mut self.below {
            upstream.handle_input(self.now, input);
        }
    }

    fn server_input(&mut self, input: server::Input<'_, D>) {
        if let Some(server) = &mut self.server {
            server.handle_input(self.now, input);
        }
    }

    /// When an access has waited too long.
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
        self.tell(now);
        match input {
            Input::Connected(port) => self.tunnel_input(upstream::Input::Connected(port)),
            Input::Received(port, bytes) => self.tunnel_input(upstream::Input::Received(port, bytes)),
            Input::Disconnected(port) => self.tunnel_input(upstream::Input::Disconnected(port)),
            Input::Packet(packet) => self.root.handle_input(now, root_complex::Input::Packet(packet)),
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
        self.tell(now);
        self.root.handle_timeout(now);
        self.tell_timeouts();
        if let Below::Tunnel(upstream) = &mut self.below
            && upstream.poll_timeout().is_some_and(|at| at <= now)
        {
            upstream.handle_timeout(now);
        }
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
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let below = match &self.below {
            Below::Tunnel(upstream) => upstream.poll_timeout(),
            Below::Link => None,
        };
        let script = match &self.phase {
            Phase::Scripted(running, _) => running.wake,
            _ => None,
        };
        let server = self.server.as_ref().and_then(Server::poll_timeout);
        [self.root.poll_timeout(), below, server, script, self.timers.earliest(), self.access_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}
