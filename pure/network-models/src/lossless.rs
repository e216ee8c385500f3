//! Links that lose nothing: a sender waits until the receiver has room.
//!
//! InfiniBand grants credits (InfiniBand Architecture Specification, volume 1, 7.9). Ethernet with
//! Priority Flow Control (IEEE 802.1Q-2018, clause 36) stops the sender in time instead. Both end
//! at the same byte where the buffer has room for the bytes on their way, so one model serves both:
//! a frame leaves when the buffer behind the link has room for all of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use crate::{Counts, Frame, Hop, Rate};

/// Bytes of a frame after which a cut-through node knows where it goes: an InfiniBand local route
/// header and base transport header with the next 10 bytes, or an Ethernet and an IP header.
const HEADER_BYTES: u64 = 30;
/// Picoseconds in a nanosecond. Times are in ps, because a byte takes 20 ps at 400 Gbit/s.
const PICOS: u64 = 1_000;

/// A link of a lossless network, with the node that sends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rate of the data, without the line code.
    pub rate: Rate,
    /// Time in the node before the link, from a frame's header to its first bit on the link.
    pub processing: Nanos,
    /// Time of a bit from one end of the link to the other: cable and physical layers.
    pub propagation: Nanos,
    /// Bytes that the receiver's buffer holds, for this class of traffic.
    pub buffer: u64,
    /// Whether the node sends a frame's beginning before its end has arrived.
    pub cut_through: bool,
    /// Whether Ethernet's preamble and gap take time beside the frame.
    pub is_ethernet: bool,
}

impl Settings {
    /// Least size of a buffer in bytes: a frame that is longer than its buffer would wait for ever.
    pub const BUFFER_MIN: u64 = 10_240;
    /// The usual size of a buffer in bytes: 64 KiB for a virtual lane, an estimate for switches of
    /// a few MB for all ports.
    pub const BUFFER: u64 = 64 << 10;

    /// Time of both physical layers of a link of InfiniBand: an estimate.
    pub const PHYSICAL: Nanos = Nanos::new(50);

    /// A link of InfiniBand with four lanes: its data rate after the line code (InfiniBand
    /// Architecture Specification, volume 2: 14.0625 and 25.78125 Gbaud a lane with 64b/66b; 53.125
    /// and 106.25 Gbit/s a lane with forward error correction). `None` if the name is not `fdr`,
    /// `edr`, `hdr` or `ndr`.
    pub fn infiniband(speed: &str) -> Option<Rate> {
        Some(Rate::from_megabits(match speed {
            "fdr" => 54_545,
            "edr" => 100_000,
            "hdr" => 200_000,
            "ndr" => 400_000,
            _ => return None,
        }))
    }

    /// Time that a frame occupies the link, in ps.
    fn occupied(&self, frame: &Frame) -> u64 {
        let bytes = if self.is_ethernet { frame.wire_bytes() } else { u64::from(frame.length) };
        self.rate.picoseconds(bytes)
    }
}

/// Sending side of a link, with its knowledge of the buffer at the other end.
#[derive(Clone, Debug)]
struct Link {
    settings: Settings,
    /// When the link has sent everything, in ps.
    free: u64,
    /// Bytes of the buffer that are in use.
    used: u64,
    /// When room becomes free here, in ps, and how many bytes.
    returns: VecDeque<(u64, u64)>,
}

impl Link {
    /// When the buffer has room for `bytes`, in ps; takes the room that has become free by then.
    fn room(&mut self, bytes: u64) -> u64 {
        let mut at = 0;
        while self.used > 0 && self.used + bytes > self.settings.buffer {
            let Some((back, freed)) = self.returns.pop_front() else { break };
            at = back;
            self.used -= freed;
        }
        at
    }
}

/// One or several links in series, none of which loses a frame. A buffer that is full keeps the
/// link before it waiting, and so on to the first.
#[derive(Clone, Debug)]
pub struct Lossless {
    links: Vec<Link>,
    /// Frames inside with the times when they leave, in order.
    inside: VecDeque<(Instant, Frame)>,
    counts: Counts,
}

impl Lossless {
    /// Maximum number of frames inside; further frames are lost. The user of such a link has a
    /// window.
    pub const INSIDE_MAX: usize = 1 << 18;

    /// The links that `settings` describe; the first is entered first.
    ///
    /// # Panics
    /// When there is no link, or a buffer has less than [`Settings::BUFFER_MIN`] bytes.
    pub fn new(settings: impl IntoIterator<Item = Settings>) -> Self {
        let link = |settings: Settings| {
            assert!(settings.buffer >= Settings::BUFFER_MIN, "a buffer of at least a frame");
            Link { settings, free: 0, used: 0, returns: VecDeque::new() }
        };
        let links: Vec<_> = settings.into_iter().map(link).collect();
        assert!(!links.is_empty(), "at least one link");
        Self { links, inside: VecDeque::new(), counts: Counts::default() }
    }

    /// The settings of the links.
    pub fn links(&self) -> impl Iterator<Item = &Settings> {
        self.links.iter().map(|link| &link.settings)
    }

    /// When the last bit of `frame`, which is here at `now` in ps, has passed all links.
    fn pass(&mut self, now: u64, frame: &Frame) -> u64 {
        let bytes = u64::from(frame.length);
        // When the frame's header and its last bit are at the node.
        let (mut header, mut tail) = (now, now);
        let mut before: Option<usize> = None;
        for index in 0..self.links.len() {
            let settings = self.links[index].settings;
            let length = settings.occupied(frame);
            let known = if settings.cut_through { header } else { tail };
            let room = self.links[index].room(bytes);
            let link = &mut self.links[index];
            // No gap may be in a frame: its last bit must be there in time.
            let complete = tail.saturating_sub(length);
            let begin = (known + settings.processing.get() * PICOS).max(complete).max(link.free).max(room);
            link.free = begin + length;
            link.used += bytes;
            // The frame has left the buffer of this node, and the node before hears of it.
            if let Some(before) = before {
                let before = &mut self.links[before];
                before.returns.push_back((link_free(begin, length, before), bytes));
            }
            let flight = settings.propagation.get() * PICOS;
            header = begin + settings.rate.picoseconds(HEADER_BYTES.min(bytes)) + flight;
            tail = begin + length + flight;
            before = Some(index);
        }
        if let Some(last) = self.links.last_mut() {
            let back = last.settings.propagation.get() * PICOS;
            last.returns.push_back((tail + back, bytes));
        }
        tail
    }
}

/// When the node before learns that a frame has left which began at `begin` and took `length`.
const fn link_free(begin: u64, length: u64, before: &Link) -> u64 {
    begin + length + before.settings.propagation.get() * PICOS
}

impl Hop for Lossless {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.inside.len() >= Self::INSIDE_MAX {
            self.counts.lost += 1;
            return;
        }
        let here = now + core::mem::take(&mut frame.tail);
        let out = self.pass(here.as_nanos() * PICOS, &frame);
        self.inside.push_back((Instant::from_nanos(out.div_ceil(PICOS)), frame));
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.inside.front().filter(|(at, _)| *at <= now)?;
        let (_, frame) = self.inside.pop_front()?;
        self.counts.left += 1;
        Some(frame)
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
    use engine::Buffer;

    const FDR: Settings = Settings {
        rate: Rate::from_megabits(54_545),
        processing: Nanos::ZERO,
        propagation: Nanos::new(10),
        buffer: Settings::BUFFER,
        cut_through: true,
        is_ethernet: false,
    };
    /// A switch of the field, port to port.
    const SWITCH: Settings = Settings { processing: Nanos::new(170), ..FDR };

    fn frame(id: u64, length: u32) -> Frame {
        Frame::new(id, length, Class::BEST_EFFORT, Buffer::EMPTY)
    }

    /// When each of `count` frames of `length` bytes leaves that enter at once.
    fn leave(hop: &mut Lossless, count: u64, length: u32) -> Vec<u64> {
        for id in 0..count {
            hop.enter(Instant::ZERO, frame(id, length));
        }
        let mut left = Vec::new();
        while let Some(at) = hop.next() {
            assert_eq!(hop.poll(at).map(|frame| frame.id), Some(left.len() as u64));
            left.push(at.as_nanos());
        }
        left
    }

    #[test]
    fn a_switch_that_cuts_through_adds_its_own_time_and_the_header() {
        // 4122 B take 604.6 ns at 54.545 Gbit/s, 30 B 4.4 ns.
        assert_eq!(leave(&mut Lossless::new([FDR]), 1, 4122), [615]);
        assert_eq!(leave(&mut Lossless::new([FDR, SWITCH]), 1, 4122), [10 + 4 + 170 + 605 + 10]);
        let stored = Settings { cut_through: false, ..SWITCH };
        assert_eq!(leave(&mut Lossless::new([FDR, stored]), 1, 4122), [605 + 10 + 170 + 605 + 10]);
    }

    #[test]
    fn a_slower_link_behind_keeps_the_first_one_waiting_and_loses_nothing() {
        let slow = Settings { rate: Rate::from_megabits(10_000), ..SWITCH };
        let mut hop = Lossless::new([FDR, slow]);
        let left = leave(&mut hop, 200, 4_096);
        // 4096 B take 3.28 µs at 10 Gbit/s, one after the other.
        assert!(left.windows(2).all(|pair| (3_276..=3_277).contains(&(pair[1] - pair[0]))), "{left:?}");
        assert_eq!((hop.counts().lost, hop.counts().left), (0, 200));
        // The first link waited for the buffer: at most 16 frames lie in it.
        let sent = hop.links[0].free / PICOS;
        assert!(sent + 17 * 3_277 > left[199] && sent + 15 * 3_277 < left[199], "{sent} of {}", left[199]);
    }

    #[test]
    fn a_long_cable_needs_a_buffer_for_its_round_trip() {
        // 10 km: 50 µs each way. A buffer of 64 KiB in each 100 µs and a frame are 0.65 GB/s.
        let far = Settings { propagation: Nanos::from_micros(50), ..FDR };
        let rate = |buffer| {
            let left = leave(&mut Lossless::new([Settings { buffer, ..far }]), 2_000, 4_096);
            2_000 * 4_096 * 1_000 / left[1_999]
        };
        assert!((600..660).contains(&rate(64 << 10)), "{} MB/s", rate(64 << 10));
        assert!(rate(1 << 20) > 6_500, "{} MB/s", rate(1 << 20));
    }

    #[test]
    fn ethernet_pays_for_preamble_and_gap() {
        let ethernet = Settings { rate: Rate::from_gigabits(100), is_ethernet: true, ..FDR };
        assert_eq!(leave(&mut Lossless::new([ethernet]), 1, 1_518), [124 + 10]);
        assert_eq!(Settings::infiniband("ndr"), Some(Rate::from_gigabits(400)));
        assert_eq!(Settings::infiniband("qdr"), None);
    }
}
