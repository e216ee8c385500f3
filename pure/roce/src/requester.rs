//! The sending half of a reliable connection. It turns requests into packets, keeps those until
//! they are acknowledged, and repeats them from the first missing one (go-back-N).

use alloc::collections::VecDeque;

use engine::{Buffer, BufferMut, Instant, Nanos};
use rdma::{Done, Inline, Key, Operation, QueuePair, SharedPool, WorkError};

use crate::codes::{credits, rnr_time};
use crate::sequence::{Sequence, is_within};
use crate::wire::{Acknowledge, Head, Header, Part, Remote, Syndrome};

/// Maximum number of bytes that a queue pair has sent or requested without acknowledgement.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;
/// A longer RDMA READ is issued in pieces of this many bytes, so that the requested bytes fit into
/// the window.
pub(crate) const READ_BYTES: u32 = 32 << 10;
/// One of this many packets requests an acknowledgement.
const ACKNOWLEDGE_EVERY: u64 = 16;
/// When no user waits for the sent packets, the requester requests an acknowledgement after this
/// part of the time-out at the latest.
const ASK_WITHIN: u64 = 4;
/// The time-out doubles with each repetition, up to this many times.
const BACKOFF_MAX: u32 = 4;
/// The retry count without limit.
const RETRY_FOREVER: u8 = 7;

/// The negotiated settings that the requester needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The peer's queue pair.
    pub(crate) peer: u32,
    /// The maximum payload of a packet in bytes.
    pub(crate) mtu: usize,
    /// Maximum number of outstanding RDMA READs.
    pub(crate) reads: u8,
    /// The time after which packets are repeated.
    pub(crate) ack_timeout: Nanos,
    /// How often packets are repeated without any progress.
    pub(crate) retries: u8,
    /// How often a message is repeated while the peer has no receive request.
    pub(crate) rnr_retries: u8,
}

#[derive(Debug)]
enum Work {
    Send { inline: Inline, data: Buffer, invalidate: Option<Key>, immediate: Option<u32> },
    Write { data: Buffer, remote: Remote },
    Read(Remote),
}

/// A message on the wire: a request, or a part of an RDMA READ.
#[derive(Debug)]
struct Segment {
    work: Work,
    /// The position of the first packet.
    first: u64,
    /// The number of packets; for an RDMA READ, of response packets.
    count: u64,
    /// Number of bytes of the request before this segment, and in it.
    offset: usize,
    length: usize,
    /// Length of the whole request in bytes.
    total: usize,
    /// The number of the message (SSN).
    number: u32,
    /// The request has no completion that a user waits for.
    is_quiet: bool,
}

impl Segment {
    const fn is_read(&self) -> bool {
        matches!(self.work, Work::Read(_))
    }

    const fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Whether this segment is the last of its request.
    const fn is_last(&self) -> bool {
        self.offset + self.length >= self.total
    }
}

/// The requester of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    settings: Settings,
    sequence: Sequence,
    pool: SharedPool,
    segments: VecDeque<Segment>,
    /// The position after the last packet of all segments.
    end: u64,
    /// The position of the oldest packet that is not acknowledged.
    unacknowledged: u64,
    /// The position of the packet that is sent next. It goes back when packets are repeated.
    next: u64,
    /// The position after the latest packet ever sent.
    sent: u64,
    /// The number of the next message (SSN).
    message: u32,
    /// The number of the last message that the peer has room for (LSN), if it is known.
    limit: Option<u32>,
    /// The arrived part of the RDMA READ that is being answered.
    place: Option<BufferMut>,
    retries: u8,
    rnr_retries: u8,
    /// Packets were repeated, and none was acknowledged since.
    is_recovering: bool,
    timer: Option<Instant>,
    /// When to request an acknowledgement of packets that did not request one.
    ask_at: Option<Instant>,
    /// The request is due: the next packet asks for it. Without one, the last packet is sent again.
    must_ask: bool,
    /// The peer was not ready: nothing is sent before this time.
    blocked: Option<Instant>,
    repeated: u64,
}

impl Requester {
    pub(crate) fn new(settings: Settings, sequence: Sequence, pool: SharedPool) -> Self {
        Self {
            settings,
            sequence,
            pool,
            segments: VecDeque::new(),
            end: 0,
            unacknowledged: 0,
            next: 0,
            sent: 0,
            message: 1,
            limit: None,
            place: None,
            retries: 0,
            rnr_retries: 0,
            is_recovering: false,
            timer: None,
            ask_at: None,
            must_ask: false,
            blocked: None,
            repeated: 0,
        }
    }

    /// When [`Self::on_time`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::earlier(Instant::earlier(self.timer, self.blocked), self.ask_at)
    }

    /// The number of packets that were sent again.
    pub(crate) const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Maximum number of unacknowledged positions.
    const fn window(&self) -> u64 {
        (WINDOW_BYTES / self.settings.mtu) as u64
    }

    /// The next packet, if one may be sent.
    pub(crate) fn poll(&mut self, now: Instant, pair: &mut QueuePair) -> Option<(Head, Buffer)> {
        if self.blocked.is_some_and(|until| until > now) {
            return None;
        }
        self.blocked = None;
        self.poll_next(now, pair).or_else(|| self.ask())
    }

    fn poll_next(&mut self, now: Instant, pair: &mut QueuePair) -> Option<(Head, Buffer)> {
        if self.next == self.end {
            self.take(pair)?;
        }
        if self.next + 1 == self.end {
            // The next request decides whether the last packet requests an acknowledgement.
            let _: Option<()> = self.take(pair);
        }
        let index = self.segments.partition_point(|segment| segment.end() <= self.next);
        let segment = self.segments.get(index)?;
        let at = self.next - segment.first;
        let count = if segment.is_read() { segment.count - at } else { 1 };
        let under_way = self.next - self.unacknowledged;
        if under_way > 0 && under_way + count > self.window() {
            return None;
        }
        if segment.is_read() {
            let open = self.segments.iter().take(index).filter(|segment| segment.is_read()).count();
            if open >= usize::from(self.settings.reads.max(1)) {
                return None;
            }
        }
        if at == 0 && under_way > 0 && self.is_limited(segment) {
            return None;
        }
        let is_full = under_way + count + 1 > self.window();
        let is_carried = self.next >= self.sent
            && under_way + count + ACKNOWLEDGE_EVERY <= self.window()
            && matches!(segment.work, Work::Write { .. })
            && self.segments.get(index + 1).is_some_and(|next| !next.is_read() && !self.is_limited(next));
        let is_patient =
            is_carried || segment.is_quiet && self.next >= self.sent && !self.is_scarce(segment, pair);
        let wants_answer = self.must_ask
            || at + 1 == segment.count && !is_patient
            || is_full
            || self.is_limited(segment)
            || self.next % ACKNOWLEDGE_EVERY == ACKNOWLEDGE_EVERY - 1;
        let packet = self.packet(segment, self.next, wants_answer);
        if wants_answer || segment.is_read() {
            self.ask_at = None;
            self.must_ask = false;
        } else {
            self.ask_at.get_or_insert(now + self.settings.ack_timeout / ASK_WITHIN);
        }
        if self.next < self.sent {
            self.repeated += 1;
        }
        self.next += count;
        self.sent = self.sent.max(self.next);
        if self.timer.is_none() {
            self.timer = Some(now + self.timeout());
        }
        Some(packet)
    }

    /// Sends the last packet again if a request for an acknowledgement is due and there is no other
    /// packet. The peer acknowledges it, or reports the packets that it lacks.
    fn ask(&mut self) -> Option<(Head, Buffer)> {
        if !self.must_ask || self.next < self.sent {
            return None;
        }
        self.must_ask = false;
        let last = self.sent.checked_sub(1).filter(|last| *last >= self.unacknowledged)?;
        let index = self.segments.partition_point(|segment| segment.end() <= last);
        let segment = self.segments.get(index)?;
        self.repeated += 1;
        Some(self.packet(segment, last, true))
    }

    /// Whether the send queue of this end is nearly full, or the peer nearly out of receive
    /// requests. Only an acknowledgement frees places in the queue and reports more receive
    /// requests.
    fn is_scarce(&self, segment: &Segment, pair: &QueuePair) -> bool {
        let next = segment.number.wrapping_add(1) & 0x00ff_ffff;
        pair.is_half_full() || self.limit.is_some_and(|limit| !is_within(next, limit))
    }

    /// Whether the peer has reported that it has no receive request for a message.
    fn is_limited(&self, segment: &Segment) -> bool {
        matches!(segment.work, Work::Send { .. })
            && self.limit.is_some_and(|limit| !is_within(segment.number, limit))
    }

    fn timeout(&self) -> Nanos {
        self.settings.ack_timeout * (1 << u32::from(self.retries).min(BACKOFF_MAX))
    }

    /// Takes the next request from the queue pair, and divides it into segments.
    fn take(&mut self, pair: &mut QueuePair) -> Option<()> {
        let request = pair.take_send()?;
        let is_quiet = !request.signalled;
        match request.operation {
            Operation::Send { inline, data, invalidate, immediate } => {
                let total = inline.len() + data.len();
                let work = Work::Send { inline, data, invalidate, immediate };
                self.push(work, (0, total, total), is_quiet);
            }
            Operation::Write { data, remote } => {
                let total = data.len();
                self.push(Work::Write { data, remote }, (0, total, total), is_quiet);
            }
            Operation::Read { remote } => {
                let total = remote.length as usize;
                let mut offset = 0;
                loop {
                    let length = (remote.length - offset).min(READ_BYTES);
                    let address = remote.address.wrapping_add(offset.into());
                    let work = Work::Read(Remote { address, length, ..remote });
                    self.push(work, (offset as usize, length as usize, total), false);
                    offset += length;
                    if offset >= remote.length {
                        break;
                    }
                }
            }
        }
        Some(())
    }

    fn push(&mut self, work: Work, (offset, length, total): (usize, usize, usize), is_quiet: bool) {
        let count = length.div_ceil(self.settings.mtu).max(1) as u64;
        let number = self.message;
        self.message = self.message.wrapping_add(1) & 0x00ff_ffff;
        let first = self.end;
        self.segments.push_back(Segment { work, first, count, offset, length, total, number, is_quiet });
        self.end += count;
    }

    /// The packet of `segment` at `position`. `wants_answer` sets its request for an
    /// acknowledgement.
    fn packet(&self, segment: &Segment, position: u64, wants_answer: bool) -> (Head, Buffer) {
        let mtu = self.settings.mtu;
        let at = position - segment.first;
        let part = Part::of(at == 0, at + 1 == segment.count);
        let start = usize::try_from(at).unwrap_or(usize::MAX).saturating_mul(mtu);
        let mut before: &[u8] = &[];
        let (header, payload) = match &segment.work {
            Work::Send { inline, data, invalidate, immediate } => {
                // Inline data is shorter than any packet.
                let end = (start + mtu).min(segment.total);
                if at == 0 {
                    before = inline;
                }
                let payload = data.slice(start.saturating_sub(inline.len())..end - inline.len());
                let last = part.is_last();
                let immediate = immediate.filter(|_| last);
                let invalidate = invalidate.filter(|_| last);
                (Header::Send { part, immediate, invalidate }, payload)
            }
            Work::Write { data, remote } => {
                let payload = data.slice(start..(start + mtu).min(data.len()));
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let remote = part.is_first().then_some(Remote { length, ..*remote });
                (Header::Write { part, remote, immediate: None }, payload)
            }
            Work::Read(remote) => {
                let skip = u32::try_from(start).unwrap_or(u32::MAX);
                let address = remote.address.wrapping_add(skip.into());
                let rest = Remote { address, length: remote.length.saturating_sub(skip), ..*remote };
                (Header::ReadRequest(rest), Buffer::EMPTY)
            }
        };
        let number = self.sequence.number(position);
        let mut head = Head::new(header.base(self.settings.peer, number, wants_answer), &header);
        head.put(before);
        (head, payload)
    }

    /// Repeats from the oldest unacknowledged packet.
    const fn go_back(&mut self) {
        self.next = self.unacknowledged;
        self.is_recovering = true;
    }

    /// Notes that packets before `position` have arrived. Stops before an unanswered RDMA READ.
    /// Returns whether it reached `position`.
    fn advance(&mut self, now: Instant, position: u64, pair: &mut QueuePair) -> bool {
        let before = self.unacknowledged;
        while let Some(segment) = self.segments.front() {
            if position <= self.unacknowledged {
                break;
            }
            if segment.is_read() {
                self.progress(now, before);
                return false;
            }
            self.unacknowledged = position.min(segment.end());
            if self.unacknowledged == segment.end() {
                let (done, last) = match segment.work {
                    Work::Write { .. } => (Done::Written, segment.is_last()),
                    _ => (Done::Sent, segment.is_last()),
                };
                self.segments.pop_front();
                if last {
                    pair.complete_send(done);
                }
            }
        }
        self.progress(now, before);
        true
    }

    /// Restarts counts and timers if something was acknowledged.
    fn progress(&mut self, now: Instant, before: u64) {
        if self.unacknowledged == before {
            return;
        }
        self.next = self.next.max(self.unacknowledged);
        self.retries = 0;
        self.rnr_retries = 0;
        self.is_recovering = false;
        self.timer = (self.unacknowledged < self.sent).then(|| now + self.timeout());
        if self.timer.is_none() {
            self.ask_at = None;
            self.must_ask = false;
        }
    }

    /// Handles an acknowledgement of the peer, positive or negative.
    ///
    /// # Errors
    /// When the connection is over.
    pub(crate) fn on_acknowledge(
        &mut self,
        now: Instant,
        number: u32,
        acknowledge: Acknowledge,
        pair: &mut QueuePair,
    ) -> Result<(), WorkError> {
        // Only sent packets can be acknowledged: any other acknowledgement is of another
        // connection.
        let position = self.sequence.position(number, self.unacknowledged).filter(|at| *at < self.sent);
        let Some(position) = position else { return Ok(()) };
        let Acknowledge { syndrome, messages } = acknowledge;
        if let Syndrome::Acknowledged(code) = syndrome {
            if position + 1 >= self.unacknowledged {
                self.limit = credits(code).map(|credits| messages.wrapping_add(credits) & 0x00ff_ffff);
            }
            if position >= self.unacknowledged
                && !self.advance(now, position + 1, pair)
                && !self.is_recovering
            {
                self.go_back();
            }
            return Ok(());
        }
        if position < self.unacknowledged {
            return Ok(());
        }
        let reached = self.advance(now, position, pair);
        match syndrome {
            Syndrome::NotReady(code) if reached => {
                if self.settings.rnr_retries != RETRY_FOREVER {
                    if self.rnr_retries >= self.settings.rnr_retries {
                        return Err(WorkError::ReceiverNotReady);
                    }
                    self.rnr_retries += 1;
                }
                self.go_back();
                self.blocked = Some(now + rnr_time(code));
                self.timer = None;
            }
            Syndrome::InvalidRequest if reached => return Err(WorkError::RemoteInvalidRequest),
            Syndrome::AccessError if reached => return Err(WorkError::RemoteAccess),
            Syndrome::OperationError if reached => return Err(WorkError::RemoteOperation),
            Syndrome::Other(_) if reached => return Err(WorkError::BadResponse),
            // A packet or an answer to an RDMA READ is missing.
            _ if !self.is_recovering => self.go_back(),
            _ => {}
        }
        Ok(())
    }

    /// Handles a part of the answer to an RDMA READ.
    ///
    /// # Errors
    /// When the answer is unexpected.
    pub(crate) fn on_read_response(
        &mut self,
        now: Instant,
        number: u32,
        part: Part,
        payload: Buffer,
        pair: &mut QueuePair,
    ) -> Result<(), WorkError> {
        let position = self.sequence.position(number, self.unacknowledged).filter(|at| *at < self.sent);
        let Some(position) = position.filter(|at| *at >= self.unacknowledged) else { return Ok(()) };
        self.advance(now, position, pair);
        if self.unacknowledged != position {
            // Answers before this one are missing.
            if !self.is_recovering {
                self.go_back();
            }
            return Ok(());
        }
        let mtu = self.settings.mtu;
        let segment = self.segments.front().filter(|segment| segment.is_read());
        let segment = segment.ok_or(WorkError::BadResponse)?;
        let at = usize::try_from(position - segment.first).map_err(|_| WorkError::BadResponse)?;
        let rest = segment.length.saturating_sub(at * mtu);
        let is_last = position + 1 == segment.end();
        // The answer to a read that was repeated from within begins there with a first part.
        if part.is_last() != is_last || payload.len() != rest.min(mtu) {
            return Err(WorkError::BadResponse);
        }
        let (total, is_done) = (segment.total, is_last && segment.is_last());
        let start = segment.offset + at * mtu;
        if payload.len() < total {
            let place = self.place.get_or_insert_with(|| self.pool.borrow_mut().take(total));
            place[start..start + payload.len()].copy_from_slice(&payload);
        }
        let before = self.unacknowledged;
        self.unacknowledged += 1;
        if is_last {
            self.segments.pop_front();
        }
        self.progress(now, before);
        if is_done {
            let data = self.place.take().map_or(payload, |place| self.pool.borrow_mut().seal(place));
            pair.complete_send(Done::Read(data));
        }
        Ok(())
    }

    /// Disarms all deadlines: the connection is over.
    pub(crate) fn stop(&mut self) {
        self.timer = None;
        self.ask_at = None;
        self.must_ask = false;
        self.blocked = None;
        self.segments.clear();
        self.place = None;
        self.next = self.end;
    }

    /// Repeats packets without timely acknowledgement.
    ///
    /// # Errors
    /// When all retries are used up.
    pub(crate) fn on_time(&mut self, now: Instant) -> Result<(), WorkError> {
        self.blocked.take_if(|until| *until <= now);
        self.must_ask |= self.ask_at.take_if(|at| *at <= now).is_some();
        if self.timer.take_if(|at| *at <= now).is_none() {
            return Ok(());
        }
        if self.retries >= self.settings.retries {
            return Err(WorkError::RetryExceeded);
        }
        self.retries += 1;
        self.go_back();
        self.timer = Some(now + self.timeout());
        Ok(())
    }
}
