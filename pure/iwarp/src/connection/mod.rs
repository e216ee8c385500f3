//! One end of a connection.

mod placing;
mod receive;
mod startup;
mod transmit;

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Outbox};
use rdma::{
    Disconnected, Endpoint, Event, Exposure, Key, Limits, Operation, PostError, QueuePair, ReceiveRequest,
    RegisterError, Remote, SendRequest, WorkCompletion, WorkError,
};

use crate::inbound::{Fpdu, HEAD_LENGTH, Inbound};
use crate::wire::{Fault, FrameKind, Shown};
use crate::{Config, MESSAGE_BYTES_MAX};
use receive::Receiving;
use startup::{Frame, Request};
use transmit::{InFlight, Reading, Wake};

/// An input of a connection.
#[derive(Debug)]
pub enum Input {
    /// Bytes from the peer, in order. The connection holds the block as long as it uses data in it.
    Received(Buffer),
    /// The peer has closed its side of the stream, or the stream is lost.
    Closed,
}

/// A request of a connection to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The connection is over. The world sends the rest of the outbox, then closes the stream.
    Close,
}

/// The progress of a connection.
#[derive(Debug)]
enum State {
    /// The frame of the peer is incomplete.
    Starting {
        frame: Frame,
        deadline: Instant,
    },
    /// The user must accept or reject the request.
    Deciding(Request),
    Ready,
    /// The world has the request to close the stream.
    Closing,
    Over,
}

/// One end of a connection: a queue pair over a byte stream.
///
/// The end is an [`Endpoint`] for its user and an [`Engine`] for its world. Work requests may be
/// posted at any time between calls of the world; the outbox may have bytes to send then.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    pair: QueuePair,
    events: VecDeque<Event>,
    inbound: Inbound,
    outbox: Outbox,
    /// Whether CRCs are sent and checked.
    crc: bool,
    /// The peer accepts data: the accepting end waits for the first FPDU.
    may_send: bool,
    /// ORD as negotiated.
    reads_outstanding_max: usize,
    /// IRD as negotiated.
    reads_answered_max: usize,
    /// Send requests that were taken and are not complete, in order.
    in_flight: VecDeque<InFlight>,
    /// Number of requests that have left `in_flight`.
    retired: u64,
    /// Reads that were sent and not completely answered, in order.
    reads: VecDeque<Reading>,
    /// The positions in the outbox's stream at which unsent responses end.
    responses: VecDeque<u64>,
    /// The next wake-up of the peer, until its first FPDU arrives. Only at the connecting end.
    wake: Option<Wake>,
    /// The incomplete message of the peer.
    receiving: Option<Receiving>,
    /// Numbers of the next messages sent, for the queues of sends and of read requests.
    next_sent: [u32; 2],
    /// Numbers of the next messages of the peer, likewise.
    next_received: [u32; 2],
}

impl Connection {
    /// The connecting end, over an open stream. It sends its request at once, with `private_data`
    /// for the peer's user.
    ///
    /// # Panics
    /// When the settings are invalid, or the private data are longer than
    /// [`PRIVATE_DATA_MAX`](crate::PRIVATE_DATA_MAX).
    pub fn connect(now: Instant, config: Config, private_data: &[u8]) -> Self {
        let mut end = Self::new(now, config, FrameKind::Reply);
        end.send_request(private_data);
        end
    }

    /// The accepting end, over an open stream. It waits for a request.
    ///
    /// # Panics
    /// When the settings are invalid.
    pub fn accept(now: Instant, config: Config) -> Self {
        Self::new(now, config, FrameKind::Request)
    }

    fn new(now: Instant, config: Config, awaited: FrameKind) -> Self {
        let config = config.checked();
        let mut pair = QueuePair::new(rdma::Config {
            id: config.queue_pair,
            send_depth: config.send_depth,
            receive_depth: config.receive_depth,
            shared_receives: config.shared_receives.clone(),
            completions: config.completions.clone(),
        });
        pair.modify(rdma::State::Initialised).expect("a new queue pair can be initialised");
        let deadline = now + config.setup_timeout;
        Self {
            state: State::Starting { frame: Frame::new(awaited), deadline },
            pair,
            events: VecDeque::new(),
            inbound: Inbound::default(),
            outbox: Outbox::default(),
            crc: false,
            may_send: false,
            reads_outstanding_max: config.reads_outstanding_max.into(),
            reads_answered_max: config.reads_answered_max.into(),
            in_flight: VecDeque::new(),
            retired: 0,
            reads: VecDeque::new(),
            responses: VecDeque::new(),
            wake: None,
            receiving: None,
            next_sent: [1; 2],
            next_received: [1; 2],
            config,
        }
    }

    /// The bytes to be sent.
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The bytes to be sent, for a world that takes them out. It need not report bytes taken out to
    /// [`Self::sent`], but must call that with 0 once it has taken some.
    pub const fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Reports that the first `count` bytes of the outbox were sent.
    ///
    /// # Panics
    /// When the outbox has fewer bytes.
    pub fn sent(&mut self, count: usize) {
        self.outbox.advance(count);
        self.retire();
        self.pump();
    }

    /// The place of the next received bytes, if an FPDU is incomplete. A world may receive directly
    /// into this place in place of passing a block.
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        self.inbound.landing().filter(|_| matches!(self.state, State::Ready))
    }

    /// Reports that the first `count` bytes of [`Self::landing`] were received.
    ///
    /// # Panics
    /// When the place is shorter.
    pub fn landed(&mut self, count: usize) {
        let whole = self.inbound.landed(count, &mut self.config.pool.borrow_mut());
        if let Some(fpdu) = whole {
            self.on_whole(fpdu);
            self.pump();
        }
    }

    /// Whether the connection uses CRCs. Valid once it is established.
    pub const fn uses_crc(&self) -> bool {
        self.crc
    }

    /// Maximum numbers of outstanding reads of this end and of the peer (ORD, IRD). Valid once the
    /// connection is established.
    pub const fn read_limits(&self) -> (usize, usize) {
        (self.reads_outstanding_max, self.reads_answered_max)
    }

    /// Whether the connection is over.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Closing | State::Over)
    }

    fn on_received(&mut self, now: Instant, block: &Buffer) {
        let mut at = 0;
        while at < block.len() && !self.is_over() {
            if !matches!(self.state, State::Ready) {
                at += self.on_startup(now, &block[at..]);
                continue;
            }
            let Self { inbound, config, reads, .. } = self;
            let place = |head: &[u8; HEAD_LENGTH]| placing::place(config, reads, head);
            if let Some(fpdu) = inbound.next(block, &mut at, &config.pool, place) {
                self.on_whole(fpdu);
            }
        }
    }

    /// Handles a complete FPDU.
    #[inline]
    fn on_whole(&mut self, fpdu: Fpdu) {
        match fpdu {
            Fpdu::Whole(fpdu) => self.on_fpdu(&fpdu),
            Fpdu::Placed(placed) => self.on_placed(placed),
        }
    }

    fn on_closed(&mut self) {
        let why = match &self.state {
            State::Closing | State::Over => return,
            State::Starting { .. } | State::Deciding(_) => {
                Disconnected::PeerFault("the stream ended before the connection was established")
            }
            State::Ready if self.inbound.is_within() => {
                Disconnected::PeerFault("the stream ended within an FPDU")
            }
            State::Ready => Disconnected::InOrder,
        };
        self.close(why, WorkError::Flushed);
    }

    /// Ends the connection because of a fault of the peer, and reports the fault to it in a
    /// Terminate message. The oldest send request ends with `request`.
    fn terminate(&mut self, fault: Fault, shown: Shown<'_>, why: Disconnected, request: WorkError) {
        if self.is_over() {
            return;
        }
        self.send_terminate(fault, shown);
        self.close(why, request);
    }

    /// Ends the connection, and reports `why` to the user. The oldest send request ends with
    /// `request`, all others are flushed.
    fn close(&mut self, why: Disconnected, request: WorkError) {
        self.end(Some(Event::Disconnected(why)), request);
    }

    /// Ends the connection, and reports `event` to the user.
    fn end(&mut self, event: Option<Event>, request: WorkError) {
        self.state = State::Closing;
        self.wake = None;
        if let Some(receiving) = self.receiving.take() {
            self.pair.fail_receive(receiving.request, WorkError::Flushed);
        }
        self.pair.fail(request);
        self.displace(None);
        self.inbound = Inbound::default();
        self.in_flight.clear();
        self.reads.clear();
        self.responses.clear();
        self.events.extend(event);
    }

    /// Whether the connection supports a request.
    fn check(&self, operation: &Operation) -> Result<(), PostError> {
        let length = match operation {
            Operation::Send { immediate: Some(_), .. } => return Err(PostError::Unsupported),
            Operation::Send { inline, data, .. } => inline.len() + data.len(),
            Operation::Write { data, remote } if data.len() > remote.length as usize => {
                return Err(PostError::Unsupported);
            }
            Operation::Write { data, .. } => data.len(),
            Operation::Read { .. } if self.reads_outstanding_max == 0 => return Err(PostError::Unsupported),
            Operation::Read { remote } => remote.length as usize,
        };
        if length > MESSAGE_BYTES_MAX as usize { Err(PostError::Unsupported) } else { Ok(()) }
    }
}

impl Endpoint for Connection {
    fn limits(&self) -> Limits {
        Limits {
            send_requests: self.config.send_depth,
            receive_requests: self.config.receive_depth,
            message_bytes: MESSAGE_BYTES_MAX,
            invalidate: true,
            immediate: false,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn accept(&mut self, private_data: &[u8]) {
        self.answer(private_data, true);
    }

    fn reject(&mut self, private_data: &[u8]) {
        self.answer(private_data, false);
    }

    fn disconnect(&mut self) {
        if !self.is_over() {
            self.close(Disconnected::InOrder, WorkError::Flushed);
        }
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.check(&request.operation)?;
        self.post(request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.pair.post_receive(request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.config.completions.borrow_mut().poll()
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        self.config.domain.borrow_mut().register(self.config.queue_pair, exposure)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        self.config.domain.borrow_mut().peek(self.config.queue_pair, key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        self.displace(Some(key));
        self.config.domain.borrow_mut().deregister(self.config.queue_pair, key)
    }
}

impl Engine for Connection {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Received(block) => self.on_received(now, &block),
            Input::Closed => self.on_closed(),
        }
        self.pump();
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| deadline > now) {
            return;
        }
        if matches!(self.state, State::Ready) {
            self.wake_peer(now);
        } else {
            self.close(Disconnected::TimedOut, WorkError::Flushed);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if matches!(self.state, State::Closing) {
            self.state = State::Over;
            return Some(Output::Close);
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Starting { deadline, .. } => Some(deadline),
            State::Ready => self.wake.map(|wake| wake.at),
            _ => None,
        }
    }
}

impl Drop for Connection {
    /// Withdraws the peer's access to memory.
    fn drop(&mut self) {
        self.config.domain.borrow_mut().release(self.config.queue_pair);
    }
}
