//! A connection: how it is made and ended, and its queue pair.

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

/// Messages of connection management that wait to be sent. Those beyond are dropped; whoever needs
/// them asks again.
const MESSAGES_MAX: usize = 1024;
/// How long the user of this end may think about a request.
const DECISION_TIME: Nanos = Nanos::from_secs(60);
/// The code of the time that a peer is asked to wait meanwhile: 4 s.
const DECISION_CODE: u8 = 20;
/// A message is repeated after up to this many times the first time-out.
const BACKOFF_MAX: u64 = 8;
/// How often a reply is repeated before the peer shows that it gets what this end sends. A request
/// may carry the address of another machine. That machine gets three messages for it at most: the
/// reply, its repetition, and the refusal.
const UNPROVEN_REPEATS: u8 = 1;
/// The code of the time-out that peers are told for their own messages: 268 ms.
const RESPONSE_CODE: u8 = 16;
/// The longest time that a peer can ask for: longer than any user waits.
const MORE_TIME_MAX: Nanos = Nanos::from_secs(60);

/// What all connections of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) domain: SharedDomain,
    pub(crate) pool: SharedPool,
    pub(crate) entropy: Entropy,
    /// The number of this channel adapter (GUID).
    pub(crate) adapter: u64,
    /// Messages to be sent, and whereto.
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

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// This end has sent its request, and waits for a reply.
    Requesting,
    /// The peer has sent a request; the user has not decided.
    Requested,
    /// This end has replied, and waits until the peer is ready to use the connection.
    Accepting,
    Established,
    /// This end has told the peer that the connection is over.
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
    /// Nobody has a handle of it, and nobody will.
    pub(crate) is_orphan: bool,
    /// It waits for its turn to send.
    pub(crate) is_ready: bool,
    /// When the device looks after it.
    pub(crate) wake: Option<Instant>,
    /// The first packet sequence number that this end expects: it tells the peer which to send.
    number: u32,
    /// What the peer has asked for.
    request: Option<Request>,
    transaction: u64,
    /// The message that is repeated until it is answered.
    pending: Option<Buffer>,
    attempts: u8,
    deadline: Option<Instant>,
    /// The user knows that the connection is over.
    is_told: bool,
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
            is_told: false,
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

    /// Whether it counts as half open.
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

    /// A message that was sent at a time that has passed waits for its answer from now on.
    pub(crate) fn refresh(&mut self, now: Instant, shared: &Shared) {
        if self.pending.is_some() && self.attempts == 0 {
            self.deadline = Some(now + shared.config.response_timeout);
        }
    }

    /// Sends a message once.
    fn tell(&self, message: &Message, shared: &mut Shared) {
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

    /// Asks for a connection to `port` of the peer.
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

    /// The peer has asked for this connection.
    pub(crate) fn on_request(&mut self, now: Instant, transaction: u64, request: &Request) {
        self.transaction = transaction;
        self.request = Some(*request);
        self.deadline = Some(now + DECISION_TIME);
        self.events.push_back(Event::Requested { private_data: Vec::from(request.data) });
    }

    /// The peer asks again: the answer may be lost.
    pub(crate) fn on_repeated_request(&self, shared: &mut Shared) {
        match self.phase {
            Phase::Requested => {
                let message = Message::MoreTime(self.identifiers, Which::Request, DECISION_CODE);
                self.tell(&message, shared);
            }
            Phase::Accepting => self.repeat(shared),
            _ => {}
        }
    }

    /// The user accepts the connection.
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

    /// The user refuses the connection.
    pub(crate) fn reject(&mut self, private_data: &[u8], shared: &mut Shared) {
        if self.phase != Phase::Requested {
            return;
        }
        self.refuse(Which::Request, reason::CONSUMER, filled(private_data), shared);
        self.phase = Phase::Over;
        self.is_told = true;
        self.answered();
        self.pair.fail(WorkError::Flushed);
    }

    fn refuse(&self, which: Which, reason: u16, data: [u8; REJECT_DATA], shared: &mut Shared) {
        let identifiers = self.identifiers;
        let reject = Reject { identifiers, which, reason, information: 0, data };
        shared.refuse(self.peer, self.transaction, &reject);
    }

    /// The peer accepts the connection.
    pub(crate) fn on_reply(&mut self, now: Instant, reply: &Reply, shared: &mut Shared) {
        match self.phase {
            Phase::Requesting => {}
            // It has not heard that this end is ready.
            Phase::Established if reply.identifiers.local == self.identifiers.remote => {
                self.tell(&Message::ReadyToUse(self.identifiers), shared);
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
        // The peer repeats its reply once only, so this end says again that it is ready until the
        // peer sends something.
        self.ask(now, &Message::ReadyToUse(self.identifiers), shared);
    }

    /// Both ends are ready.
    pub(crate) fn establish(&mut self, private_data: Vec<u8>) {
        self.answered();
        self.phase = Phase::Established;
        self.become_ready(State::ReadyToSend);
        self.events.push_back(Event::Established { private_data });
    }

    fn become_ready(&mut self, state: State) {
        // A queue pair that failed meanwhile stays as it is.
        let _: Result<(), rdma::TransitionError> = self.pair.modify(state);
    }

    /// The peer is ready to use the connection.
    pub(crate) fn on_ready(&mut self) {
        if self.phase == Phase::Accepting {
            self.establish(Vec::new());
        }
    }

    /// The peer needs more time for its answer.
    pub(crate) fn on_more_time(&mut self, now: Instant, code: u8, shared: &Shared) {
        if matches!(self.phase, Phase::Requesting | Phase::Accepting) && self.deadline.is_some() {
            let more = timeout(code).min(MORE_TIME_MAX);
            self.deadline = Some(now + shared.config.response_timeout + more);
        }
    }

    /// The peer refuses the connection.
    pub(crate) fn on_reject(&mut self, reject: &Reject) {
        let reported = Disconnected::Reported(text_of_reason(reject.reason));
        match self.phase {
            Phase::Requesting if reject.reason == reason::CONSUMER => {
                self.is_told = true;
                self.events.push_back(Event::Rejected { private_data: Vec::from(reject.data) });
                self.finish(Disconnected::InOrder);
            }
            // A peer that has not heard that this end is ready gives up.
            Phase::Requesting | Phase::Requested | Phase::Accepting | Phase::Established => {
                self.finish(reported);
            }
            Phase::Disconnecting | Phase::Over => {}
        }
    }

    /// The user ends the connection.
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

    /// Tells the peer that the connection is over.
    fn leave(&mut self, now: Instant, shared: &mut Shared) {
        if self.phase == Phase::Accepting {
            // It has not shown that it gets messages, so it gets one, and no answer is awaited.
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

    /// The connection is over because of a fault: the user and the peer are told.
    pub(crate) fn fail(&mut self, now: Instant, why: Disconnected, error: WorkError, shared: &mut Shared) {
        if !matches!(self.phase, Phase::Accepting | Phase::Established) {
            return;
        }
        self.is_told = true;
        self.events.push_back(Event::Disconnected(why));
        self.leave(now, shared);
        self.pair.fail(error);
    }

    /// Nothing more is sent or taken.
    fn stop(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.responder.give_up(&mut self.pair);
            channel.requester.stop();
            channel.limited_until = None;
        }
    }

    /// The connection is over, and the peer knows.
    fn finish(&mut self, why: Disconnected) {
        self.answered();
        self.stop();
        self.pair.fail(WorkError::Flushed);
        if !core::mem::replace(&mut self.is_told, true) {
            self.events.push_back(Event::Disconnected(why));
        }
        self.phase = Phase::Over;
    }

    /// The network of this end has failed: the connection is over, and the peer is not told.
    pub(crate) fn cut(&mut self) {
        if self.phase == Phase::Disconnecting {
            return self.finish(Disconnected::InOrder);
        }
        self.finish(Disconnected::NetworkFailed);
    }

    /// The peer ends the connection.
    pub(crate) fn on_disconnect(&mut self, transaction: u64, shared: &mut Shared) {
        let message = Message::Disconnected(self.identifiers);
        shared.send(self.peer, &message.emit(transaction));
        if matches!(self.phase, Phase::Accepting | Phase::Established | Phase::Disconnecting) {
            self.finish(Disconnected::InOrder);
        }
    }

    /// The peer knows that the connection is over.
    pub(crate) fn on_disconnected(&mut self) {
        if self.phase == Phase::Disconnecting {
            self.finish(Disconnected::InOrder);
        }
    }

    /// Does what is due.
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

    /// A message was not answered in time.
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
            // The peer has nothing to send, or will say what it lacks.
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

/// Private data, with zeros behind it. What does not fit is cut off.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    let length = data.len().min(N);
    filled[..length].copy_from_slice(&data[..length]);
    filled
}
