//! The rule by which the losses of a stream were found, as a recording keeps it.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::num::NonZeroU64;

use super::window::{Counting, WINDOW_MAX};
use super::{FIELD_MAX, Field, Protocol, heaps, rows};
use crate::format::u64_at;

/// Length of a rule in a superblock, in bytes.
pub(crate) const LENGTH: usize = 16;
/// The version of the limits that this crate counts by. A change of a limit needs another version.
const LIMITS: u8 = 1;

/// The flag of a field whose lowest byte is the first.
const LITTLE_ENDIAN: u8 = 1;

/// The rule by which the losses of a stream were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceRule {
    /// None: numbers of packets were not looked at.
    #[default]
    None,
    /// Numbers of packets.
    Numbers {
        /// Which ones.
        protocol: Protocol,
        /// How many packets a packet may come late without counting as lost.
        window: u32,
    },
    /// A rule that this version does not know, by its bytes in the format. The first one is its
    /// number.
    Other([u8; LENGTH]),
}

impl SequenceRule {
    /// Emits the bytes of a superblock.
    pub(crate) fn emit(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (protocol, window) = match self {
            Self::None => return bytes,
            Self::Other(other) => return other,
            Self::Numbers { protocol, window } => (protocol, window),
        };
        let (kind, step) = match protocol {
            Protocol::Rtp => (1, 0),
            Protocol::Vita49 => (2, 0),
            Protocol::Gvsp => (3, 0),
            Protocol::Spead { step } => (4, step.map_or(0, NonZeroU64::get)),
            Protocol::Field(field) => {
                bytes[2] = if field.little_endian { LITTLE_ENDIAN } else { 0 };
                bytes[3] = u8::try_from(field.bytes).unwrap_or(0);
                let offset = u16::try_from(field.offset).unwrap_or(u16::MAX);
                bytes[6..8].copy_from_slice(&offset.to_le_bytes());
                (5, field.step)
            }
        };
        (bytes[0], bytes[1]) = (kind, LIMITS);
        bytes[4] = u8::try_from(window).unwrap_or(u8::MAX);
        bytes[8..16].copy_from_slice(&step.to_le_bytes());
        bytes
    }

    /// Parses the bytes of a superblock.
    pub(crate) fn parse(bytes: &[u8; LENGTH]) -> Self {
        let step = u64_at(bytes, 8);
        let length = usize::from(bytes[3]);
        let protocol = match bytes[0] {
            0 => return Self::None,
            1 => Protocol::Rtp,
            2 => Protocol::Vita49,
            3 => Protocol::Gvsp,
            4 => Protocol::Spead { step: NonZeroU64::new(step) },
            5 if (1..=FIELD_MAX).contains(&length) && step > 0 => Protocol::Field(Field {
                offset: u16::from_le_bytes([bytes[6], bytes[7]]).into(),
                bytes: length,
                step,
                little_endian: bytes[2] & LITTLE_ENDIAN > 0,
            }),
            _ => return Self::Other(*bytes),
        };
        // Other limits make another rule, which this version cannot name.
        if bytes[1] != LIMITS {
            return Self::Other(*bytes);
        }
        Self::Numbers { protocol, window: u32::from(bytes[4]).min(WINDOW_MAX) }
    }

    /// The value of `sequence=` that asks for this rule; `None` if numbers are not looked at.
    pub fn option(&self) -> Option<String> {
        let Self::Numbers { protocol, .. } = self else { return None };
        Some(match protocol {
            Protocol::Rtp => "rtp".to_string(),
            Protocol::Vita49 => "vita49".to_string(),
            Protocol::Gvsp => "gvsp".to_string(),
            Protocol::Spead { step: None } => "spead".to_string(),
            Protocol::Spead { step: Some(step) } => format!("spead,step:{step}"),
            Protocol::Field(Field { offset, bytes, step, little_endian }) => {
                let order = if *little_endian { "le" } else { "be" };
                format!("offset:{offset},bytes:{bytes},step:{step},{order}")
            }
        })
    }

    /// How many packets a packet may come late without counting as lost; `None` if the rule has
    /// no such number.
    pub fn window(&self) -> Option<u32> {
        let Self::Numbers { protocol, window } = *self else { return None };
        match protocol {
            Protocol::Spead { .. } => None,
            Protocol::Gvsp => Some(window),
            protocol => Some(counting(&protocol, window).window()),
        }
    }
}

/// How the numbers of a row are counted.
pub(super) fn counting(protocol: &Protocol, window: u32) -> Counting {
    let (bits, step) = match protocol {
        Protocol::Vita49 => (4, 1),
        Protocol::Field(field) => {
            (u32::try_from(field.bytes.min(FIELD_MAX) * 8).unwrap_or(64), field.step.max(1))
        }
        Protocol::Rtp | Protocol::Gvsp | Protocol::Spead { .. } => (16, 1),
    };
    Counting { bits, step, window }
}

/// A number with commas between thousands.
struct Thousands(u64);

impl fmt::Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..=999 => write!(f, "{number}"),
            number => write!(f, "{},{:03}", Self(number / 1000), number % 1000),
        }
    }
}

/// The numbers that count as a sender's restart, where numbers of this width show one.
fn restart(f: &mut fmt::Formatter<'_>, counting: Counting) -> fmt::Result {
    let jump = Thousands(counting.jump());
    match counting.bits {
        ..=8 => write!(f, "up to {jump} packets ahead; a restart looks like a loss"),
        _ => write!(f, "restart after two in sequence behind a jump of more than {jump}"),
    }
}

impl fmt::Display for SequenceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, window) = match self {
            Self::None => return write!(f, "none"),
            Self::Other([number, ..]) => {
                return write!(f, "rule {number}, which this version of farlane does not know");
            }
            Self::Numbers { protocol, window } => (protocol, *window),
        };
        let counting = counting(protocol, window);
        let late = counting.window();
        match protocol {
            Protocol::Rtp => write!(f, "RTP sequence numbers, up to {late} late, ")?,
            Protocol::Vita49 => write!(f, "VITA 49 packet count modulo 16, up to {late} late, ")?,
            Protocol::Field(Field { offset, bytes, step, little_endian }) => {
                let order = if *little_endian { "little" } else { "big" };
                write!(f, "own numbers of {bytes} B at byte {offset}, {order}-endian, ")?;
                write!(f, "in steps of {step}, up to {late} packets late, ")?;
            }
            Protocol::Gvsp => {
                let [short, long] = [rows::SHORT_JUMP_MAX, rows::JUMP_MAX].map(Thousands);
                write!(f, "GVSP block and packet, up to {window} packets late, restart after two ")?;
                write!(f, "packets behind a jump of more than {short} blocks ")?;
                return write!(f, "({long} with block numbers of 64 bits)");
            }
            Protocol::Spead { step } => {
                match step {
                    Some(step) => write!(f, "SPEAD heap identifiers in steps of {step}, ")?,
                    None => write!(f, "SPEAD heap identifiers in steps that are learnt, ")?,
                }
                let jump = Thousands(u64::try_from(heaps::JUMP_MAX).unwrap_or(u64::MAX));
                let turns = heaps::OPEN_MAX;
                write!(f, "up to {turns} heaps in turns, restart after two packets ")?;
                return write!(f, "behind a jump of more than {jump} heaps");
            }
        }
        restart(f, counting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_comes_back_and_has_its_words() {
        let field =
            |bytes, little_endian| Protocol::Field(Field { offset: 300, bytes, step: 4, little_endian });
        let rules = [
            (
                Protocol::Rtp,
                "rtp",
                "RTP sequence numbers, up to 32 late, restart after two in sequence \
              behind a jump of more than 3,000",
            ),
            (
                Protocol::Vita49,
                "vita49",
                "VITA 49 packet count modulo 16, up to 4 late, \
              up to 11 packets ahead; a restart looks like a loss",
            ),
            (
                Protocol::Gvsp,
                "gvsp",
                "GVSP block and packet, up to 32 packets late, restart after two \
              packets behind a jump of more than 3,000 blocks (65,536 with block numbers of 64 bits)",
            ),
            (
                Protocol::Spead { step: None },
                "spead",
                "SPEAD heap identifiers in steps that are learnt, \
              up to 16 heaps in turns, restart after two packets behind a jump of more than 65,536 heaps",
            ),
            (
                Protocol::Spead { step: NonZeroU64::new(4) },
                "spead,step:4",
                "SPEAD heap identifiers in \
              steps of 4, up to 16 heaps in turns, restart after two packets behind a jump of more than \
              65,536 heaps",
            ),
            (
                field(4, true),
                "offset:300,bytes:4,step:4,le",
                "own numbers of 4 B at byte 300, \
              little-endian, in steps of 4, up to 32 packets late, restart after two in sequence behind \
              a jump of more than 16,777,216",
            ),
            (
                field(1, false),
                "offset:300,bytes:1,step:4,be",
                "own numbers of 1 B at byte 300, \
              big-endian, in steps of 4, up to 16 packets late, up to 47 packets ahead; a restart looks like a loss",
            ),
        ];
        for (protocol, option, words) in rules {
            let rule = SequenceRule::Numbers { protocol, window: 32 };
            assert_eq!(SequenceRule::parse(&rule.emit()), rule, "{option}");
            assert_eq!(rule.to_string(), words);
            assert_eq!(rule.option().as_deref(), Some(option));
        }
        assert_eq!(SequenceRule::parse(&[0; LENGTH]), SequenceRule::None);
        assert_eq!((SequenceRule::None.emit(), SequenceRule::None.option()), ([0; LENGTH], None));
        // A rule of a later version, or one by other limits, is named as unknown.
        let mut later = SequenceRule::Numbers { protocol: Protocol::Rtp, window: 32 }.emit();
        later[1] = 2;
        assert_eq!(SequenceRule::parse(&later), SequenceRule::Other(later));
        assert!(SequenceRule::Other(later).to_string().contains("rule 1,"));
        later[0] = 9;
        assert_eq!(SequenceRule::parse(&later), SequenceRule::Other(later));
        assert_eq!(SequenceRule::Other(later).emit(), later);
        assert!(SequenceRule::Other(later).to_string().contains("rule 9"));
    }
}
