//! The sending half of an end: the choice and the times of transmissions and retransmissions.

use engine::{Instant, Nanos};

use super::congestion::Window;
use super::rtt::RoundTrip;
use super::scoreboard::{DUPLICATES, News, Scoreboard};
use super::segment::{Range, Sequence};
use super::{Parameters, Statistics};

/// Maximum multiple of a quarter round trip that reordering may take (RFC 8985, section 6.2, step
/// 4).
const REORDER_MULTIPLE_MAX: u64 = 64;
/// Number of recoveries after which a larger multiple is forgotten (RFC 8985, section 6.2, step 4).
const REORDER_RECOVERIES: u32 = 16;

/// A piece to send: bytes from `start` on, and the FIN behind them if `fin` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: Sequence,
    pub(super) length: u32,
    pub(super) fin: bool,
}

/// The effect of an acknowledgement on the sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged<'a> {
    pub(super) number: Sequence,
    pub(super) window: u32,
    pub(super) blocks: &'a [Range],
    /// Whether the acknowledgement came with data or a FIN, so that it is not a duplicate.
    pub(super) carries: bool,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No segment is known to be lost.
    Open,
    /// Fast recovery: proportional rate reduction shrinks the window (RFC 6937).
    Recovery(Reduction),
    /// After a timeout, until this number is acknowledged.
    Timeout(Sequence),
}

#[derive(Clone, Copy, Debug)]
struct Reduction {
    /// Recovery ends when this number is acknowledged.
    point: Sequence,
    /// The window at the beginning of recovery, and the window at its end.
    prior: u32,
    threshold: u32,
    delivered: u32,
    sent: u32,
}

/// A probe that was sent (RFC 8985, section 7: TLP.end_seq, TLP.is_retrans).
#[derive(Clone, Copy, Debug)]
struct Tail {
    end: Sequence,
    again: bool,
}

/// The sending half of an end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    parameters: Parameters,
    segment_max: u32,
    /// The lowest number that is not acknowledged.
    unacknowledged: Sequence,
    /// The next number to be sent.
    next: Sequence,
    /// The number after the last byte from the application.
    written: Sequence,
    /// Whether the application sends nothing more, so that a FIN follows.
    finished: bool,
    /// The number after the last one that the peer has room for, and the largest window seen.
    edge: Sequence,
    window_max: u32,
    board: Scoreboard,
    window: Window,
    trip: RoundTrip,
    phase: Phase,
    /// Number of duplicate acknowledgements, if there are no selective ones.
    duplicates: u32,
    /// Duplicates start no recovery before this number (RFC 6582, section 3.2).
    recovered: Sequence,
    backoff: u32,
    timeout_at: Option<Instant>,
    probe_at: Option<Instant>,
    reorder_at: Option<Instant>,
    persist_at: Option<Instant>,
    tail: Option<Tail>,
    probe_due: bool,
    persist_due: bool,
    /// The end of the last segment that was not full.
    small_end: Sequence,
    last_sent: Instant,
    /// Whether the congestion window was what held data back.
    limited: bool,
    reorder_multiple: u64,
    reorder_recoveries: u32,
    pub(super) statistics: Statistics,
}

impl Sender {
    pub(super) fn new(parameters: Parameters, segment_max: u32) -> Self {
        Self {
            parameters,
            segment_max,
            unacknowledged: 1,
            next: 1,
            written: 1,
            finished: false,
            edge: 1,
            window_max: 0,
            board: Scoreboard::default(),
            window: Window::new(parameters.congestion, parameters.initial_window),
            trip: RoundTrip::new(parameters.retransmission),
            phase: Phase::Open,
            duplicates: 0,
            recovered: 0,
            backoff: 0,
            timeout_at: None,
            probe_at: None,
            reorder_at: None,
            persist_at: None,
            tail: None,
            probe_due: false,
            persist_due: false,
            small_end: 0,
            last_sent: Instant::ZERO,
            limited: false,
            reorder_multiple: 1,
            reorder_recoveries: 0,
            statistics: Statistics::default(),
        }
    }

    /// Completes the handshake with the peer's window, and with a measured round trip if the SYN
    /// was sent once.
    pub(super) fn open(&mut self, now: Instant, window: u32, sample: Option<Nanos>) {
        self.edge = 1 + u64::from(window);
        self.window_max = window;
        self.last_sent = now;
        if let Some(sample) = sample {
            self.trip.measure(now, sample);
        }
    }

    /// Number of bytes that the application may send now.
    pub(super) fn room(&self) -> u32 {
        if self.finished {
            return 0;
        }
        let held = u32::try_from(self.written - self.unacknowledged).unwrap_or(u32::MAX);
        self.parameters.send_buffer.saturating_sub(held)
    }

    /// The application sends `bytes` more.
    pub(super) fn write(&mut self, bytes: u32) {
        assert!(bytes <= self.room(), "more bytes than there is room for");
        self.written += u64::from(bytes);
    }

    /// The application sends nothing more.
    pub(super) const fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether everything, including the FIN, has arrived.
    pub(super) const fn is_done(&self) -> bool {
        self.finished && self.unacknowledged > self.written
    }

    /// Whether too many timeouts came in a row.
    pub(super) const fn has_given_up(&self) -> bool {
        self.backoff > self.parameters.retries
    }

    /// The sequence number of a segment without data.
    pub(super) const fn number(&self) -> Sequence {
        self.next
    }

    /// Number of segments under way, as far as is known. Each duplicate acknowledgement reports one
    /// that has arrived.
    fn under_way(&self) -> u32 {
        self.board.flying().saturating_sub(self.duplicates)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.timeout_at, self.probe_at, self.reorder_at, self.persist_at].into_iter().flatten().min()
    }

    /// Takes an acknowledgement from the peer.
    pub(super) fn on_acknowledged(&mut self, now: Instant, heard: Acknowledged<'_>) {
        if heard.number > self.next {
            // It acknowledges something that was never sent.
            return;
        }
        let duplicate = match heard.blocks {
            [(_, end), ..] if *end <= heard.number => true,
            [(start, end), second, ..] => *start >= second.0 && *end <= second.1,
            _ => false,
        };
        let blocks = if duplicate { &heard.blocks[1..] } else { heard.blocks };
        let flown = self.board.outstanding();
        let news = self.board.on_acknowledged(now, heard.number, blocks, self.trip.least());
        if let Some(sample) = news.sample {
            self.trip.measure(now, sample);
        }
        let edge = heard.number + u64::from(heard.window);
        let repeated =
            heard.number == self.unacknowledged && edge == self.edge && !heard.carries && flown > 0;
        let delivered = self.count_duplicates(news, repeated);
        self.unacknowledged = self.unacknowledged.max(heard.number);
        self.take_window(heard.window, edge);
        if duplicate {
            self.on_duplicate_arrival();
        }
        self.on_tail_acknowledged(heard.number, duplicate, repeated);
        if news.advanced {
            self.backoff = 0;
            self.end_phase();
        }
        let found = self.find_losses(now, news.advanced);
        if let Phase::Recovery(reduction) = &mut self.phase {
            reduction.delivered += delivered;
            self.reduce(delivered, news.advanced && found == 0);
        } else if delivered > 0 && found == 0 {
            let slow = self.window.in_slow_start();
            let grows = if slow { self.window.segments() as usize <= 2 * flown } else { self.limited };
            if grows {
                self.window.grow(now, delivered, self.trip.smoothed().unwrap_or_default());
            }
        }
        if news.advanced || self.board.outstanding() == 0 {
            self.arm(now);
        }
    }

    /// Number of segments that an acknowledgement reports as arrived, as far as this is known
    /// without selective acknowledgements (RFC 6582).
    fn count_duplicates(&mut self, news: News, repeated: bool) -> u32 {
        if self.parameters.selective_acknowledgement {
            return news.delivered;
        }
        if news.advanced {
            let counted = self.duplicates.min(news.delivered.saturating_sub(1));
            self.duplicates -= counted;
            return news.delivered - counted;
        }
        if repeated && self.duplicates < self.board.flying() {
            self.duplicates += 1;
            return 1;
        }
        0
    }

    fn take_window(&mut self, window: u32, edge: Sequence) {
        self.window_max = self.window_max.max(window);
        if edge > self.edge {
            self.edge = edge;
            if self.persist_at.take().is_some() {
                self.backoff = 0;
            }
        } else if self.persist_at.is_some() {
            // The peer is alive, but its application does not read. This is no reason to give up.
            self.backoff = self.backoff.min(self.parameters.retries.saturating_sub(1));
        }
    }

    /// A segment arrived twice: the supposed loss was a late arrival (RFC 8985, section 6.2, step
    /// 4).
    fn on_duplicate_arrival(&mut self) {
        if self.tail.is_none() {
            self.reorder_multiple = (self.reorder_multiple + 1).min(REORDER_MULTIPLE_MAX);
            self.reorder_recoveries = REORDER_RECOVERIES;
        }
    }

    /// Handles the acknowledgement of a probe (RFC 8985, section 7.4).
    fn on_tail_acknowledged(&mut self, number: Sequence, duplicate: bool, repeated: bool) {
        let Some(tail) = self.tail.filter(|tail| number >= tail.end) else { return };
        if !tail.again || duplicate || (repeated && number == tail.end) {
            self.tail = None;
        } else if number > tail.end {
            // The probe has repaired a loss, which must count as a loss.
            self.tail = None;
            let threshold = self.window.on_loss();
            self.window.set(threshold);
        }
    }

    /// Ends recovery once everything that was under way at its beginning has arrived.
    fn end_phase(&mut self) {
        match self.phase {
            Phase::Recovery(reduction) if self.unacknowledged >= reduction.point => {
                self.window.set(reduction.threshold);
                self.phase = Phase::Open;
                self.duplicates = 0;
                match self.reorder_recoveries.checked_sub(1) {
                    None | Some(0) => (self.reorder_multiple, self.reorder_recoveries) = (1, 0),
                    Some(left) => self.reorder_recoveries = left,
                }
            }
            Phase::Timeout(point) if self.unacknowledged >= point => {
                self.phase = Phase::Open;
                self.duplicates = 0;
            }
            _ => {}
        }
    }

    /// Finds lost segments, and begins recovery with the first one. Returns how many were found.
    fn find_losses(&mut self, now: Instant, advanced: bool) -> u32 {
        let found = if !self.parameters.selective_acknowledgement {
            let again = match self.phase {
                Phase::Open => self.duplicates >= DUPLICATES && self.unacknowledged >= self.recovered,
                // A partial acknowledgement: the next segment is lost, too.
                Phase::Recovery(_) => advanced,
                Phase::Timeout(_) => false,
            };
            u32::from(again && self.board.lose_first(false))
        } else if self.parameters.recent_acknowledgement {
            let (found, later) = self.board.find_by_time(now, self.reorder_window());
            self.reorder_at = later;
            found
        } else {
            self.board.find_by_count()
        };
        if found > 0 && matches!(self.phase, Phase::Open) {
            let prior = self.window.segments();
            let threshold = self.window.on_loss();
            self.recovered = self.next;
            self.phase =
                Phase::Recovery(Reduction { point: self.next, prior, threshold, delivered: 0, sent: 0 });
            self.tail = None;
            self.probe_at = None;
            self.reduce(0, false);
            self.timeout_at = Some(now + self.trip.timeout(self.backoff));
        }
        found
    }

    /// How much later than other segments a segment may arrive without counting as lost (RFC 8985,
    /// section 6.2, step 4).
    fn reorder_window(&self) -> Nanos {
        let recovering = !matches!(self.phase, Phase::Open);
        if !self.board.reordered && (recovering || self.board.arrived() >= DUPLICATES) {
            return Nanos::ZERO;
        }
        let quarter = self.trip.least().unwrap_or_default() / 4;
        (quarter * self.reorder_multiple).min(self.trip.smoothed().unwrap_or_default())
    }

    /// Proportional rate reduction with its slow-start bound (RFC 6937, section 3).
    fn reduce(&mut self, delivered: u32, safe: bool) {
        let under_way = self.under_way();
        let Phase::Recovery(reduction) = &self.phase else { return };
        let allowed = if under_way > reduction.threshold {
            let due = u64::from(reduction.delivered) * u64::from(reduction.threshold);
            let due = due.div_ceil(u64::from(reduction.prior.max(1)));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(reduction.sent)
        } else {
            let bound = reduction.delivered.saturating_sub(reduction.sent).max(delivered) + u32::from(safe);
            bound.min(reduction.threshold - under_way)
        };
        // The first retransmission is sent at once.
        let allowed = allowed.max(u32::from(reduction.sent == 0));
        self.window.set(under_way + allowed);
    }

    /// Sets the timer for the segments under way: a probe if one may be sent, otherwise the
    /// timeout.
    fn arm(&mut self, now: Instant) {
        (self.timeout_at, self.probe_at) = (None, None);
        let Some(first) = self.board.first() else {
            self.reorder_at = None;
            return;
        };
        let timeout = self.trip.timeout(self.backoff);
        match self.probe_after() {
            Some(after) => {
                let latest = (first.at + timeout).max(now + Nanos::new(1));
                self.probe_at = Some((now + after).min(latest));
            }
            None => self.timeout_at = Some(now + timeout),
        }
    }

    /// The time after which to probe the tail; `None` if a probe is not allowed (RFC 8985, section
    /// 7.2).
    fn probe_after(&self) -> Option<Nanos> {
        let rule = self.parameters.tail_loss_probe?;
        let open = matches!(self.phase, Phase::Open) && self.backoff == 0;
        if !open || self.tail.is_some() || self.board.arrived() > 0 {
            return None;
        }
        let trip = self.trip.smoothed()?;
        let more = if self.board.outstanding() == 1 { rule.alone } else { rule.more };
        Some(trip * 2 + more)
    }

    /// Takes the steps due at `now`.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.reorder_at) {
            self.reorder_at = None;
            self.find_losses(now, false);
        }
        if due(self.probe_at) {
            self.probe_at = None;
            self.probe_due = true;
            self.timeout_at = Some(now + self.trip.timeout(self.backoff));
        }
        if due(self.persist_at) {
            self.persist_at = None;
            self.persist_due = true;
            self.backoff += 1;
        }
        if due(self.timeout_at) {
            self.on_retransmission_timeout(now);
        }
    }

    fn on_retransmission_timeout(&mut self, now: Instant) {
        self.statistics.timeouts += 1;
        if matches!(self.phase, Phase::Open) {
            self.window.on_loss();
        }
        self.board.lose_all();
        self.duplicates = 0;
        self.recovered = self.next;
        self.phase = Phase::Timeout(self.next);
        self.tail = None;
        (self.probe_due, self.reorder_at) = (false, None);
        self.window.set(1);
        self.backoff += 1;
        self.timeout_at = Some(now + self.trip.timeout(self.backoff));
    }

    /// The next piece to send; `None` if nothing may be sent.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Piece> {
        if core::mem::take(&mut self.probe_due)
            && let Some(piece) = self.probe(now)
        {
            return Some(piece);
        }
        if core::mem::take(&mut self.persist_due) {
            return Some(Piece { start: self.unacknowledged - 1, length: 0, fin: false });
        }
        if self.under_way() < self.window.segments()
            && let Some(sent) = self.board.resend(now)
        {
            self.count_sent(now);
            self.statistics.retransmitted += 1;
            if self.timeout_at.is_none() {
                self.arm(now);
            }
            return Some(self.piece(sent.start, sent.end));
        }
        self.poll_new(now, false)
    }

    /// The probe for a loss at the tail: new data if there is any, otherwise the last segment
    /// again.
    fn probe(&mut self, now: Instant) -> Option<Piece> {
        self.statistics.probes += 1;
        if let Some(piece) = self.poll_new(now, true) {
            self.tail = Some(Tail { end: self.next, again: false });
            self.arm(now);
            return Some(piece);
        }
        let sent = self.board.resend_last(now)?;
        self.tail = Some(Tail { end: self.next, again: true });
        self.last_sent = now;
        self.statistics.retransmitted += 1;
        self.arm(now);
        Some(self.piece(sent.start, sent.end))
    }

    /// The segment with these numbers. The number of the FIN follows the last byte.
    fn piece(&self, start: Sequence, end: Sequence) -> Piece {
        let fin = self.finished && end > self.written;
        let bytes = end - start - u64::from(fin);
        Piece { start, length: u32::try_from(bytes).expect("a segment is short"), fin }
    }

    fn count_sent(&mut self, now: Instant) {
        self.last_sent = now;
        if let Phase::Recovery(reduction) = &mut self.phase {
            reduction.sent += 1;
        }
    }

    /// New data that the congestion window allows, or one segment `beyond` it.
    fn poll_new(&mut self, now: Instant, beyond: bool) -> Option<Piece> {
        if self.next >= self.written + u64::from(self.finished) {
            self.limited &= self.under_way() >= self.window.segments();
            return None;
        }
        if self.board.outstanding() == 0 && self.parameters.restart_after_idle {
            let idle = (now - self.last_sent).get() / self.trip.timeout(0).get().max(1);
            if idle > 0 {
                self.window.rest(idle);
                self.last_sent = now;
            }
        }
        if !beyond && self.under_way() >= self.window.segments() {
            self.limited = true;
            return None;
        }
        let left = u32::try_from(self.written - self.next).unwrap_or(u32::MAX);
        let whole = left.min(self.segment_max);
        let room = u32::try_from(self.edge.saturating_sub(self.next)).unwrap_or(u32::MAX);
        let length = if whole <= room {
            whole
        } else if room > 0 && room >= self.window_max / 2 {
            room
        } else {
            self.persist(now);
            return None;
        };
        let fin = self.finished && length == left;
        let small = length < self.segment_max;
        if small && !fin && self.parameters.nagle && self.small_end > self.unacknowledged {
            return None;
        }
        let end = self.next + u64::from(length) + u64::from(fin);
        let piece = Piece { start: self.next, length, fin };
        self.board.push(self.next, end, now);
        self.next = end;
        if small {
            self.small_end = end;
        }
        self.count_sent(now);
        if self.timeout_at.is_none() || self.probe_at.is_some() {
            self.arm(now);
        }
        Some(piece)
    }

    /// Sets a timer to ask a peer without room again, unless an acknowledgement is still to come,
    /// which will report the window.
    fn persist(&mut self, now: Instant) {
        if self.board.outstanding() == 0 && self.persist_at.is_none() {
            self.persist_at = Some(now + self.trip.timeout(self.backoff));
        }
    }
}
