//! The box at the far end: the downstream end of the tunnel, and a function behind it, usually
//! an SSD's.

mod device;
mod seats;

pub(crate) use device::show_configuration;
pub use device::{Device, Said, Storage};
pub use seats::Seats;

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant, Watch};
use nvme::media;
use nvme::subsystem::{HostIdentity, Permit, Subsystem};
use nvme_pcie::function::{self, Function};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};
use tunnel::downstream::{self, Downstream, Greeted};
use tunnel::session::Arrival;
use tunnel::{Access, Fingerprint};

pub use tunnel::downstream::ConnectionId;

use crate::watch::{Connection, Direction, Port, Seen};

/// Limit in bytes on the link's queue. Above it, the controller fetches no further commands.
const THROTTLE_BYTES: usize = 8 << 20;
/// Below this many bytes in the link's queue, the controller fetches commands again.
const RELEASE_BYTES: usize = THROTTLE_BYTES / 2;

/// Inputs of the box.
#[derive(Debug)]
pub enum Input<I = media::Completion> {
    /// Something that the network brings.
    Network(downstream::Input),
    /// Something for the device; for an SSD, a medium's answer.
    Device(I),
}

/// Outputs of the box: requests to the world, and events.
#[derive(Debug, Serialize, Deserialize)]
pub enum Output<O = Storage> {
    /// Append these bytes to a connection's stream.
    Transmit(ConnectionId, Buffer),
    /// End a connection once all bytes output before this are on their way.
    Close(ConnectionId),
    /// A request of the device.
    Device(O),
    /// Something happened to a connection or to the link.
    Event(Option<ConnectionId>, tunnel::Event),
}

/// A host that is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// The key that the host must prove.
    pub key: Fingerprint,
    /// The host's rights on an SSD.
    pub permit: Permit,
}

/// The box at the far end: the downstream end of the tunnel, and the function behind it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "F: Serialize, F::Output: Serialize",
    deserialize = "F: Deserialize<'de>, F::Output: Deserialize<'de>"
))]
pub struct Far<F: Device = Function> {
    downstream: Downstream,
    function: F,
    /// The hosts that are admitted, if there is a list.
    admitted: Vec<Admitted>,
    throttled: bool,
    /// No further host is taken.
    closed: bool,
    /// Something happened to the function that it may have an answer to.
    stir: bool,
    /// There is nothing for the link or the world until the next call from outside.
    quiet: bool,
    outputs: VecDeque<Output<F::Output>>,
    watch: Watch<Port>,
    now: Instant,
}

impl Far {
    /// A box with an SSD after power-up at `now`, without a host. See [`Downstream::new`] for
    /// `entropy`.
    pub fn new(
        now: Instant,
        session: tunnel::session::Config,
        function: function::Config,
        entropy: impl Into<Entropy>,
    ) -> Self {
        Self::around(now, session, Function::new(now, function), entropy)
    }

    /// Applies `change` to the SSD's command core, for changes to its namespaces; the host is
    /// notified of them.
    pub fn with_core<T>(&mut self, now: Instant, change: impl FnOnce(&mut Subsystem) -> T) -> T {
        self.note_time(now);
        self.stir = true;
        self.function.with_core(now, change)
    }
}

impl<F: Device> Far<F> {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.downstream.adopt(entropy, crc32c);
    }

    /// A box around `function` at `now`, without a host. See [`Downstream::new`] for `entropy`.
    pub fn around(
        now: Instant,
        session: tunnel::session::Config,
        function: F,
        entropy: impl Into<Entropy>,
    ) -> Self {
        let mut downstream = Downstream::new(session, entropy);
        if !function.is_present() {
            downstream.suspend(now, "the device is not there yet");
        }
        Self {
            downstream,
            function,
            admitted: Vec::new(),
            throttled: false,
            closed: false,
            stir: true,
            quiet: false,
            outputs: VecDeque::new(),
            watch: Watch::new(),
            now,
        }
    }

    /// The downstream end of the tunnel, for its statistics and clock.
    pub const fn downstream(&self) -> &Downstream {
        &self.downstream
    }
    /// The function behind the tunnel, for its statistics.
    pub const fn function(&self) -> &F {
        &self.function
    }
    /// Sets the time to `now`: outputs polled after this call leave at `now`. Received bytes are
    /// processed as they come in, so that the time stamps on frames show how long that took.
    pub fn advance(&mut self, now: Instant) {
        self.note_time(now);
        self.downstream.advance(now);
    }
    /// Says how long segments of a connection may be; see [`Downstream::set_segment_max`].
    pub fn set_segment_max(&mut self, connection: ConnectionId, bytes: usize) {
        self.downstream.set_segment_max(connection, bytes);
    }
    /// Has `places` connections wait for their Hello at most; see [`Downstream::set_waiting_max`].
    pub fn set_waiting_max(&mut self, places: usize) {
        self.downstream.set_waiting_max(places);
    }
    /// Defers the bytes of a connection, if they are for the device; see
    /// [`Downstream::hold_back`].
    pub fn hold_back(&mut self, now: Instant, connection: ConnectionId) -> bool {
        self.note_time(now);
        self.downstream.hold_back(now, connection)
    }
    /// Whether durations are measured here, by a watcher or by time stamps on frames, so that
    /// [`Far::advance`] matters.
    pub fn is_timed(&self) -> bool {
        self.watch.is_on() || self.downstream.session().is_stamped()
    }
    /// The watchers of the packets of this box's device, and of the bytes of its connections.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.watch
    }
    /// Admits from now on the hosts with these keys, or every host if there is no list; see
    /// [`Downstream::set_access`].
    pub fn admit(&mut self, now: Instant, admitted: Option<Vec<Admitted>>) {
        self.note_time(now);
        let access = match &admitted {
            None => Access::Anyone,
            Some(hosts) => Access::Keys(hosts.iter().map(|host| host.key).collect()),
        };
        self.admitted = admitted.unwrap_or_default();
        self.downstream.set_access(now, access);
        self.permit_owner();
    }

    /// Takes a host that was greeted elsewhere; see [`Downstream::admit`].
    fn welcome(&mut self, now: Instant, greeted: Greeted) {
        self.note_time(now);
        self.downstream.admit(now, greeted);
        self.digest();
    }

    /// Takes what the functions share from the function of `from`, if that has it.
    fn take_shared(&mut self, now: Instant, from: &mut Self) {
        self.note_time(now);
        self.function.take_shared(now, &mut from.function);
        self.stir = true;
    }

    /// Gives the function to the host that has the session. It is known by its key, or without one
    /// by the instance of its session.
    fn name_host(&mut self) {
        let Some(peer) = self.downstream.session().peer() else { return };
        let host = match self.downstream.owner() {
            Some(key) => {
                let identifier = *key.0.first_chunk().expect("a fingerprint has 32 bytes");
                HostIdentity { name: key.to_string(), identifier }
            }
            None => HostIdentity { name: peer.name.clone(), identifier: peer.instance.0 },
        };
        self.function.set_host(self.now, host);
        self.stir = true;
    }

    /// Applies the permit of the host that has the session.
    fn permit_owner(&mut self) {
        let owner = self.downstream.owner();
        let host = self.admitted.iter().find(|host| Some(host.key) == owner);
        let permit = host.map_or_else(Permit::default, |host| host.permit.clone());
        self.function.set_permit(self.now, &permit);
        self.stir = true;
    }
    /// Ends the session, sends the host `text` as the reason, and takes no further session.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.note_time(now);
        self.closed = true;
        self.downstream.close(now, text);
    }

    fn note_time(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        self.now = now;
        self.quiet = false;
    }

    /// Moves the function's outputs for the link and the media. This goes first, because the next
    /// packet from the link would wait behind it anyway.
    fn drain_function(&mut self) {
        while core::mem::take(&mut self.stir) {
            while let Some(said) = self
                .function
                .poll_into(&mut |packet| send(self.now, packet, &mut self.downstream, &mut self.watch))
            {
                match said {
                    Said::Packet(packet) => {
                        send(self.now, packet, &mut self.downstream, &mut self.watch);
                    }
                    Said::World(output) => self.outputs.push_back(Output::Device(output)),
                    Said::Present if self.closed => {}
                    Said::Present => self.downstream.resume(self.now),
                    Said::Absent(text) => self.downstream.suspend(self.now, text),
                }
            }
            self.function.show(&mut |registers| self.downstream.show(registers));
            self.throttle();
        }
    }

    /// Lets the controller fetch commands as long as the link takes the results.
    fn throttle(&mut self) {
        let queued = self.downstream.queued_bytes();
        let throttled = if self.throttled { queued > RELEASE_BYTES } else { queued > THROTTLE_BYTES };
        if throttled != self.throttled {
            self.throttled = throttled;
            self.function.set_throttled(throttled);
            self.stir = true;
        }
    }

    /// Processes everything that was received.
    fn digest(&mut self) {
        self.drain_function();
        while self.downstream.has_received() {
            self.take_packets();
            if self.downstream.has_received() {
                self.step();
            }
        }
    }

    /// Hands the function the packets that have come, and after each packet all that the
    /// function says.
    fn take_packets(&mut self) {
        let mut packet = Packet::blank();
        while let Some(arrival) = self.downstream.poll_packet(&mut packet) {
            self.on_packet(&packet, &arrival);
            packet.payload = Buffer::EMPTY;
            self.drain_function();
        }
    }

    #[inline]
    fn on_packet(&mut self, packet: &Packet, arrival: &Arrival) {
        self.stir = true;
        let direction = Direction::Down;
        self.watch.show(self.now, move || Seen::Packet { direction, packet, arrival: Some(arrival) });
        self.function.on_packet(self.now, packet);
    }

    #[cold]
    fn on_network_watched(&mut self, input: downstream::Input) {
        if let downstream::Input::Received(connection, bytes) = &input {
            self.show(Direction::Down, *connection, bytes);
        }
        self.downstream.handle_input(self.now, input);
    }

    /// Shows bytes of a connection to the watchers.
    #[cold]
    fn show(&mut self, direction: Direction, connection: ConnectionId, bytes: &Buffer) {
        let connection = Connection::Far(connection);
        self.watch.show(self.now, move || Seen::Bytes { direction, connection, ends: None, bytes });
    }

    /// Moves one output of the tunnel. Returns whether there was one.
    fn step(&mut self) -> bool {
        let Some(output) = self.downstream.poll_output() else { return false };
        match output {
            downstream::Output::Tlp { packet, arrival } => self.on_packet(&packet, &arrival),
            downstream::Output::DeviceReset => {
                self.stir = true;
                self.function.on_hot_reset(self.now);
            }
            downstream::Output::Transmit { connection, bytes } => {
                self.outputs.push_back(Output::Transmit(connection, bytes));
                self.throttle();
            }
            downstream::Output::Close { connection } => self.outputs.push_back(Output::Close(connection)),
            downstream::Output::Event { connection, event } => {
                if matches!(event, tunnel::Event::LinkUp { .. }) {
                    self.name_host();
                    self.permit_owner();
                }
                self.outputs.push_back(Output::Event(connection, event));
                self.throttle();
            }
        }
        self.drain_function();
        true
    }
}

/// Sends a packet of the device up the link. Without a watcher, nothing refers to the packet, so
/// the compiler need not copy it.
#[inline]
fn send(now: Instant, packet: Packet, downstream: &mut Downstream, watch: &mut Watch<Port>) {
    if watch.is_on() {
        send_watched(now, packet, downstream, watch);
    } else {
        downstream.send(now, packet);
    }
}

#[cold]
fn send_watched(now: Instant, packet: Packet, downstream: &mut Downstream, watch: &mut Watch<Port>) {
    let (direction, shown) = (Direction::Up, &packet);
    watch.show(now, move || Seen::Packet { direction, packet: shown, arrival: None });
    downstream.send(now, packet);
}

impl<F: Device> Engine for Far<F> {
    type Input<'a> = Input<F::Input>;
    type Output = Output<F::Output>;

    fn handle_input(&mut self, now: Instant, input: Input<F::Input>) {
        self.note_time(now);
        match input {
            Input::Network(input) => {
                if self.watch.is_on() {
                    self.on_network_watched(input);
                } else {
                    self.downstream.handle_input(now, input);
                }
                self.digest();
            }
            Input::Device(input) => {
                self.stir = true;
                self.function.on_input(now, input);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.note_time(now);
        self.downstream.handle_timeout(now);
        self.function.on_timeout(now);
        self.stir = true;
    }

    fn poll_output(&mut self) -> Option<Output<F::Output>> {
        if self.outputs.is_empty() && !self.quiet {
            self.drain_function();
            while self.outputs.is_empty() && !self.quiet {
                self.quiet = !self.step();
            }
        }
        let output = engine::pop(&mut self.outputs);
        if self.watch.is_on()
            && let Some(Output::Transmit(connection, bytes)) = &output
        {
            self.show(Direction::Up, *connection, bytes);
        }
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.downstream.poll_timeout(), self.function.deadline())
    }
}
