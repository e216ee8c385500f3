//! Files that people write (TOML): links, scenarios. An error names the line, the key and what was expected.

pub mod link;
pub mod scenario;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod text;
mod tsn;

use std::ops::Range;

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
