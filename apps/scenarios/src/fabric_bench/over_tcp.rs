//! NVMe/TCP over modelled TCP.

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Nanos, fire};
use network_models::Path;
use network_models::network::{self, ConnectionId, Input, Network, Output, Side};
use network_models::streams::{Measured, Order};
use network_models::trail::{self, Named, Part, Trail};
use nvme::host::{Completed, Data};
use nvme::wire::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use nvme_fabrics::transport::{ControllerEnd, HostEnd, Queue, Slot};
use nvme_tcp::{SharedPool, controller, host};
use sim::marks::{Cause, Mark, Marks, Spot};
use sim::processor::Processor;
use sim::{Digest, Later};

use super::Setup;
use super::ends::{Demand, Ends, Marking};

/// The software of one side, and the events that wait for it.
#[derive(Debug)]
struct Socket {
    processor: Processor,
    cause: Cause,
    /// Data that have come, with the times when they are noticed.
    inbox: VecDeque<(Instant, Buffer, Cause)>,
    /// Data that the software has given to the stack, which has had no room for them.
    outgoing: VecDeque<Buffer>,
    /// The cause of the data that the stack sends.
    sent: Cause,
}

/// Both ends of an I/O queue of NVMe/TCP.
#[derive(Debug)]
pub(super) struct OverTcp {
    network: Network,
    connection: ConnectionId,
    host: host::Connection,
    controller: controller::Connection,
    sockets: [Socket; 2],
    /// Data that the software gives to the stack of the side when it is done with them.
    due: Later<(Side, Buffer, Cause)>,
    marks: Marks,
    pool: SharedPool,
    now: Instant,
    failure: Option<String>,
    digest: Digest,
    events: u64,
}

impl OverTcp {
    pub(super) fn new(setup: &Setup, config: network::Config, paths: [Path; 2]) -> Self {
        let pool = SharedPool::default();
        let (size, inside) = (setup.queue_size, setup.capsule_data_max);
        let host = host::Config::new(pool.clone()).for_queue(size, inside, None);
        let host = host::Connection::new(Instant::ZERO, host);
        let mut controller =
            controller::Connection::new(Instant::ZERO, controller::Config::new(pool.clone()));
        controller.set_queue(Queue { size, capsule_data_max: inside, success_flag: true });
        let mut network = Network::new(config, paths);
        let connection =
            network.open(Instant::ZERO, Side::Near).expect("a network without connections carries one");
        let socket = |driver| Socket {
            processor: Processor::new(driver),
            cause: None,
            inbox: VecDeque::new(),
            outgoing: VecDeque::new(),
            sent: None,
        };
        Self {
            network,
            connection,
            host,
            controller,
            sockets: setup.drivers.map(socket),
            due: Later::default(),
            marks: Marks::default(),
            pool,
            now: Instant::ZERO,
            failure: None,
            digest: Digest::default(),
            events: 0,
        }
    }

    /// Gives the stack of `side` as much as it takes.
    fn send(&mut self, side: Side) {
        while let Some(data) = self.sockets[side.index()].outgoing.pop_front() {
            let room = self.network.room(self.connection, side, data.len()).min(data.len());
            if room < data.len() {
                let rest = data.slice(room..data.len());
                self.sockets[side.index()].outgoing.push_front(rest);
            }
            if room == 0 {
                return;
            }
            let (connection, part) = (self.connection, data.slice(0..room));
            self.network.handle_input(self.now, Input::Send { connection, side, data: part });
        }
    }

    /// Takes the bytes that the engine of `side` has to send; the software gives them to the stack.
    fn flush(&mut self, side: Side) {
        let outbox = match side {
            Side::Near => self.host.outbox_mut(),
            Side::Far => self.controller.outbox_mut(),
        };
        if outbox.is_empty() {
            return;
        }
        let mut pieces = Vec::new();
        outbox.take_all(&mut self.pool.borrow_mut(), |piece| pieces.push(piece));
        let post = self.sockets[side.index()].processor.driver().post;
        let at = self.work(side, post, "call of the stack");
        let cause = self.cause(side);
        for piece in pieces {
            self.due.put(at, (side, piece, cause));
        }
    }

    /// The network hands over `data` at `side`.
    fn receive(&mut self, side: Side, data: Buffer) {
        let trail = self.network.trail();
        let cause = self.follow_frame(side, trail);
        let socket = &mut self.sockets[side.index()];
        let at = socket.processor.notice(self.now);
        let spot = Spot::Software(side);
        let cause = self.marks.mark(cause, at, spot, Part::Processing, "polling or interrupt");
        socket.inbox.push_back((at, data, cause));
    }

    /// Marks the steps of the frame that has brought data to `side`.
    fn follow_frame(&mut self, side: Side, trail: Option<Trail>) -> Cause {
        let from = side.other();
        let mut cause = self.sockets[from.index()].sent;
        let Some(trail) = trail else { return cause };
        let mut mark = |at, spot, part, what| cause = self.marks.mark(cause, at, spot, part, what);
        mark(trail.made, Spot::Card(from), Part::Waiting, "until the segment is made");
        mark(trail.sent, Spot::Card(from), Part::Processing, "segment");
        for (hop, part, at) in trail::steps(&trail, self.network.path(from)) {
            mark(at, Spot::Hop(from, hop), part, "frame");
        }
        mark(trail.arrived, Spot::Card(side), Part::Processing, "segment");
        cause
    }

    /// The next data that the software of `side` takes.
    fn take(&mut self, side: Side) -> Option<Buffer> {
        let socket = &mut self.sockets[side.index()];
        let (at, ..) = socket.inbox.front()?;
        if *at > self.now || socket.processor.busy_until() > self.now {
            return None;
        }
        let (_, data, cause) = socket.inbox.pop_front()?;
        let cause = self.marks.mark(cause, self.now, Spot::Software(side), Part::Waiting, "other work");
        socket.cause = cause;
        let reap = socket.processor.driver().reap;
        self.work(side, reap, "received data");
        let (connection, bytes) = (self.connection, data.len());
        self.network.handle_input(self.now, Input::Consume { connection, side, bytes });
        Some(data)
    }

    fn on_output(&mut self, output: Output) {
        self.events += 1;
        self.digest.word(self.now.as_nanos());
        match output {
            Output::Incoming { connection, .. } => {
                self.network.handle_input(self.now, Input::Accept(connection));
            }
            Output::Opened { .. } => {}
            Output::Data { side, data, .. } => self.receive(side, data),
            Output::Writable { side, .. } => self.send(side),
            Output::Finished { .. } | Output::Closed { .. } => {
                self.failure.get_or_insert_with(|| "the TCP connection is gone".to_owned());
            }
        }
    }
}

impl Marking for Marks {
    fn mark(&mut self, after: Cause, at: Instant, spot: Spot, part: Part, what: &'static str) -> Cause {
        Self::mark(self, after, at, spot, part, what)
    }

    fn chain(&self, last: Cause) -> Vec<Mark> {
        Self::chain(self, last)
    }
}

impl Ends for OverTcp {
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        fire(&mut self.network, now);
        fire(&mut self.host, now);
        fire(&mut self.controller, now);
        while let Some((side, data, cause)) = self.due.take(now) {
            let socket = &mut self.sockets[side.index()];
            socket.sent = cause;
            socket.outgoing.push_back(data);
            self.send(side);
        }
        while let Some(output) = self.network.poll_output() {
            self.on_output(output);
        }
        Side::BOTH.into_iter().for_each(|side| self.flush(side));
    }

    fn next(&self) -> Option<Instant> {
        let software = self.sockets.iter().filter_map(|socket| {
            socket.inbox.front().map(|(at, ..)| (*at).max(socket.processor.busy_until()))
        });
        let engines = [self.network.poll_timeout(), self.host.poll_timeout(), self.controller.poll_timeout()];
        engines.into_iter().chain([self.due.next()]).flatten().chain(software).min()
    }

    fn is_ready(&self) -> bool {
        self.host.is_ready()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn poll_host(&mut self, now: Instant) -> Option<Completed> {
        loop {
            match self.host.poll_output() {
                Some(host::Output::Initialized(_)) => {}
                Some(host::Output::Completed(completed)) => return Some(completed),
                Some(host::Output::Closed(why)) => self.failure = Some(why.to_string()),
                None => {
                    self.flush(Side::Near);
                    let data = self.take(Side::Near)?;
                    self.host.handle_input(now, host::Input::Received(data));
                }
            }
        }
    }

    fn poll_controller(&mut self, now: Instant) -> Option<Demand> {
        loop {
            match self.controller.poll_output() {
                Some(controller::Output::Initialized(_)) => {}
                Some(controller::Output::Command { slot, entry }) => {
                    return Some(Demand::Command(slot, entry));
                }
                Some(controller::Output::HostData { slot, data }) => return Some(Demand::Data(slot, data)),
                Some(controller::Output::HostDataFailed { slot, status }) => {
                    self.failure = Some(format!("data of {slot:?} were damaged: {status}"));
                }
                Some(controller::Output::Closed(why)) => self.failure = Some(why.to_string()),
                None => {
                    self.flush(Side::Far);
                    if !self.controller.wants_input() {
                        return None;
                    }
                    let data = self.take(Side::Far)?;
                    self.controller.handle_input(now, controller::Input::Received(data));
                }
            }
        }
    }

    fn submit(&mut self, _: Instant, cookie: u64, entry: SubmissionQueueEntry, data: Data) -> bool {
        let taken = self.host.submit(cookie, entry, data).is_ok();
        self.flush(Side::Near);
        taken
    }

    fn pull(&mut self, _: Instant, slot: Slot, length: u32) -> Result<Option<Buffer>, Status> {
        let pulled = self.controller.pull(slot, length);
        self.flush(Side::Far);
        pulled
    }

    fn push(&mut self, _: Instant, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status> {
        self.controller.push(slot, offset, total, data)
    }

    fn complete(&mut self, _: Instant, slot: Slot, entry: CompletionQueueEntry) {
        self.controller.complete(slot, entry);
        self.flush(Side::Far);
    }

    fn work(&mut self, side: Side, time: Nanos, what: &'static str) -> Instant {
        let socket = &mut self.sockets[side.index()];
        let at = socket.processor.work(self.now, time);
        socket.cause = self.marks.mark(socket.cause, at, Spot::Software(side), Part::Processing, what);
        at
    }

    fn notice(&mut self, side: Side, now: Instant) -> Instant {
        self.sockets[side.index()].processor.notice(now)
    }

    fn cause(&self, side: Side) -> Cause {
        self.sockets[side.index()].cause
    }

    fn set_cause(&mut self, side: Side, cause: Cause) {
        self.sockets[side.index()].cause = cause;
    }

    fn follow(&mut self, on: bool) {
        self.marks.switch(on);
        self.network.watch(on);
        for socket in &mut self.sockets {
            (socket.cause, socket.sent) = (None, None);
        }
    }

    fn marks(&mut self) -> &mut dyn Marking {
        &mut self.marks
    }

    fn hops(&self, side: Side) -> Vec<Named> {
        self.network.path(side).names()
    }

    fn order_streams(&mut self, now: Instant, order: Order) {
        self.network.order_streams(now, order);
    }

    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.network.measured(side).for_each(look);
    }

    fn events(&self) -> u64 {
        self.events
    }

    fn digest(&self) -> u64 {
        self.digest.value()
    }
}
