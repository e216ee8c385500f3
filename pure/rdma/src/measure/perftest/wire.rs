//! The words that perftest's ends exchange on their first connection.
//!
//! Lengths and order are those of perftest's `perftest_communication.c`, versions 5.70 to 6.29, on
//! 64-bit machines. Numbers are big endian.

use alloc::collections::VecDeque;
use core::fmt;
use core::iter::repeat_n;
use core::time::Duration;

use engine::Nanos;

use crate::measure::{Mode, Test, Verb};
use crate::{Inline, Key};

/// Length of the longest word in bytes: a place of late versions.
pub(super) const WORD_MAX: u32 = 64;
/// Length of a version in bytes, including the zeros behind its digits.
const VERSION_LENGTH: usize = 16;
/// The length in bytes of the area through which the accesses of an end cycle: a page.
pub(super) const CYCLE: u32 = 4096;
/// The length of a line of the processor's cache in bytes.
const CACHE_LINE: u32 = 64;
/// The path MTU as InfiniBand numbers it (IBV_MTU_4096), in digits. The smaller of the two ends'
/// values counts.
const MTU: [u8; 2] = *b"5\0";
/// Words of a report: size, iterations, peak, average and rate.
const REPORTS: u8 = 5;

/// A version of perftest, in hundredths: 6.24 is 624.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u16);

impl Version {
    /// The oldest supported version, which perftest's own programs still accept.
    pub const OLDEST: Self = Self(570);
    /// The version that this end announces. Programs of 6.28 and later exchange more words with an
    /// end that announces the same.
    pub(super) const OWN: Self = Self(627);
    /// From this version on, a place has another number.
    const LONG_PLACES: Self = Self(629);

    /// Parses the version in a word: an integer, and perhaps decimals, of which two count.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        let end = word.iter().position(|byte| *byte == 0)?;
        let mut parts = word[..end].splitn(2, |byte| *byte == b'.');
        let number = |digits: &[u8]| {
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = core::str::from_utf8(digits).ok().filter(|_| is_number)?;
            text.parse::<u16>().ok()
        };
        let whole = number(parts.next()?)?.checked_mul(100)?;
        let decimals = parts.next().unwrap_or(b"0");
        let hundredths = match decimals {
            [tenths] => number(&[*tenths])? * 10,
            _ => number(decimals.get(..2)?)?,
        };
        Some(Self(whole.checked_add(hundredths)?))
    }

    fn emit(self) -> [u8; VERSION_LENGTH] {
        let mut word = [0; VERSION_LENGTH];
        let digits = alloc::format!("{self}");
        let length = digits.len().min(VERSION_LENGTH - 1);
        word[..length].copy_from_slice(&digits.as_bytes()[..length]);
        word
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// An end's description of its queue pair and its memory (`struct pingpong_dest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the queue pair; 0 before there is one.
    pub(super) pair: u32,
    /// The key of the memory that is lent to the other end.
    pub(super) key: Key,
    /// The address of that memory.
    pub(super) address: u64,
}

impl Place {
    pub(super) const NONE: Self = Self { pair: 0, key: Key(0), address: 0 };

    /// Length of a place in bytes, between this end and one of `version`.
    const fn length(version: Version) -> usize {
        if version.0 < Version::LONG_PLACES.0 { 56 } else { 64 }
    }

    /// Emits local identifier, reads at a time, queue pair, first packet, key and address; then
    /// GID, shared receive queue and index of the GID, which have no meaning where the connection
    /// manager connects.
    fn emit(self, version: Version) -> Inline {
        let mut bytes = [0; 64];
        bytes[8..12].copy_from_slice(&self.pair.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_be_bytes());
        Inline::new(&bytes[..Self::length(version)])
    }

    fn parse(word: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(*word.get(at..)?.first_chunk()?));
        let address = u64::from_be_bytes(*word.get(24..)?.first_chunk()?);
        Some(Self { pair: number(8)?, key: Key(number(16)?), address })
    }
}

/// The results of a client, in the format of its server's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) test: Test,
    pub(super) elapsed: Nanos,
}

impl Report {
    /// The word with this number.
    fn word(self, number: u8) -> [u8; 8] {
        let Self { test, elapsed } = self;
        let rate = f64::from(test.iterations) / Duration::from(elapsed).as_secs_f64().max(1e-9);
        match number {
            0 => u64::from(test.size).to_be_bytes(),
            1 => u64::from(test.iterations).to_be_bytes(),
            2 | 3 => (rate * f64::from(test.size) / f64::from(1 << 20)).to_be_bytes(),
            _ => (rate / 1e6).to_be_bytes(),
        }
    }
}

/// The next action of the two ends. All but the last two are words that both send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The perftest version of an end.
    Version,
    /// [`CYCLE`]. The larger of the two ends' values counts.
    Cycle,
    /// The length of a cache line.
    CacheLine,
    /// The path MTU.
    Mtu,
    /// A [`Place`].
    Place,
    /// A number of a report, in a bandwidth test in which the server sees nothing.
    Report(u8),
    /// The client asks for the second connection.
    Join,
    /// The test.
    Run,
}

/// The steps of `test`, in their order.
pub(super) fn steps(test: &Test) -> VecDeque<Step> {
    let is_reported = test.mode == Mode::Bandwidth && test.verb != Verb::Send;
    let mut steps = VecDeque::from([Step::Version, Step::Cycle, Step::CacheLine, Step::Mtu, Step::Place]);
    steps.push_back(Step::Join);
    steps.extend(repeat_n(Step::Place, if is_reported { 4 } else { 5 }));
    steps.push_back(Step::Run);
    if is_reported {
        steps.push_back(Step::Place);
        steps.extend((0..REPORTS).map(Step::Report));
    }
    // In a latency test of writes, the end that answers the last write knows that the test is over.
    if (test.verb, test.mode) != (Verb::Write, Mode::Latency) {
        steps.push_back(Step::Place);
    }
    steps
}

/// A word of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Version(Version),
    Cycle(u32),
    Place(Place),
    /// A word whose value does not matter here.
    Other,
}

impl Step {
    /// Parses a word of the peer, whose version is `version` as far as it is known. `None` if the
    /// word does not belong to this step.
    pub(super) fn parse(self, word: &[u8], version: Version) -> Option<Word> {
        let length = match self {
            Self::Version => VERSION_LENGTH,
            Self::Cycle | Self::CacheLine => 4,
            Self::Mtu => 2,
            Self::Place => Place::length(version),
            Self::Report(_) => 8,
            Self::Join | Self::Run => return None,
        };
        if word.len() != length {
            return None;
        }
        match self {
            Self::Version => Version::parse(word).map(Word::Version),
            Self::Cycle => Some(Word::Cycle(u32::from_be_bytes(*word.first_chunk()?))),
            Self::Place => Place::parse(word).map(Word::Place),
            _ => Some(Word::Other),
        }
    }

    /// Emits this end's word, to a peer of `version`.
    pub(super) fn emit(self, version: Version, place: Place, report: Report) -> Inline {
        match self {
            Self::Version => Inline::new(&Version::OWN.emit()),
            Self::Cycle => Inline::new(&CYCLE.to_be_bytes()),
            Self::CacheLine => Inline::new(&CACHE_LINE.to_be_bytes()),
            Self::Mtu => Inline::new(&MTU),
            Self::Place => place.emit(version),
            Self::Report(number) => Inline::new(&report.word(number)),
            Self::Join | Self::Run => Inline::EMPTY,
        }
    }
}
