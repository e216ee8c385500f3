//! The segments that were sent and are not acknowledged, and which of them are lost (RFC 8985, RFC
//! 6675).

use alloc::collections::VecDeque;

use engine::{Instant, Nanos};

use super::segment::{Range, Sequence};

/// Number of later segments that must arrive before a segment counts as lost, unless time decides
/// (RFC 5681's three duplicates).
pub(super) const DUPLICATES: u32 = 3;

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The segment is under way.
    Flying,
    /// The segment has arrived, but an earlier one has not.
    Arrived,
    /// The segment is to be sent again.
    Lost,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) start: Sequence,
    pub(super) end: Sequence,
    /// When the segment was last sent.
    pub(super) at: Instant,
    pub(super) fate: Fate,
    pub(super) again: bool,
}

/// The content of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Number of segments that are now known to have arrived.
    pub(super) delivered: u32,
    /// Round trip of the first arrived segment that was sent only once.
    pub(super) sample: Option<Nanos>,
    /// Whether the lowest unacknowledged number has moved.
    pub(super) advanced: bool,
}

/// The most recently sent segment that has arrived (RFC 8985, section 5.3: RACK.segment).
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    at: Instant,
    end: Sequence,
    trip: Nanos,
    again: bool,
}

/// Segments in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    sent: VecDeque<Sent>,
    flying: u32,
    arrived: u32,
    lost: u32,
    recent: Recent,
    /// No segment before this number is lost.
    lost_from: Sequence,
    /// The highest number that is known to have arrived (RACK.fack).
    highest: Sequence,
    /// Whether a segment arrived after one that was sent later (RACK.reordering_seen).
    pub(super) reordered: bool,
}

impl Scoreboard {
    /// Number of segments under way.
    pub(super) const fn flying(&self) -> u32 {
        self.flying
    }

    /// Number of segments that have arrived while an earlier one has not.
    pub(super) const fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Number of all segments on the board.
    pub(super) fn outstanding(&self) -> usize {
        self.sent.len()
    }

    /// The first segment on the board.
    pub(super) fn first(&self) -> Option<&Sent> {
        self.sent.front()
    }

    /// Adds a new segment that is sent now.
    pub(super) fn push(&mut self, start: Sequence, end: Sequence, now: Instant) {
        self.flying += 1;
        self.sent.push_back(Sent { start, end, at: now, fate: Fate::Flying, again: false });
    }

    /// Takes the first lost segment, to be sent again now.
    pub(super) fn resend(&mut self, now: Instant) -> Option<Sent> {
        if self.lost == 0 {
            return None;
        }
        let from = self.sent.partition_point(|sent| sent.start < self.lost_from);
        let sent = self.sent.range_mut(from..).find(|sent| sent.fate == Fate::Lost)?;
        (sent.fate, sent.at, sent.again) = (Fate::Flying, now, true);
        self.lost_from = sent.end;
        self.lost -= 1;
        self.flying += 1;
        Some(*sent)
    }

    /// Takes the last segment, to be sent again as a probe.
    pub(super) fn resend_last(&mut self, now: Instant) -> Option<Sent> {
        let sent = self.sent.back_mut()?;
        if sent.fate == Fate::Lost {
            self.lost -= 1;
            self.flying += 1;
            sent.fate = Fate::Flying;
        }
        (sent.at, sent.again) = (now, true);
        Some(*sent)
    }

    fn count(&mut self, fate: Fate) -> &mut u32 {
        match fate {
            Fate::Flying => &mut self.flying,
            Fate::Arrived => &mut self.arrived,
            Fate::Lost => &mut self.lost,
        }
    }

    /// Records that everything before `acknowledgement` and within `blocks` has arrived.
    pub(super) fn on_acknowledged(
        &mut self,
        now: Instant,
        acknowledgement: Sequence,
        blocks: &[Range],
        least: Option<Nanos>,
    ) -> News {
        let mut news = News::default();
        while let Some(&first) = self.sent.front().filter(|sent| sent.start < acknowledgement) {
            news.advanced = true;
            if first.end > acknowledgement {
                self.sent[0].start = acknowledgement;
                break;
            }
            self.sent.pop_front();
            *self.count(first.fate) -= 1;
            if first.fate != Fate::Arrived {
                self.on_arrival(now, first, least, &mut news);
            }
        }
        for &(start, end) in blocks {
            let from = self.sent.partition_point(|sent| sent.start < start);
            for index in from..self.sent.len() {
                let sent = self.sent[index];
                if sent.end > end {
                    break;
                }
                if sent.fate != Fate::Arrived {
                    *self.count(sent.fate) -= 1;
                    self.arrived += 1;
                    self.sent[index].fate = Fate::Arrived;
                    self.on_arrival(now, sent, least, &mut news);
                }
            }
        }
        news
    }

    /// Handles the arrival of a segment (RFC 8985, section 6.2, steps 1 to 3).
    fn on_arrival(&mut self, now: Instant, sent: Sent, least: Option<Nanos>, news: &mut News) {
        news.delivered += 1;
        let trip = now - sent.at;
        if sent.end > self.highest {
            self.highest = sent.end;
        } else if sent.end < self.highest && !sent.again {
            self.reordered = true;
        }
        // An answer that is faster than any round trip so far is for the first copy.
        if sent.again && least.is_some_and(|least| trip < least) {
            return;
        }
        if !sent.again {
            news.sample.get_or_insert(trip);
        }
        if (sent.at, sent.end) >= (self.recent.at, self.recent.end) {
            self.recent = Recent { at: sent.at, end: sent.end, trip, again: sent.again };
        }
    }

    /// Marks segments as lost that were sent before one that has arrived, and whose answer is
    /// overdue by `window` (RFC 8985, section 6.2, step 5). Returns how many, and when others may
    /// be lost.
    pub(super) fn find_by_time(&mut self, now: Instant, window: Nanos) -> (u32, Option<Instant>) {
        let (mut found, mut later) = (0, None);
        let Recent { at, end, trip, again } = self.recent;
        // Without a gap, only a segment that was sent again can have overtaken others.
        if self.arrived == 0 && !again {
            return (0, None);
        }
        for sent in &mut self.sent {
            if sent.fate != Fate::Flying || (at, end) <= (sent.at, sent.end) {
                continue;
            }
            let due = sent.at + trip + window;
            if due <= now {
                sent.fate = Fate::Lost;
                found += 1;
            } else {
                later = later.max(Some(due));
            }
        }
        self.on_lost(found);
        (found, later)
    }

    /// Marks segments as lost, each only once, that three later segments have overtaken (RFC 6675,
    /// IsLost).
    pub(super) fn find_by_count(&mut self) -> u32 {
        let (mut found, mut above) = (0, 0);
        if self.arrived < DUPLICATES {
            return 0;
        }
        for sent in self.sent.iter_mut().rev() {
            match sent.fate {
                Fate::Arrived => above += 1,
                Fate::Flying if above >= DUPLICATES && !sent.again => {
                    sent.fate = Fate::Lost;
                    found += 1;
                }
                _ => {}
            }
        }
        self.on_lost(found);
        found
    }

    /// Marks the first segment as lost if it is under way and was sent only once, or if
    /// `even_again` is set. Returns whether it did.
    pub(super) fn lose_first(&mut self, even_again: bool) -> bool {
        match self.sent.front_mut() {
            Some(first) if first.fate == Fate::Flying && (even_again || !first.again) => {
                first.fate = Fate::Lost;
                self.on_lost(1);
                true
            }
            _ => false,
        }
    }

    /// Marks everything as lost that has not arrived, after a timeout.
    pub(super) fn lose_all(&mut self) {
        for sent in &mut self.sent {
            if sent.fate == Fate::Flying {
                sent.fate = Fate::Lost;
            }
        }
        self.on_lost(self.flying);
    }

    fn on_lost(&mut self, found: u32) {
        self.flying -= found;
        self.lost += found;
        if found > 0 {
            self.lost_from = 0;
        }
    }
}
