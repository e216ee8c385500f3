//! Gaps, for machines and for people.

use record::format::Gap;
use serde_json::{Value, json};

/// The most gaps and bad slots that text shows one by one.
pub(super) const SHOWN_MAX: usize = 20;

fn gap_json(gap: &Gap) -> Value {
    json!({ "stream": gap.stream, "from": gap.from, "bytes": gap.bytes, "when": gap.when,
        "packets": gap.packets, "where": gap.place.word(), "why": gap.cause.word() })
}

pub(super) fn gaps_json(gaps: &[Gap]) -> Vec<Value> {
    gaps.iter().map(gap_json).collect()
}

pub(super) fn gaps_text(gaps: &[Gap]) -> String {
    let mut text = String::new();
    for gap in gaps.iter().take(SHOWN_MAX) {
        let (place, cause) = (gap.place.word(), gap.cause.word());
        let lost = match (gap.bytes, gap.packets) {
            (0, 0) => "an unknown number of packets".to_owned(),
            (bytes, 0) => format!("{bytes} B"),
            (0, packets) => format!("{packets} packets"),
            (bytes, packets) => format!("{bytes} B, {packets} packets,"),
        };
        text += &format!("  gap: stream {}, {lost} from {}: {place}, {cause}\n", gap.stream, gap.from);
    }
    if gaps.len() > SHOWN_MAX {
        text += &format!("  and {} more gaps\n", gaps.len() - SHOWN_MAX);
    }
    text
}
