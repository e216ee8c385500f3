//! The account of a recording at its end, for machines.

use live::drivers::record::{Heard, Recorded};
use record::Algorithm;
use record::format::StreamTotals;
use record::sequence::{Counts, SequenceRule};
use schemars::JsonSchema;
use serde::Serialize;

use super::gaps::Gaps;
use super::rules::Rule;
use super::{hex, trigger};

/// The account of a recording at its end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct End {
    /// `end`.
    event: &'static str,
    #[serde(flatten)]
    account: Account,
    /// Whether the certificate and every gap record are on the medium.
    certified: bool,
}

/// The account of a raw recording at its end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RawEnd {
    /// `end`.
    event: &'static str,
    /// Always true.
    raw: bool,
    #[serde(flatten)]
    account: Account,
    /// Whether the medium has made everything durable. Nothing on the medium certifies anything.
    durable: bool,
    #[serde(flatten)]
    addresses: Addresses,
}

/// The part of a medium that a raw recording uses.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(super) struct Addresses {
    pub(super) start_address: u64,
    pub(super) maximum_address: u64,
    pub(super) last_address: u64,
}

/// The account of several recordings at their end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EachEnd {
    /// `end`.
    event: &'static str,
    bytes_in: u64,
    bytes_stored: u64,
    /// Bytes in declared gaps.
    bytes_lost: u64,
    /// Bytes that rings do not hold any more.
    bytes_overwritten: u64,
    /// The most bytes that the buffers held.
    high_water_bytes: u64,
    /// Whether the certificates of all recordings are on their media.
    certified: bool,
    recordings: Vec<OfPair>,
}

/// The account of one of several recordings.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfPair {
    /// The source.
    from: String,
    /// The medium.
    to: String,
    #[serde(flatten)]
    account: Account,
    certified: bool,
}

/// The account of a recording.
#[derive(Serialize, JsonSchema)]
struct Account {
    /// Why the recording ended.
    reason: &'static str,
    bytes_in: u64,
    bytes_stored: u64,
    /// Bytes in declared gaps.
    bytes_lost: u64,
    /// Bytes that a ring does not hold any more.
    bytes_overwritten: u64,
    #[serde(flatten)]
    gaps: Gaps,
    /// The most bytes that the buffer held.
    high_water_bytes: u64,
    streams: Vec<Stream>,
    /// How the recording was triggered, if it waited for that.
    triggered: Option<status::Trigger>,
    #[serde(flatten)]
    digest: Digest,
}

/// The account of a stream.
#[derive(Serialize, JsonSchema)]
struct Stream {
    bytes_in: u64,
    bytes_stored: u64,
    /// Bytes in declared gaps.
    bytes_lost: u64,
    /// Bytes that a ring does not hold any more.
    bytes_overwritten: u64,
    /// Why the source ended before its end, if it did.
    broken: Option<String>,
    #[serde(flatten)]
    digest: Digest,
    /// Packets that came, of a source of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    /// The counts from the packets' numbers, if the source follows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<Numbers>,
    sequence_rule: Rule,
}

/// Packets by the judgement of their numbers.
#[derive(Serialize, JsonSchema)]
struct Numbers {
    reordered: u64,
    /// Packets that came later than the window.
    late: u64,
    twice: u64,
    /// Packets without a number that fits.
    foreign: u64,
    /// Packets with which a sender started over.
    anew: u64,
}

impl From<Counts> for Numbers {
    fn from(counts: Counts) -> Self {
        let Counts { reordered, late, twice, foreign, anew } = counts;
        Self { reordered, late, twice, foreign, anew }
    }
}

/// A digest under the name of its algorithm.
#[derive(Serialize, JsonSchema)]
pub(super) struct Digest {
    /// SHA-256; none if it was not computed.
    sha256: Option<String>,
    /// BLAKE3, if it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
}

impl Digest {
    pub(super) fn of(algorithm: Algorithm, digest: &[u8; 32]) -> Self {
        let only = |wanted| (algorithm == wanted).then(|| hex(digest));
        Self { sha256: only(Algorithm::Sha256), blake3: only(Algorithm::Blake3) }
    }
}

impl End {
    pub(super) fn of(recorded: &Recorded) -> Self {
        let account = Account::of(recorded, None);
        Self { event: "end", account, certified: recorded.is_certified }
    }
}

impl RawEnd {
    pub(super) fn of(recorded: &Recorded, addresses: Addresses) -> Self {
        let account = Account::of(recorded, Some(addresses.start_address));
        Self { event: "end", raw: true, account, durable: recorded.is_certified, addresses }
    }
}

impl EachEnd {
    pub(super) fn of(recordings: Vec<OfPair>) -> Self {
        let all = |of: fn(&Account) -> u64| recordings.iter().map(|one| of(&one.account)).sum();
        Self {
            event: "end",
            bytes_in: all(|of| of.bytes_in),
            bytes_stored: all(|of| of.bytes_stored),
            bytes_lost: all(|of| of.bytes_lost),
            bytes_overwritten: all(|of| of.bytes_overwritten),
            high_water_bytes: all(|of| of.high_water_bytes),
            certified: recordings.iter().all(|one| one.certified),
            recordings,
        }
    }
}

impl OfPair {
    pub(super) fn of(from: String, to: String, recorded: &Recorded) -> Self {
        Self { from, to, account: Account::of(recorded, None), certified: recorded.is_certified }
    }
}

impl Account {
    /// The account of a recording, which begins at the address `start` if it is raw.
    fn of(recorded: &Recorded, start: Option<u64>) -> Self {
        let certificate = &recorded.certificate;
        let heard = recorded.heard.iter().zip(&recorded.broken).zip(&recorded.rules);
        let streams = certificate.streams.iter().zip(heard).map(|(totals, ((heard, broken), rule))| {
            Stream::of(certificate.algorithm, totals, (heard.as_ref(), broken.as_deref(), *rule))
        });
        Self {
            reason: certificate.reason.words(),
            bytes_in: certificate.bytes_in(),
            bytes_stored: certificate.bytes_stored(),
            bytes_lost: certificate.bytes_lost(),
            bytes_overwritten: certificate.bytes_overwritten(),
            gaps: Gaps::of(&recorded.gaps, start),
            high_water_bytes: certificate.high_water,
            streams: streams.collect(),
            triggered: recorded.triggered.map(trigger::of),
            digest: Digest::of(certificate.algorithm, &certificate.digest),
        }
    }
}

impl Stream {
    fn of(
        algorithm: Algorithm,
        totals: &StreamTotals,
        (heard, broken, rule): (Option<&Heard>, Option<&str>, SequenceRule),
    ) -> Self {
        Self {
            bytes_in: totals.bytes_in,
            bytes_stored: totals.stored,
            bytes_lost: totals.lost,
            bytes_overwritten: totals.overwritten,
            broken: broken.map(str::to_owned),
            digest: Digest::of(algorithm, &totals.digest),
            packets: heard.map(|heard| heard.packets),
            sequence: heard.and_then(|heard| heard.numbers).map(Numbers::from),
            sequence_rule: rule.into(),
        }
    }
}
