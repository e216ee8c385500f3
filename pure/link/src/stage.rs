//! A step of a machine on a frame's way: an operating system's, a driver's, a DMA engine's.

use alloc::collections::VecDeque;

use engine::{Instant, Nanos};

use crate::{Counts, Frame, Hop};

/// What a [`Stage`] takes. A frame is worked on for [`Settings::occupancy`], in which the next one waits, and has passed
/// after [`Settings::latency`]; both grow with its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// From the frame's arrival, or the end of the one before, until it has passed.
    pub latency: Nanos,
    /// More for each byte beyond [`Settings::SHORTEST`], picoseconds.
    pub picoseconds_per_byte: u32,
    /// How long the next frame has to wait; zero for a pipeline or a machine with many processors.
    pub occupancy: Nanos,
    /// Frames are taken only at multiples of this, as a bus that is polled does; zero for at once.
    pub interval: Nanos,
}

impl Settings {
    /// The length of frame for which the latency is meant, bytes.
    pub const SHORTEST: u32 = 68;

    /// A stage of a machine's kernel, during which its processor does nothing else.
    pub const fn busy(latency: Nanos) -> Self {
        Self { latency, picoseconds_per_byte: 0, occupancy: latency, interval: Nanos::ZERO }
    }

    /// A stage that takes `shortest` for the smallest frame of 68 B and `longest` for the largest of 1518 B.
    pub const fn between(shortest: Nanos, longest: Nanos) -> Self {
        let slope = (longest.get() - shortest.get()) * 1_000 / (1_518 - Self::SHORTEST as u64);
        assert!(slope < 1_000_000, "a byte takes less than a microsecond");
        #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
        let picoseconds_per_byte = slope as u32;
        Self { latency: shortest, picoseconds_per_byte, occupancy: Nanos::ZERO, interval: Nanos::ZERO }
    }

    /// A bus that is polled each `interval` (USB: a micro-frame of 125 us), and takes `latency` besides.
    pub const fn polled(interval: Nanos, latency: Nanos) -> Self {
        Self { latency, picoseconds_per_byte: 0, occupancy: Nanos::ZERO, interval }
    }

    /// What a frame of `length` bytes takes on an idle stage that is not polled.
    pub fn of(&self, length: u32) -> Nanos {
        let further = u64::from(length.saturating_sub(Self::SHORTEST));
        self.latency + Nanos::new(further * u64::from(self.picoseconds_per_byte) / 1_000)
    }
}

/// One direction of a step of a machine; frames keep their order.
#[derive(Clone, Debug)]
pub struct Stage {
    settings: Settings,
    busy_until: Instant,
    inside: VecDeque<(Instant, Frame)>,
    counts: Counts,
}

impl Stage {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 12;

    /// An idle stage.
    pub const fn new(settings: Settings) -> Self {
        let counts = Counts { entered: 0, left: 0, lost: 0, copied: 0 };
        Self { settings, busy_until: Instant::ZERO, inside: VecDeque::new(), counts }
    }

    /// What it was told.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Hop for Stage {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.inside.len() >= Self::INSIDE_MAX {
            self.counts.lost += 1;
            return;
        }
        let arrived = now + core::mem::take(&mut frame.tail);
        let mut start = arrived.max(self.busy_until);
        if self.settings.interval > Nanos::ZERO {
            let interval = self.settings.interval.get();
            start = Instant::from_nanos(start.as_nanos().div_ceil(interval).saturating_mul(interval));
        }
        self.busy_until = start + self.settings.occupancy;
        let out = start + self.settings.of(frame.length);
        let out = self.inside.back().map_or(out, |(last, _)| out.max(*last));
        self.inside.push_back((out, frame));
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.inside.front().filter(|(at, _)| *at <= now)?;
        self.counts.left += 1;
        self.inside.pop_front().map(|(_, frame)| frame)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use alloc::vec::Vec;
    use engine::Buffer;

    fn times(settings: Settings, entries: &[(u64, u32)]) -> Vec<u64> {
        let mut stage = Stage::new(settings);
        for (at, length) in entries {
            let frame = Frame::new(0, *length, Class::BEST_EFFORT, Buffer::EMPTY);
            stage.enter(Instant::from_nanos(*at), frame);
        }
        let mut out = Vec::new();
        while let Some(at) = stage.next() {
            assert!(stage.poll(at).is_some());
            out.push(at.as_nanos());
        }
        out
    }

    #[test]
    fn a_busy_stage_makes_the_next_frame_wait_and_a_pipeline_does_not() {
        assert_eq!(times(Settings::busy(Nanos::new(100)), &[(0, 64), (10, 64)]), [100, 200]);
        let pipeline = Settings { occupancy: Nanos::ZERO, ..Settings::busy(Nanos::new(100)) };
        assert_eq!(times(pipeline, &[(0, 64), (10, 64)]), [100, 110]);
    }

    #[test]
    fn the_published_ends_of_a_range_come_out() {
        // nvme-5g, component_us.fake_ethernet.
        let settings = Settings::between(Nanos::new(816), Nanos::new(2_320));
        assert_eq!(settings.of(68), Nanos::new(816));
        assert!(settings.of(1_518).get().abs_diff(2_320) <= 2);
    }

    #[test]
    fn a_polled_bus_takes_frames_at_its_interval() {
        let settings = Settings::polled(Nanos::from_micros(125), Nanos::from_micros(1));
        assert_eq!(times(settings, &[(0, 64), (1, 64), (125_000, 64)]), [1_000, 126_000, 126_000]);
    }
}
