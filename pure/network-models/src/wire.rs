//! The simplest link: a latency and a rate.

use alloc::collections::VecDeque;

use engine::{Instant, Nanos};

use crate::frame::INTER_FRAME_GAP;
use crate::{Counts, Frame, Hop, Rate, Transmitter};

/// One direction of a link that is described only by latency and rate. Frames keep their order. A
/// frame that doesn't fit into the queue is lost.
#[derive(Clone, Debug)]
pub struct Wire {
    latency: Nanos,
    rate: Option<Rate>,
    queue_bytes: u64,
    transmitter: Transmitter,
    /// Frames inside, in order. Each has the time when its last bit is out here, and the time when
    /// the bit is at the far end.
    inside: VecDeque<Passing>,
    /// Number of frames at the front of `inside` whose last bit is out.
    sent: usize,
    /// Total length in bytes of the frames whose last bit is not out.
    queued: u64,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Passing {
    out: Instant,
    arrives: Instant,
    frame: Frame,
}

impl Wire {
    /// Default size of the queue in bytes.
    pub const QUEUE_BYTES: u64 = 1 << 20;
    /// Maximum number of frames on their way; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 18;

    /// A link with `latency`, and with `rate` if it is limited. Ethernet's framing counts.
    pub const fn new(latency: Nanos, rate: Option<Rate>) -> Self {
        Self {
            latency,
            rate,
            queue_bytes: Self::QUEUE_BYTES,
            transmitter: Transmitter::IDLE,
            inside: VecDeque::new(),
            sent: 0,
            queued: 0,
            counts: Counts { entered: 0, left: 0, lost: 0, copied: 0 },
        }
    }

    /// This link with a queue of `bytes` in front. At least one frame is always accepted.
    #[must_use]
    pub const fn with_queue(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Latency of the link, without the time to send a frame.
    pub const fn latency(&self) -> Nanos {
        self.latency
    }

    /// Rate of the link, if it is limited.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(passing) = self.inside.get(self.sent)
            && passing.out <= now
        {
            self.queued -= u64::from(passing.frame.length);
            self.sent += 1;
        }
    }
}

impl Hop for Wire {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        self.catch_up(now);
        let length = u64::from(frame.length);
        let full = self.queued > 0 && self.queued + length > self.queue_bytes;
        if full || self.inside.len() >= Self::INSIDE_MAX {
            self.counts.lost += 1;
            return;
        }
        // The whole frame must have arrived before it is sent.
        let now = now + core::mem::take(&mut frame.tail);
        let out = match self.rate {
            None => now,
            Some(rate) => {
                // The gap occupies the link, but does not delay the frame.
                self.transmitter.send(now, rate, frame.wire_bytes() - u64::from(INTER_FRAME_GAP));
                let out = self.transmitter.free();
                self.transmitter.send(now, rate, u64::from(INTER_FRAME_GAP));
                out
            }
        };
        self.queued += length;
        self.inside.push_back(Passing { out, arrives: out + self.latency, frame });
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        if self.inside.front()?.arrives > now {
            return None;
        }
        self.catch_up(now);
        let passing = self.inside.pop_front()?;
        self.sent -= 1;
        self.counts.left += 1;
        Some(passing.frame)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|passing| passing.arrives)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use engine::Buffer;

    #[test]
    fn a_full_queue_loses_what_comes_last() {
        let mut wire = Wire::new(Nanos::ZERO, Some(Rate::from_megabits(8))).with_queue(3_000);
        let frame = |id| Frame::new(id, 1_000, Class::BEST_EFFORT, Buffer::EMPTY);
        for id in 0..5 {
            wire.enter(Instant::ZERO, frame(id));
        }
        assert_eq!(wire.counts().lost, 2);
        // After the first frame (1008 µs) there is room for another.
        wire.enter(Instant::from_nanos(1_008_000), frame(5));
        let mut out = alloc::vec::Vec::new();
        while let Some(at) = wire.next() {
            out.push((wire.poll(at).unwrap().id, at.as_nanos() / 1_000));
        }
        assert_eq!(out, [(0, 1_008), (1, 2_028), (2, 3_048), (5, 4_068)]);
    }

    #[test]
    fn a_link_without_a_rate_has_a_limit_too() {
        let mut wire = Wire::new(Nanos::from_secs(1), None);
        let frame = Frame::new(0, 100, Class::BEST_EFFORT, Buffer::EMPTY);
        for _ in 0..=Wire::INSIDE_MAX {
            wire.enter(Instant::ZERO, frame.clone());
        }
        assert_eq!(wire.counts().lost, 1);
    }

    #[test]
    fn without_a_rate_only_the_latency_counts() {
        let mut wire = Wire::new(Nanos::from_millis(10), None);
        wire.enter(Instant::ZERO, Frame::new(0, 1_000, Class::BEST_EFFORT, Buffer::EMPTY));
        assert_eq!(wire.next(), Some(Instant::from_nanos(10_000_000)));
    }
}
