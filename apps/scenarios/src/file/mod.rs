//! Users' files in TOML: links and scenarios. Each error names the line, the key and the values
//! that were expected.

pub(crate) mod fabric;
mod fault;
mod hop;
pub mod link;
mod load;
mod machine;
mod radio;
pub mod scenario;
mod stack;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod text;
pub mod trace;
mod tsn;
mod wifi;
mod workload;

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

/// A value that is not allowed, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    span: Range<usize>,
    key: String,
    why: String,
}

impl Wrong {
    /// The value of `key`, at `place`, is not allowed because of `why`.
    pub fn at<T>(place: &Spanned<T>, key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { span: place.span(), key: key.into(), why: why.into() }
    }

    /// The error as a sentence for users; `text` is the whole file.
    pub fn explain(&self, text: &str) -> String {
        let line = text.get(..self.span.start).unwrap_or(text).matches('\n').count() + 1;
        format!("line {line}, {}: {}", self.key, self.why)
    }
}

/// The number `value`, which must be in `range`, or `usual` without a value.
fn within<T: PartialOrd + Copy + Display>(
    value: Option<&Spanned<T>>,
    usual: T,
    key: &str,
    range: &RangeInclusive<T>,
) -> Result<T, Wrong> {
    match value {
        None => Ok(usual),
        Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => {
            let why = format!("expected {} to {}, not {}", range.start(), range.end(), value.get_ref());
            Err(Wrong::at(value, key, why))
        }
    }
}
