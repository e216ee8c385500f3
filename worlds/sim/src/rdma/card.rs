//! The actions of each card: it fetches requests, sends and receives packets, and completes
//! requests.

use std::rc::Rc;

use engine::{Instant, Nanos};
use network_models::Frame;
use network_models::network::Side;
use network_models::trail::{self, Part};
use rdma::{Disconnected, Done, Event, Operation, PostError, SendRequest, State, WorkCompletion, WorkError};

use super::Link;
use super::half::{Kind, Outstanding, gather};
use super::packet::{ACKNOWLEDGE, Carried, Happening, REQUEST, Word};
use crate::marks::{Cause, Spot};
use crate::models::hca::Card;

/// Time-outs in a row after which a card gives up (retry_cnt).
const RETRIES_MAX: u32 = 7;

/// Why a request cannot be done, which ends the connection.
struct Trouble {
    why: Disconnected,
    error: WorkError,
}

impl From<rdma::AccessError> for Trouble {
    fn from(error: rdma::AccessError) -> Self {
        Self { why: Disconnected::Access(error), error: WorkError::RemoteAccess }
    }
}

impl Link {
    /// Ends the connection at `side`.
    pub(super) fn fail(&mut self, side: Side, error: WorkError, why: Disconnected) {
        let half = self.half(side);
        if half.pair.state() == State::Error {
            return;
        }
        half.pair.fail(error);
        half.domain.release(half.pair.id());
        half.events.push_back(Event::Disconnected(why));
        half.unacknowledged.clear();
        half.outstanding.clear();
        (half.sending, half.retry_at) = (half.next, None);
        let flushed = core::iter::from_fn(|| half.completions.borrow_mut().poll()).collect::<Vec<_>>();
        for completion in flushed {
            self.agenda.put(self.now, Happening::Visible(side, completion, 0, None));
        }
    }

    /// The software of `side` posts a request and rings the doorbell.
    pub(super) fn post(&mut self, side: Side, request: SendRequest) -> Result<(), PostError> {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        let inline = inline_bytes(&half.card, &request.operation);
        // Data in the message that follows are part of its request.
        let waits = half.card.data_in_response && matches!(request.operation, Operation::Write { .. });
        half.pair.post_send(request)?;
        if half.pair.state() != State::ReadyToSend || waits {
            return Ok(());
        }
        let post = half.processor.driver().post;
        let done = half.processor.work(now, post);
        half.cause = self.marks.mark(half.cause, done, Spot::Software(side), Part::Processing, "posting");
        let at = done + half.bus.ring(inline);
        let what = if inline.is_some() { "request and data, with the doorbell" } else { "doorbell" };
        let cause = self.marks.mark(half.cause, at, Spot::Bus(side), Part::Processing, what);
        self.agenda.put(at, Happening::Rung(side, cause));
        Ok(())
    }

    /// The software of `side` takes a completion.
    pub(super) fn reap(&mut self, side: Side) -> Option<WorkCompletion> {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        if half.ready.at()? > now || half.processor.busy_until() > now {
            return None;
        }
        let (noticed, completion, copied, cause) = half.ready.entries.pop_front()?;
        let spot = Spot::Software(side);
        let slept = half.processor.driver().poll < Nanos::MAX;
        let what = if slept { "polling or interrupt" } else { "polling" };
        let cause = self.marks.mark(cause, noticed, spot, Part::Processing, what);
        let cause = self.marks.mark(cause, now, spot, Part::Waiting, "other work");
        let reap = half.processor.driver().reap;
        let done = half.processor.work(now, reap);
        let mut cause = self.marks.mark(cause, done, spot, Part::Processing, "completion");
        if copied > 0 {
            let copy = u64::from(copied) * 1_000_000_000 / half.card.copy_rate.max(1);
            let done = half.processor.work(now, Nanos::new(copy));
            cause = self.marks.mark(cause, done, spot, Part::Processing, "copy of the data");
        }
        half.cause = cause;
        Some(completion)
    }

    /// Something happens at its time.
    pub(super) fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Rung(side, cause) => self.fetch(side, cause),
            Happening::Decoded(side, cause) => self.start(side, cause),
            Happening::Landed(side, word, cause) => self.land(side, word, cause),
            Happening::Again(side, number) => {
                let half = self.half(side);
                half.sending = half.sending.min(number);
            }
            Happening::Visible(side, completion, copied, cause) => {
                let half = self.half(side);
                let at = half.processor.notice(now);
                half.ready.push(at, completion, copied, cause);
            }
        }
    }

    /// The card of `side` fetches the next request, unless it came with the doorbell.
    fn fetch(&mut self, side: Side, cause: Cause) {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        let Some(request) = half.pair.next_send() else { return };
        let (mut at, mut cause) = (now, cause);
        if inline_bytes(&half.card, &request.operation).is_none() {
            at = half.bus.read(now, 64, |_, _| ());
            cause = self.marks.mark(cause, at, Spot::Bus(side), Part::Processing, "fetch of the request");
        }
        let begin = at.max(half.logic_free);
        cause = self.marks.mark(cause, begin, Spot::Card(side), Part::Waiting, "messages before");
        half.logic_free = begin + half.card.occupancy;
        let done = begin + half.card.logic.0;
        cause = self.marks.mark(cause, done, Spot::Card(side), Part::Processing, "logic");
        self.agenda.put(done, Happening::Decoded(side, cause));
    }

    /// The card of `side` begins to send the oldest request.
    fn start(&mut self, side: Side, cause: Cause) {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        let mut operations = Vec::new();
        while let Some(SendRequest { operation, .. }) = half.pair.take_send() {
            let goes_on = half.card.data_in_response && matches!(operation, Operation::Write { .. });
            operations.push(operation);
            if !goes_on {
                break;
            }
        }
        let Some(last) = operations.last() else { return };
        let inline = inline_bytes(&half.card, last).is_some();
        let bytes = operations.iter().map(bytes_of).sum::<u32>();
        let extended = operations.iter().map(extended_of).max().unwrap_or(0);
        let (ready, cause) = if inline && operations.len() == 1 {
            (vec![now], cause)
        } else {
            let ready = gather(half, now, bytes);
            let at = ready.last().copied().unwrap_or(now);
            let what = "fetch of the data";
            (ready, self.marks.mark(cause, at, Spot::Bus(side), Part::Processing, what))
        };
        let kinds: Vec<_> = operations.iter().map(Kind::of).collect();
        half.add(bytes, extended, ready, Carried::Request(operations), cause);
        for kind in kinds {
            half.outstanding.push_back(Outstanding { behind: half.next, kind, done: None });
        }
    }

    /// Sends packets that are ready, as fast as the line allows.
    pub(super) fn pump(&mut self, side: Side) {
        let now = self.now;
        let follow = self.marks.is_on();
        let half = &mut self.halves[side.index()];
        while half.sends_at().is_some_and(|at| at <= now) {
            self.events += 1;
            if let Some(word) = half.words.pop_front() {
                half.enter(now, ACKNOWLEDGE, word, None, false);
                continue;
            }
            let number = half.sending;
            let Some(packet) = half.packet(number) else { break };
            let first = half.unacknowledged.front().map_or(0, |packet| packet.number);
            let (bytes, cause) = (packet.bytes + packet.extended, packet.cause);
            self.statistics.packets += 1;
            let index = usize::try_from(number - first).expect("it was found there");
            let was_sent = std::mem::replace(&mut half.unacknowledged[index].is_sent, true);
            self.statistics.repeated += u64::from(was_sent);
            let spot = Spot::Card(side);
            let cause = self.marks.mark(cause, now, spot, Part::Waiting, "packets before");
            half.enter(now, bytes, Word::Packet(number), cause, follow);
            half.sending += 1;
            let retry = half.card.retry;
            half.retry_at.get_or_insert(now + retry);
        }
    }

    /// Sends everything again that the peer has not acknowledged in time.
    pub(super) fn retry(&mut self, side: Side) {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        if half.retry_at.is_none_or(|at| at > now) {
            return;
        }
        half.retry_at = None;
        if let Some(first) = half.unacknowledged.front()
            && first.number < half.sending
        {
            half.sending = first.number;
            half.retries += 1;
            self.statistics.timeouts += 1;
            if half.retries > RETRIES_MAX {
                self.fail(side, WorkError::RetryExceeded, Disconnected::TimedOut);
            }
        }
    }

    /// Handles a frame of `side` that has arrived at the peer, whose card has decoded it at `at`.
    pub(super) fn arrive(&mut self, side: Side, at: Instant, frame: &Frame) {
        let Some(word) = Word::parse(&frame.payload) else { return };
        let half = &mut self.halves[side.index()];
        let mut cause = None;
        if self.marks.is_on() {
            let crossings: Vec<_> = half.path.crossings().collect();
            for crossing in crossings {
                if let Some((trail, _)) = half.followed.get_mut(&crossing.frame) {
                    trail.crossed(crossing);
                }
            }
            if let Some((trail, began)) = half.followed.remove(&frame.id) {
                cause = began;
                for (hop, part, when) in trail::steps(&trail, &half.path) {
                    cause = self.marks.mark(cause, when, Spot::Hop(side, hop), part, "packet");
                }
            }
        }
        let receiver = side.other();
        let cause = self.marks.mark(cause, at, Spot::Card(receiver), Part::Processing, "logic");
        self.agenda.put(at, Happening::Landed(receiver, word, cause));
    }

    /// Performs on the card of `side` the action of the peer's frame.
    fn land(&mut self, side: Side, word: Word, cause: Cause) {
        match word {
            Word::Packet(number) => self.take(side, number, cause),
            Word::Acknowledge(number) => self.acknowledged(side, number, cause),
            Word::Missing(number) => {
                self.acknowledged(side, number, cause);
                let half = self.half(side);
                half.sending = half.sending.min(number);
            }
            Word::NotReady(number) => {
                self.acknowledged(side, number, cause);
                self.statistics.not_ready += 1;
                // Nothing is sent until the peer may be ready.
                let half = self.half(side);
                let again = half.sending.min(number);
                half.sending = half.next;
                let at = self.now + self.halves[side.index()].card.receiver_not_ready;
                self.agenda.put(at, Happening::Again(side, again));
            }
        }
    }

    /// The peer has all packets before `number`.
    fn acknowledged(&mut self, side: Side, number: u64, cause: Cause) {
        let now = self.now;
        let half = self.half(side);
        let before = half.unacknowledged.len();
        while half.unacknowledged.front().is_some_and(|packet| packet.number < number) {
            half.unacknowledged.pop_front();
        }
        half.sending = half.sending.max(number);
        if half.unacknowledged.len() < before {
            let is_waiting = half.unacknowledged.front().is_some_and(|packet| packet.is_sent);
            half.retry_at = is_waiting.then(|| now + half.card.retry);
            half.retries = 0;
        }
        for one in half.outstanding.iter_mut().take_while(|one| one.behind <= number) {
            let done = match one.kind {
                Kind::Send => Done::Sent,
                Kind::Write => Done::Written,
                Kind::Read => continue,
            };
            one.done.get_or_insert((done, cause));
        }
        self.settle(side);
    }

    /// Completes the requests of `side` that are done, in order.
    fn settle(&mut self, side: Side) {
        let now = self.now;
        let half = &mut self.halves[side.index()];
        while half.outstanding.front().is_some_and(|one| one.done.is_some()) {
            let Some(Outstanding { done: Some((done, cause)), .. }) = half.outstanding.pop_front() else {
                return;
            };
            half.pair.complete_send(done);
            let completion = half.completions.borrow_mut().poll();
            if let Some(completion) = completion {
                let at = half.bus.complete(now);
                let what = "data and completion to memory";
                let cause = self.marks.mark(cause, at, Spot::Bus(side), Part::Processing, what);
                self.agenda.put(at, Happening::Visible(side, completion, 0, cause));
            }
        }
    }

    /// Handles a packet of the peer, which is accepted if it is the next.
    fn take(&mut self, side: Side, number: u64, cause: Cause) {
        let now = self.now;
        let (own, peer) = self.both(side);
        if number != own.expected {
            // Earlier packets are acknowledged again; missing ones are requested once.
            let expected = own.expected;
            if number < expected {
                own.words.push_back(Word::Acknowledge(expected));
            } else if !std::mem::replace(&mut own.has_complained, true) {
                own.words.push_back(Word::Missing(expected));
            }
            return;
        }
        let Some(packet) = peer.packet(number) else { return };
        let (bytes, carried) = (packet.bytes, packet.carried.clone());
        if let Some(Carried::Request(operations)) = &carried
            && operations.iter().any(|operation| matches!(operation, Operation::Send { .. }))
            && own.pair.receives_posted() == 0
        {
            own.words.push_back(Word::NotReady(number));
            return;
        }
        own.expected += 1;
        own.has_complained = false;
        if bytes > 0 {
            own.bus.write(now, bytes);
        }
        let Some(carried) = carried else { return };
        own.words.push_back(Word::Acknowledge(own.expected));
        match carried {
            Carried::Answer(data) => {
                let read =
                    own.outstanding.iter_mut().find(|one| one.kind == Kind::Read && one.done.is_none());
                if let Some(read) = read {
                    read.done = Some((Done::Read(data), cause));
                }
                self.settle(side);
            }
            Carried::Request(operations) => {
                let copied = operations.len() > 1;
                let copied = if copied { operations.iter().map(bytes_of).sum() } else { 0 };
                for operation in operations {
                    if let Err(Trouble { why, error }) = self.perform(side, operation, copied, cause) {
                        let reported = Disconnected::Reported("it cannot perform the request");
                        self.fail(side, WorkError::Flushed, why);
                        return self.fail(side.other(), error, reported);
                    }
                }
            }
        }
    }

    /// Does `operation` of the peer at `side`.
    fn perform(
        &mut self,
        side: Side,
        operation: Operation,
        copied: u32,
        cause: Cause,
    ) -> Result<(), Trouble> {
        let (now, pool) = (self.now, Rc::clone(&self.pool));
        let half = &mut self.halves[side.index()];
        let owner = half.pair.id();
        match operation {
            Operation::Write { data, remote } => {
                half.domain.write(owner, remote, &data)?;
            }
            Operation::Read { remote } => {
                let data = half.domain.read(owner, remote)?;
                let ready = gather(half, now, remote.length);
                let at = ready.last().copied().unwrap_or(now);
                let what = "fetch of the data";
                let cause = self.marks.mark(cause, at, Spot::Bus(side), Part::Processing, what);
                half.add(remote.length, ACKNOWLEDGE, ready, Carried::Answer(data), cause);
            }
            Operation::Send { inline, data, invalidate, immediate } => {
                let length = inline.len() + data.len();
                let request = half.pair.take_receive().ok_or(Trouble {
                    why: Disconnected::PeerFault("a message arrived without a posted receive request"),
                    error: WorkError::ReceiverNotReady,
                })?;
                if length > request.length_max as usize {
                    half.pair.fail_receive(request, WorkError::LocalLength);
                    return Err(Trouble {
                        why: Disconnected::PeerFault("a message is longer than its receive request"),
                        error: WorkError::RemoteInvalidRequest,
                    });
                }
                if let Some(key) = invalidate {
                    half.domain.invalidate(owner, key)?;
                }
                let mut message = pool.borrow_mut().take(length);
                message[..inline.len()].copy_from_slice(&inline);
                message[inline.len()..].copy_from_slice(&data);
                let message = pool.borrow_mut().seal(message);
                half.pair.complete_receive(request, message, invalidate, immediate);
                let completion = half.completions.borrow_mut().poll();
                let at = half.bus.complete(now);
                let what = "data and completion to memory";
                let cause = self.marks.mark(cause, at, Spot::Bus(side), Part::Processing, what);
                if let Some(completion) = completion {
                    self.agenda.put(at, Happening::Visible(side, completion, copied, cause));
                }
            }
        }
        Ok(())
    }
}

/// Number of bytes of a request that goes with the doorbell, besides its own line; `None` if the
/// card fetches it.
fn inline_bytes(card: &Card, operation: &Operation) -> Option<u32> {
    let bytes = bytes_of(operation);
    (card.inline_max > 0 && bytes <= card.inline_max).then_some(bytes)
}

/// Bytes of payload that an operation sends.
fn bytes_of(operation: &Operation) -> u32 {
    let bytes = match operation {
        Operation::Send { inline, data, .. } => inline.len() + data.len(),
        Operation::Write { data, .. } => data.len(),
        Operation::Read { .. } => 0,
    };
    u32::try_from(bytes).expect("a message is shorter than the endpoint's limit")
}

/// Bytes of extended headers of an operation's first packet.
const fn extended_of(operation: &Operation) -> u32 {
    match operation {
        Operation::Write { .. } | Operation::Read { .. } => REQUEST,
        Operation::Send { invalidate: Some(_), .. } | Operation::Send { immediate: Some(_), .. } => 4,
        Operation::Send { .. } => 0,
    }
}
