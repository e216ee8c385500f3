//! One end of a session: a link that outlives the connections which carry it.
//!
//! The upstream end dials, the downstream end waits. While the link is up, packets go in with
//! [`Session::send`] and come out as [`Output::Tlp`] at the other end: none lost, none twice, in an order that PCI
//! Express allows. A lost connection is replaced within the hold time and the link never notices.

mod ahead;
mod clock;
mod config;
mod handshake;
mod link;
mod loss;
mod member;
mod reason;
mod receive;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;

pub use clock::ClockAlignment;
pub use config::Config;
pub(crate) use handshake::{Ungreeted, greeting};
pub use link::{REPLAY_BYTES_MAX, REPLAY_FRAMES_MAX};
pub(crate) use member::Kept;
pub use reason::{DownReason, HandshakeError, LossReason, ProtocolError};
pub use transmit::SEGMENT_MAX;

use alloc::collections::VecDeque;
use alloc::string::String;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant, Nanos, Pool};
use pcie::wire::Packet;

use crate::credits::Cost;
use crate::frame::{
    Ahead, CloseCode, Frame, Identity, InstanceId, Member, Registers, ResetPhase, Role, Secret, SessionId,
    Stamps, Tally,
};
use crate::stream::FrameReader;
use clock::Clock;
use link::Link;
use timers::{Timer, Timers};

/// The lowest version of the protocol that we speak.
pub const VERSION_LOW: u16 = 2;
/// The highest version of the protocol that we speak.
pub const VERSION_HIGH: u16 = 2;
/// How many packets may wait for credits or a connection; beyond, the link goes down.
pub const QUEUE_PACKETS_MAX: usize = 65_536;
/// How many payload bytes may wait for credits or a connection; beyond, the link goes down.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How many Pings follow each other quickly on a new connection, for a first alignment of the clocks.
const PINGS_QUICK: u8 = 4;
/// Their distance.
const PING_QUICK_INTERVAL: Nanos = Nanos::from_millis(20);

/// What the world tells a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection is there: the one asked for with [`Output::Connect`], or one that was accepted.
    Connected,
    /// A piece of the byte stream, cut anywhere.
    Received(Buffer),
    /// The connection ended, or could not be made.
    Disconnected,
}

/// What a session asks of the world, or tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Append these bytes to the stream.
    Transmit(Buffer),
    /// A packet from the peer.
    Tlp {
        /// The packet.
        packet: Packet,
        /// When it arrived and what its frame says about time.
        arrival: Arrival,
    },
    /// Dial the peer; answered by [`Input::Connected`] or [`Input::Disconnected`].
    Connect,
    /// End the connection once all bytes before this are on their way, or give up dialling. Nothing more of it is
    /// expected, not even [`Input::Disconnected`].
    CloseConnection,
    /// Packets pass from now on.
    LinkUp {
        /// Who is at the other end.
        peer: Identity,
    },
    /// Packets no longer pass; those under way may be lost.
    LinkDown {
        /// Why.
        reason: DownReason,
    },
    /// The connection was lost; the link is still up and packets wait.
    Interrupted {
        /// Why.
        reason: LossReason,
    },
    /// The link goes on over a new connection.
    Resumed,
    /// A handshake came to nothing.
    HandshakeFailed(HandshakeError),
    /// The host resets the device (hot reset).
    Reset,
    /// Host memory that the device is about to read.
    Ahead(Ahead, Buffer),
    /// Host memory that was sent ahead and is of no use any more: the keys, as in [`Keys`].
    Forget(Buffer),
    /// The host wants to know what became of what was sent ahead: [`Session::tell_tally`] before the next output.
    WantsTally,
    /// Registers of the peer's function, as they are between what came before and what comes behind this.
    Registers(Registers),
}

// Outputs are moved for every packet.
const _: () = assert!(size_of::<Output>() <= 160);

/// When a packet arrived and what its frame says about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrived, by our clock.
    pub at: Instant,
    /// Time stamps, by the peer's clock.
    pub stamps: Option<Stamps>,
}

/// What a session has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// TLPs sent, those sent again not counted.
    pub tlps_sent: u64,
    /// TLPs received.
    pub tlps_received: u64,
    /// Pieces of the stream handed out by [`Output::Transmit`].
    pub segments_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Segments that carried an acknowledgement or credits and nothing else.
    pub acknowledgements_alone: u64,
    /// Frames that a new connection made necessary to send again.
    pub frames_replayed: u64,
    /// Times a session went on over a new connection.
    pub resumptions: u64,
    /// Packets dropped: the link was down, was reset, or the payload is longer than the peer takes.
    pub dropped: u64,
}

/// What there is of a connection, and what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// Nothing; and nothing is to be done about it.
    Stopped,
    /// None: the upstream end waits for its time to dial, the downstream end for a connection.
    None,
    /// Upstream only: [`Output::Connect`] is under way.
    Dialling,
    /// A Hello or Welcome is awaited.
    Greeting,
    /// Frames pass.
    Open,
}

enum Item {
    Output(Output),
    /// With what it took of the credits of the link with this number.
    Tlp(Packet, Arrival, Cost, u32),
    /// With the number of the link that it came over.
    Reset(u32),
}

/// See the module.
pub struct Session {
    role: Role,
    config: Config,
    entropy: Entropy,
    now: Instant,
    connection: Connection,
    link: Option<Link>,
    /// Counts links, so that credits return to the one that they are of.
    link_number: u32,
    reader: FrameReader,
    pool: Pool,
    items: VecDeque<Item>,
    /// After all items, the reader's next frame is a TLP that has arrived whole.
    tlp_waits: bool,
    timers: Timers,
    clock: Clock,
    last_heard: Instant,
    redial_delay: Nanos,
    ping_due: bool,
    /// The Ping that has not been answered.
    ping_sent_at: Option<Instant>,
    pings_quick: u8,
    /// A Ping to answer: when it was sent and when it arrived.
    pong_due: Option<(Instant, Instant)>,
    /// What goes with that.
    tally_due: Option<Tally>,
    acknowledge_due: bool,
    /// Over how many connections the peer would spread a link.
    peer_strands: u16,
    /// The peer, a host, wants all frames to have digests.
    peer_digests: bool,
    /// The link that this is a further strand of.
    member: Option<Member>,
    /// What proves that a host has, or had, the session: at the device's end the present one, at the host's what the latest
    /// Welcome gave, or the link's main strand has.
    secret: Option<Secret>,
    /// By what all frames of this connection have digests.
    digest: Option<Crc32c>,
    /// A frame that was incomplete when last looked at: how many came before it, and since when.
    incomplete: Option<(u64, Instant)>,
    statistics: Statistics,
}

impl Session {
    /// The end towards the root complex. It dials as soon as it is first settled. No two ends should have the same seed.
    pub fn upstream(config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut session = Self::new(Role::Upstream, config, entropy.into());
        session.timers.arm(Timer::Dial, Instant::ZERO);
        session
    }

    /// The end towards the device. It waits for [`Input::Connected`]. Whoever may have the device knows what comes out of
    /// `entropy` for it.
    pub fn downstream(config: Config, entropy: impl Into<Entropy>) -> Self {
        Self::new(Role::Downstream, config, entropy.into())
    }

    fn new(role: Role, mut config: Config, mut entropy: Entropy) -> Self {
        config.normalise();
        if config.identity.instance == InstanceId::default() {
            // Two ends that share a name would take each other's sessions over.
            entropy.fill(&mut config.identity.instance.0);
        }
        let redial_delay = config.redial.0;
        Self {
            role,
            config,
            entropy,
            now: Instant::ZERO,
            connection: Connection::None,
            link: None,
            link_number: 0,
            reader: FrameReader::default(),
            pool: Pool::default(),
            items: VecDeque::new(),
            tlp_waits: false,
            timers: Timers::default(),
            clock: Clock::default(),
            last_heard: Instant::ZERO,
            redial_delay,
            ping_due: false,
            ping_sent_at: None,
            pings_quick: 0,
            pong_due: None,
            tally_due: None,
            acknowledge_due: false,
            peer_strands: 0,
            peer_digests: false,
            member: None,
            secret: None,
            digest: None,
            incomplete: None,
            statistics: Statistics::default(),
        }
    }

    /// Sends `packet` to the peer, after whatever it may not overtake. While the link is down it is dropped, as by any
    /// link that is down.
    pub fn send(&mut self, now: Instant, packet: Packet) {
        self.now = now;
        let Some(link) = &mut self.link else {
            self.statistics.dropped += 1;
            return;
        };
        if packet.payload.len() > usize::from(link.max_payload) {
            self.statistics.dropped += 1;
            return;
        }
        link.push(packet);
        let (packets, bytes) = (link.queued_packets(), link.queued_bytes());
        if packets > QUEUE_PACKETS_MAX || bytes > QUEUE_BYTES_MAX {
            self.catch_up();
            self.end_link(CloseCode::Overrun, DownReason::Overrun { packets, bytes });
        }
    }

    /// Resets the device (hot reset): what has not been sent is dropped, and what the device sent before it was reset
    /// never comes out here. Nothing happens at the downstream end or while the link is down.
    pub fn reset(&mut self, now: Instant) {
        self.now = now;
        self.catch_up();
        let (Role::Upstream, Some(link)) = (self.role, &mut self.link) else { return };
        link.resets_pending += 1;
        // What was shown before it is true no longer.
        self.items.retain(|item| !matches!(item, Item::Output(Output::Registers(_))));
        if link.resets_pending > link::RESETS_MAX {
            let (packets, bytes) = (link.queued_packets(), link.queued_bytes());
            self.end_link(CloseCode::Overrun, DownReason::Overrun { packets, bytes });
            return;
        }
        let dropped = link.push_reset(ResetPhase::Request);
        self.statistics.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
    }

    /// Asks the peer now how it is, not only when it is time to: its Pong brings a [`Session::tally`].
    pub fn ping(&mut self, now: Instant) {
        self.now = now;
        self.ping_due = self.connection == Connection::Open;
    }

    /// Whether the peer wants to be shown registers of the function; false while the link is down.
    pub fn wants_registers(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.wants_registers)
    }
    /// Shows the peer registers of the function, behind the packets that were sent before; nothing if it does not want that.
    pub fn show(&mut self, registers: Registers) {
        if let Some(link) = self.link.as_mut().filter(|link| link.wants_registers) {
            link.push_registers(registers);
        }
    }
    /// Whether the peer is known to have all posted requests that were sent; false while the link is down.
    pub fn is_flushed(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_flushed)
    }

    /// Ends the session for good, telling the peer `text`, after sending what credits allow. The upstream end doesn't
    /// dial again until [`Session::restart`].
    pub fn close(&mut self, now: Instant, text: &str) {
        self.now = now;
        self.catch_up();
        if self.connection == Connection::Open {
            self.flush();
            self.transmit_last(&Frame::Close(CloseCode::Normal, text));
        } else if matches!(self.connection, Connection::Greeting | Connection::Dialling) {
            self.items.push_back(Item::Output(Output::CloseConnection));
        }
        self.link_down(DownReason::Closed);
        self.drop_connection();
        self.connection = Connection::Stopped;
        self.timers.disarm(Timer::Dial);
    }

    /// Dials again after [`Session::close`] or after a refusal that is final.
    pub fn restart(&mut self, now: Instant) {
        self.now = now;
        if self.connection == Connection::Stopped {
            self.connection = Connection::None;
            self.redial_delay = self.config.redial.0;
            if self.role == Role::Upstream {
                self.timers.arm(Timer::Dial, Instant::ZERO);
            }
        }
    }

    /// The peer, while the link is up, be it without a connection.
    pub fn peer(&self) -> Option<&Identity> {
        self.link.as_ref().map(|link| &link.peer)
    }
    /// Since when the link is up.
    pub fn up_since(&self) -> Option<Instant> {
        self.link.as_ref().map(|link| link.up_since)
    }
    /// Whether frames pass at this moment.
    pub fn is_open(&self) -> bool {
        self.connection == Connection::Open
    }
    /// Tells the time: frames that are polled next are stamped with it. Inputs tell it too; a driver that has worked
    /// on them for a while says how late it has become.
    pub const fn advance(&mut self, now: Instant) {
        self.now = now;
    }
    /// Whether frames carry time stamps, so that [`Session::advance`] matters.
    pub fn is_stamped(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.stamped)
    }
    /// Whether the next output is something received, not something to send.
    pub fn has_received(&self) -> bool {
        self.tlp_waits || !self.items.is_empty()
    }
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }
    /// The peer's clock against ours, as of the latest input.
    pub fn clock(&self) -> Option<ClockAlignment> {
        self.clock.alignment(self.now)
    }
    /// How long the latest Ping and its Pong were on their way.
    pub const fn round_trip(&self) -> Option<Nanos> {
        self.clock.round_trip()
    }
    /// Payload bytes that wait for credits or a connection. Whoever produces packets without being asked may look at
    /// it and pause.
    pub fn queued_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::queued_bytes)
    }
    /// Payload bytes that are kept until the peer acknowledges them.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::replay_bytes)
    }
    /// What has been done so far.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    fn emit(&mut self, output: Output) {
        self.items.push_back(Item::Output(output));
    }

    fn on_ping_timer(&mut self) {
        let Some(link) = &self.link else { return };
        self.ping_due = true;
        let mut interval = link.ping_interval;
        if self.pings_quick > 0 {
            self.pings_quick -= 1;
            interval = interval.min(PING_QUICK_INTERVAL);
        }
        self.timers.arm(Timer::Ping, self.now + interval);
        self.look_for_rest();
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Dial => {
                self.connection = Connection::Dialling;
                self.emit(Output::Connect);
            }
            Timer::Handshake => self.on_handshake_late(),
            Timer::Hold => self.on_hold_expired(),
            Timer::Acknowledge => self.acknowledge_due = true,
            Timer::Ping => self.on_ping_timer(),
            Timer::Silence => self.on_silence(),
        }
    }

    /// A name for a session that no other has had.
    fn new_session_id(&mut self) -> SessionId {
        SessionId(self.entropy.next_u64().max(1))
    }

    /// What only the host of a new session is told.
    fn new_secret(&self) -> Secret {
        let mut secret = Secret([0; 16]);
        self.entropy.fork("secret").fill(&mut secret.0);
        secret
    }
}

impl Engine for Session {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Connected => {
                self.catch_up();
                self.on_connected();
            }
            Input::Received(bytes) => self.on_received(bytes),
            Input::Disconnected => {
                self.catch_up();
                self.on_connection_lost(LossReason::Disconnected);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.catch_up();
        while let Some(timer) = self.timers.expire(now) {
            self.on_timer(timer);
        }
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        loop {
            match self.items.pop_front() {
                Some(Item::Reset(number)) => {
                    self.on_reset_delivered(number);
                    return Some(Output::Reset);
                }
                Some(Item::Output(output)) => return Some(output),
                Some(Item::Tlp(packet, arrival, cost, number)) => {
                    if number == self.link_number
                        && let Some(link) = &mut self.link
                    {
                        link.granting().pass_on(cost);
                    }
                    return Some(Output::Tlp { packet, arrival });
                }
                None if self.tlp_waits => {
                    let mut packet = Packet::blank();
                    if let Some(arrival) = self.poll_packet(&mut packet) {
                        return Some(Output::Tlp { packet, arrival });
                    }
                }
                None => return self.poll_transmit().map(Output::Transmit),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // What waits to be polled is due: whoever polls it later than it came tells the time first, from which on
        // deadlines count that it brings.
        if self.tlp_waits { Some(self.last_heard) } else { self.timers.earliest() }
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let peer: Option<String> = self.peer().map(|peer| alloc::format!("{peer}"));
        f.debug_struct("Session")
            .field("role", &self.role)
            .field("connection", &self.connection)
            .field("peer", &peer)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
