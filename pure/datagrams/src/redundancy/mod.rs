//! Frames over several paths at once, of which the first copy counts (IEEE 802.1CB, FRER).
//!
//! The sender numbers frames, and sends each of them over every path with the same number in an
//! R-TAG. The receiver eliminates the repetitions of each path, and then copies of frames that
//! another path has delivered already. Switches that support 802.1CB can split and merge such
//! streams in between.

mod latent;
#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use latent::Latent;
pub use latent::{BEGIN_EVERY, Change, TEST_EVERY};

/// The EtherType of an R-TAG (IEEE 802.1CB-2017, table 7-1).
pub const ETHER_TYPE: u16 = 0xf1c1;
/// Length of an R-TAG behind its EtherType, including the EtherType of the next header: two
/// reserved bytes, the number, and that type.
pub const TAG_BYTES: usize = 6;
/// The usual time without a new frame after which any number is accepted (frerSeqRcvyResetMSec must
/// be at least the delay of the slowest path).
pub const RESET_AFTER: Nanos = Nanos::from_millis(1_000);
/// The usual number of frames that are remembered (frerSeqRcvyHistoryLength): at 10 Gbit/s, a path
/// may be 800 µs slower than another with frames of 1,000 bytes.
pub const HISTORY: u16 = 1_024;
/// The most frames that can be remembered: half of all numbers would be ambiguous.
pub const HISTORY_MAX: u16 = 0x4000;

/// An R-TAG behind its EtherType (IEEE 802.1CB-2017, 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The number of the frame in its stream.
    pub sequence: u16,
    /// The EtherType of the next header.
    pub ether_type: u16,
}

impl Tag {
    /// Parses the first [`TAG_BYTES`] of `bytes`; returns the tag and the bytes behind it. Ignores
    /// the reserved bytes. `None` if `bytes` are too short.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([_, _, a, b, c, d], rest) = bytes.split_first_chunk::<TAG_BYTES>()?;
        Some((
            Self { sequence: u16::from_be_bytes([*a, *b]), ether_type: u16::from_be_bytes([*c, *d]) },
            rest,
        ))
    }

    /// The bytes of the tag.
    pub fn emit(self) -> [u8; TAG_BYTES] {
        let ([a, b], [c, d]) = (self.sequence.to_be_bytes(), self.ether_type.to_be_bytes());
        [0, 0, a, b, c, d]
    }
}

/// Counts of frames by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were the first of their number (frerCpsSeqRcvyPassedPackets).
    pub passed: u64,
    /// Copies of frames that had passed (frerCpsSeqRcvyDiscardedPackets).
    pub discarded: u64,
    /// Frames whose number was not the next one (frerCpsSeqRcvyOutOfOrderPackets).
    pub out_of_order: u64,
    /// Frames whose number is outside the remembered range (frerCpsSeqRcvyRoguePackets).
    pub rogue: u64,
    /// Numbers that were forgotten or skipped without a frame (frerCpsSeqRcvyLostPackets).
    pub lost: u64,
    /// How often any number was accepted, because no new frame had arrived for long
    /// (frerCpsSeqRcvyResets).
    pub resets: u64,
    /// Comparisons that found a path failing in silence (latent error detection).
    pub latent_errors: u64,
}

/// The vector recovery algorithm (IEEE 802.1CB-2017, 7.4.3.4) for one stream.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// A bit for each of the latest numbers, at the number modulo their count.
    seen: Vec<u64>,
    history: u16,
    /// The largest number that has passed (RecovSeqNum), unless any number is accepted (TakeAny).
    latest: Option<u16>,
    /// How many numbers behind the latest are known to belong to this stream.
    known: u16,
    reset_after: Nanos,
    /// When any number is accepted again.
    reset_at: Instant,
    /// Whether this is about one path, where a repeated frame also shows that the stream is
    /// alive (frerSeqRcvyIndividualRecovery).
    is_individual: bool,
    counters: Counters,
}

impl Recovery {
    /// Remembers about `history` numbers, rounded up to a power of two from 64 to [`HISTORY_MAX`],
    /// and accepts any number after `reset_after` without a new frame.
    pub fn new(history: u16, reset_after: Nanos) -> Self {
        let history = history.clamp(64, HISTORY_MAX).next_power_of_two();
        Self {
            seen: vec![0; usize::from(history / 64)],
            history,
            latest: None,
            known: 0,
            reset_after,
            reset_at: Instant::ZERO,
            is_individual: false,
            counters: Counters::default(),
        }
    }

    /// For one path alone, before paths are merged: a sender that repeats itself stays refused.
    #[must_use]
    pub const fn individual(mut self) -> Self {
        self.is_individual = true;
        self
    }

    /// The counts of frames so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the frame with the number `sequence`, which arrived at `now`, passes.
    pub fn accept(&mut self, now: Instant, sequence: u16) -> bool {
        if self.latest.is_some() && now >= self.reset_at {
            self.latest = None;
            self.counters.resets += 1;
        }
        let repeated = self.counters.discarded;
        let passes = match self.latest {
            None => self.begin_at(sequence),
            Some(latest) => self.compare(latest, sequence),
        };
        if passes {
            self.counters.passed += 1;
        }
        if passes || self.is_individual && self.counters.discarded > repeated {
            self.reset_at = now + self.reset_after;
        }
        passes
    }

    fn begin_at(&mut self, sequence: u16) -> bool {
        self.seen.fill(0);
        self.known = 0;
        self.advance_to(sequence);
        true
    }

    fn compare(&mut self, latest: u16, sequence: u16) -> bool {
        let delta = sequence.wrapping_sub(latest).cast_signed();
        // A path that was down for a moment continues where the others are. The standard would keep
        // refusing it, although a path that repeats itself cannot leap ahead.
        if self.is_individual && delta >= self.history.cast_signed() {
            self.counters.out_of_order += 1;
            self.counters.lost += u64::from(delta.unsigned_abs()) - 1;
            return self.begin_at(sequence);
        }
        if delta.unsigned_abs() >= self.history {
            self.counters.rogue += 1;
            return false;
        }
        if delta > 0 {
            self.counters.out_of_order += u64::from(delta != 1);
            for skipped in 1..delta.unsigned_abs() {
                self.forget(latest.wrapping_add(skipped));
            }
            self.forget(sequence);
            self.advance_to(sequence);
            return true;
        }
        let (word, bit) = self.place(sequence);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        match is_new {
            true => {
                self.counters.out_of_order += 1;
                self.known = self.known.max(delta.unsigned_abs());
            }
            false => self.counters.discarded += 1,
        }
        is_new
    }

    /// Makes room for `number`: forgets the frame in its place, which is lost if it never arrived.
    fn forget(&mut self, number: u16) {
        let (word, bit) = self.place(number);
        let is_known = self.known >= self.history - 1;
        self.counters.lost += u64::from(is_known && self.seen[word] & bit == 0);
        self.seen[word] &= !bit;
        self.known = (self.known + 1).min(self.history - 1);
    }

    fn advance_to(&mut self, number: u16) {
        let (word, bit) = self.place(number);
        self.seen[word] |= bit;
        self.latest = Some(number);
    }

    fn place(&self, number: u16) -> (usize, u64) {
        let place = number & (self.history - 1);
        (usize::from(place / 64), 1 << (place % 64))
    }
}

/// One peer's frames over several paths: eliminates each path's own repetitions, then copies of
/// frames that another path has delivered.
#[derive(Clone, Debug)]
pub struct Merge {
    paths: Vec<Recovery>,
    whole: Recovery,
    latent: Latent,
}

impl Merge {
    /// Merges `paths` paths, with the usual history and timer.
    pub fn new(paths: usize) -> Self {
        let recovery = Recovery::new(HISTORY, RESET_AFTER);
        let latent = Latent::new(paths);
        Self { paths: vec![recovery.clone().individual(); paths], whole: recovery, latent }
    }

    /// Whether the frame with the number `sequence`, which arrived at `now` over the path of this
    /// index, passes. Frames of an unknown path do not pass.
    pub fn accept(&mut self, now: Instant, path: usize, sequence: u16) -> bool {
        let passes = self.paths.get_mut(path).is_some_and(|one| one.accept(now, sequence));
        let passes = passes && self.whole.accept(now, sequence);
        if self.latent.is_due(now) {
            let brought = self.paths.iter().map(|one| one.counters.passed);
            self.latent.test(now, self.whole.counters.passed, brought);
        }
        passes
    }

    /// The next path that has failed in silence or works again.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.latent.poll_change()
    }

    /// Whether each path fails in silence.
    pub fn failing(&self) -> impl Iterator<Item = bool> {
        self.latent.paths().map(|(is_failing, _)| is_failing)
    }

    /// The counts of the frames of all paths together.
    pub const fn counters(&self) -> Counters {
        Counters { latent_errors: self.latent.errors(), ..self.whole.counters() }
    }

    /// The counts of the frames of each path.
    pub fn paths(&self) -> impl Iterator<Item = Counters> {
        let with = |(one, (_, latent_errors)): (&Recovery, _)| Counters { latent_errors, ..one.counters() };
        self.paths.iter().zip(self.latent.paths()).map(with)
    }
}
