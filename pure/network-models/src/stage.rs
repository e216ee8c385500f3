//! A processing step on a frame's way: in an operating system, a driver or a DMA engine.

use engine::{Instant, Nanos};

use crate::leaving::{Delay, Leaving};

/// Timing of a [`Stage`]. A frame occupies the stage for [`Settings::occupancy`], during which the
/// next one waits. The frame leaves after the latency, which grows with its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Time from the frame's arrival, or from the end of the occupancy before it, until the frame
    /// has passed.
    pub latency: Nanos,
    /// Additional latency for each byte beyond [`Settings::SHORTEST`], in picoseconds.
    pub picoseconds_per_byte: u32,
    /// How long the next frame has to wait. Zero for a pipeline or a machine with many processors.
    pub occupancy: Nanos,
    /// Frames are taken only at multiples of this time, as by a polled bus. Zero takes frames at
    /// once.
    pub interval: Nanos,
}

impl Settings {
    /// Frame length for which [`Settings::latency`] is meant, in bytes.
    pub const SHORTEST: u32 = 68;

    /// A stage in a machine's kernel, during which its processor does nothing else.
    pub const fn busy(latency: Nanos) -> Self {
        Self { occupancy: latency, ..Self::pipeline(latency) }
    }

    /// The DMA interface between logic and processor of an embedded Linux box, used as an Ethernet
    /// device (published: nvme-5g, component_us.fake_ethernet, both directions).
    pub const DMA: Self = Self::between(Nanos::new(816), Nanos::new(2_320));
    /// Routing by iptables in the box at the host (published: nvme-5g,
    /// component_us.linux_iptables). A processor routes one packet after the other.
    pub const ROUTING_UPSTREAM: Self = Self::busy(Nanos::new(10_200));
    /// Routing by iptables in the box at the device (published: nvme-5g,
    /// component_us.linux_iptables).
    pub const ROUTING_DOWNSTREAM: Self = Self::busy(Nanos::new(11_000));
    /// The USB stack of the box at the host, to a modem or an adapter (published: nvme-5g,
    /// component_us.linux_usb_stack). It mostly waits for its controller.
    pub const USB_UPSTREAM: Self = Self::pipeline(Nanos::new(36_200));
    /// The USB stack of the box at the device (published: nvme-5g, component_us.linux_usb_stack).
    pub const USB_DOWNSTREAM: Self = Self::pipeline(Nanos::new(23_900));

    /// A stage in which frames do not wait for each other.
    pub const fn pipeline(latency: Nanos) -> Self {
        Self { latency, picoseconds_per_byte: 0, occupancy: Nanos::ZERO, interval: Nanos::ZERO }
    }

    /// A stage that takes `shortest` for the smallest frame of 68 B and `longest` for the largest
    /// of 1518 B.
    ///
    /// # Panics
    /// When [`Settings::slope`] is `None` for these times.
    pub const fn between(shortest: Nanos, longest: Nanos) -> Self {
        let Some(slope) = Self::slope(shortest, longest) else {
            panic!("a byte takes a microsecond or less than nothing")
        };
        Self { picoseconds_per_byte: slope, ..Self::pipeline(shortest) }
    }

    /// Picoseconds for each further byte, if a frame of 68 B takes `shortest` and one of 1518 B
    /// takes `longest`. `None` if `longest` is less than `shortest`, or if a byte takes 1 µs or
    /// more.
    pub const fn slope(shortest: Nanos, longest: Nanos) -> Option<u32> {
        let Some(more) = longest.get().checked_sub(shortest.get()) else { return None };
        let slope = more.saturating_mul(1_000) / (1_518 - Self::SHORTEST as u64);
        #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
        if slope < 1_000_000 { Some(slope as u32) } else { None }
    }

    /// A polled bus that takes frames every `interval` (USB: a micro-frame of 125 µs), and then
    /// needs `latency`.
    pub const fn polled(interval: Nanos, latency: Nanos) -> Self {
        Self { interval, ..Self::pipeline(latency) }
    }

    /// Time that a frame of `length` bytes takes on an idle stage that is not polled.
    pub fn of(&self, length: u32) -> Nanos {
        let further = u64::from(length.saturating_sub(Self::SHORTEST));
        self.latency + Nanos::new(further * u64::from(self.picoseconds_per_byte) / 1_000)
    }
}

/// One direction of a processing step. Frames keep their order.
#[derive(Clone, Debug)]
pub struct Stage {
    settings: Settings,
    busy_until: Instant,
    leaving: Leaving,
}

impl Stage {
    /// Maximum number of frames inside; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 12;

    /// An idle stage with these settings.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, busy_until: Instant::ZERO, leaving: Leaving::new() }
    }

    /// The settings that the stage was built with.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Delay for Stage {
    const INSIDE_MAX: usize = Self::INSIDE_MAX;

    fn delay(&mut self, arrived: Instant, length: u32) -> Option<Instant> {
        let mut start = arrived.max(self.busy_until);
        if self.settings.interval > Nanos::ZERO {
            let interval = self.settings.interval.get();
            start = Instant::from_nanos(start.as_nanos().div_ceil(interval).saturating_mul(interval));
        }
        self.busy_until = start + self.settings.occupancy;
        Some(start + self.settings.of(length))
    }

    fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    fn leaving_mut(&mut self) -> &mut Leaving {
        &mut self.leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Frame, Hop};
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
