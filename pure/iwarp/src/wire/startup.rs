//! The frames that begin a connection (RFC 5044, section 7.1; RFC 6581).

use alloc::vec::Vec;
use core::fmt;

/// Length of the longest private data of a frame in bytes. An [`Enhanced`] part takes four of them.
pub const PRIVATE_DATA_LENGTH_MAX: usize = 512;
/// The greatest number of reads in IRD and ORD. It also stands for "not negotiated".
pub const IRD_ORD_MAX: u16 = 0x3fff;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// The upper bit of the words IRD and ORD.
const UPPER: u16 = 0x8000;
/// The lower bit of the words IRD and ORD.
const LOWER: u16 = 0x4000;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the connecting end (MPA Request).
    Request,
    /// From the end that accepts or rejects (MPA Reply).
    Reply,
}

impl FrameKind {
    const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// The revision of MPA (Rev).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    Two,
}

/// The enhanced part of connection set-up (RFC 6581, section 4): the numbers of reads, and how the
/// connecting end permits the other end to send first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// Maximum number of the peer's reads that this end answers at a time (IRD).
    pub ird: u16,
    /// Maximum number of this end's outstanding reads (ORD).
    pub ord: u16,
    /// The connecting end sends an empty message first, so that the other end may send (A).
    pub peer_to_peer: bool,
    /// This message may be a Send (B).
    pub send: bool,
    /// This message may be a Write (C).
    pub write: bool,
    /// This message may be a Read (D).
    pub read: bool,
}

impl Enhanced {
    /// Length in bytes.
    pub const LENGTH: usize = 4;

    /// Parses the beginning of private data.
    pub const fn parse(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d] = bytes;
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self {
            ird: ird & IRD_ORD_MAX,
            ord: ord & IRD_ORD_MAX,
            peer_to_peer: ird & UPPER != 0,
            send: ird & LOWER != 0,
            write: ord & UPPER != 0,
            read: ord & LOWER != 0,
        }
    }

    /// Emits the bytes before the private data of the user.
    pub fn emit(self) -> [u8; Self::LENGTH] {
        let bits = |upper, lower| u16::from(upper) << 15 | u16::from(lower) << 14;
        let ird = self.ird.min(IRD_ORD_MAX) | bits(self.peer_to_peer, self.send);
        let ord = self.ord.min(IRD_ORD_MAX) | bits(self.write, self.read);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }
}

/// The head of a frame. The private data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The sender asks for markers in the bytes that it receives (M).
    pub markers: bool,
    /// The sender asks for CRCs (C). If one end asks for them, both use them.
    pub crc: bool,
    /// The connection is rejected (R); only in a reply.
    pub reject: bool,
    /// Private data begin with an [`Enhanced`] part (S).
    pub enhanced: bool,
    /// The revision.
    pub revision: Revision,
    /// Length of all private data in bytes (PD_Length).
    pub length: u16,
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupError {
    /// The key is not that of the expected frame.
    Key,
    /// The revision is unknown; the value is the one found.
    Revision(u8),
    /// The private data are longer than [`PRIVATE_DATA_LENGTH_MAX`]; the value is their length.
    Length(u16),
    /// The frame announces an [`Enhanced`] part, but is too short or of a revision without it.
    Enhanced,
}

impl StartupError {
    /// The error in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Key => "the first frame is not one of MPA",
            Self::Revision(_) => "the revision of MPA is neither 1 nor 2",
            Self::Length(_) => "the private data are longer than 512 bytes",
            Self::Enhanced => "the enhanced part of an MPA frame is missing",
        }
    }
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())?;
        match self {
            Self::Revision(found) => write!(f, ": it is {found}"),
            Self::Length(found) => write!(f, ": there are {found}"),
            Self::Key | Self::Enhanced => Ok(()),
        }
    }
}

impl core::error::Error for StartupError {}

impl Startup {
    /// Length in bytes.
    pub const LENGTH: usize = 20;

    /// Parses the head of a frame that must be of `kind`. Ignores reserved flags.
    ///
    /// # Errors
    /// When the frame is refused.
    pub fn parse(bytes: &[u8; Self::LENGTH], kind: FrameKind) -> Result<Self, StartupError> {
        let [key @ .., flags, revision, high, low] = bytes;
        if key != kind.key() {
            return Err(StartupError::Key);
        }
        let length = u16::from_be_bytes([*high, *low]);
        if usize::from(length) > PRIVATE_DATA_LENGTH_MAX {
            return Err(StartupError::Length(length));
        }
        let revision = match revision {
            1 => Revision::One,
            2 => Revision::Two,
            other => return Err(StartupError::Revision(*other)),
        };
        let enhanced = flags & ENHANCED != 0 && revision == Revision::Two;
        if enhanced && usize::from(length) < Enhanced::LENGTH {
            return Err(StartupError::Enhanced);
        }
        Ok(Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            enhanced,
            revision,
            length,
        })
    }

    /// Emits the frame: this head, `enhanced` if there is such a part, and the private data of the
    /// user. The fields `enhanced` and `length` of the head are derived from these.
    ///
    /// # Panics
    /// When the private data are longer than [`PRIVATE_DATA_LENGTH_MAX`].
    pub fn emit(self, enhanced: Option<Enhanced>, private_data: &[u8]) -> Vec<u8> {
        let part = enhanced.map(Enhanced::emit);
        let part = part.as_ref().map_or(&[][..], |part| &part[..]);
        let length = part.len() + private_data.len();
        assert!(length <= PRIVATE_DATA_LENGTH_MAX, "private data of {length} bytes exceed the limit of 512");
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(enhanced.is_some(), ENHANCED);
        let revision = match self.revision {
            Revision::One => 1,
            Revision::Two => 2,
        };
        let [.., high, low] = length.to_be_bytes();
        let mut frame = Vec::with_capacity(Self::LENGTH + length);
        frame.extend_from_slice(self.kind.key());
        frame.extend_from_slice(&[flags, revision, high, low]);
        frame.extend_from_slice(part);
        frame.extend_from_slice(private_data);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(flags: u8, revision: u8, length: u16) -> [u8; 20] {
        let mut bytes = *b"MPA ID Req Frame\0\0\0\0";
        let [high, low] = length.to_be_bytes();
        bytes[16..].copy_from_slice(&[flags, revision, high, low]);
        bytes
    }

    /// The request that Linux's siw sends with 16 reads each way and no private data of its user.
    #[test]
    fn a_request_of_siw_is_understood() {
        let parsed = Startup::parse(&head(0x10, 2, 4), FrameKind::Request).unwrap();
        assert!(parsed.enhanced && !parsed.crc && !parsed.markers && !parsed.reject);
        let part = Enhanced::parse([0x80, 16, 0xc0, 16]);
        assert_eq!((part.ird, part.ord), (16, 16));
        assert!(part.peer_to_peer && !part.send && part.write && part.read);
        let mut whole = head(0x10, 2, 4).to_vec();
        whole.extend_from_slice(&[0x80, 16, 0xc0, 16]);
        assert_eq!(parsed.emit(Some(part), b""), whole);
    }

    #[test]
    fn a_broken_frame_is_refused() {
        let parse = |bytes: [u8; 20]| Startup::parse(&bytes, FrameKind::Request).unwrap_err();
        assert_eq!(parse(head(0, 0, 0)), StartupError::Revision(0));
        assert_eq!(parse(head(0, 3, 0)), StartupError::Revision(3));
        assert_eq!(parse(head(0, 1, 513)), StartupError::Length(513));
        assert_eq!(parse(head(0x10, 2, 3)), StartupError::Enhanced);
        assert!(Startup::parse(&head(0x10, 1, 3), FrameKind::Request).is_ok(), "reserved in revision 1");
        assert!(Startup::parse(&head(0x0f, 1, 512), FrameKind::Request).is_ok(), "reserved flags");
        assert_eq!(Startup::parse(&head(0, 1, 0), FrameKind::Reply), Err(StartupError::Key));
    }

    #[test]
    fn every_enhanced_part_survives_parsing() {
        for ird in (0..=u16::MAX).step_by(0x1001) {
            for ord in (0..=u16::MAX).step_by(0x0fff) {
                let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
                assert_eq!(Enhanced::parse([a, b, c, d]).emit(), [a, b, c, d]);
            }
        }
    }
}
