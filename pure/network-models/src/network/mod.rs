//! A whole network between two sides: TCP connections over one path for each direction.
//!
//! [`Network`] is an engine. Its application is at both sides: it opens connections, hands over
//! bytes and receives them on arrival. The same engine runs behind the streams of the virtual world
//! and, in real time, between two sockets.

mod connection;
mod measured;
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

/// Maximum number of connections that a network carries at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Length in bytes of what precedes a segment's header in a frame's payload: the connection that
/// the segment belongs to.
const ADDRESS_BYTES: usize = 8;
/// A time later than any other.
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// Free header blocks that a network keeps, in bytes.
const POOL_BYTES: usize = 4 << 20;

/// One of the two sides of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first side.
    Near,
    /// The second side.
    Far,
}

impl Side {
    /// Both sides, near before far.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The opposite side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// Index of the side in arrays: 0 for near, 1 for far.
    pub const fn index(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }
}

/// Names a connection. Both sides use the same name, and a name is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

/// Parameters of a network, besides its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The TCP stack of each side.
    pub tcp: [Parameters; 2],
    /// Payload of the longest Ethernet frame, in bytes.
    pub mtu: u32,
    /// The traffic class of all frames.
    pub class: Class,
    /// The rate of each side's own line, if the stack is to wait for the line; see
    /// [`Parameters::backlog`].
    pub line: [Option<Rate>; 2],
}

impl Default for Config {
    /// Linux at both sides, and frames with 1500 bytes of payload.
    fn default() -> Self {
        Self { tcp: [Parameters::LINUX; 2], mtu: 1500, class: Class::BEST_EFFORT, line: [None; 2] }
    }
}

/// A request of the application to a network. A request for a connection that is gone is ignored.
#[derive(Debug)]
pub enum Input {
    /// Accepts an incoming connection.
    Accept(ConnectionId),
    /// Sends `data` from `side`; at most as much as [`Network::room`] allows.
    Send {
        /// The connection to send on.
        connection: ConnectionId,
        /// The side that sends.
        side: Side,
        /// The bytes to send.
        data: Buffer,
    },
    /// The application at `side` has used `bytes` of the data it received, which makes room for as
    /// many more.
    Consume {
        /// The connection that the data came from.
        connection: ConnectionId,
        /// The side that received the data.
        side: Side,
        /// Number of bytes that were used.
        bytes: usize,
    },
    /// Ends the data of `side`, which may still receive.
    Finish {
        /// The connection to finish.
        connection: ConnectionId,
        /// The side that sends nothing more.
        side: Side,
    },
    /// Ends or refuses the connection at once. `side` gets no further reports of the connection.
    Reset {
        /// The connection to end.
        connection: ConnectionId,
        /// The side that ends the connection.
        side: Side,
    },
}

/// A report of a network to its application.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// The other side dials; answer with [`Input::Accept`] or [`Input::Reset`].
    Incoming {
        /// The new connection.
        connection: ConnectionId,
        /// The side that is dialled.
        side: Side,
    },
    /// The handshake is complete for `side`.
    Opened {
        /// The connection that was opened.
        connection: ConnectionId,
        /// The side whose end is open.
        side: Side,
    },
    /// Bytes have arrived; [`Input::Consume`] makes room for more.
    Data {
        /// The connection that the bytes came from.
        connection: ConnectionId,
        /// The side that receives the bytes.
        side: Side,
        /// The bytes that arrived.
        data: Buffer,
    },
    /// There is room to send again, after [`Network::room`] offered less than wanted.
    Writable {
        /// The connection with room.
        connection: ConnectionId,
        /// The side that may send.
        side: Side,
    },
    /// The other side has finished, and all its data was handed over.
    Finished {
        /// The connection that the other side finished.
        connection: ConnectionId,
        /// The side that has received everything.
        side: Side,
    },
    /// The connection is gone for `side`; nothing follows.
    Closed {
        /// The connection that is gone.
        connection: ConnectionId,
        /// The side that gets the report.
        side: Side,
        /// Why the connection is gone.
        why: Gone,
    },
}

/// State of one side and of the direction that begins there.
#[derive(Debug)]
struct Lane {
    /// The path to the other side.
    path: Path,
    /// Frames on their way out through this side's stack.
    sending: Leaving,
    /// Frames from the other side on their way in through this side's stack.
    receiving: Leaving,
    line: Transmitter,
    /// Connections whose end at this side may have something to send, in turn.
    waiting: VecDeque<u32>,
    bytes: u64,
}

/// An engine for TCP connections between two sides, over one path for each direction.
#[derive(Debug)]
pub struct Network {
    config: Config,
    lanes: [Lane; 2],
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    generation: u32,
    /// The earliest deadline of any connection.
    wake: Option<Instant>,
    /// Time of the next event.
    due: Option<Instant>,
    outputs: VecDeque<Output>,
    pool: Pool,
    frames: u64,
    /// Counters of connections that are over.
    past: Statistics,
    /// Trails of frames, while the application watches.
    watched: Option<Box<Watched>>,
}

impl Network {
    /// A network over the given paths: from near to far, and from far to near.
    ///
    /// # Panics
    /// When the MTU is below 68 bytes.
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

    /// Dials from `side` to the other side. Returns `None` if there are [`CONNECTIONS_MAX`]
    /// connections already.
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

    /// Number of bytes that `side` may send now. If this is less than `wanted`,
    /// [`Output::Writable`] follows when there is room again.
    pub fn room(&mut self, connection: ConnectionId, side: Side, wanted: usize) -> usize {
        self.slot(connection).map_or(0, |connection| connection.room(side, wanted))
    }

    /// Gives both directions `behaviour` from `now` on, in addition to what their hops do and in
    /// place of any earlier behaviour. Random values come from `rng`, which only the first call
    /// uses.
    pub fn impair(&mut self, now: Instant, behaviour: Behaviour, rng: &Rng) {
        self.run(now);
        for (lane, name) in self.lanes.iter_mut().zip(["there", "back"]) {
            lane.path.faults(|| rng.fork(name)).set(behaviour);
        }
    }

    /// Holds the frames that reach the end of either direction from `now` on until `until`. No
    /// frame is lost, but TCP may have sent its data again by then.
    pub fn hold(&mut self, now: Instant, until: Instant, rng: &Rng) {
        self.run(now);
        for (lane, name) in self.lanes.iter_mut().zip(["there", "back"]) {
            lane.path.faults(|| rng.fork(name)).hold_until(until);
        }
    }

    /// Counters of the frames that `side` sent.
    pub fn counts(&self, side: Side) -> Counts {
        self.lanes[side.index()].path.counts()
    }

    /// Total length in bytes of the frames that `side` has sent.
    pub fn bytes(&self, side: Side) -> u64 {
        self.lanes[side.index()].bytes
    }

    /// Counters of TCP at both sides, over all connections.
    pub fn statistics(&self) -> Statistics {
        let ends = self.slots.iter().flatten().flat_map(|connection| &connection.ends);
        ends.fold(self.past, |sum, end| sum + end.endpoint.statistics())
    }

    /// Number of connections that are not over yet.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The path that frames of `side` take.
    pub fn path(&self, side: Side) -> &Path {
        &self.lanes[side.index()].path
    }

    /// Starts or stops recording the trail of every frame. Must be called when all outputs have
    /// been polled.
    pub fn watch(&mut self, on: bool) {
        if self.is_watched() != on {
            self.watched = on.then(Box::default);
            self.lanes.iter_mut().for_each(|lane| lane.path.watch(on));
        }
    }

    /// Whether the trails of frames are recorded.
    pub const fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// The trail of the frame that brought the data of the next [`Output::Data`]. While watching,
    /// this must be called for each of these outputs. Returns `None` if the frame was sent before
    /// watching began.
    pub fn trail(&mut self) -> Option<Trail> {
        self.watched.as_mut()?.handed.pop_front().flatten()
    }

    fn slot(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id.index as usize)?.as_mut().filter(|connection| connection.id == id)
    }

    /// Handles a change of an end: it may have something to send or to report, and another
    /// deadline.
    fn touch(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.slots.get_mut(id.index as usize).and_then(Option::as_mut) else { return };
        connection.report(side, |output| {
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

    /// Updates the deadline of a connection, and forgets the connection once it is over.
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

    /// When a side may make its next segment.
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

    /// Lets each side send as much as it may.
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

    /// Records which hops the frames of `side` have left.
    fn follow(&mut self, side: Side) {
        if let Some(watched) = &mut self.watched {
            self.lanes[side.index()].path.crossings().for_each(|crossing| watched.crossed(crossing));
        }
    }

    /// Delivers a frame that has come through the stack of `side`.
    fn deliver(&mut self, now: Instant, side: Side, frame: &Frame) {
        let Some((address, header)) = frame.payload.split_first_chunk::<ADDRESS_BYTES>() else { return };
        let [a, b, c, d, e, f, g, h] = *address;
        let index = u32::from_le_bytes([a, b, c, d]);
        let id = ConnectionId { index, generation: u32::from_le_bytes([e, f, g, h]) };
        let Some(segment) = Segment::parse(header) else { return };
        // A frame may arrive for a connection that is already over.
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

    /// Computes the time of the next event.
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

    /// Handles everything that is due by `now`, each event at its own time, so that a late caller
    /// misses nothing.
    fn run(&mut self, now: Instant) {
        while let Some(at) = self.due.filter(|at| *at <= now) {
            self.step(at);
        }
    }

    /// Handles the events due at `now`. None may be due earlier.
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

    /// Handles the timeout of every connection whose deadline has passed.
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
