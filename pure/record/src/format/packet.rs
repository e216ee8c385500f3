//! Packets in a stream: records of a head and the bytes of a packet.
//!
//! A record lies in one chunk whole, and every data chunk begins with a record. A lost chunk thus
//! costs its own packets and no others.

use super::{Time, TimeSource, u32_at, u64_at};

/// Length of a record's head in bytes. The packet's bytes follow.
pub const PACKET_HEAD: usize = 16;

/// The content of a stream's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Bytes without a form that the recording knows.
    #[default]
    Bytes,
    /// Records of packets.
    Packets(LinkType),
    /// Something else, by its number in the format.
    Other(u8),
}

impl Content {
    /// Parses the four bytes of a superblock.
    pub(super) const fn parse(bytes: [u8; 4]) -> Self {
        match bytes[0] {
            0 => Self::Bytes,
            1 => Self::Packets(LinkType(u16::from_le_bytes([bytes[2], bytes[3]]))),
            other => Self::Other(other),
        }
    }

    /// Emits the four bytes of a superblock.
    pub(super) const fn emit(self) -> [u8; 4] {
        match self {
            Self::Bytes => [0; 4],
            Self::Packets(link) => {
                let [low, high] = link.0.to_le_bytes();
                [1, 0, low, high]
            }
            Self::Other(other) => [other, 0, 0, 0],
        }
    }
}

/// The protocol of a packet's first bytes: a number of the registry of link types at tcpdump.org
/// (`LINKTYPE_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// An Ethernet frame without its checksum (`LINKTYPE_ETHERNET`).
    pub const ETHERNET: Self = Self(1);
    /// An IPv4 or IPv6 packet (`LINKTYPE_RAW`).
    pub const IP: Self = Self(101);
    /// The payload of a datagram, without any header of a network (`LINKTYPE_USER0`).
    pub const PAYLOAD: Self = Self(147);
}

/// Properties of a packet besides its time and its bytes. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(pub u32);

impl PacketFlags {
    const SOURCE: u32 = 0xff;
    const CUT: u32 = 1 << 8;
    const OUTGOING: u32 = 1 << 9;
    const PADDING: u32 = 1 << 31;

    /// Whether the packet was longer than its recorded bytes.
    pub const fn is_cut(self) -> bool {
        self.0 & Self::CUT != 0
    }

    /// The same, with the packet longer than its recorded bytes.
    #[must_use]
    pub const fn cut(self) -> Self {
        Self(self.0 | Self::CUT)
    }

    /// Whether this host sent the packet.
    pub const fn is_outgoing(self) -> bool {
        self.0 & Self::OUTGOING != 0
    }

    /// The same, with the packet sent by this host.
    #[must_use]
    pub const fn outgoing(self) -> Self {
        Self(self.0 | Self::OUTGOING)
    }

    /// Whether the record is no packet: its bytes have no meaning.
    pub const fn is_padding(self) -> bool {
        self.0 & Self::PADDING != 0
    }

    /// The same, with the record no packet.
    #[must_use]
    pub const fn padding(self) -> Self {
        Self(self.0 | Self::PADDING)
    }
}

/// The head that precedes a packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// The number of bytes that follow.
    pub length: u32,
    /// Further properties of the packet. The source of the time is not among them.
    pub flags: PacketFlags,
    /// When the packet arrived.
    pub time: Time,
}

impl PacketHead {
    /// The head of a whole packet of `length` bytes that arrived at `time`.
    pub const fn new(length: u32, time: Time) -> Self {
        Self { length, flags: PacketFlags(0), time }
    }

    /// The head's bytes.
    pub fn emit(&self) -> [u8; PACKET_HEAD] {
        let mut bytes = [0; PACKET_HEAD];
        let flags = self.flags.0 & !PacketFlags::SOURCE | u32::from(self.time.source.to_byte());
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.time.nanos.to_le_bytes());
        bytes
    }

    /// Parses a head.
    pub fn parse(bytes: &[u8; PACKET_HEAD]) -> Self {
        let [source, ..] = u32_at(bytes, 4).to_le_bytes();
        Self {
            length: u32_at(bytes, 0),
            flags: PacketFlags(u32_at(bytes, 4) & !PacketFlags::SOURCE),
            time: Time { nanos: u64_at(bytes, 8), source: TimeSource::from_byte(source) },
        }
    }
}

/// A packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Further properties of the packet.
    pub flags: PacketFlags,
    /// When the packet arrived.
    pub time: Time,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Packet<'_> {
    /// Writes the record to the start of `room`. Returns its length in bytes, or `None` if there
    /// is no room for the whole record.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let length = u32::try_from(self.bytes.len()).ok()?;
        let end = PACKET_HEAD.checked_add(self.bytes.len())?;
        let (head, bytes) = room.get_mut(..end)?.split_at_mut(PACKET_HEAD);
        head.copy_from_slice(&PacketHead { length, flags: self.flags, time: self.time }.emit());
        bytes.copy_from_slice(self.bytes);
        Some(end)
    }
}

/// The packets of a chunk, in order.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
}

impl<'a> Packets<'a> {
    /// The packets in the payload of one data chunk.
    pub const fn of(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// Once no packet is left: the bytes at the end of the chunk that are no whole record.
    /// There are some if the medium was full before the end of the chunk, or if the writer
    /// broke the rules.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (head, behind) = self.rest.split_first_chunk()?;
            let PacketHead { length, flags, time } = PacketHead::parse(head);
            let (bytes, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
            self.rest = behind;
            if !flags.is_padding() {
                return Some(Packet { flags, time, bytes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Time = Time { nanos: 0x0102_0304_0506_0708, source: TimeSource::Kernel };

    #[test]
    fn a_record_has_the_bytes_of_the_page_that_describes_it() {
        let mut room = [0xee; 20];
        let packet = Packet { flags: PacketFlags(0).cut().outgoing(), time: TIME, bytes: b"abc" };
        assert_eq!(packet.emit(&mut room), Some(19));
        let expected = [3, 0, 0, 0, 2, 3, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, b'a', b'b', b'c', 0xee];
        assert_eq!(room, expected);
        assert_eq!(packet.emit(&mut room[..18]), None);
        let mut packets = Packets::of(&room[..19]);
        assert_eq!((packets.next(), packets.next(), packets.rest()), (Some(packet), None, &[][..]));
    }

    #[test]
    fn padding_is_skipped_and_a_cut_record_is_left() {
        let mut payload = [0; 64];
        let padding = PacketHead { flags: PacketFlags(0).padding(), ..PacketHead::new(4, Time::NONE) };
        payload[..16].copy_from_slice(&padding.emit());
        let empty = Packet { flags: PacketFlags(0), time: TIME, bytes: &[] };
        assert_eq!(empty.emit(&mut payload[20..]), Some(16));
        payload[36..52].copy_from_slice(&PacketHead::new(13, TIME).emit());
        let mut packets = Packets::of(&payload);
        assert_eq!((packets.next(), packets.next()), (Some(empty), None));
        assert_eq!(packets.rest(), &payload[36..]);
    }

    #[test]
    fn what_a_stream_is_comes_back() {
        for content in [Content::Bytes, Content::Packets(LinkType::PAYLOAD), Content::Other(9)] {
            assert_eq!(Content::parse(content.emit()), content);
        }
    }
}
