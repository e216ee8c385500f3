//! Gaps and restarts, for machines and for people.

use record::format::Gap;
use schemars::JsonSchema;
use serde::Serialize;

use super::trigger::date;

/// The most gaps and bad slots that text shows one by one.
pub(super) const SHOWN_MAX: usize = 20;

/// A declared gap: a loss.
#[derive(Serialize, JsonSchema)]
pub(super) struct Loss {
    stream: u32,
    /// The place in the stream.
    from: u64,
    /// The number of lost bytes; 0 if it is unknown.
    bytes: u64,
    /// In nanoseconds since 1970.
    when: u64,
    /// The number of lost packets; 0 if it is unknown.
    packets: u64,
    /// The part that lost them.
    #[serde(rename = "where")]
    place: &'static str,
    why: &'static str,
    /// The place on the medium, of a raw recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
}

/// A place where a sender started over.
#[derive(Serialize, JsonSchema)]
pub(super) struct Restart {
    stream: u32,
    /// The place in the stream.
    from: u64,
    /// In nanoseconds since 1970.
    when: u64,
    /// The place on the medium, of a raw recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
}

/// The gaps and restarts of a recording.
#[derive(Serialize, JsonSchema)]
pub(super) struct Gaps {
    /// Declared gaps.
    gaps: Vec<Loss>,
    /// Where senders started over.
    restarts: Vec<Restart>,
}

impl Gaps {
    /// Those among `gaps`. A raw recording begins at the address `start`.
    pub(super) fn of(gaps: &[Gap], start: Option<u64>) -> Self {
        let address = |gap: &Gap| start.map(|start| start + gap.from);
        let restart =
            |gap: &Gap| Restart { stream: gap.stream, from: gap.from, when: gap.when, address: address(gap) };
        let loss = |gap: &Gap| Loss { address: address(gap), ..Loss::of(gap) };
        Self { gaps: losses(gaps).map(loss).collect(), restarts: restarts(gaps).map(restart).collect() }
    }
}

impl Loss {
    fn of(gap: &Gap) -> Self {
        Self {
            stream: gap.stream,
            from: gap.from,
            bytes: gap.bytes,
            when: gap.when,
            packets: gap.packets,
            place: gap.place.word(),
            why: gap.cause.word(),
            address: None,
        }
    }

    /// The losses among `gaps`.
    pub(super) fn all(gaps: &[Gap]) -> Vec<Self> {
        losses(gaps).map(Self::of).collect()
    }
}

/// The losses; restarts are no losses.
pub(super) fn losses(gaps: &[Gap]) -> impl Iterator<Item = &Gap> {
    gaps.iter().filter(|gap| !gap.is_restart())
}

/// Where senders started over.
pub(super) fn restarts(gaps: &[Gap]) -> impl Iterator<Item = &Gap> {
    gaps.iter().filter(|gap| gap.is_restart())
}

pub(super) fn gaps_text(gaps: &[Gap]) -> String {
    let mut text = String::new();
    for gap in losses(gaps).take(SHOWN_MAX) {
        let (place, cause) = (gap.place.word(), gap.cause.word());
        let lost = match (gap.bytes, gap.packets) {
            (0, 0) => "an unknown number of packets".to_owned(),
            (bytes, 0) => format!("{bytes} B"),
            (0, packets) => format!("{packets} packets"),
            (bytes, packets) => format!("{bytes} B, {packets} packets,"),
        };
        text += &format!("  gap: stream {}, {lost} from {}: {place}, {cause}\n", gap.stream, gap.from);
    }
    text += &more(losses(gaps).count(), "gaps");
    for gap in restarts(gaps).take(SHOWN_MAX) {
        let (stream, from, when) = (gap.stream, gap.from, date(gap.when));
        text += &format!("  restart: stream {stream}, the sender started over at byte {from}, {when}\n");
    }
    text + &more(restarts(gaps).count(), "restarts")
}

/// How many are not shown.
fn more(count: usize, what: &str) -> String {
    match count.checked_sub(SHOWN_MAX) {
        Some(more @ 1..) => format!("  and {more} more {what}\n"),
        _ => String::new(),
    }
}
