//! The receiving half of an end: the bytes that have arrived, and the times of acknowledgements.

use alloc::collections::VecDeque;

use engine::{Instant, Nanos};

use super::Parameters;
use super::segment::{BLOCKS_MAX, Blocks, Range, Segment, Sequence};

/// Maximum number of ranges behind gaps. A segment that would add another is dropped, and will be
/// sent again.
const RANGES_MAX: usize = 1_024;
/// Maximum window without scaling, in bytes (RFC 9293, section 3.1).
const WINDOW_UNSCALED_MAX: u32 = u16::MAX as u32;
/// Maximum window with scaling, in bytes (RFC 7323, section 2.3).
const WINDOW_SCALED_MAX: u32 = WINDOW_UNSCALED_MAX << 14;

/// When an acknowledgement is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Never,
    At(Instant),
    Now,
}

/// The receiving half of an end.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    parameters: Parameters,
    segment_max: u32,
    /// The lowest number that has not arrived.
    next: Sequence,
    /// Ranges beyond `next` that have arrived, the latest first.
    ranges: VecDeque<Range>,
    /// The number after the last byte that the application has used.
    consumed: Sequence,
    /// The number after the last one in the window announced to the peer.
    edge: Sequence,
    /// The number of the FIN, once it was seen.
    fin: Option<Sequence>,
    due: Due,
    /// The number that the latest acknowledgement carried.
    acknowledged: Sequence,
    quick: u32,
    /// The range that arrived twice.
    duplicate: Option<Range>,
}

impl Receiver {
    pub(super) fn new(parameters: Parameters, segment_max: u32) -> Self {
        let mut receiver = Self {
            parameters,
            segment_max,
            next: 1,
            ranges: VecDeque::new(),
            consumed: 1,
            edge: 1,
            fin: None,
            due: Due::Never,
            acknowledged: 1,
            quick: parameters.acknowledgement.quick,
            duplicate: None,
        };
        receiver.edge += u64::from(receiver.window_max());
        receiver
    }

    fn window_max(&self) -> u32 {
        let most = if self.parameters.window_scaling { WINDOW_SCALED_MAX } else { WINDOW_UNSCALED_MAX };
        self.parameters.receive_buffer.min(most)
    }

    /// The number after the last byte that has arrived in order, without the FIN.
    pub(super) fn arrived(&self) -> Sequence {
        if self.is_finished() { self.next - 1 } else { self.next }
    }

    /// Whether the peer's FIN and everything before it have arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin < self.next)
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        match self.due {
            Due::At(at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        if let Due::At(at) = self.due
            && at <= now
        {
            self.due = Due::Now;
        }
    }

    /// Whether an acknowledgement must be sent now.
    pub(super) fn must_acknowledge(&self) -> bool {
        self.due == Due::Now
    }

    /// Requests an acknowledgement now.
    pub(super) const fn acknowledge(&mut self) {
        self.due = Due::Now;
    }

    /// Takes a segment with bytes or a FIN, or an empty one with an earlier number.
    pub(super) fn on_segment(&mut self, now: Instant, segment: &Segment) {
        let (start, end) = (segment.sequence, segment.end());
        if start == end {
            // An empty segment: an acknowledgement, or a question whether there is room.
            if start < self.next {
                self.due = Due::Now;
            }
            return;
        }
        if segment.flags.fin && end <= self.edge + 1 {
            self.fin = Some(end - 1);
        }
        if end <= self.next {
            self.duplicate = Some((start, end));
            self.due = Due::Now;
        } else if end > self.edge + u64::from(segment.flags.fin) {
            // The segment is beyond the window.
            self.due = Due::Now;
        } else if start <= self.next {
            self.next = end;
            let gaps = !self.ranges.is_empty();
            self.close_gap();
            self.schedule(now, gaps);
        } else {
            self.keep((start, end));
            self.quick = self.parameters.acknowledgement.quick;
            self.due = Due::Now;
        }
    }

    /// Moves on over the ranges that are now in order.
    fn close_gap(&mut self) {
        while let Some(index) =
            self.ranges.iter().position(|(start, end)| *start <= self.next && *end > self.next)
        {
            self.next = self.ranges[index].1;
        }
        let next = self.next;
        self.ranges.retain(|(_, end)| *end > next);
    }

    /// Remembers a range that came too early.
    fn keep(&mut self, mut range: Range) {
        if self.ranges.iter().any(|(start, end)| *start <= range.0 && range.1 <= *end) {
            self.duplicate = Some(range);
            return;
        }
        self.ranges.retain(|(start, end)| {
            let apart = *end < range.0 || range.1 < *start;
            if !apart {
                range = (range.0.min(*start), range.1.max(*end));
            }
            apart
        });
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push_front(range);
        }
    }

    /// Decides when to acknowledge data that has arrived in order.
    fn schedule(&mut self, now: Instant, gaps: bool) {
        let rule = self.parameters.acknowledgement;
        let unacknowledged = self.next - self.acknowledged;
        let full = u64::from(rule.segments.saturating_sub(1)) * u64::from(self.segment_max);
        if gaps || self.quick > 0 || rule.delay == Nanos::ZERO || unacknowledged > full || self.is_finished()
        {
            self.due = Due::Now;
        } else if self.due == Due::Never {
            self.due = Due::At(now + rule.delay);
        }
    }

    /// The application has used `bytes`, so there may be more room to report.
    pub(super) fn consume(&mut self, bytes: u32) {
        self.consumed += u64::from(bytes);
        assert!(self.consumed <= self.arrived(), "more bytes taken than have arrived");
        let (now, then) = (self.edge.saturating_sub(self.next), self.free());
        // As in Linux: once the window can be doubled.
        if now <= u64::from(self.window_max() / 2) && then >= (2 * now).max(1) {
            let enough = u64::from(self.segment_max.min(self.window_max() / 2));
            if then - now >= enough {
                self.due = Due::Now;
            }
        }
    }

    /// Number of bytes that there is room for after the data that has arrived.
    fn free(&self) -> u64 {
        u64::from(self.window_max()).saturating_sub(self.arrived() - self.consumed)
    }

    /// Fills in the fields that every segment has for the peer. This counts as an acknowledgement.
    pub(super) fn fill(&mut self, segment: &mut Segment) {
        self.edge = self.edge.max(self.next + self.free());
        segment.flags.ack = true;
        segment.acknowledgement = self.next;
        segment.window = u32::try_from(self.edge.saturating_sub(self.next)).unwrap_or(u32::MAX);
        self.acknowledged = self.next;
        if self.due != Due::Never {
            self.quick = self.quick.saturating_sub(1);
        }
        self.due = Due::Never;
    }

    /// The selective acknowledgements, for a segment without data.
    pub(super) fn blocks(&mut self) -> Blocks {
        let mut blocks = Blocks::default();
        if !self.parameters.selective_acknowledgement {
            return blocks;
        }
        let most = if self.parameters.timestamps { BLOCKS_MAX - 1 } else { BLOCKS_MAX };
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(duplicate, most);
        }
        self.ranges.iter().for_each(|range| blocks.push(*range, most));
        blocks
    }
}
