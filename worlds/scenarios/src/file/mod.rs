//! Files that people write (TOML): links, scenarios. An error names the line, the key and what was expected.

mod fault;
mod hop;
pub mod link;
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
mod workload;

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

/// A value that can't be, and where in the file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    span: Range<usize>,
    key: String,
    why: String,
}

impl Wrong {
    /// `key`'s value, at `place`, can't be.
    pub fn at<T>(place: &Spanned<T>, key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { span: place.span(), key: key.into(), why: why.into() }
    }

    /// As a person reads it, of the file's `text`.
    pub fn explain(&self, text: &str) -> String {
        let line = text.get(..self.span.start).unwrap_or(text).matches('\n').count() + 1;
        format!("line {line}, {}: {}", self.key, self.why)
    }
}

/// A number in `range`, or the usual one.
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
