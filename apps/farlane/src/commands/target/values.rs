//! The values of a target's configuration file, and where one of them is wrong.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

/// A value that the file writes as text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("{error}, not '{text}'")))
    }
}

/// The time in which hosts must authenticate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofMax(pub(super) Duration);

impl FromStr for ProofMax {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        crate::args::parse_proof_max(text).map(Self)
    }
}

/// A number of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores(pub(super) usize);

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count = i64::deserialize(deserializer)?;
        let parsed = crate::args::parse_cores(&count.to_string());
        parsed.map(Self).map_err(|error| D::Error::custom(format!("{error}, not {count}")))
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        crate::args::parse_size(text).map(Self)
    }
}

/// A wrong value: where it is in the file, and why it is wrong.
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) key: &'static str,
    pub(super) why: String,
}

impl Wrong {
    /// The value of `key` at `place` is wrong because of `why`.
    pub(super) fn at<T>(place: &Spanned<T>, key: &'static str, why: impl Into<String>) -> Self {
        Self { span: place.span(), key, why: why.into() }
    }

    /// The error in words, for the text that has the value.
    pub(super) fn in_text(self, text: &str) -> String {
        let Self { span, key, why } = self;
        let line = text[..span.start].matches('\n').count() + 1;
        format!("line {line}, {key}: {why}")
    }
}
