//! How well this machine's clock follows the network's: management messages of the Precision Time
//! Protocol (IEEE 1588-2008, clause 15).
//!
//! A PTP daemon answers these messages at a local socket: `ptp4l` at `/var/run/ptp4l`. Farlane asks
//! one question: [`question`] emits it, [`Status::parse`] parses the answer. A daemon answers only
//! in its own [`Domain`], and silently drops questions in another one.
//!
//! ```
//! use farlane_ptp::{Domain, Status, question};
//!
//! let asked = question(7, Domain::default());
//! assert_eq!(asked.len(), 54);
//! // A question is no answer.
//! assert!(Status::parse(&asked, 7).is_err());
//! ```
//!
//! # Trust
//! The daemon may send any bytes. Each answer is parsed once, and an unexpected length or type is
//! an error.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

use core::fmt;

use engine::Nanos;

/// Bytes of a message's header (13.3), and of a management message up to its TLV (15.4.1).
const HEADER: usize = 34;
const BEFORE_TLV: usize = HEADER + 14;
/// The type of management messages (table 19), and the version of the protocol.
const MANAGEMENT: u8 = 0xd;
const VERSION: u8 = 2;
/// Actions (table 38).
const GET: u8 = 0;
const RESPONSE: u8 = 2;
/// The type of TLV that has management data, and that of a refusal (table 34).
const TLV_MANAGEMENT: u16 = 1;
/// The question: linuxptp's TIME_STATUS_NP, whose answer has the offset in nanoseconds and the
/// grandmaster.
const TIME_STATUS_NP: u16 = 0xc000;
/// Length of the data of its answer in bytes.
const STATUS: usize = 50;
/// Length of the question in bytes; the question has no data.
const QUESTION: usize = BEFORE_TLV + 6;

/// A clock's identity (7.5.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockIdentity(pub [u8; 8]);

impl fmt::Display for ClockIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}.{d:02x}{e:02x}.{g:02x}{h:02x}{i:02x}")
    }
}

/// The PTP network that a message belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// domainNumber (7.1).
    pub number: u8,
    /// transportSpecific, four bits (13.3.2.1). IEEE 1588-2019 calls them majorSdoId. They are 1
    /// in gPTP (IEEE 802.1AS), the profile of Time-Sensitive Networking.
    pub transport_specific: u8,
}

impl Domain {
    /// The default domains of common profiles: 0 of most; 24 of ITU-T G.8275.1, 44 of G.8275.2 and
    /// 4 of G.8265.1; 127 of SMPTE ST 2059-2; 254 of IEEE C37.238.
    pub const USUAL: [u8; 6] = [0, 24, 44, 4, 127, 254];
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}, transportSpecific {}", self.number, self.transport_specific)
    }
}

/// How well a clock follows its grandmaster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far the clock is ahead of its master in nanoseconds, by the latest measurement
    /// (master_offset).
    pub offset_ns: i64,
    /// Whether there is a grandmaster other than the clock itself (gmPresent).
    pub follows: bool,
    /// The grandmaster (gmIdentity).
    pub grandmaster: ClockIdentity,
    /// The domain of the answer.
    pub domain: Domain,
}

/// Why bytes are not an answer to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The answer has only this many bytes.
    Short(usize),
    /// The message has this type and version, in one byte each.
    Kind(u8, u8),
    /// The message answers another question, with this number.
    Sequence(u16),
    /// The message has this action or TLV type in place of an answer.
    Refused(u16),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(length) => write!(f, "an answer of {length} bytes, expected {}", QUESTION + STATUS),
            Self::Kind(kind, version) => {
                write!(
                    f,
                    "a message of type {kind} and version {version}, expected {MANAGEMENT} and {VERSION}"
                )
            }
            Self::Sequence(number) => {
                write!(f, "the answer to question {number}, which this end did not ask")
            }
            Self::Refused(what) => write!(f, "expected an answer to TIME_STATUS_NP, found {what:#06x}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Emits the question `sequence` about the clock of `domain`.
pub fn question(sequence: u16, domain: Domain) -> [u8; QUESTION] {
    let mut bytes = [0; QUESTION];
    bytes[0] = domain.transport_specific << 4 | MANAGEMENT;
    bytes[1] = VERSION;
    bytes[4] = domain.number;
    bytes[2..4].copy_from_slice(&u16::try_from(QUESTION).unwrap_or(0).to_be_bytes());
    bytes[30..32].copy_from_slice(&sequence.to_be_bytes());
    // controlField of management messages, and logMessageInterval "none" (13.3.2.10, 13.3.2.11).
    bytes[32..34].copy_from_slice(&[4, 0x7f]);
    // Every port of every clock.
    bytes[HEADER..HEADER + 10].fill(0xff);
    bytes[46] = GET;
    bytes[BEFORE_TLV..BEFORE_TLV + 2].copy_from_slice(&TLV_MANAGEMENT.to_be_bytes());
    bytes[BEFORE_TLV + 2..BEFORE_TLV + 4].copy_from_slice(&2_u16.to_be_bytes());
    bytes[BEFORE_TLV + 4..].copy_from_slice(&TIME_STATUS_NP.to_be_bytes());
    bytes
}

impl Status {
    /// Parses the answer to the question `sequence`.
    ///
    /// # Errors
    /// When the bytes are another message, or too short.
    pub fn parse(bytes: &[u8], sequence: u16) -> Result<Self, Malformed> {
        let short = Malformed::Short(bytes.len());
        let word = |at: usize| -> Result<u16, Malformed> {
            let pair = bytes.get(at..at + 2).and_then(|pair| pair.try_into().ok());
            pair.map(u16::from_be_bytes).ok_or(short)
        };
        let octet = |at: usize| bytes.get(at).copied().ok_or(short);
        let (kind, version) = (octet(0)? & 0xf, octet(1)? & 0xf);
        if (kind, version) != (MANAGEMENT, VERSION) {
            return Err(Malformed::Kind(kind, version));
        }
        let answers = word(30)?;
        if answers != sequence {
            return Err(Malformed::Sequence(answers));
        }
        let (action, tlv) = (octet(46)? & 0xf, word(BEFORE_TLV)?);
        if action != RESPONSE {
            return Err(Malformed::Refused(action.into()));
        }
        let (length, id) = (word(BEFORE_TLV + 2)?, word(BEFORE_TLV + 4)?);
        if tlv != TLV_MANAGEMENT || id != TIME_STATUS_NP {
            return Err(Malformed::Refused(if tlv == TLV_MANAGEMENT { id } else { tlv }));
        }
        let data =
            bytes.get(QUESTION..).filter(|data| data.len() >= STATUS && usize::from(length) >= 2 + STATUS);
        let data: &[u8; STATUS] = data.and_then(<[u8]>::first_chunk).ok_or(short)?;
        let (offset, rest) = data.split_first_chunk::<8>().ok_or(short)?;
        let (present, grandmaster) = rest[30..].split_first_chunk::<4>().ok_or(short)?;
        let grandmaster = grandmaster.first_chunk::<8>().copied().ok_or(short)?;
        Ok(Self {
            offset_ns: i64::from_be_bytes(*offset),
            follows: i32::from_be_bytes(*present) != 0,
            grandmaster: ClockIdentity(grandmaster),
            domain: Domain { number: octet(4)?, transport_specific: octet(0)? >> 4 },
        })
    }

    /// How far the clock may be off, by its latest offset. The clock swings about its master, so
    /// the next offset may have the other sign.
    pub const fn swing(&self) -> Nanos {
        Nanos::new(self.offset_ns.unsigned_abs().saturating_mul(2))
    }
}

/// The fuzz target's entry: any bytes as an answer.
///
/// # Panics
/// When the parser accepts an answer to another question.
pub fn fuzz(bytes: &[u8]) {
    let Ok(status) = Status::parse(bytes, 0) else { return };
    assert!(status.swing().get() >= status.offset_ns.unsigned_abs());
    assert_eq!(Status::parse(bytes, 1), Err(Malformed::Sequence(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with the layout of `time_status_np` in linuxptp's `tlv.h`: the offset first, then
    /// 30 bytes of other figures, gmPresent and gmIdentity.
    fn answer() -> [u8; QUESTION + STATUS] {
        let mut bytes = [0; QUESTION + STATUS];
        bytes[..QUESTION].copy_from_slice(&question(7, Domain::default()));
        bytes[2..4].copy_from_slice(&104_u16.to_be_bytes());
        bytes[46] = RESPONSE;
        bytes[BEFORE_TLV + 2..BEFORE_TLV + 4].copy_from_slice(&52_u16.to_be_bytes());
        let data = &mut bytes[QUESTION..];
        data[..8].copy_from_slice(&(-54_i64).to_be_bytes());
        data[38..42].copy_from_slice(&1_i32.to_be_bytes());
        data[42..50].copy_from_slice(&[0x00, 0x1b, 0x21, 0xff, 0xfe, 0x5a, 0x9c, 0x01]);
        bytes
    }

    #[test]
    fn an_answer_has_offset_and_grandmaster() {
        let status = Status::parse(&answer(), 7).unwrap();
        assert_eq!((status.offset_ns, status.follows, status.swing().get()), (-54, true, 108));
        assert_eq!(std::string::ToString::to_string(&status.grandmaster), "001b21.fffe.5a9c01");
    }

    /// An answer of linuxptp 3.1.1's `ptp4l` with domainNumber 24 and transportSpecific 1, which
    /// follows another clock over a veth pair with software stamps.
    const OF_PTP4L: &str = "1d02006818000000000000000000000000000000cae367fffe9f2f7100000007047f\
        000000000000000000000000020000010034c000\
        000000000000006a18ec89470ca0acdd00000000000000000000000000000000\
        000000000000000000017e21c2fffe21a74f";

    #[test]
    fn the_answer_of_a_daemon_names_its_domain() {
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap();
        let bytes: std::vec::Vec<u8> =
            OF_PTP4L.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let status = Status::parse(&bytes, 7).unwrap();
        assert_eq!((status.offset_ns, status.follows), (106, true));
        assert_eq!(std::string::ToString::to_string(&status.grandmaster), "7e21c2.fffe.21a74f");
        let domain = Domain { number: 24, transport_specific: 1 };
        assert_eq!(status.domain, domain);
        let asked = question(7, domain);
        assert_eq!((asked[0], asked[4]), (bytes[0], bytes[4]));
    }

    #[test]
    fn other_messages_are_rejected() {
        let whole = answer();
        for length in 0..whole.len() {
            assert_eq!(Status::parse(&whole[..length], 7), Err(Malformed::Short(length)), "{length}");
        }
        assert_eq!(Status::parse(&whole, 8), Err(Malformed::Sequence(7)));
        for (place, value, expected) in [
            (0, 0xb, Malformed::Kind(0xb, 2)),
            (1, 1, Malformed::Kind(0xd, 1)),
            (46, 3, Malformed::Refused(3)),
            (49, 2, Malformed::Refused(2)),
            (53, 1, Malformed::Refused(0xc001)),
            (51, 51, Malformed::Short(104)),
        ] {
            let mut changed = whole;
            changed[place] = value;
            assert_eq!(Status::parse(&changed, 7), Err(expected), "{place}");
        }
    }

    #[test]
    fn any_bytes_may_come() {
        let mut rng = engine::Rng::from_seed(1);
        for _ in 0..10_000 {
            let mut bytes = answer();
            bytes[30..32].fill(0);
            let place = usize::try_from(rng.below(104)).unwrap();
            bytes[place] = rng.below(256).try_into().unwrap();
            fuzz(&bytes[..usize::try_from(rng.below(105)).unwrap()]);
            fuzz(&bytes);
        }
    }
}
