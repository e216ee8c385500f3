//! The rules by which losses were found, for machines and for people.

use record::Survey;
use record::sequence::SequenceRule;
use serde_json::{Value, json};

/// A rule; null if the recording does not say by which one it was made.
pub(super) fn rule_json(rule: Option<SequenceRule>) -> Value {
    let known = |rule: SequenceRule| json!({ "option": rule.option(), "window": rule.window(), "words": rule.to_string() });
    rule.map_or(Value::Null, known)
}

/// The rule of a stream, for a person.
pub(super) fn rule_text(stream: usize, rule: Option<SequenceRule>) -> String {
    let words = rule.map_or_else(|| "the recording does not say".to_owned(), |rule| rule.to_string());
    format!("  stream {stream}: rule of sequence: {words}\n")
}

/// The rules of a recording's streams.
pub(super) fn of(survey: &Survey) -> impl Iterator<Item = Option<SequenceRule>> {
    let superblock = survey.superblock.as_ref();
    (0..survey.streams()).map(move |stream| superblock.and_then(|superblock| superblock.rule(stream)))
}

/// The rules of a recording's streams, by number.
pub(super) fn rules_json(survey: &Survey) -> Vec<Value> {
    of(survey).map(rule_json).collect()
}

/// The rules of a recording's streams, for a person.
pub(super) fn rules_text(survey: &Survey) -> String {
    of(survey).enumerate().map(|(stream, rule)| rule_text(stream, rule)).collect()
}
