//! Gaps and restarts, for machines and for people.

use record::format::Gap;
use serde_json::{Value, json};

use super::trigger::date;

/// The most gaps and bad slots that text shows one by one.
pub(super) const SHOWN_MAX: usize = 20;

fn gap_json(gap: &Gap) -> Value {
    json!({ "stream": gap.stream, "from": gap.from, "bytes": gap.bytes, "when": gap.when,
        "packets": gap.packets, "where": gap.place.word(), "why": gap.cause.word() })
}

/// The losses; restarts are no losses.
pub(super) fn losses(gaps: &[Gap]) -> impl Iterator<Item = &Gap> {
    gaps.iter().filter(|gap| !gap.is_restart())
}

/// Where senders started over.
pub(super) fn restarts(gaps: &[Gap]) -> impl Iterator<Item = &Gap> {
    gaps.iter().filter(|gap| gap.is_restart())
}

pub(super) fn gaps_json(gaps: &[Gap]) -> Vec<Value> {
    losses(gaps).map(gap_json).collect()
}

pub(super) fn restarts_json(gaps: &[Gap]) -> Vec<Value> {
    let restart = |gap: &Gap| json!({ "stream": gap.stream, "from": gap.from, "when": gap.when });
    restarts(gaps).map(restart).collect()
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
