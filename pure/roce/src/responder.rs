//! The receiving half of a reliable connection. It turns packets in order into messages, writes and
//! answers to reads. It drops repeated packets, and reports all others to the peer.

use alloc::collections::VecDeque;

use engine::{Buffer, BufferMut, Pool};
use rdma::{AccessError, Key, QueuePair, ReceiveRequest, SharedDomain, SharedPool, State, WorkError};

use crate::codes::{NO_CREDITS, credits_code};
use crate::sequence::Sequence;
use crate::wire::{Acknowledge, Head, Header, Packet, Part, Remote, Syndrome};

/// Maximum number of waiting answers other than to RDMA READs.
const ANSWERS_MAX: usize = 64;

/// The negotiated settings that the responder needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The peer's queue pair.
    pub(crate) peer: u32,
    /// The maximum payload of a packet in bytes.
    pub(crate) mtu: usize,
    /// Maximum number of RDMA READs that are answered at a time.
    pub(crate) reads: u8,
    /// The code of the time that the peer waits when no receive request is posted.
    pub(crate) rnr_timer: u8,
    /// Whether acknowledgements report the number of posted receive requests.
    pub(crate) flow_control: bool,
}

/// A fault of the peer that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Protocol(&'static str),
    Access(AccessError),
}

impl Fault {
    const fn syndrome(self) -> Syndrome {
        match self {
            Self::Protocol(_) => Syndrome::InvalidRequest,
            Self::Access(_) => Syndrome::AccessError,
        }
    }
}

/// An incomplete message or RDMA WRITE.
#[derive(Debug)]
enum Incoming {
    Send {
        request: ReceiveRequest,
        place: BufferMut,
        filled: usize,
    },
    /// The rest of an RDMA WRITE.
    Write(Remote),
}

#[derive(Debug)]
enum Answer {
    /// Acknowledges the packet at a position.
    Acknowledge(u64, Syndrome),
    /// The data of an RDMA READ, and the number of packets sent for it.
    Read { first: u64, data: Buffer, sent: u64, is_repeated: bool },
}

/// The responder of a connection.
#[derive(Debug)]
pub(crate) struct Responder {
    settings: Settings,
    sequence: Sequence,
    domain: SharedDomain,
    pool: SharedPool,
    /// The position of the next packet.
    expected: u64,
    /// Number of completed messages (MSN).
    messages: u32,
    incoming: Option<Incoming>,
    answers: VecDeque<Answer>,
    /// The peer was asked to go back. Packets that it has sent before are dropped.
    is_waiting: bool,
    fault: Option<Fault>,
}

impl Responder {
    pub(crate) fn new(
        settings: Settings,
        sequence: Sequence,
        domain: SharedDomain,
        pool: SharedPool,
    ) -> Self {
        Self {
            settings,
            sequence,
            domain,
            pool,
            expected: 0,
            messages: 0,
            incoming: None,
            answers: VecDeque::new(),
            is_waiting: false,
            fault: None,
        }
    }

    /// Handles a request of the peer.
    ///
    /// # Errors
    /// When the peer is at fault. The fault is reported to it, and the connection is over.
    pub(crate) fn on_request(
        &mut self,
        packet: &Packet,
        payload: Buffer,
        pair: &mut QueuePair,
    ) -> Result<(), Fault> {
        let number = packet.base.number;
        let Some(position) = self.sequence.position(number, self.expected) else { return Ok(()) };
        if let Some(fault) = self.fault {
            // The peer may not have received the reason.
            if position >= self.expected {
                self.answer(self.expected, fault.syndrome());
            }
            return Ok(());
        }
        if position > self.expected {
            if !core::mem::replace(&mut self.is_waiting, true) {
                self.answer(self.expected, Syndrome::SequenceError);
            }
            return Ok(());
        }
        if position < self.expected {
            self.repeat(position, packet, pair);
            return Ok(());
        }
        match self.execute(packet, payload, pair) {
            Ok(Executed::Packets(count)) => {
                self.is_waiting = false;
                self.expected += count;
                let is_read = matches!(packet.header, Header::ReadRequest(_));
                if packet.base.acknowledge && !is_read {
                    self.answer(position, Syndrome::Acknowledged(0));
                }
                Ok(())
            }
            Ok(Executed::NotReady) => {
                self.is_waiting = true;
                self.answer(position, Syndrome::NotReady(self.settings.rnr_timer));
                Ok(())
            }
            Err(fault) => {
                self.fault = Some(fault);
                self.give_up(pair);
                self.answer(position, fault.syndrome());
                Err(fault)
            }
        }
    }

    /// Answers a request that was performed before: its answer may be lost.
    fn repeat(&mut self, position: u64, packet: &Packet, pair: &QueuePair) {
        let Header::ReadRequest(remote) = packet.header else {
            self.answer(self.expected - 1, Syndrome::Acknowledged(0));
            return;
        };
        let count = self.packets(remote.length as usize);
        // The peer may have lost its right to this memory. In that case, it has the answer already.
        let data = self.read(remote, pair);
        let is_queued = self.answers.iter().any(|answer| {
            matches!(answer, Answer::Read { first, sent: 0, data: queued, .. }
                if *first == position && queued.len() == remote.length as usize)
        });
        if let Ok(data) = data
            && position + count <= self.expected
            && !is_queued
            && self.reads_waiting() < usize::from(self.settings.reads)
        {
            self.answers.push_back(Answer::Read { first: position, data, sent: 0, is_repeated: true });
        }
    }

    fn reads_waiting(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer, Answer::Read { .. })).count()
    }

    fn packets(&self, length: usize) -> u64 {
        length.div_ceil(self.settings.mtu).max(1) as u64
    }

    fn read(&self, remote: Remote, pair: &QueuePair) -> Result<Buffer, AccessError> {
        match remote.length {
            0 => Ok(Buffer::EMPTY),
            _ => self.domain.borrow_mut().read(pair.id(), remote),
        }
    }

    /// Queues an answer. One acknowledgement covers those before it.
    fn answer(&mut self, position: u64, syndrome: Syndrome) {
        if let (Some(Answer::Acknowledge(at, last)), Syndrome::Acknowledged(_)) =
            (self.answers.back_mut(), syndrome)
            && matches!(last, Syndrome::Acknowledged(_))
        {
            *at = position.max(*at);
            return;
        }
        let answer = Answer::Acknowledge(position, syndrome);
        if self.answers.len() < ANSWERS_MAX + usize::from(self.settings.reads) {
            self.answers.push_back(answer);
        }
    }

    fn execute(&mut self, packet: &Packet, payload: Buffer, pair: &mut QueuePair) -> Result<Executed, Fault> {
        let (part, is_write) = match packet.header {
            Header::Send { part, .. } => (part, false),
            Header::Write { part, .. } => (part, true),
            Header::ReadRequest(remote) => return self.on_read(remote, pair),
            _ => return Err(Fault::Protocol("a request that this end does not implement")),
        };
        let fits = match (&self.incoming, part) {
            (None, Part::First | Part::Only) => true,
            (Some(Incoming::Send { .. }), Part::Middle | Part::Last) => !is_write,
            (Some(Incoming::Write(_)), Part::Middle | Part::Last) => is_write,
            _ => false,
        };
        if !fits {
            return Err(Fault::Protocol("a packet that does not continue the message before it"));
        }
        let mtu = self.settings.mtu;
        let is_right = match part {
            Part::First | Part::Middle => payload.len() == mtu,
            Part::Last => (1..=mtu).contains(&payload.len()),
            Part::Only => payload.len() <= mtu,
        };
        if !is_right {
            return Err(Fault::Protocol("a packet whose length does not fit its position in the message"));
        }
        match packet.header {
            Header::Send { immediate, invalidate, .. } => {
                self.on_send(part, payload, (immediate, invalidate), pair)
            }
            Header::Write { remote, immediate, .. } => {
                self.on_write(part, payload, (remote, immediate), pair)
            }
            _ => Err(Fault::Protocol("a request that this end does not implement")),
        }
    }

    fn on_read(&mut self, remote: Remote, pair: &QueuePair) -> Result<Executed, Fault> {
        if self.incoming.is_some() {
            return Err(Fault::Protocol("a packet that does not continue the message before it"));
        }
        if self.reads_waiting() >= usize::from(self.settings.reads) {
            // A peer that sends a new request no longer needs repeated answers.
            self.answers.retain(|answer| !matches!(answer, Answer::Read { is_repeated: true, .. }));
        }
        if self.reads_waiting() >= usize::from(self.settings.reads) {
            return Err(Fault::Protocol("more RDMA READs at a time than was agreed"));
        }
        let data = self.read(remote, pair).map_err(Fault::Access)?;
        let count = self.packets(data.len());
        self.answers.push_back(Answer::Read { first: self.expected, data, sent: 0, is_repeated: false });
        self.count_message();
        Ok(Executed::Packets(count))
    }

    fn on_send(
        &mut self,
        part: Part,
        payload: Buffer,
        (immediate, invalidate): (Option<u32>, Option<Key>),
        pair: &mut QueuePair,
    ) -> Result<Executed, Fault> {
        let (request, data) = if part.is_first() {
            let Some(request) = pair.take_receive() else { return Ok(Executed::NotReady) };
            let length_max = request.length_max as usize;
            if part == Part::Only && payload.len() <= length_max {
                (request, payload)
            } else {
                let place = self.pool.borrow_mut().take(length_max.min(Pool::LENGTH_MAX));
                self.incoming = Some(Incoming::Send { request, place, filled: 0 });
                return self.append(part, &payload, (immediate, invalidate), pair);
            }
        } else {
            return self.append(part, &payload, (immediate, invalidate), pair);
        };
        self.complete(request, data, (immediate, invalidate), pair)
    }

    /// Adds a packet to the message in progress.
    fn append(
        &mut self,
        part: Part,
        payload: &[u8],
        last: (Option<u32>, Option<Key>),
        pair: &mut QueuePair,
    ) -> Result<Executed, Fault> {
        let Some(Incoming::Send { request, place, filled }) = &mut self.incoming else {
            return Err(Fault::Protocol("a packet that does not continue the message before it"));
        };
        let request = *request;
        let Some(rest) = place.get_mut(*filled..*filled + payload.len()) else {
            self.incoming = None;
            pair.fail_receive(request, WorkError::LocalLength);
            return Err(Fault::Protocol("a message that is longer than its receive request allows"));
        };
        rest.copy_from_slice(payload);
        *filled += payload.len();
        if !part.is_last() {
            return Ok(Executed::Packets(1));
        }
        let Some(Incoming::Send { mut place, filled, .. }) = self.incoming.take() else {
            return Ok(Executed::Packets(1));
        };
        place.truncate(filled);
        let data = self.pool.borrow_mut().seal(place);
        self.complete(request, data, last, pair)
    }

    /// Completes a message.
    fn complete(
        &mut self,
        request: ReceiveRequest,
        data: Buffer,
        (immediate, invalidated): (Option<u32>, Option<Key>),
        pair: &mut QueuePair,
    ) -> Result<Executed, Fault> {
        if let Some(key) = invalidated
            && let Err(error) = self.domain.borrow_mut().invalidate(pair.id(), key)
        {
            pair.fail_receive(request, WorkError::Flushed);
            return Err(Fault::Access(error));
        }
        pair.complete_receive(request, data, invalidated, immediate);
        self.count_message();
        Ok(Executed::Packets(1))
    }

    fn on_write(
        &mut self,
        part: Part,
        payload: Buffer,
        (remote, immediate): (Option<Remote>, Option<u32>),
        pair: &mut QueuePair,
    ) -> Result<Executed, Fault> {
        let rest = match (remote, &self.incoming) {
            (Some(remote), _) => {
                if remote.length > 0 {
                    let allowed = self.domain.borrow_mut().check_write(pair.id(), remote);
                    allowed.map_err(Fault::Access)?;
                }
                remote
            }
            (None, Some(Incoming::Write(rest))) => *rest,
            _ => return Err(Fault::Protocol("an RDMA WRITE without its place")),
        };
        let left = (rest.length as usize).checked_sub(payload.len());
        let left = left.filter(|left| (*left == 0) == part.is_last());
        let left = left.ok_or(Fault::Protocol("an RDMA WRITE that is longer or shorter than announced"))?;
        let receive = match immediate {
            None => None,
            Some(word) => match pair.take_receive() {
                Some(request) => Some((request, word)),
                None => return Ok(Executed::NotReady),
            },
        };
        if !payload.is_empty() {
            // The key may have become invalid since the first packet.
            self.domain.borrow_mut().write(pair.id(), rest, &payload).map_err(Fault::Access)?;
        }
        let address = rest.address.wrapping_add(payload.len() as u64);
        let rest = Remote { address, length: u32::try_from(left).unwrap_or(u32::MAX), ..rest };
        self.incoming = (!part.is_last()).then_some(Incoming::Write(rest));
        if part.is_last() {
            self.count_message();
        }
        if let Some((request, word)) = receive {
            pair.complete_receive(request, Buffer::EMPTY, None, Some(word));
        }
        Ok(Executed::Packets(1))
    }

    const fn count_message(&mut self) {
        self.messages = self.messages.wrapping_add(1) & 0x00ff_ffff;
    }

    /// Gives up the message in progress: the connection is over.
    pub(crate) fn give_up(&mut self, pair: &mut QueuePair) {
        if let Some(Incoming::Send { request, .. }) = self.incoming.take() {
            pair.fail_receive(request, WorkError::Flushed);
        }
    }

    /// Whether the peer was at fault.
    pub(crate) const fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the next packet has data of an RDMA READ.
    pub(crate) fn has_data_next(&self) -> bool {
        matches!(self.answers.front(), Some(Answer::Read { .. }))
    }

    /// Whether only an acknowledgement waits to be sent, which may follow other packets.
    pub(crate) fn only_acknowledges(&self) -> bool {
        let is_alone = self.answers.len() == 1;
        is_alone && matches!(self.answers.front(), Some(Answer::Acknowledge(_, Syndrome::Acknowledged(_))))
    }

    /// The next packet.
    pub(crate) fn poll(&mut self, pair: &QueuePair) -> Option<(Head, Buffer)> {
        let credits = match self.settings.flow_control && pair.state() != State::Error {
            true => credits_code(pair.receives_posted()),
            false => NO_CREDITS,
        };
        let acknowledge = Acknowledge { syndrome: Syndrome::Acknowledged(credits), messages: self.messages };
        let mtu = self.settings.mtu;
        let (position, header, payload, is_done) = match self.answers.front_mut()? {
            Answer::Acknowledge(position, Syndrome::Acknowledged(_)) => {
                (*position, Header::Acknowledge(acknowledge), Buffer::EMPTY, true)
            }
            Answer::Acknowledge(position, syndrome) => {
                let header = Header::Acknowledge(Acknowledge { syndrome: *syndrome, ..acknowledge });
                (*position, header, Buffer::EMPTY, true)
            }
            Answer::Read { first, data, sent, .. } => {
                let start = usize::try_from(*sent).unwrap_or(usize::MAX).saturating_mul(mtu);
                let end = start.saturating_add(mtu).min(data.len());
                let part = Part::of(*sent == 0, end == data.len());
                let acknowledge = (part != Part::Middle).then_some(acknowledge);
                let payload = data.slice(start.min(end)..end);
                let position = *first + *sent;
                *sent += 1;
                (position, Header::ReadResponse { part, acknowledge }, payload, part.is_last())
            }
        };
        if is_done {
            self.answers.pop_front();
        }
        let base = header.base(self.settings.peer, self.sequence.number(position), false);
        Some((Head::new(base, &header), payload))
    }
}

/// The outcome of a request.
enum Executed {
    /// It was performed, and takes this many positions.
    Packets(u64),
    /// No receive request is posted.
    NotReady,
}
