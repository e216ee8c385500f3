//! A connection: its start, its end, and its queue pair.

mod data;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use engine::{Buffer, Entropy, Instant, Nanos};
use rdma::{
    Disconnected, Event, QueuePair, SharedCompletionQueue, SharedDomain, SharedPool, State, WorkError,
};

pub(crate) use data::Channel;

use crate::codes::timeout;
use crate::icrc::gid;
use crate::wire::{
    CmaAddresses, Disconnect, Identifiers, MAD_LENGTH, Message, REJECT_DATA, Reject, Reply, Request, Which,
    reason, service_of_port, text_of_reason,
};
use crate::{Config, PathMtu, requester, responder};

/// Maximum number of waiting messages of connection management. Further messages are dropped; their
/// requesters repeat the request.
const MESSAGES_MAX: usize = 1024;
/// Time limit for the user of this end to decide on a request.
const DECISION_TIME: Nanos = Nanos::from_secs(60);
/// The code of the time that a peer must wait meanwhile: 4 s.
const DECISION_CODE: u8 = 20;
/// A message is repeated after up to this many times the first time-out.
const BACKOFF_MAX: u64 = 8;
/// How often a reply is repeated before the peer has shown that it receives the messages of this
/// end. A request may carry the address of another machine, which then gets at most three messages:
/// the reply, its repetition, and the refusal.
const UNPROVEN_REPEATS: u8 = 1;
/// The code of the time-out that peers should use for their own messages: 268 ms.
const RESPONSE_CODE: u8 = 16;
/// The longest time that a peer can ask for, longer than the patience of any user.
const MORE_TIME_MAX: Nanos = Nanos::from_secs(60);

/// The state that all connections of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) domain: SharedDomain,
    pub(crate) pool: SharedPool,
    pub(crate) entropy: Entropy,
    /// The number of this channel adapter (GUID).
    pub(crate) adapter: u64,
    /// Messages to send, and their destinations.
    pub(crate) messages: VecDeque<(IpAddr, Buffer)>,
}

impl Shared {
    pub(crate) fn send(&mut self, to: IpAddr, bytes: &[u8; MAD_LENGTH]) {
        if self.messages.len() < MESSAGES_MAX {
            let bytes = self.pool.borrow_mut().copy(bytes);
            self.messages.push_back((to, bytes));
        }
    }

    /// Refuses a message of a peer.
    pub(crate) fn refuse(&mut self, to: IpAddr, transaction: u64, reject: &Reject) {
        self.send(to, &Message::Reject(*reject).emit(transaction));
    }
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// This end has sent its request, and waits for a reply.
    Requesting,
    /// The peer has sent a request; the user has not decided.
    Requested,
    /// This end has replied, and waits until the peer is ready to use the connection.
    Accepting,
    Established,
    /// This end has announced to the peer that the connection is over.
    Disconnecting,
    Over,
}

/// A connection with its queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    pub(crate) peer: IpAddr,
    pub(crate) identifiers: Identifiers,
    pub(crate) pair: QueuePair,
    pub(crate) completions: SharedCompletionQueue,
    pub(crate) channel: Option<Channel>,
    pub(crate) events: VecDeque<Event>,
    /// The connection has no handle, and gets none.
    pub(crate) is_orphan: bool,
    /// It waits for its turn to send.
    pub(crate) is_ready: bool,
    /// When the device must look after it.
    pub(crate) wake: Option<Instant>,
    /// The first packet sequence number that this end expects and announces to the peer.
    number: u32,
    /// The request of the peer.
    request: Option<Request>,
    transaction: u64,
    /// The message that is repeated until it is answered.
    pending: Option<Buffer>,
    attempts: u8,
    deadline: Option<Instant>,
    /// The user has been informed that the connection is over.
    is_reported: bool,
}

impl Connection {
    pub(crate) fn new(
        phase: Phase,
        peer: IpAddr,
        identifiers: Identifiers,
        (pair, completions): (QueuePair, SharedCompletionQueue),
        shared: &mut Shared,
    ) -> Self {
        Self {
            phase,
            peer,
            identifiers,
            pair,
            completions,
            channel: None,
            events: VecDeque::new(),
            is_orphan: false,
            is_ready: false,
            wake: None,
            number: random(shared) & 0x00ff_ffff,
            request: None,
            transaction: shared.entropy.next_u64(),
            pending: None,
            attempts: 0,
            deadline: None,
            is_reported: false,
        }
    }

    /// When [`Self::on_time`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let channel = self
            .channel
            .as_ref()
            .and_then(|channel| Instant::earlier(channel.requester.deadline(), channel.limited_until));
        Instant::earlier(self.deadline, channel)
    }

    /// Whether the connection counts as half open.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.phase, Phase::Requested | Phase::Accepting)
    }

    /// Sends a message that is repeated until it is answered.
    fn ask(&mut self, now: Instant, message: &Message, shared: &mut Shared) {
        let bytes = message.emit(self.transaction);
        shared.send(self.peer, &bytes);
        self.pending = Some(shared.pool.borrow_mut().copy(&bytes));
        self.attempts = 0;
        self.deadline = Some(now + shared.config.response_timeout);
    }

    /// Restarts the wait for an answer to a message that was sent late.
    pub(crate) fn refresh(&mut self, now: Instant, shared: &Shared) {
        if self.pending.is_some() && self.attempts == 0 {
            self.deadline = Some(now + shared.config.response_timeout);
        }
    }

    /// Sends a message once.
    fn send_once(&self, message: &Message, shared: &mut Shared) {
        shared.send(self.peer, &message.emit(self.transaction));
    }

    fn repeat(&self, shared: &mut Shared) {
        if let Some(Ok(bytes)) = self.pending.as_deref().map(TryInto::try_into) {
            shared.send(self.peer, bytes);
        }
    }

    fn answered(&mut self) {
        self.pending = None;
        self.deadline = None;
    }

    /// Requests a connection to `port` of the peer.
    pub(crate) fn request(&mut self, now: Instant, port: u16, private_data: &[u8], shared: &mut Shared) {
        let config = &shared.config;
        let message = Message::Request(Request {
            local: self.identifiers.local,
            service: service_of_port(port),
            adapter: shared.adapter,
            queue_pair: self.pair.id().0,
            responder_reads: config.reads,
            initiator_reads: config.reads,
            transport: 0,
            flow_control: true,
            number: self.number,
            retries: config.retries,
            rnr_retries: config.rnr_retries,
            mtu: config.mtu as u8,
            ack_timeout: config.ack_timeout,
            response_timeout: RESPONSE_CODE,
            response_retries: config.response_retries,
            gids: [gid(config.address), gid(self.peer)],
            addresses: Some(CmaAddresses { port: config.port, from: config.address, to: self.peer }),
            data: filled(private_data),
        });
        self.ask(now, &message, shared);
    }

    /// Handles the peer's request for this connection.
    pub(crate) fn on_request(&mut self, now: Instant, transaction: u64, request: &Request) {
        self.transaction = transaction;
        self.request = Some(*request);
        self.deadline = Some(now + DECISION_TIME);
        self.events.push_back(Event::Requested { private_data: Vec::from(request.data) });
    }

    /// Handles a repeated request of the peer: the answer may be lost.
    pub(crate) fn on_repeated_request(&self, shared: &mut Shared) {
        match self.phase {
            Phase::Requested => {
                let message = Message::MoreTime(self.identifiers, Which::Request, DECISION_CODE);
                self.send_once(&message, shared);
            }
            Phase::Accepting => self.repeat(shared),
            _ => {}
        }
    }

    /// Accepts the connection for the user.
    pub(crate) fn accept(&mut self, now: Instant, private_data: &[u8], shared: &mut Shared) {
        let Some(request) = self.request.filter(|_| self.phase == Phase::Requested) else { return };
        let config = &shared.config;
        let reply = Reply {
            identifiers: self.identifiers,
            adapter: shared.adapter,
            queue_pair: self.pair.id().0,
            number: self.number,
            responder_reads: config.reads.min(request.initiator_reads),
            initiator_reads: config.reads.min(request.responder_reads),
            flow_control: request.flow_control,
            rnr_retries: config.rnr_retries,
            data: filled(private_data),
        };
        let mtu = PathMtu::of_code(request.mtu).unwrap_or(PathMtu::B256).bytes();
        let peer = request.queue_pair;
        let requester = requester::Settings {
            peer,
            mtu,
            reads: reply.initiator_reads,
            ack_timeout: timeout(config.ack_timeout),
            retries: request.retries,
            rnr_retries: request.rnr_retries,
        };
        let responder = responder::Settings {
            peer,
            mtu,
            reads: reply.responder_reads,
            rnr_timer: config.rnr_timer,
            flow_control: request.flow_control,
        };
        self.phase = Phase::Accepting;
        self.channel = Some(Channel::new(requester, responder, (self.number, request.number), shared));
        self.become_ready(State::ReadyToReceive);
        self.ask(now, &Message::Reply(reply), shared);
    }

    /// Refuses the connection for the user.
    pub(crate) fn reject(&mut self, private_data: &[u8], shared: &mut Shared) {
        if self.phase != Phase::Requested {
            return;
        }
        self.refuse(Which::Request, reason::CONSUMER, filled(private_data), shared);
        self.phase = Phase::Over;
        self.is_reported = true;
        self.answered();
        self.pair.fail(WorkError::Flushed);
    }

    fn refuse(&self, which: Which, reason: u16, data: [u8; REJECT_DATA], shared: &mut Shared) {
        let identifiers = self.identifiers;
        let reject = Reject { identifiers, which, reason, information: 0, data };
        shared.refuse(self.peer, self.transaction, &reject);
    }

    /// Handles the peer's acceptance.
    pub(crate) fn on_reply(&mut self, now: Instant, reply: &Reply, shared: &mut Shared) {
        match self.phase {
            Phase::Requesting => {}
            // The peer has not received the message that this end is ready.
            Phase::Established if reply.identifiers.local == self.identifiers.remote => {
                self.send_once(&Message::ReadyToUse(self.identifiers), shared);
                return;
            }
            _ => return,
        }
        self.identifiers.remote = reply.identifiers.local;
        let config = &shared.config;
        let mtu = config.mtu.bytes();
        let peer = reply.queue_pair;
        let requester = requester::Settings {
            peer,
            mtu,
            reads: config.reads.min(reply.responder_reads),
            ack_timeout: timeout(config.ack_timeout),
            retries: config.retries,
            rnr_retries: reply.rnr_retries,
        };
        let responder = responder::Settings {
            peer,
            mtu,
            reads: config.reads,
            rnr_timer: config.rnr_timer,
            flow_control: reply.flow_control,
        };
        self.channel = Some(Channel::new(requester, responder, (self.number, reply.number), shared));
        self.become_ready(State::ReadyToReceive);
        self.establish(Vec::from(reply.data));
        // The peer repeats its reply only once, so this end repeats that it is ready until the peer
        // sends something.
        self.ask(now, &Message::ReadyToUse(self.identifiers), shared);
    }

    /// Establishes the connection: both ends are ready.
    pub(crate) fn establish(&mut self, private_data: Vec<u8>) {
        self.answered();
        self.phase = Phase::Established;
        self.become_ready(State::ReadyToSend);
        self.events.push_back(Event::Established { private_data });
    }

    fn become_ready(&mut self, state: State) {
        // A queue pair that has failed meanwhile stays in its state.
        let _: Result<(), rdma::TransitionError> = self.pair.modify(state);
    }

    /// Handles the message that the peer is ready.
    pub(crate) fn on_ready(&mut self) {
        if self.phase == Phase::Accepting {
            self.establish(Vec::new());
        }
    }

    /// Handles the message that the peer needs more time for its answer.
    pub(crate) fn on_more_time(&mut self, now: Instant, code: u8, shared: &Shared) {
        if matches!(self.phase, Phase::Requesting | Phase::Accepting) && self.deadline.is_some() {
            let more = timeout(code).min(MORE_TIME_MAX);
            self.deadline = Some(now + shared.config.response_timeout + more);
        }
    }

    /// Handles the peer's refusal.
    pub(crate) fn on_reject(&mut self, reject: &Reject) {
        let reported = Disconnected::Reported(text_of_reason(reject.reason));
        match self.phase {
            Phase::Requesting if reject.reason == reason::CONSUMER => {
                self.is_reported = true;
                self.events.push_back(Event::Rejected { private_data: Vec::from(reject.data) });
                self.finish(Disconnected::InOrder);
            }
            // A peer that has not received the message that this end is ready gives up.
            Phase::Requesting | Phase::Requested | Phase::Accepting | Phase::Established => {
                self.finish(reported);
            }
            Phase::Disconnecting | Phase::Over => {}
        }
    }

    /// Ends the connection for the user.
    pub(crate) fn disconnect(&mut self, now: Instant, shared: &mut Shared) {
        match self.phase {
            Phase::Requested => self.reject(&[], shared),
            Phase::Requesting => {
                self.refuse(Which::Other, reason::CONSUMER, [0; REJECT_DATA], shared);
                self.finish(Disconnected::InOrder);
            }
            Phase::Accepting | Phase::Established => {
                self.leave(now, shared);
                self.pair.fail(WorkError::Flushed);
            }
            Phase::Disconnecting | Phase::Over => {}
        }
    }

    /// Announces to the peer that the connection is over.
    fn leave(&mut self, now: Instant, shared: &mut Shared) {
        if self.phase == Phase::Accepting {
            // The peer has not shown that it receives messages. It gets one, and need not answer
            // it.
            self.refuse(Which::Reply, reason::TIMEOUT, [0; REJECT_DATA], shared);
            return self.finish(Disconnected::InOrder);
        }
        self.transaction = shared.entropy.next_u64();
        let queue_pair = self.channel.as_ref().map_or(0, |channel| channel.peer);
        self.stop();
        let message = Message::Disconnect(Disconnect { identifiers: self.identifiers, queue_pair });
        self.phase = Phase::Disconnecting;
        self.ask(now, &message, shared);
    }

    /// Ends the connection because of a fault, and reports it to the user and the peer.
    pub(crate) fn fail(&mut self, now: Instant, why: Disconnected, error: WorkError, shared: &mut Shared) {
        if !matches!(self.phase, Phase::Accepting | Phase::Established) {
            return;
        }
        self.is_reported = true;
        self.events.push_back(Event::Disconnected(why));
        self.leave(now, shared);
        self.pair.fail(error);
    }

    /// Stops both halves: the connection neither sends nor accepts packets any more.
    fn stop(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.responder.give_up(&mut self.pair);
            channel.requester.stop();
            channel.limited_until = None;
        }
    }

    /// Finishes a connection whose end the peer knows.
    fn finish(&mut self, why: Disconnected) {
        self.answered();
        self.stop();
        self.pair.fail(WorkError::Flushed);
        if !core::mem::replace(&mut self.is_reported, true) {
            self.events.push_back(Event::Disconnected(why));
        }
        self.phase = Phase::Over;
    }

    /// Ends the connection without informing the peer, because this end has lost its network.
    pub(crate) fn cut(&mut self) {
        if self.phase == Phase::Disconnecting {
            return self.finish(Disconnected::InOrder);
        }
        self.finish(Disconnected::NetworkFailed);
    }

    /// Handles the peer's message that it ends the connection.
    pub(crate) fn on_disconnect(&mut self, transaction: u64, shared: &mut Shared) {
        let message = Message::Disconnected(self.identifiers);
        shared.send(self.peer, &message.emit(transaction));
        if matches!(self.phase, Phase::Accepting | Phase::Established | Phase::Disconnecting) {
            self.finish(Disconnected::InOrder);
        }
    }

    /// Handles the peer's confirmation that the connection is over.
    pub(crate) fn on_disconnected(&mut self) {
        if self.phase == Phase::Disconnecting {
            self.finish(Disconnected::InOrder);
        }
    }

    /// Performs the due actions.
    pub(crate) fn on_time(&mut self, now: Instant, shared: &mut Shared) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.on_silence(now, shared);
        }
        if let Some(channel) = &mut self.channel {
            channel.limited_until.take_if(|at| *at <= now);
        }
        if let Some(channel) = &mut self.channel
            && let Err(error) = channel.requester.on_time(now)
        {
            self.fail(now, Disconnected::TimedOut, error, shared);
        }
    }

    /// Handles a message without a timely answer.
    fn on_silence(&mut self, now: Instant, shared: &mut Shared) {
        self.deadline = None;
        if self.pending.is_some() && self.attempts < shared.config.response_retries {
            self.attempts += 1;
            if self.phase != Phase::Accepting || self.attempts <= UNPROVEN_REPEATS {
                self.repeat(shared);
            }
            let backoff = (1_u64 << self.attempts.min(15)).min(BACKOFF_MAX);
            self.deadline = Some(now + shared.config.response_timeout * backoff);
            return;
        }
        match self.phase {
            // The peer has nothing to send, or reports the packets that it lacks.
            Phase::Established => return self.answered(),
            Phase::Requesting => self.refuse(Which::Other, reason::TIMEOUT, [0; REJECT_DATA], shared),
            Phase::Requested => self.refuse(Which::Request, reason::TIMEOUT, [0; REJECT_DATA], shared),
            Phase::Accepting => self.refuse(Which::Reply, reason::TIMEOUT, [0; REJECT_DATA], shared),
            _ => {}
        }
        let why = match self.phase {
            Phase::Disconnecting => Disconnected::InOrder,
            _ => Disconnected::TimedOut,
        };
        self.finish(why);
    }
}

/// 32 random bits.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is as random as the whole")]
pub(crate) fn random(shared: &mut Shared) -> u32 {
    shared.entropy.next_u64() as u32
}

/// Private data, padded with zeros. Data that do not fit are cut off.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    let length = data.len().min(N);
    filled[..length].copy_from_slice(&data[..length]);
    filled
}
