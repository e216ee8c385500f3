//! A device with one address: its connections and their datagrams.

mod manager;
mod table;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use engine::{Buffer, Engine, Entropy, Instant, Pool};
use rdma::{Key, Operation, PostError, ReceiveRequest, SendRequest, SharedDomain, SharedPool};

use crate::Config;
use crate::connection::{Connection, Phase, Shared};
use crate::icrc::Route;
use crate::wire::{
    Datagram, GENERAL_KEY, GENERAL_SERVICES, Head, Header, ICRC_LENGTH, Mad, Message, PORT, Packet,
};
pub(crate) use table::Slot;
use table::Table;

/// Maximum number of connections of a device.
pub const CONNECTIONS_MAX: usize = table::SLOTS_MAX;
/// Maximum number of connections that peers have requested and that are not established. Further
/// requests are refused.
pub const HALF_OPEN_MAX: usize = 10_000;

/// A received datagram.
#[derive(Clone, Debug)]
pub struct Received {
    /// The sender.
    pub from: SocketAddr,
    /// The address and port that it was sent to.
    pub to: SocketAddr,
    /// The identification in its IPv4 header, if the world knows it. If not, the CRC has half of
    /// its strength. IPv6 has none.
    pub identification: Option<u16>,
    /// Whether the network has marked it as congested (ECN, CE).
    pub is_marked: bool,
    /// The UDP payload.
    pub bytes: Buffer,
}

/// An input of a device.
#[derive(Clone, Debug)]
pub enum Input {
    /// A datagram has arrived.
    Datagram(Received),
}

/// A request of a device to the world.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this datagram, unfragmented.
    Datagram(Datagram),
}

/// Event counts of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of datagrams received.
    pub received: u64,
    /// Number of datagrams that were not packets of this device's connections.
    pub dropped: u64,
    /// Number of datagrams with a wrong CRC.
    pub corrupt: u64,
    /// Number of packets that the network has marked as congested.
    pub marked: u64,
    /// Number of peers' notifications that packets of this device were marked.
    pub notified: u64,
    /// Number of repeated packets of the present connections.
    pub repeated: u64,
    /// Number of connection requests that were refused because there were too many.
    pub overflowed: u64,
}

/// RoCEv2 at one address.
#[derive(Debug)]
pub struct Device {
    shared: Shared,
    table: Table,
    /// Connections that peers have requested, by the peer and its identifier. `None` for a
    /// connection that is over, so that a late copy of its request creates no new one.
    requests: BTreeMap<(IpAddr, u32), Option<Slot>>,
    /// The requests of connections that are over, and until when they are remembered.
    past: VecDeque<(Instant, (IpAddr, u32))>,
    listening: BTreeSet<u16>,
    /// Connections without a handle.
    requested: VecDeque<Slot>,
    half_open: usize,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<Slot>,
    wakes: BTreeSet<(Instant, Slot)>,
    now: Instant,
    /// Commands were given since the last update of the time, to the connections in `behind`.
    is_behind: bool,
    behind: Vec<Slot>,
    counters: Counters,
}

impl Device {
    /// A device without connections. `domain` has the regions of all connections.
    ///
    /// # Panics
    /// When the settings allow more connections than [`CONNECTIONS_MAX`], or are out of range.
    pub fn new(config: Config, domain: SharedDomain, pool: SharedPool, mut entropy: Entropy) -> Self {
        assert!(config.connections <= CONNECTIONS_MAX, "at most {CONNECTIONS_MAX} connections");
        assert!(config.ack_timeout <= 31 && config.rnr_timer <= 31, "codes of times are at most 31");
        assert!(config.retries <= 7 && config.rnr_retries <= 7, "at most 7 repetitions");
        assert!(config.response_retries <= 15, "at most 15 repetitions of messages");
        let adapter = entropy.next_u64();
        let shared = Shared { config, domain, pool, entropy, adapter, messages: VecDeque::new() };
        Self {
            shared,
            table: Table::default(),
            requests: BTreeMap::new(),
            past: VecDeque::new(),
            listening: BTreeSet::new(),
            requested: VecDeque::new(),
            half_open: 0,
            ready: VecDeque::new(),
            wakes: BTreeSet::new(),
            now: Instant::ZERO,
            is_behind: false,
            behind: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The settings.
    pub const fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The event counts of the device.
    pub fn counters(&self) -> Counters {
        let repeated = self.table.iter().filter_map(|connection| connection.channel.as_ref());
        let repeated = repeated.map(|channel| channel.requester.repeated()).sum();
        Counters { repeated, ..self.counters }
    }

    /// The number of connections in any state.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Accepts requests for connections to `port`.
    pub fn listen(&mut self, port: u16) {
        self.listening.insert(port);
    }

    /// Ends every connection without informing peers, because the network is lost. The device stays
    /// usable: it accepts and opens connections as before.
    pub fn cut(&mut self) {
        self.shared.messages.clear();
        let slots: Vec<_> = self.table.slots().collect();
        for slot in slots {
            self.with(slot, |connection, _, _| connection.cut());
        }
    }

    /// A connection that a peer has requested and no user has taken yet.
    pub(crate) fn next_requested(&mut self) -> Option<Slot> {
        loop {
            let slot = self.requested.pop_front()?;
            if let Some(connection) = self.table.get_mut(slot) {
                connection.is_orphan = false;
                return Some(slot);
            }
        }
    }

    /// Requests a connection to `port` of `peer`. `None` if there are too many.
    pub(crate) fn connect(&mut self, peer: IpAddr, port: u16, private_data: &[u8]) -> Option<Slot> {
        let slot = self.insert(Phase::Requesting, peer, 0)?;
        let now = self.now;
        if let Some(connection) = self.table.get_mut(slot) {
            connection.request(now, port, private_data, &mut self.shared);
        }
        self.behind.push(slot);
        self.command(slot);
        Some(slot)
    }

    /// The connection, for a command of its user.
    pub(crate) fn with<T>(
        &mut self,
        slot: Slot,
        command: impl FnOnce(&mut Connection, Instant, &mut Shared) -> T,
    ) -> Option<T> {
        let now = self.now;
        let connection = self.table.get_mut(slot)?;
        let was_half_open = connection.is_half_open();
        let result = command(connection, now, &mut self.shared);
        let is_half_open = connection.is_half_open();
        self.count_half_open(was_half_open, is_half_open);
        self.behind.push(slot);
        self.command(slot);
        Some(result)
    }

    /// The connection, for calls that do not affect its packets.
    pub(crate) fn peek(&mut self, slot: Slot) -> Option<&mut Connection> {
        self.table.get_mut(slot)
    }

    pub(crate) const fn domain(&self) -> &SharedDomain {
        &self.shared.domain
    }

    pub(crate) fn post_send(&mut self, slot: Slot, request: SendRequest) -> Result<(), PostError> {
        let connection = self.table.get_mut(slot).ok_or(PostError::State)?;
        if !is_supported(&request.operation) {
            return Err(PostError::Unsupported);
        }
        connection.pair.post_send(request)?;
        self.command(slot);
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, slot: Slot, request: ReceiveRequest) -> Result<(), PostError> {
        let connection = self.table.get_mut(slot).ok_or(PostError::State)?;
        if request.length_max as usize > Pool::LENGTH_MAX {
            return Err(PostError::Unsupported);
        }
        connection.pair.post_receive(request)
    }

    /// Returns the memory of `key`, if it is lent to the peer of this connection.
    pub(crate) fn deregister(&mut self, slot: Slot, key: Key) -> Option<Buffer> {
        let owner = self.table.get(slot)?.pair.id();
        self.shared.domain.borrow_mut().deregister(owner, key)
    }

    /// Ends a connection that has lost its handle.
    pub(crate) fn abandon(&mut self, slot: Slot) {
        self.with(slot, |connection, now, shared| {
            connection.is_orphan = true;
            connection.disconnect(now, shared);
            shared.domain.borrow_mut().release(connection.pair.id());
        });
    }

    /// Notes a command for a connection.
    fn command(&mut self, slot: Slot) {
        self.is_behind = true;
        self.look_after(slot);
    }

    fn count_half_open(&mut self, was: bool, is: bool) {
        self.half_open = self.half_open + usize::from(is) - usize::from(was);
    }

    /// Schedules a connection to send and to wake, or removes it when it is over.
    fn look_after(&mut self, slot: Slot) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        if !core::mem::replace(&mut connection.is_ready, true) {
            self.ready.push_back(slot);
        }
        let is_left = connection.is_orphan && connection.phase == Phase::Over;
        self.wake(slot);
        if is_left {
            self.remove(slot);
        }
    }

    /// Looks after a connection again at its next deadline.
    fn wake(&mut self, slot: Slot) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let earliest = connection.deadline();
        if let Some(earliest) = earliest
            && connection.wake.is_none_or(|wake| earliest < wake)
        {
            if let Some(wake) = connection.wake.replace(earliest) {
                self.wakes.remove(&(wake, slot));
            }
            self.wakes.insert((earliest, slot));
        }
    }

    fn on_datagram(&mut self, now: Instant, received: &Received) {
        self.counters.received += 1;
        let config = &self.shared.config;
        let bytes = &received.bytes;
        let packet = Packet::parse(bytes).ok().filter(|_| received.to.ip() == config.address);
        let (Some(packet), Some((body, icrc))) = (packet, bytes.split_last_chunk::<ICRC_LENGTH>()) else {
            self.counters.dropped += 1;
            return;
        };
        let identification = received.identification.unwrap_or(0);
        let route = Route { from: received.from, to: received.to, identification };
        if !route.matches(config.crc32, body, *icrc, received.identification.is_none()) {
            self.counters.corrupt += 1;
            return;
        }
        let peer = received.from.ip();
        let payload = bytes.slice(packet.payload.clone());
        if packet.base.queue_pair == GENERAL_SERVICES {
            let is_ours = matches!(packet.header, Header::Unconnected { key: GENERAL_KEY, .. });
            let mad = Mad::parse(&payload).filter(|_| is_ours);
            match mad.and_then(|mad| Some((mad.transaction, Message::parse(&mad)?))) {
                Some((transaction, message)) => self.on_message(now, peer, transaction, &message),
                None => self.counters.dropped += 1,
            }
            return;
        }
        let slot = Slot::of_queue_pair(packet.base.queue_pair);
        let connection = self.table.get_mut(slot).filter(|connection| connection.peer == peer);
        let Some(connection) = connection else {
            self.counters.dropped += 1;
            return;
        };
        let was_half_open = connection.is_half_open();
        if received.is_marked {
            self.counters.marked += 1;
            connection.on_mark(now);
        }
        self.counters.notified += u64::from(packet.header == Header::Congestion);
        connection.on_packet(now, &packet, payload, &mut self.shared);
        let is_half_open = connection.is_half_open();
        self.count_half_open(was_half_open, is_half_open);
        self.look_after(slot);
    }

    fn datagram(&mut self, to: IpAddr, head: Head, payload: Buffer) -> Output {
        self.counters.sent += 1;
        let config = &self.shared.config;
        let route = Route {
            from: SocketAddr::new(config.address, config.port),
            to: SocketAddr::new(to, PORT),
            identification: config.identification,
        };
        Output::Datagram(Datagram::new(&route, config.crc32, head, payload))
    }
}

/// Whether the device supports a request: neither too long, nor with both immediate data and a key
/// to invalidate.
fn is_supported(operation: &Operation) -> bool {
    match operation {
        Operation::Send { inline, data, invalidate, immediate } => {
            let is_clear = invalidate.is_none() || immediate.is_none();
            is_clear && inline.len() + data.len() <= Pool::LENGTH_MAX
        }
        Operation::Write { data, .. } => data.len() <= Pool::LENGTH_MAX,
        Operation::Read { remote } => remote.length as usize <= Pool::LENGTH_MAX,
    }
}

impl Engine for Device {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        let Input::Datagram(received) = input;
        self.on_datagram(now, &received);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.is_behind = false;
        while let Some(slot) = self.behind.pop() {
            if let Some(connection) = self.table.get_mut(slot) {
                connection.refresh(now, &self.shared);
                self.look_after(slot);
            }
        }
        self.forget_past(now);
        while let Some((at, slot)) = self.wakes.first().copied().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, slot));
            let Some(connection) = self.table.get_mut(slot) else { continue };
            connection.wake = None;
            let was_half_open = connection.is_half_open();
            if connection.deadline().is_some_and(|at| at <= now) {
                connection.on_time(now, &mut self.shared);
            }
            let is_half_open = connection.is_half_open();
            self.count_half_open(was_half_open, is_half_open);
            self.look_after(slot);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        // Packets come first: the reason for the end of a connection precedes its end.
        while let Some(slot) = self.ready.pop_front() {
            let now = self.now;
            let Some(connection) = self.table.get_mut(slot) else { continue };
            let Some((head, payload)) = connection.poll_packet(now) else {
                connection.is_ready = false;
                // The rate limit may delay the next packet.
                self.wake(slot);
                continue;
            };
            let peer = connection.peer;
            self.ready.push_back(slot);
            self.look_after(slot);
            return Some(self.datagram(peer, head, payload));
        }
        let (to, payload) = self.shared.messages.pop_front()?;
        let header = Header::Unconnected { key: GENERAL_KEY, from: GENERAL_SERVICES };
        let head = Head::new(header.base(GENERAL_SERVICES, 0, false), &header);
        Some(self.datagram(to, head, payload))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let past = self.past.front().map(|(at, _)| *at);
        // The times of waiting packets count from when they are sent, not from when they were
        // queued.
        let behind = (self.is_behind || !self.ready.is_empty()).then_some(self.now);
        Instant::earlier(behind, Instant::earlier(wake, past))
    }
}
