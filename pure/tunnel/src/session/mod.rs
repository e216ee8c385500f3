//! One end of a session: a link that outlives the connections that carry it.
//!
//! The upstream end dials, the downstream end waits. While the link is up, packets go in with
//! [`Session::send`] and come out as [`Output::Tlp`] at the other end. No packet is lost or
//! repeated, and the order is one that PCI Express allows. A lost connection is replaced within the
//! hold time, and the link stays up meanwhile.

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
pub use config::{Config, Dma};
pub(crate) use handshake::{Ungreeted, greeting};
pub use link::{REPLAY_BYTES_MAX, REPLAY_FRAMES_MAX};
pub(crate) use member::Kept;
pub use reason::{DownReason, HandshakeError, LossReason, ProtocolError};
pub use transmit::{SEGMENT_LIMIT, SEGMENT_MAX};

use alloc::collections::VecDeque;
use alloc::string::String;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant, Nanos, Pool};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

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
/// How many packets may wait for credits or a connection. The link goes down when more wait.
pub const QUEUE_PACKETS_MAX: usize = 65_536;
/// How many payload bytes may wait for credits or a connection. The link goes down when more wait.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How many Pings follow each other quickly on a new connection, for a first alignment of clocks.
const PINGS_QUICK: u8 = 4;
/// Time between two of the quick Pings on a new connection.
const PING_QUICK_INTERVAL: Nanos = Nanos::from_millis(20);

/// Inputs of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection exists: the one asked for with [`Output::Connect`], or an accepted one.
    Connected,
    /// A piece of the byte stream, cut anywhere.
    Received(Buffer),
    /// The connection ended, or could not be made.
    Disconnected,
}

/// Outputs of a session: requests to the world, and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Append these bytes to the stream.
    Transmit(Buffer),
    /// A packet from the peer.
    Tlp {
        /// The packet, as the peer sent it.
        packet: Packet,
        /// When the packet arrived, and the time stamps of its frame.
        arrival: Arrival,
    },
    /// Dial the peer. The answer is [`Input::Connected`] or [`Input::Disconnected`].
    Connect,
    /// End the connection once all bytes before this output are on their way, or give up dialling.
    /// The connection brings no further input, not even [`Input::Disconnected`].
    CloseConnection,
    /// Packets pass from now on.
    LinkUp {
        /// Identity of the other end.
        peer: Identity,
    },
    /// Packets no longer pass. Packets that are under way may be lost.
    LinkDown {
        /// Why the link went down.
        reason: DownReason,
    },
    /// The connection was lost. The link is still up, and packets wait.
    Interrupted {
        /// Why the connection was lost.
        reason: LossReason,
    },
    /// The link goes on over a new connection.
    Resumed,
    /// A handshake failed.
    HandshakeFailed(HandshakeError),
    /// The host resets the device (hot reset).
    Reset,
    /// Host memory that the device is about to read, sent ahead by the host's end.
    Ahead(Ahead, Buffer),
    /// Keys of memory that was sent ahead and is no longer useful, encoded as in
    /// [`Keys`](crate::frame::Keys).
    Forget(Buffer),
    /// The host wants to know what became of the memory that it sent ahead. Call
    /// `Session::tell_tally` before polling the next output.
    WantsTally,
    /// Registers of the peer's function, valid between the packets before and after this output.
    Registers(Registers),
}

// Outputs are moved for every packet.
const _: () = assert!(size_of::<Output>() <= 160);

/// When a packet arrived, and the time stamps of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// When the packet arrived, by our clock.
    pub at: Instant,
    /// Time stamps of the packet's frame, by the peer's clock.
    pub stamps: Option<Stamps>,
}

/// Counters of a session since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// TLPs sent. Repetitions are not counted.
    pub tlps_sent: u64,
    /// TLPs received from the peer.
    pub tlps_received: u64,
    /// Pieces of the stream handed out by [`Output::Transmit`].
    pub segments_sent: u64,
    /// Bytes of the stream handed out by [`Output::Transmit`].
    pub bytes_sent: u64,
    /// Bytes of the stream received from the peer.
    pub bytes_received: u64,
    /// Segments that carried an acknowledgement or credits and nothing else.
    pub acknowledgements_alone: u64,
    /// Frames sent again because a new connection replaced a lost one.
    pub frames_replayed: u64,
    /// How often the session continued over a new connection.
    pub resumptions: u64,
    /// Packets dropped because the link was down or reset, or because the payload was longer than
    /// the peer accepts.
    pub dropped: u64,
}

/// State of the connection, and the awaited frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Connection {
    /// No connection, and none is wanted.
    Stopped,
    /// No connection yet: the upstream end waits for its time to dial, the downstream end for a
    /// connection.
    None,
    /// Upstream only: [`Output::Connect`] is under way.
    Dialling,
    /// A Hello or Welcome is awaited.
    Greeting,
    /// The handshake is over, and frames pass.
    Open,
}

#[derive(Serialize, Deserialize)]
enum Item {
    Output(Output),
    /// With the credits that the packet took, and the number of the link that granted them.
    Tlp(Packet, Arrival, Cost, u32),
    /// With the number of the link that brought the reset.
    Reset(u32),
}

/// One end of a session, upstream or downstream: an [`Engine`] that keeps a link up across
/// connections.
#[derive(Serialize, Deserialize)]
pub struct Session {
    role: Role,
    config: Config,
    entropy: Entropy,
    now: Instant,
    connection: Connection,
    link: Option<Link>,
    /// Counts links, so that credits return to the link that granted them.
    link_number: u32,
    reader: FrameReader,
    pool: Pool,
    items: VecDeque<Item>,
    /// The longest segment on the present connection, in bytes.
    segment_max: usize,
    /// Whether the reader's next frame, behind all `items`, is a complete TLP.
    tlp_waits: bool,
    timers: Timers,
    clock: Clock,
    last_heard: Instant,
    redial_delay: Nanos,
    ping_due: bool,
    /// When the Ping that awaits its Pong was sent.
    ping_sent_at: Option<Instant>,
    pings_quick: u8,
    /// A Ping to answer: when the peer sent it and when it arrived.
    pong_due: Option<(Instant, Instant)>,
    /// The tally that goes along with the next Pong.
    tally_due: Option<Tally>,
    acknowledge_due: bool,
    /// Over how many connections the peer would spread a link.
    peer_strands: u16,
    /// Whether the peer, a host, wants all frames to have digests.
    peer_digests: bool,
    /// The link of which this session is a further strand.
    member: Option<Member>,
    /// Proof that a host has, or had, the session. At the device's end: the secret of the present
    /// session. At the host's end: the secret from the latest Welcome, or that of the link's main
    /// strand.
    secret: Option<Secret>,
    /// The function that computes digests, if the frames of this connection have digests.
    #[serde(with = "engine::state::crc32c_if_any")]
    digest: Option<Crc32c>,
    /// A frame that was incomplete at the latest look: how many frames came before it, and since
    /// when it has been incomplete.
    incomplete: Option<(u64, Instant)>,
    statistics: Statistics,
}

impl Session {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub(crate) fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.entropy.supply(entropy);
        self.config.crc32c = crc32c;
        self.digest = self.digest.map(|_| crc32c);
        if let Some(link) = &mut self.link {
            link.adopt(crc32c);
        }
    }

    /// Creates the end towards the root complex, which dials when it is first settled. Give each
    /// end a different seed.
    pub fn upstream(config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut session = Self::new(Role::Upstream, config, entropy.into());
        session.timers.arm(Timer::Dial, Instant::ZERO);
        session
    }

    /// Creates the end towards the device, which waits for [`Input::Connected`]. The secret that
    /// admits a host to the device comes from `entropy`, so that source must be unpredictable for
    /// all others.
    pub fn downstream(config: Config, entropy: impl Into<Entropy>) -> Self {
        Self::new(Role::Downstream, config, entropy.into())
    }

    fn new(role: Role, mut config: Config, mut entropy: Entropy) -> Self {
        config.normalise();
        if config.identity.instance == InstanceId::default() {
            // Two ends with the same instance would take over each other's sessions.
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
            segment_max: SEGMENT_MAX,
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

    /// Sends `packet` to the peer, behind all packets that it may not overtake. While the link is
    /// down, the packet is dropped, as on any PCI Express link.
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

    /// Resets the device (hot reset). Packets that have not been sent are dropped, and packets that
    /// the device sent before its reset never come out here. Does nothing at the downstream end or
    /// while the link is down.
    pub fn reset(&mut self, now: Instant) {
        self.now = now;
        self.catch_up();
        let (Role::Upstream, Some(link)) = (self.role, &mut self.link) else { return };
        link.resets_pending += 1;
        // Registers shown before the reset are no longer valid.
        self.items.retain(|item| !matches!(item, Item::Output(Output::Registers(_))));
        if link.resets_pending > link::RESETS_MAX {
            let (packets, bytes) = (link.queued_packets(), link.queued_bytes());
            self.end_link(CloseCode::Overrun, DownReason::Overrun { packets, bytes });
            return;
        }
        let dropped = link.push_reset(ResetPhase::Request);
        self.statistics.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
    }

    /// Sends a Ping now instead of at the next interval. The Pong brings a new [`Session::tally`].
    pub fn ping(&mut self, now: Instant) {
        self.now = now;
        self.ping_due = self.connection == Connection::Open;
    }

    /// Whether the peer wants to be shown registers of the function. False while the link is down.
    pub fn wants_registers(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.wants_registers)
    }
    /// Shows the peer registers of the function, in order behind the packets sent before. Does
    /// nothing if the peer does not want registers.
    pub fn show(&mut self, registers: Registers) {
        if let Some(link) = self.link.as_mut().filter(|link| link.wants_registers) {
            link.push_registers(registers);
        }
    }
    /// Whether the peer is known to have received all posted requests sent. False while the link is
    /// down.
    pub fn is_flushed(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_flushed)
    }

    /// Ends the session for good after sending what credits allow, and sends the peer `text` as the
    /// reason. The upstream end does not dial again until [`Session::restart`].
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

    /// Dials again after [`Session::close`] or a final refusal.
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

    /// Identity of the peer while the link is up, even if no connection carries the link.
    pub fn peer(&self) -> Option<&Identity> {
        self.link.as_ref().map(|link| &link.peer)
    }
    /// When the link came up; `None` while the link is down.
    pub fn up_since(&self) -> Option<Instant> {
        self.link.as_ref().map(|link| link.up_since)
    }
    /// Whether a connection is open, so that frames pass at this moment.
    pub fn is_open(&self) -> bool {
        self.connection == Connection::Open
    }
    /// Advances the time, with which the next polled frames are stamped. Every input advances the
    /// time, too. A driver that has worked on inputs for a while calls this to say how late it has
    /// become.
    pub const fn advance(&mut self, now: Instant) {
        self.now = now;
    }
    /// Whether frames carry time stamps, which makes [`Session::advance`] necessary.
    pub fn is_stamped(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.stamped)
    }
    /// Whether the next output is something received, rather than something to send.
    pub fn has_received(&self) -> bool {
        self.tlp_waits || !self.items.is_empty()
    }
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }
    /// Alignment of the peer's clock with ours, as of the latest input.
    pub fn clock(&self) -> Option<ClockAlignment> {
        self.clock.alignment(self.now)
    }
    /// Whether both ends follow one clock: the time of their network, by one grandmaster. If not,
    /// the offset of their clocks is that of the moments at which both programs began.
    pub const fn follows_one_clock(&self) -> bool {
        self.clock.is_shared()
    }
    /// Round-trip time of the latest Ping and its Pong.
    pub const fn round_trip(&self) -> Option<Nanos> {
        self.clock.round_trip()
    }
    /// Payload bytes that wait for credits or a connection. A producer of unsolicited packets can
    /// watch this number and pause.
    pub fn queued_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::queued_bytes)
    }
    /// Payload bytes that are kept until the peer acknowledges them.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, Link::replay_bytes)
    }
    /// The session's counters so far.
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

    /// A session name that no other session has had.
    fn new_session_id(&mut self) -> SessionId {
        SessionId(self.entropy.next_u64().max(1))
    }

    /// A secret that only the host of a new session receives.
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
            match engine::pop(&mut self.items) {
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
        // A TLP that waits to be polled is due since it arrived. A later poll passes the time
        // first, and the deadlines that the TLP brings count from that time.
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
