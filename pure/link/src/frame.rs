//! What passes hops.

use engine::{Buffer, Instant, Nanos};

/// The smallest Ethernet frame, header and frame check sequence included, bytes (IEEE 802.3-2022, 3.2.8).
pub const FRAME_MIN: u32 = 64;
/// Destination, source and type of an Ethernet frame, bytes (IEEE 802.3-2022, 3.1.1).
pub const HEADER: u32 = 14;
/// The tag that carries a frame's priority, bytes (IEEE 802.1Q-2018, 9.6).
pub const TAG: u32 = 4;
/// The frame check sequence, bytes (IEEE 802.3-2022, 3.1.1).
pub const CHECK_SEQUENCE: u32 = 4;
/// Preamble and start-of-frame delimiter, bytes (IEEE 802.3-2022, 3.1.1).
pub const PREAMBLE: u32 = 8;
/// The gap that follows a frame, bytes of time (IEEE 802.3-2022, 4.4.2: 96 bit times).
pub const INTER_FRAME_GAP: u32 = 12;

/// A traffic class, or priority code point: 0 (background and best effort) to 7 (first of all).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// How many there are (IEEE 802.1Q-2018, 8.6.6).
    pub const COUNT: usize = 8;
    /// The lowest.
    pub const BEST_EFFORT: Self = Self(0);
    /// The one served first where nothing else is said.
    pub const HIGHEST: Self = Self(7);
    /// All of them, the lowest first.
    pub const ALL: [Self; Self::COUNT] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];

    /// Class `number`, if it is 0 to 7.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 8 { Some(Self(number)) } else { None }
    }
    /// 0 to 7.
    pub const fn number(self) -> u8 {
        self.0
    }
    /// The same as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bytes on their way, and what hops need to know of them.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Whoever sends numbers its frames; copies that replication makes have the same number.
    pub id: u64,
    /// Bytes from the destination address to the frame check sequence, both included.
    pub length: u32,
    /// Which queue of a port it waits in.
    pub class: Class,
    /// What the receiver is given. Models never look at it, and its length need not be that of the frame.
    pub payload: Buffer,
    /// When it entered the first hop; for whoever measures.
    pub sent: Instant,
    /// How long its bits go on arriving after it was handed to a hop: zero (the whole frame has arrived)
    /// except between a port and a cut-through switch.
    pub tail: Nanos,
    /// Whether its check sequence fits its bytes. A receiver drops a damaged frame, and so does the end of
    /// a [`Path`](crate::Path).
    pub intact: bool,
}

impl Frame {
    /// A frame of `length` bytes (check sequence included; padded to the smallest that Ethernet knows) which carries `payload`.
    pub fn new(id: u64, length: u32, class: Class, payload: Buffer) -> Self {
        let length = length.max(FRAME_MIN);
        Self { id, length, class, payload, sent: Instant::ZERO, tail: Nanos::ZERO, intact: true }
    }

    /// Bytes of time that it occupies an Ethernet link: with preamble and inter-frame gap.
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
