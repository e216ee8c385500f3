//! One connection on a device: its posted requests, received messages, and lent memory.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use engine::{Buffer, Instant, Nanos, Pool};
use rdma::{
    Disconnected, Done, Event, Exposure, Key, Limits, Operation, PostError, QueuePairId, ReceiveRequest,
    RegisterError, Remote, SendRequest, SharedPool, WorkCompletion, WorkError,
};
use tracing::warn;

use super::ended::{error_of, reason_of};
use super::in_order::InOrder;
use crate::sys::verbs::{
    Block, Bytes, CmId, Completion, Depths, Ended, Happened, Happening, Pair, Reads, Use, Work,
};

/// Set in the identifiers by which the device knows receive requests.
const RECEIVE: u64 = 1 << 63;
/// How long completions are polled for, after some have come, before the device is asked to report
/// the next one: asking takes a system call on some devices, and the report takes two more.
const POLL: Nanos = Nanos::from_micros(20);

/// A send request that the device has.
#[derive(Debug)]
struct Sent {
    id: u64,
    kind: Kind,
    block: Option<Block>,
    /// The user requests a completion even of a success.
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Write,
    Read(u32),
}

/// Memory that is lent to the peer.
#[derive(Debug)]
enum Loan {
    /// The peer reads a copy of these bytes.
    Read(Block, Buffer),
    /// The peer writes this many bytes.
    Write(Block, u32),
}

/// How far the connection is.
#[derive(Debug)]
enum Line {
    /// The device that leads to the peer is looked for.
    Resolving(CmId),
    Paired(Box<Pair>),
    /// There is no queue pair, and won't be.
    Gone,
}

/// A connection, which its user and the world share.
#[derive(Debug)]
pub(super) struct Link {
    line: Line,
    depths: Depths,
    pool: SharedPool,
    /// The private data with which this end asks for the connection.
    private_data: Vec<u8>,
    /// The reads that the peer requests, if the peer asks for the connection.
    requested: Option<Reads>,
    events: VecDeque<Event>,
    completions: VecDeque<WorkCompletion>,
    /// Receive requests that wait for the queue pair.
    waiting: VecDeque<ReceiveRequest>,
    receives: VecDeque<(ReceiveRequest, Block)>,
    /// The number of the first of them.
    first_receive: u64,
    sends: InOrder<Sent>,
    /// Send requests since the last one whose end the device reports.
    unsignalled: u16,
    loans: BTreeMap<Key, Loan>,
    is_established: bool,
    /// The user knows that the connection is made. It gets no completion before.
    is_known: bool,
    is_over: bool,
    /// Until when completions are polled for without a report of the device.
    polls_until: Instant,
    /// The device reports the next completion.
    is_armed: bool,
    /// The loop gets its events.
    pub(super) is_registered: bool,
}

impl Link {
    fn new(line: Line, depths: Depths, pool: SharedPool) -> Self {
        Self {
            line,
            depths,
            pool,
            private_data: Vec::new(),
            requested: None,
            events: VecDeque::new(),
            completions: VecDeque::new(),
            waiting: VecDeque::new(),
            receives: VecDeque::new(),
            first_receive: 0,
            sends: InOrder::new(),
            unsignalled: 0,
            loans: BTreeMap::new(),
            is_established: false,
            is_known: false,
            is_over: false,
            polls_until: Instant::ZERO,
            is_armed: false,
            is_registered: false,
        }
    }

    /// A connection that this end asks for with `private_data`, once the way to the peer is known.
    pub(super) fn connecting(id: CmId, depths: Depths, pool: SharedPool, private_data: &[u8]) -> Self {
        let mut link = Self::new(Line::Resolving(id), depths, pool);
        link.private_data = private_data.to_vec();
        link
    }

    /// A connection that a peer has asked for with `private_data`.
    ///
    /// # Errors
    /// When the device has no room for it.
    pub(super) fn requested(
        id: CmId,
        depths: Depths,
        pool: SharedPool,
        private_data: Vec<u8>,
        reads: Reads,
    ) -> io::Result<Self> {
        let pair = Pair::new(id, depths)?;
        let mut link = Self::new(Line::Paired(Box::new(pair)), depths, pool);
        link.requested = Some(reads);
        link.events.push_back(Event::Requested { private_data });
        Ok(link)
    }

    /// The name by which the system reports events of the connection.
    pub(super) fn name(&self) -> Option<usize> {
        self.id().map(CmId::name)
    }

    fn id(&self) -> Option<&CmId> {
        match &self.line {
            Line::Resolving(id) => Some(id),
            Line::Paired(pair) => Some(pair.id()),
            Line::Gone => None,
        }
    }

    /// The queue pair, once there is one.
    pub(super) fn pair(&self) -> Option<&Pair> {
        match &self.line {
            Line::Paired(pair) => Some(pair),
            Line::Resolving(_) | Line::Gone => None,
        }
    }

    /// Whether there are events or completions that were not taken.
    pub(super) fn has_news(&self) -> bool {
        !self.events.is_empty() || self.is_known && !self.completions.is_empty()
    }

    pub(super) fn limits(&self) -> Limits {
        let pair = self.pair();
        Limits {
            send_requests: self.depths.send,
            receive_requests: self.depths.receive,
            message_bytes: u32::try_from(Pool::LENGTH_MAX).unwrap_or(u32::MAX),
            // Lent memory is registered once for many loans, so no peer may invalidate it.
            invalidate: self.requested.is_some() && pair.is_some_and(Pair::can_invalidate),
            immediate: pair.is_some_and(|pair| !pair.is_iwarp()),
        }
    }

    // Events from the system.

    /// Something has happened to the connection.
    pub(super) fn on_happening(&mut self, happening: Happening) {
        let Happening { happened, private_data, .. } = happening;
        let outcome = match happened {
            Happened::AddressResolved => self.on_address(),
            Happened::RouteResolved => match &self.line {
                Line::Paired(pair) => pair.connect(&self.private_data),
                Line::Resolving(_) | Line::Gone => Ok(()),
            },
            Happened::Established => {
                self.is_established = true;
                let private_data = if self.requested.is_some() { Vec::new() } else { private_data };
                self.events.push_back(Event::Established { private_data });
                Ok(())
            }
            Happened::Rejected { by_user: true } => {
                self.is_over = true;
                self.events.push_back(Event::Rejected { private_data });
                Ok(())
            }
            Happened::Rejected { by_user: false } => {
                self.end(Disconnected::Reported("no process accepts connections at this address and port"));
                Ok(())
            }
            Happened::Unreachable => {
                self.end(Disconnected::TimedOut);
                Ok(())
            }
            Happened::Disconnected => {
                self.end(Disconnected::InOrder);
                Ok(())
            }
            Happened::DeviceRemoved => Err(io::Error::other("the RDMA device is going away")),
            Happened::Requested | Happened::Other => Ok(()),
        };
        if let Err(error) = outcome {
            self.fail(&error);
        }
    }

    /// The way to the peer is known: the connection gets a queue pair there.
    fn on_address(&mut self) -> io::Result<()> {
        self.line = match std::mem::replace(&mut self.line, Line::Gone) {
            Line::Resolving(id) => Line::Paired(Box::new(Pair::new(id, self.depths)?)),
            line => {
                self.line = line;
                return Ok(());
            }
        };
        while let Some(request) = self.waiting.pop_front() {
            self.receive(request)?;
        }
        self.id().map_or(Ok(()), CmId::resolve_route)
    }

    /// The connection is over, for this reason.
    fn end(&mut self, why: Disconnected) {
        if !self.is_over {
            self.is_over = true;
            self.events.push_back(Event::Disconnected(why));
        }
        if let Some(id) = self.id().filter(|_| self.is_established) {
            // Requests that were not done are flushed. A connection that is over already needs no
            // more.
            let _ = id.disconnect();
        }
    }

    /// This end has failed.
    fn fail(&mut self, error: &io::Error) {
        if !self.is_over {
            warn!("RDMA by verbs: {error}");
        }
        self.end(Disconnected::NetworkFailed);
    }

    /// Takes the completions that have come. Returns whether there were any.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Line::Paired(pair) = &self.line {
            match pair.poll() {
                Ok(taken) if taken.len() == 0 => break,
                Ok(taken) => taken.for_each(|completion| self.on_completion(completion)),
                Err(error) => {
                    self.fail(&error);
                    break;
                }
            }
            busy = true;
        }
        if busy {
            self.is_armed = false;
            self.polls_until = now + POLL;
        }
        busy
    }

    /// Has the device report the next completion, once none has come for a while. Returns whether
    /// the next turn is to come at once.
    pub(super) fn rest(&mut self, now: Instant) -> bool {
        let Line::Paired(pair) = &self.line else { return false };
        if self.is_armed {
            return false;
        }
        if now < self.polls_until {
            return true;
        }
        self.is_armed = true;
        if let Err(error) = pair.arm() {
            self.fail(&error);
            return true;
        }
        // The device does not report completions that came before it was asked.
        self.poll(now)
    }

    fn on_completion(&mut self, completion: Completion) {
        let Line::Paired(pair) = &mut self.line else { return };
        if completion.id & RECEIVE != 0 {
            let Some((request, block)) = self.receives.pop_front() else { return };
            self.first_receive += 1;
            let result = match completion.ended {
                Ended::Done => Ok(Done::Received {
                    data: copy_of(&block, completion.length.min(request.length_max), &self.pool),
                    invalidated: completion.invalidated.map(Key),
                    immediate: completion.immediate,
                }),
                ended => Err(error_of(ended)),
            };
            pair.give(block);
            self.complete(request.id, completion.ended, result);
            return;
        }
        self.sends.end(completion.id, completion.ended);
        while let Some((sent, ended)) = self.sends.pop() {
            self.on_sent(sent, ended);
        }
    }

    /// The oldest send request has ended.
    fn on_sent(&mut self, sent: Sent, ended: Ended) {
        let result = match (ended, sent.kind, &sent.block) {
            (Ended::Done, Kind::Read(length), Some(block)) => {
                Ok(Done::Read(copy_of(block, length, &self.pool)))
            }
            (Ended::Done, Kind::Read(_), None) => Ok(Done::Read(Buffer::EMPTY)),
            (Ended::Done, Kind::Send, _) => Ok(Done::Sent),
            (Ended::Done, Kind::Write, _) => Ok(Done::Written),
            (ended, ..) => Err(error_of(ended)),
        };
        if let (Some(block), Line::Paired(pair)) = (sent.block, &mut self.line) {
            pair.give(block);
        }
        if result.is_err() || sent.is_wanted {
            self.complete(sent.id, ended, result);
        }
    }

    /// Passes the end of a request to the user.
    fn complete(&mut self, id: u64, ended: Ended, result: Result<Done, WorkError>) {
        let queue_pair = QueuePairId(0);
        self.completions.push_back(WorkCompletion { id, queue_pair, result });
        match ended {
            Ended::Done | Ended::Flushed => {}
            ended => self.end(reason_of(ended)),
        }
    }

    // Calls by the user.

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.is_known |= matches!(event, Event::Established { .. });
        Some(event)
    }

    pub(super) fn poll_completion(&mut self) -> Option<WorkCompletion> {
        if self.is_known { self.completions.pop_front() } else { None }
    }

    pub(super) fn accept(&mut self, private_data: &[u8]) {
        let Some(pair) = self.pair() else { return };
        if let Err(error) = pair.accept(private_data, self.requested.unwrap_or_default()) {
            self.fail(&error);
        }
    }

    pub(super) fn reject(&mut self, private_data: &[u8]) {
        self.is_over = true;
        if let Some(id) = self.id() {
            // A peer that has gone meanwhile needs no answer.
            let _ = id.reject(private_data);
        }
    }

    pub(super) fn disconnect(&mut self) {
        match self.is_established {
            // The system reports when the connection is over.
            true => drop(self.id().map(CmId::disconnect)),
            false => self.end(Disconnected::InOrder),
        }
    }

    pub(super) fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        if self.waiting.len() + self.receives.len() >= usize::from(self.depths.receive) {
            return Err(PostError::Full);
        }
        if let Line::Resolving(_) = self.line {
            self.waiting.push_back(request);
            return Ok(());
        }
        self.receive(request).map_err(|error| not_taken(&error))
    }

    /// Gives the device a receive request.
    fn receive(&mut self, request: ReceiveRequest) -> io::Result<()> {
        let Line::Paired(pair) = &mut self.line else { return Err(io::ErrorKind::NotConnected.into()) };
        let block = pair.take(Use::Own, request.length_max as usize)?;
        let id = RECEIVE | (self.first_receive + self.receives.len() as u64);
        match pair.post_receive(id, &block, request.length_max) {
            Ok(()) => self.receives.push_back((request, block)),
            Err(error) => {
                pair.give(block);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        let is_ready = self.is_established && !self.is_over;
        let Line::Paired(pair) = &mut self.line else { return Err(PostError::State) };
        if !is_ready {
            return Err(PostError::State);
        }
        if self.sends.len() >= usize::from(self.depths.send) {
            return Err(PostError::Full);
        }
        let SendRequest { id, operation, signalled } = request;
        let prepared = prepare(pair, &operation).map_err(|error| not_taken(&error))?;
        let Prepared { kind, work, block, length } = prepared;
        // The device frees places only when it reports that a request is done. Linux's siw hands
        // the pages of requests that it need not report to TCP, which goes on reading them after
        // the requests are done.
        let is_wanted = signalled || matches!(kind, Kind::Read(_));
        let is_signalled = is_wanted || pair.is_iwarp() || self.unsignalled + 1 >= self.depths.send / 2;
        let bytes = match (&block, &operation) {
            (Some(block), _) => Bytes::In(block, length),
            (None, Operation::Send { inline, .. }) => Bytes::Inline(inline),
            (None, _) => Bytes::Inline(&[]),
        };
        if let Err(error) = pair.post_send(self.sends.next_number(), work, bytes, is_signalled) {
            if let Some(block) = block {
                pair.give(block);
            }
            return Err(not_taken(&error));
        }
        self.unsignalled = if is_signalled { 0 } else { self.unsignalled + 1 };
        self.sends.push(Sent { id, kind, block, is_wanted }, is_signalled);
        Ok(())
    }

    pub(super) fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        let Line::Paired(pair) = &mut self.line else { return Err(RegisterError::TooMany) };
        let (purpose, length) = match &exposure {
            Exposure::Read(data) => (Use::LentToRead, data.len()),
            Exposure::Write(length) => (Use::LentToWrite, *length as usize),
        };
        if length > Pool::LENGTH_MAX {
            return Err(RegisterError::TooLong);
        }
        let block = pair.take(purpose, length).map_err(|error| {
            warn!("RDMA by verbs: {error}");
            RegisterError::TooMany
        })?;
        let length = u32::try_from(length).map_err(|_| RegisterError::TooLong)?;
        let remote = Remote { key: Key(block.remote_key), address: block.address(), length };
        let loan = match exposure {
            Exposure::Read(data) => {
                block.write(0, &data);
                Loan::Read(block, data)
            }
            Exposure::Write(_) => {
                // The device does not report which bytes a peer has written: bytes that the peer
                // has not written are zero.
                block.clear(length as usize);
                Loan::Write(block, length)
            }
        };
        self.loans.insert(remote.key, loan);
        Ok(remote)
    }

    /// Copies the memory behind `key`, which the peer may be writing right now.
    pub(super) fn peek(&self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        let Some(Loan::Write(block, length)) = self.loans.get(&key) else { return false };
        let offset = offset as usize;
        let fits = offset.saturating_add(into.len()) <= *length as usize;
        if fits {
            block.read(offset, into);
        }
        fits
    }

    pub(super) fn deregister(&mut self, key: Key) -> Option<Buffer> {
        let loan = self.loans.remove(&key)?;
        let (block, data) = match loan {
            Loan::Read(block, data) => (block, data),
            Loan::Write(block, length) => {
                let data = copy_of(&block, length, &self.pool);
                (block, data)
            }
        };
        if let Line::Paired(pair) = &mut self.line {
            pair.give(block);
        }
        Some(data)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_established && !self.is_over {
            drop(self.id().map(CmId::disconnect));
        }
    }
}

/// A send request that the device can take.
struct Prepared {
    kind: Kind,
    work: Work,
    /// Where its bytes are, or belong; none if the request has them itself, or there are none.
    block: Option<Block>,
    length: u32,
}

/// Puts the bytes of an operation where the device reaches them.
fn prepare(pair: &mut Pair, operation: &Operation) -> io::Result<Prepared> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "a message has at most 2 MiB");
    let length_of = |length: usize| u32::try_from(length).map_err(|_| too_long());
    Ok(match operation {
        Operation::Send { inline, data, invalidate, immediate } => {
            let length = length_of(inline.len() + data.len())?;
            let fits = data.is_empty() && inline.len() <= pair.inline_max(invalidate.is_some());
            let block = match fits {
                true => None,
                false => {
                    let block = pair.take(Use::Own, length as usize)?;
                    block.write(0, inline);
                    block.write(inline.len(), data);
                    Some(block)
                }
            };
            let work = Work::Send { immediate: *immediate, invalidate: invalidate.map(|key| key.0) };
            Prepared { kind: Kind::Send, work, block, length }
        }
        Operation::Write { data, remote } => {
            let length = length_of(data.len())?;
            let block = if data.is_empty() { None } else { Some(pair.take(Use::Own, data.len())?) };
            if let Some(block) = &block {
                block.write(0, data);
            }
            let work = Work::Write { address: remote.address, key: remote.key.0 };
            Prepared { kind: Kind::Write, work, block, length }
        }
        Operation::Read { remote } => {
            let length = remote.length;
            let purpose = pair.place_of_reads();
            let block = if length == 0 { None } else { Some(pair.take(purpose, length as usize)?) };
            let work = Work::Read { address: remote.address, key: remote.key.0 };
            Prepared { kind: Kind::Read(length), work, block, length }
        }
    })
}

/// The first `length` bytes of a block, which devices write no more.
fn copy_of(block: &Block, length: u32, pool: &SharedPool) -> Buffer {
    if length == 0 {
        return Buffer::EMPTY;
    }
    let mut pool = pool.borrow_mut();
    let mut data = pool.take(length as usize);
    block.read(0, &mut data);
    pool.seal(data)
}

/// Logs why the device has not taken a request; its user gets a general error.
fn not_taken(error: &io::Error) -> PostError {
    warn!("RDMA by verbs: the device rejected a request: {error}");
    match error.kind() {
        io::ErrorKind::OutOfMemory => PostError::Full,
        io::ErrorKind::NotConnected => PostError::State,
        _ => PostError::Unsupported,
    }
}
