//! A whole network between two sides: connections of TCP over one path a direction.
//!
//! [`Network`] is an engine. Its application is at both sides: it opens connections, gives bytes and is given them when
//! they have arrived. The same engine runs behind the streams of the virtual world and, in real time, between two sockets.

mod connection;
mod stream;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos, Pool, Rng};

use crate::faults::Behaviour;
use crate::leaving::Leaving;
use crate::tcp::{Gone, HEADER_BYTES_MAX, Parameters, Segment, Statistics};
use crate::trail::{Trail, Watched};
use crate::{Class, Counts, Frame, Hop, Path, Rate, Transmitter};
use connection::Connection;

/// Connections that a network carries at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Bytes before a segment's header in a frame's payload: which connection it belongs to.
const ADDRESS_BYTES: usize = 8;
/// Later than anything.
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// What a network keeps of free header blocks, in bytes.
const POOL_BYTES: usize = 4 << 20;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first one.
    Near,
    /// The other one.
    Far,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }
}

/// Names a connection, the same at both sides, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

/// What a network is like, besides its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The stack of each side.
    pub tcp: [Parameters; 2],
    /// Bytes of payload in the longest Ethernet frame.
    pub mtu: u32,
    /// The class of all frames.
    pub class: Class,
    /// The rate of each side's own line, if the stack is to wait for it; see [`Parameters::backlog`].
    pub line: [Option<Rate>; 2],
}

impl Default for Config {
    /// Linux at both sides, frames of 1500 bytes.
    fn default() -> Self {
        Self { tcp: [Parameters::LINUX; 2], mtu: 1500, class: Class::BEST_EFFORT, line: [None; 2] }
    }
}

/// What the application asks of a network. A connection that is gone is asked in vain.
#[derive(Debug)]
pub enum Input {
    /// Takes an incoming connection.
    Accept(ConnectionId),
    /// Sends `data` from `side`: no more than there is [`Network::room`] for.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// Who sends.
        side: Side,
        /// The bytes.
        data: Buffer,
    },
    /// The application at `side` has used `bytes` of what it was given: there is room for as many more.
    Consume {
        /// The connection.
        connection: ConnectionId,
        /// Who was given them.
        side: Side,
        /// How many.
        bytes: usize,
    },
    /// `side` sends nothing more; it may still receive.
    Finish {
        /// The connection.
        connection: ConnectionId,
        /// Who has finished.
        side: Side,
    },
    /// `side` ends the connection at once, or does not take it. It is told nothing more of it.
    Reset {
        /// The connection.
        connection: ConnectionId,
        /// Who ends it.
        side: Side,
    },
}

/// What a network tells its application.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// The other side dials: answer with [`Input::Accept`] or [`Input::Reset`].
    Incoming {
        /// The connection.
        connection: ConnectionId,
        /// Who is dialled.
        side: Side,
    },
    /// The handshake is over for `side`.
    Opened {
        /// The connection.
        connection: ConnectionId,
        /// Whose end is open.
        side: Side,
    },
    /// Bytes have arrived; [`Input::Consume`] makes room for others.
    Data {
        /// The connection.
        connection: ConnectionId,
        /// Where.
        side: Side,
        /// The bytes.
        data: Buffer,
    },
    /// There is room again, after [`Network::room`] was less than wanted.
    Writable {
        /// The connection.
        connection: ConnectionId,
        /// Who may send.
        side: Side,
    },
    /// The other side has finished, and everything it sent was handed over.
    Finished {
        /// The connection.
        connection: ConnectionId,
        /// Who has everything.
        side: Side,
    },
    /// It is gone for `side`; nothing follows.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// For whom.
        side: Side,
        /// Why.
        why: Gone,
    },
}

/// What belongs to one side and the direction that begins there.
#[derive(Debug)]
struct Lane {
    /// The way to the other side.
    path: Path,
    /// What takes its time in this side's stack.
    sending: Leaving,
    /// What has come from the other side and is in this side's stack.
    receiving: Leaving,
    line: Transmitter,
    /// Connections whose end here may have something to send, in turn.
    waiting: VecDeque<u32>,
    bytes: u64,
}

/// The engine; see the module.
#[derive(Debug)]
pub struct Network {
    config: Config,
    lanes: [Lane; 2],
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    generation: u32,
    /// The earliest deadline of the connections.
    wake: Option<Instant>,
    /// When something happens next.
    due: Option<Instant>,
    outputs: VecDeque<Output>,
    pool: Pool,
    frames: u64,
    /// What connections that are over had counted.
    past: Statistics,
    /// What frames do when, where somebody watches.
    watched: Option<Box<Watched>>,
}

impl Network {
    /// A network over these paths: from near to far, and back.
    ///
    /// # Panics
    /// When the MTU leaves no room for data.
    pub fn new(config: Config, paths: [Path; 2]) -> Self {
        assert!(config.mtu >= 68, "an MTU of {} B carries no IPv4 (RFC 791 asks for 68)", config.mtu);
        let lanes = paths.map(|path| Lane {
            path,
            sending: Leaving::new(),
            receiving: Leaving::new(),
            line: Transmitter::IDLE,
            waiting: VecDeque::new(),
            bytes: 0,
        });
        Self {
            config,
            lanes,
            slots: Vec::new(),
            free: Vec::new(),
            generation: 0,
            wake: None,
            due: None,
            outputs: VecDeque::new(),
            pool: Pool::new(POOL_BYTES),
            frames: 0,
            past: Statistics::default(),
            watched: None,
        }
    }

    /// Dials from `side` to the other one; none where there are [`CONNECTIONS_MAX`] connections already.
    pub fn open(&mut self, now: Instant, side: Side) -> Option<ConnectionId> {
        self.run(now);
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < CONNECTIONS_MAX => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        self.generation += 1;
        let id = ConnectionId { index, generation: self.generation };
        let mut connection = Connection::new(id, &self.config);
        connection.ends[side.index()].endpoint.dial();
        self.slots[index as usize] = Some(connection);
        self.touch(id, side);
        self.transmit(now);
        self.refresh();
        Some(id)
    }

    /// Bytes that `side` may send now. Where it `wanted` more, [`Output::Writable`] follows when there is room again.
    pub fn room(&mut self, connection: ConnectionId, side: Side, wanted: usize) -> usize {
        self.slot(connection).map_or(0, |connection| connection.room(side, wanted))
    }

    /// Lets both ways behave like this from `now` on, besides whatever their hops do and in place of what was told before.
    /// What is random in it comes from `rng`, the first time.
    pub fn impair(&mut self, now: Instant, behaviour: Behaviour, rng: &Rng) {
        self.run(now);
        for (lane, name) in self.lanes.iter_mut().zip(["there", "back"]) {
            lane.path.faults(|| rng.fork(name)).set(behaviour);
        }
    }

    /// Keeps what comes to the end of either way from `now` on back until `until`; nothing of it is lost, but TCP may have
    /// repeated it by then.
    pub fn hold(&mut self, now: Instant, until: Instant, rng: &Rng) {
        self.run(now);
        for (lane, name) in self.lanes.iter_mut().zip(["there", "back"]) {
            lane.path.faults(|| rng.fork(name)).hold_until(until);
        }
    }

    /// What became of the frames that `side` sent.
    pub fn counts(&self, side: Side) -> Counts {
        self.lanes[side.index()].path.counts()
    }

    /// Bytes of the frames that `side` has sent.
    pub fn bytes(&self, side: Side) -> u64 {
        self.lanes[side.index()].bytes
    }

    /// What TCP has counted at both sides, over all connections.
    pub fn statistics(&self) -> Statistics {
        let ends = self.slots.iter().flatten().flat_map(|connection| &connection.ends);
        ends.fold(self.past, |sum, end| sum + end.endpoint.statistics())
    }

    /// Connections that are not over yet.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The way that frames of `side` go.
    pub fn path(&self, side: Side) -> &Path {
        &self.lanes[side.index()].path
    }

    /// Follows every frame from now on, or none any more. To be called when all outputs have been polled.
    pub fn watch(&mut self, on: bool) {
        if self.is_watched() != on {
            self.watched = on.then(Box::default);
            self.lanes.iter_mut().for_each(|lane| lane.path.watch(on));
        }
    }

    /// Whether frames are followed.
    pub const fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// The trail of the frame that brought what the next [`Output::Data`] told. To be called for each of them while somebody
    /// watches; none where the frame was sent before.
    pub fn trail(&mut self) -> Option<Trail> {
        self.watched.as_mut()?.handed.pop_front().flatten()
    }

    fn slot(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id.index as usize)?.as_mut().filter(|connection| connection.id == id)
    }

    /// An end has changed: it may have something to send, to tell, and another deadline.
    fn touch(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.slots.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        connection.tell(side, |output| {
            if let (Some(watched), Output::Data { .. }) = (&mut self.watched, &output) {
                watched.handed.push_back(watched.current.clone());
            }
            self.outputs.push_back(output);
        });
        let end = &mut connection.ends[side.index()];
        if !core::mem::replace(&mut end.queued, true) {
            self.lanes[side.index()].waiting.push_back(id.index);
        }
    }

    /// Remembers the deadlines of a connection, and forgets the connection once it is over.
    fn settle(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(connection) = slot else { return };
        let before = connection.wake;
        if connection.is_over() {
            let counted = connection.ends.iter().map(|end| end.endpoint.statistics());
            self.past = counted.fold(self.past, |sum, end| sum + end);
            *slot = None;
            self.free.push(index);
        } else {
            connection.wake = connection.poll_timeout();
            if connection.wake == before {
                return;
            }
            if let Some(at) = connection.wake
                && self.wake.is_none_or(|wake| at <= wake)
            {
                self.wake = Some(at);
                return;
            }
        }
        if before.is_some() && before == self.wake {
            self.wake = self.slots.iter().flatten().filter_map(|connection| connection.wake).min();
        }
    }

    /// When a side may make the next segment.
    fn line_ready(&self, side: Side) -> Instant {
        let tcp = &self.config.tcp[side.index()];
        let ahead = (tcp.transmit.fixed + tcp.backlog).get();
        match self.config.line[side.index()] {
            None => Instant::ZERO,
            Some(_) => {
                let free = self.lanes[side.index()].line.free().as_nanos();
                Instant::from_nanos(free.saturating_sub(ahead))
            }
        }
    }

    /// Lets each side send what it may.
    fn transmit(&mut self, now: Instant) {
        for side in Side::BOTH {
            while !self.lanes[side.index()].waiting.is_empty() && self.line_ready(side) <= now {
                let Some(index) = self.lanes[side.index()].waiting.pop_front() else { break };
                let Some(connection) = &mut self.slots[index as usize] else { continue };
                let id = connection.id;
                let end = &mut connection.ends[side.index()];
                match end.endpoint.poll(now) {
                    Some(segment) => {
                        self.lanes[side.index()].waiting.push_back(index);
                        self.send(now, side, id, &segment);
                    }
                    None => {
                        end.queued = false;
                        self.settle(index);
                    }
                }
            }
        }
    }

    fn send(&mut self, now: Instant, side: Side, id: ConnectionId, segment: &Segment) {
        let tcp = &self.config.tcp[side.index()];
        let length = segment.frame_length(tcp.option_bytes());
        let mut header = [0; HEADER_BYTES_MAX];
        let used = segment.emit(&mut header);
        let mut payload = self.pool.take(ADDRESS_BYTES + used);
        payload[..4].copy_from_slice(&id.index.to_le_bytes());
        payload[4..ADDRESS_BYTES].copy_from_slice(&id.generation.to_le_bytes());
        payload[ADDRESS_BYTES..].copy_from_slice(&header[..used]);
        self.frames += 1;
        let mut frame = Frame::new(self.frames, length, self.config.class, self.pool.seal(payload));
        frame.sent = now;
        if let Some(watched) = &mut self.watched {
            watched.made(frame.id, length, now);
        }
        let time = tcp.transmit.of(length);
        let lane = &mut self.lanes[side.index()];
        lane.bytes += u64::from(frame.length);
        if let Some(rate) = self.config.line[side.index()] {
            lane.line.send(now + time, rate, frame.wire_bytes());
        }
        if time == Nanos::ZERO && lane.sending.is_empty() {
            lane.path.enter(now, frame);
        } else {
            lane.sending.push(now + time, frame);
        }
    }

    /// Notes the hops that frames of `side` have left.
    fn follow(&mut self, side: Side) {
        if let Some(watched) = &mut self.watched {
            self.lanes[side.index()].path.crossings().for_each(|crossing| watched.crossed(crossing));
        }
    }

    /// A frame has come through the stack of `side`.
    fn deliver(&mut self, now: Instant, side: Side, frame: &Frame) {
        let Some((address, header)) = frame.payload.split_first_chunk::<ADDRESS_BYTES>() else { return };
        let [a, b, c, d, e, f, g, h] = *address;
        let index = u32::from_le_bytes([a, b, c, d]);
        let id = ConnectionId { index, generation: u32::from_le_bytes([e, f, g, h]) };
        let Some(segment) = Segment::parse(header) else { return };
        // Something may arrive for a connection that is over.
        let Some(connection) = self.slot(id) else { return };
        connection.on_segment(now, side, &segment);
        if let Some(watched) = &mut self.watched {
            watched.arrived(frame.id, now);
        }
        self.touch(id, side);
        if let Some(watched) = &mut self.watched {
            watched.current = None;
        }
    }

    /// Finds out when something happens next.
    fn refresh(&mut self) {
        let mut due = self.wake.unwrap_or(NEVER);
        for side in Side::BOTH {
            let lane = &self.lanes[side.index()];
            let stacks = [lane.sending.next(), lane.receiving.next(), lane.path.next()];
            due = stacks.into_iter().flatten().fold(due, Instant::min);
            if !lane.waiting.is_empty() {
                due = due.min(self.line_ready(side));
            }
        }
        self.due = (due < NEVER).then_some(due);
    }

    /// Does everything that is due by `now`, each thing at its own time: whoever calls late misses nothing.
    fn run(&mut self, now: Instant) {
        while let Some(at) = self.due.filter(|at| *at <= now) {
            self.step(at);
        }
    }

    /// Does what is due at `now`, and nothing is due before.
    fn step(&mut self, now: Instant) {
        if self.wake.is_some_and(|at| at <= now) {
            self.expire(now);
        }
        for side in Side::BOTH {
            while let Some(frame) = self.lanes[side.index()].sending.poll(now) {
                if let Some(watched) = &mut self.watched {
                    watched.sent(frame.id, now);
                }
                self.lanes[side.index()].path.enter(now, frame);
            }
            let there = side.other();
            let receive = self.config.tcp[there.index()].receive;
            while let Some(frame) = self.lanes[side.index()].path.poll(now) {
                self.follow(side);
                let time = receive.of(frame.length);
                let stack = &mut self.lanes[there.index()].receiving;
                if time == Nanos::ZERO && stack.is_empty() {
                    self.deliver(now, there, &frame);
                } else {
                    stack.push(now + time, frame);
                }
            }
            while let Some(frame) = self.lanes[there.index()].receiving.poll(now) {
                self.deliver(now, there, &frame);
            }
        }
        self.transmit(now);
        self.refresh();
    }

    /// Lets every connection that has a deadline do what is due.
    fn expire(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let Some(connection) = &mut self.slots[index] else { continue };
            if connection.wake.is_none_or(|at| at > now) {
                continue;
            }
            let id = connection.id;
            for side in Side::BOTH {
                if let Some(connection) = &mut self.slots[index] {
                    connection.ends[side.index()].endpoint.on_timeout(now);
                    self.touch(id, side);
                }
            }
            self.settle(id.index);
        }
    }
}

impl Engine for Network {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.run(now);
        let (id, side) = match &input {
            Input::Accept(connection) => (*connection, None),
            Input::Send { connection, side, .. }
            | Input::Consume { connection, side, .. }
            | Input::Finish { connection, side }
            | Input::Reset { connection, side } => (*connection, Some(*side)),
        };
        let Some(connection) = self.slot(id) else { return };
        match input {
            Input::Accept(_) => connection.ends.iter_mut().for_each(|end| end.endpoint.accept()),
            Input::Send { side, data, .. } => connection.send(side, data),
            Input::Consume { side, bytes, .. } => connection.consume(side, bytes),
            Input::Finish { side, .. } => connection.ends[side.index()].endpoint.finish(),
            Input::Reset { side, .. } => connection.reset(side),
        }
        match side {
            Some(side) => self.touch(id, side),
            None => Side::BOTH.into_iter().for_each(|side| self.touch(id, side)),
        }
        self.transmit(now);
        self.refresh();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.run(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
