//! The rules by which losses were found, for machines and for people.

use record::Survey;
use record::sequence::SequenceRule;
use schemars::JsonSchema;
use serde::Serialize;

/// The rule by which the losses of a stream were found.
#[derive(Serialize, JsonSchema)]
pub(super) struct Rule {
    /// The value of the source's option; none if it had none.
    option: Option<String>,
    /// How many packets a packet may come late without counting as lost; none if the rule has no
    /// such number.
    window: Option<u32>,
    /// The rule in words.
    words: String,
}

impl From<SequenceRule> for Rule {
    fn from(rule: SequenceRule) -> Self {
        Self { option: rule.option(), window: rule.window(), words: rule.to_string() }
    }
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

/// The rules of a recording's streams, by number; none where the recording does not name it.
pub(super) fn all(survey: &Survey) -> Vec<Option<Rule>> {
    of(survey).map(|rule| rule.map(Rule::from)).collect()
}

/// The rules of a recording's streams, for a person.
pub(super) fn rules_text(survey: &Survey) -> String {
    of(survey).enumerate().map(|(stream, rule)| rule_text(stream, rule)).collect()
}
