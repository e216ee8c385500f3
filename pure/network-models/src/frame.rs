//! Frames, which pass hops.

use engine::{Buffer, Instant, Nanos};

/// Length of the smallest Ethernet frame in bytes, including header and frame check sequence (IEEE
/// 802.3-2022, 3.2.8).
pub const FRAME_MIN: u32 = 64;
/// Length in bytes of an Ethernet frame's header: destination, source and type (IEEE 802.3-2022,
/// 3.1.1).
pub const HEADER: u32 = 14;
/// Length in bytes of the tag that carries a frame's priority (IEEE 802.1Q-2018, 9.6).
pub const TAG: u32 = 4;
/// Length in bytes of the frame check sequence (IEEE 802.3-2022, 3.1.1).
pub const CHECK_SEQUENCE: u32 = 4;
/// Length in bytes of preamble and start-of-frame delimiter (IEEE 802.3-2022, 3.1.1).
pub const PREAMBLE: u32 = 8;
/// The gap that follows a frame, as bytes of link time (IEEE 802.3-2022, 4.4.2: 96 bit times).
pub const INTER_FRAME_GAP: u32 = 12;

/// A traffic class, or priority code point: 0 (background and best effort) to 7 (highest priority).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// Number of traffic classes (IEEE 802.1Q-2018, 8.6.6).
    pub const COUNT: usize = 8;
    /// The lowest class, 0.
    pub const BEST_EFFORT: Self = Self(0);
    /// The highest class, 7, which is served first unless settings say otherwise.
    pub const HIGHEST: Self = Self(7);
    /// All classes, the lowest first.
    pub const ALL: [Self; Self::COUNT] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];

    /// The class with this number; `None` if `number` is not in 0..8.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 8 { Some(Self(number)) } else { None }
    }
    /// Number of the class, 0 to 7.
    pub const fn number(self) -> u8 {
        self.0
    }
    /// Number of the class as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bytes on their way, and what hops need to know about them.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Number that the sender gives the frame. Copies made by replication have the same number.
    pub id: u64,
    /// Length in bytes from the destination address to the frame check sequence, including both.
    pub length: u32,
    /// Traffic class, which decides the queue of a port.
    pub class: Class,
    /// The data for the receiver. Models never look at it, and its length may differ from that of
    /// the frame.
    pub payload: Buffer,
    /// When the frame entered the first hop; for measurements.
    pub sent: Instant,
    /// How long the frame's bits continue to arrive after the frame was handed to a hop. It is zero
    /// (the whole frame has arrived) except between a port and a cut-through switch.
    pub tail: Nanos,
    /// Whether the check sequence fits the frame's bytes. The receiver and the end of a
    /// [`Path`](crate::Path) drop damaged frames.
    pub intact: bool,
}

impl Frame {
    /// A frame with `payload`. `length` is in bytes, includes the check sequence, and is raised to
    /// Ethernet's minimum.
    pub fn new(id: u64, length: u32, class: Class, payload: Buffer) -> Self {
        let length = length.max(FRAME_MIN);
        Self { id, length, class, payload, sent: Instant::ZERO, tail: Nanos::ZERO, intact: true }
    }

    /// Time that the frame occupies an Ethernet link, in bytes: with preamble and inter-frame gap.
    pub const fn wire_bytes(&self) -> u64 {
        self.length as u64 + PREAMBLE as u64 + INTER_FRAME_GAP as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_frame_occupies_84_bytes_of_a_link() {
        assert_eq!(Frame::new(0, 1, Class::BEST_EFFORT, Buffer::EMPTY).wire_bytes(), 84);
        assert_eq!(Frame::new(0, 1518, Class::BEST_EFFORT, Buffer::EMPTY).wire_bytes(), 1538);
    }

    #[test]
    fn there_are_eight_classes() {
        assert_eq!(Class::new(7), Some(Class::HIGHEST));
        assert_eq!(Class::new(8), None);
        assert!(Class::ALL.iter().enumerate().all(|(index, class)| class.index() == index));
    }
}
