//! The bytes of a datagram.

use core::fmt;
use core::ops::RangeInclusive;

use engine::Nanos;

/// The version of the format.
const VERSION: u8 = 1;
/// Bytes of every datagram's beginning: version, kind, length, and the receiver's name for
/// the connection.
const START: usize = 12;
/// Bytes of a challenge.
const CHALLENGE_BYTES: usize = START + 8;
/// Where a Hello has the value of a challenge.
const ECHO_AT: usize = START + 2;
/// Bytes of a packet before its bytes of the stream.
pub(crate) const HEAD: usize = 68;
/// Bytes of the two datagrams by which ends meet. They are as long as a path must carry, and the
/// answer is no longer than the question.
pub const MEETING_BYTES: usize = 1200;
/// Number of packets before the latest one that an acknowledgement covers.
pub(crate) const COVERED: u64 = 128;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const PROBE: u8 = 5;
const END: u8 = 6;
const UNKNOWN: u8 = 7;
const CHALLENGE: u8 = 8;
/// The kinds of packets that are for the two ends of an established connection; the others open or
/// end connections.
pub const PACKET_KINDS: RangeInclusive<u8> = DATA..=PROBE;

/// One end's name for a connection. 48 bits or more are random: only the two ends know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) u64);

impl Name {
    /// The bits that identify the end: a far end's port behind a set bit, or a clear bit.
    const DIALLED: u64 = 1 << 63;
    const PORT_AT: u32 = 48;

    /// A name of an end that dials, of random `bits`.
    pub(crate) const fn dialling(bits: u64) -> Self {
        Self(bits & !Self::DIALLED)
    }

    /// A name of an end that was dialled at `port`, of random `bits`.
    pub(crate) const fn dialled(port: u16, bits: u64) -> Self {
        Self(Self::begins(port) | bits & ((1 << Self::PORT_AT) - 1))
    }

    /// Whether this is a name of an end that was dialled at `port`.
    pub(crate) const fn is_of(self, port: u16) -> bool {
        self.0 >> Self::PORT_AT == Self::begins(port) >> Self::PORT_AT
    }

    const fn begins(port: u16) -> u64 {
        Self::DIALLED | (port as u64) << Self::PORT_AT
    }
}

/// The largest port at which an [`Endpoint`](crate::Endpoint) may be dialled.
pub const PORT_MAX: u16 = 0x7fff;

/// The first bytes of the receiver's name in packets for the end that was dialled at `port`, by
/// which a program in the kernel can select them.
pub const fn names_of(port: u16) -> [u8; 2] {
    let [a, b, ..] = Name::begins(port).to_be_bytes();
    [a, b]
}

/// An end's report of the received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The largest number of a received packet; 0 if there is none.
    pub(crate) largest: u64,
    /// Bit `i`: the packet `i + 1` before the largest was received too.
    pub(crate) before: u128,
    /// Every byte of the stream before this one was received.
    pub(crate) whole: u64,
    /// How many bytes of the stream from there on may be sent.
    pub(crate) window: u32,
    /// Time since the arrival of the largest packet, in nanoseconds.
    pub(crate) delay: u32,
}

impl Ack {
    /// Whether packet `number` was received, by this acknowledgement.
    pub(crate) const fn has(&self, number: u64) -> bool {
        match self.largest.checked_sub(number) {
            Some(0) => number > 0,
            Some(back) => back <= COVERED && self.before >> (back - 1) & 1 == 1,
            None => false,
        }
    }

    pub(crate) const fn delay(&self) -> Nanos {
        Nanos::new(self.delay as u64)
    }
}

/// The purpose of a packet of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It has bytes of the stream.
    Data,
    /// It acknowledges, and is not acknowledged itself.
    Ack,
    /// It requires an acknowledgement, and has no bytes; it may be padded.
    Probe,
}

/// A datagram that was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datagram<'a> {
    /// The dialling end's first datagram, with its name for the connection, the port that it dials,
    /// and the value of the challenge that it has received; 0 if it has received none.
    Hello { from: Name, port: u16, echo: u64 },
    /// The answer, with the name of the end that was dialled.
    Welcome { to: Name, from: Name },
    /// A packet of an established connection.
    Packet { to: Name, purpose: Purpose, number: u64, ack: Ack, offset: u64, bytes: &'a [u8] },
    /// The sender has ended the connection, and has no more data to send.
    End { to: Name },
    /// The sender knows no connection of the name that is repeated here.
    Unknown { name: Name },
    /// The sender of the Hello must repeat it with this value, which proves its address.
    Challenge { to: Name, value: u64 },
}

/// Why a datagram is not of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It has this many bytes, fewer than its kind needs or than its length field.
    Short(usize),
    /// It has another version.
    Version(u8),
    /// Its kind is unknown.
    Kind(u8),
    /// Its length field has this value, which is invalid for its kind.
    Length(u16),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(length) => write!(f, "a datagram of {length} B is too short"),
            Self::Version(version) => write!(f, "version {version}, expected {VERSION}"),
            Self::Kind(kind) => write!(f, "kind {kind}, expected 1 to 8"),
            Self::Length(length) => write!(f, "a length of {length} B, which its kind can't have"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Whether a datagram requests a new connection.
pub fn is_hello(datagram: &[u8]) -> bool {
    matches!(Datagram::parse(datagram), Ok(Datagram::Hello { .. }))
}

impl<'a> Datagram<'a> {
    /// Parses a datagram. Only a probe, and a datagram shorter than the shortest frame, may have
    /// bytes behind the length in its head.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short(bytes.len());
        let [version, kind, high, low, name @ ..] = bytes else { return Err(short) };
        if *version != VERSION {
            return Err(Malformed::Version(*version));
        }
        let field = u16::from_be_bytes([*high, *low]);
        let length = usize::from(field);
        if name.len() < 8 || bytes.len() < length {
            return Err(short);
        }
        let to = Name(word(bytes, 4));
        let wanted = match *kind {
            HELLO | WELCOME => length == MEETING_BYTES,
            DATA => length > HEAD && length == bytes.len(),
            ACK => length == HEAD && length == bytes.len(),
            PROBE => length == HEAD || length > HEAD && is_padding(&bytes[..length]),
            END | UNKNOWN => length == START,
            CHALLENGE => length == CHALLENGE_BYTES,
            kind => return Err(Malformed::Kind(kind)),
        };
        if !wanted {
            return Err(Malformed::Length(field));
        }
        Ok(match *kind {
            HELLO => {
                let port = u16::from_be_bytes([bytes[START], bytes[START + 1]]);
                Self::Hello { from: to, port, echo: word(bytes, ECHO_AT) }
            }
            WELCOME => Self::Welcome { to, from: Name(word(bytes, START)) },
            END => Self::End { to },
            UNKNOWN => Self::Unknown { name: to },
            CHALLENGE => Self::Challenge { to, value: word(bytes, START) },
            kind => {
                let purpose = match kind {
                    DATA => Purpose::Data,
                    ACK => Purpose::Ack,
                    _ => Purpose::Probe,
                };
                let before = u128::from(word(bytes, 28)) << 64 | u128::from(word(bytes, 36));
                let [window, delay] = [52, 56].map(|at| (word(bytes, at) >> 32) as u32);
                let ack = Ack { largest: word(bytes, 20), before, whole: word(bytes, 44), window, delay };
                let (number, offset) = (word(bytes, START), word(bytes, 60));
                // The bytes behind the head of a probe are padding.
                let end = if purpose == Purpose::Probe { HEAD } else { length };
                Self::Packet { to, purpose, number, ack, offset, bytes: &bytes[HEAD..end] }
            }
        })
    }

    /// Writes the datagram's bytes behind those of `room`, which grows by at most the length of the
    /// longest datagram.
    pub(crate) fn emit(&self, room: &mut alloc::vec::Vec<u8>) {
        let begin = room.len();
        match *self {
            Self::Hello { from, port, echo } => {
                start(room, HELLO, MEETING_BYTES, from);
                room.extend(port.to_be_bytes());
                room.extend(echo.to_be_bytes());
                room.resize(begin + MEETING_BYTES, 0);
            }
            Self::Welcome { to, from } => {
                start(room, WELCOME, MEETING_BYTES, to);
                room.extend(from.0.to_be_bytes());
                room.resize(begin + MEETING_BYTES, 0);
            }
            Self::End { to } => start(room, END, START, to),
            Self::Unknown { name } => start(room, UNKNOWN, START, name),
            Self::Challenge { to, value } => {
                start(room, CHALLENGE, CHALLENGE_BYTES, to);
                room.extend(value.to_be_bytes());
            }
            Self::Packet { to, purpose, number, ack, offset, bytes } => {
                let kind = match purpose {
                    Purpose::Data => DATA,
                    Purpose::Ack => ACK,
                    Purpose::Probe => PROBE,
                };
                start(room, kind, HEAD + bytes.len(), to);
                room.extend(number.to_be_bytes());
                room.extend(ack.largest.to_be_bytes());
                room.extend(ack.before.to_be_bytes());
                room.extend(ack.whole.to_be_bytes());
                room.extend(ack.window.to_be_bytes());
                room.extend(ack.delay.to_be_bytes());
                room.extend(offset.to_be_bytes());
                room.extend(bytes);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "no datagram is longer than 65535 bytes")]
fn start(room: &mut alloc::vec::Vec<u8>, kind: u8, length: usize, name: Name) {
    room.extend([VERSION, kind]);
    room.extend((length as u16).to_be_bytes());
    room.extend(name.0.to_be_bytes());
}

/// Whether a probe has only zeros behind its head, and names no offset in the stream. A packet with
/// data that was changed into a probe on the way must not be acknowledged.
fn is_padding(probe: &[u8]) -> bool {
    word(probe, 60) == 0 && probe[HEAD..].iter().all(|byte| *byte == 0)
}

/// The word of 8 bytes at `at`, which the caller has checked to be there.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

/// Corrects the length field of a datagram after bytes of the stream were put behind its head.
#[expect(clippy::cast_possible_truncation, reason = "no datagram is longer than 65535 bytes")]
pub(crate) fn lengthen(datagram: &mut [u8]) {
    let length = (datagram.len() as u16).to_be_bytes();
    datagram[2..4].copy_from_slice(&length);
}
