//! A step of a machine on a frame's way: an operating system's, a driver's, a DMA engine's.

use engine::{Instant, Nanos};

use crate::leaving::Leaving;
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
        Self { occupancy: latency, ..Self::pipeline(latency) }
    }

    /// The DMA interface between the logic and the processor of an embedded Linux box, as an Ethernet device
    /// (published: nvme-5g, component_us.fake_ethernet, both directions).
    pub const DMA: Self = Self::between(Nanos::new(816), Nanos::new(2_320));
    /// Routing by iptables in the box at the host (published: nvme-5g, component_us.linux_iptables): work of a processor, which
    /// does one packet after the other.
    pub const ROUTING_UPSTREAM: Self = Self::busy(Nanos::new(10_200));
    /// The same in the box at the device.
    pub const ROUTING_DOWNSTREAM: Self = Self::busy(Nanos::new(11_000));
    /// The USB stack of the box at the host, to a modem or an adapter (published: nvme-5g, component_us.linux_usb_stack), which
    /// mostly waits for its controller.
    pub const USB_UPSTREAM: Self = Self::pipeline(Nanos::new(36_200));
    /// The same in the box at the device.
    pub const USB_DOWNSTREAM: Self = Self::pipeline(Nanos::new(23_900));

    /// A stage in which frames do not wait for each other.
    pub const fn pipeline(latency: Nanos) -> Self {
        Self { latency, picoseconds_per_byte: 0, occupancy: Nanos::ZERO, interval: Nanos::ZERO }
    }

    /// A stage that takes `shortest` for the smallest frame of 68 B and `longest` for the largest of 1518 B.
    ///
    /// # Panics
    /// When there is no such [`Settings::slope`].
    pub const fn between(shortest: Nanos, longest: Nanos) -> Self {
        let Some(slope) = Self::slope(shortest, longest) else {
            panic!("a byte takes a microsecond or less than nothing")
        };
        Self { picoseconds_per_byte: slope, ..Self::pipeline(shortest) }
    }

    /// Picoseconds of each further byte, where 68 B take `shortest` and 1518 B `longest`: if that is not less, and a byte takes less
    /// than a microsecond.
    pub const fn slope(shortest: Nanos, longest: Nanos) -> Option<u32> {
        let Some(more) = longest.get().checked_sub(shortest.get()) else { return None };
        let slope = more.saturating_mul(1_000) / (1_518 - Self::SHORTEST as u64);
        #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
        if slope < 1_000_000 { Some(slope as u32) } else { None }
    }

    /// A bus that is polled each `interval` (USB: a micro-frame of 125 us), and takes `latency` besides.
    pub const fn polled(interval: Nanos, latency: Nanos) -> Self {
        Self { interval, ..Self::pipeline(latency) }
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
    leaving: Leaving,
}

impl Stage {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 12;

    /// An idle stage.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, busy_until: Instant::ZERO, leaving: Leaving::new() }
    }

    /// What it was told.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Hop for Stage {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        if !self.leaving.admit(0, Self::INSIDE_MAX) {
            return;
        }
        let arrived = now + core::mem::take(&mut frame.tail);
        let mut start = arrived.max(self.busy_until);
        if self.settings.interval > Nanos::ZERO {
            let interval = self.settings.interval.get();
            start = Instant::from_nanos(start.as_nanos().div_ceil(interval).saturating_mul(interval));
        }
        self.busy_until = start + self.settings.occupancy;
        self.leaving.push(start + self.settings.of(frame.length), frame);
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.leaving.poll(now)
    }

    fn next(&self) -> Option<Instant> {
        self.leaving.next()
    }

    fn counts(&self) -> Counts {
        self.leaving.counts()
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
        assert_eq!(times(Settings::pipeline(Nanos::new(100)), &[(0, 64), (10, 64)]), [100, 110]);
    }

    #[test]
    fn the_published_ends_of_a_range_come_out() {
        // nvme-5g, component_us.fake_ethernet.
        let settings = Settings::DMA;
        assert_eq!(settings.of(68), Nanos::new(816));
        assert!(settings.of(1_518).get().abs_diff(2_320) <= 2);
    }

    #[test]
    fn a_polled_bus_takes_frames_at_its_interval() {
        let settings = Settings::polled(Nanos::from_micros(125), Nanos::from_micros(1));
        assert_eq!(times(settings, &[(0, 64), (1, 64), (125_000, 64)]), [1_000, 126_000, 126_000]);
    }
}
