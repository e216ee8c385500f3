//! Names of objects.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

/// The longest name in bytes, as in a DNS label (RFC 1123 2.1).
const BYTES_MAX: usize = 63;

/// The name of an object: 1 to 63 of `a-z`, `0-9` and `-`, with a letter or a digit at both ends.
///
/// Users choose names. Creating an object twice under one name gives the same object, so a name is
/// also what makes a request idempotent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// A text that is no [`Name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl Name {
    /// The name that `text` is.
    ///
    /// # Errors
    /// When `text` is no name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let ends = [text.bytes().next(), text.bytes().last()];
        let well_ended = ends.iter().all(|end| end.is_some_and(|byte| byte != b'-'));
        if text.len() > BYTES_MAX || !well_ended || !text.bytes().all(is_inner) {
            return Err(NameError(text.chars().take(BYTES_MAX + 1).collect()));
        }
        Ok(Self(text.into()))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no name: expected 1 to {BYTES_MAX} of a-z, 0-9 and -, with a letter or a digit at \
             both ends",
            self.0.escape_debug()
        )
    }
}

impl core::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_labels() {
        for good in ["a", "0", "data-1", &"x".repeat(63)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-", "a-", "-a", "A", "a b", "a\n", "é", "a.b", &"x".repeat(64)] {
            let error = Name::new(bad).unwrap_err().to_string();
            assert!(error.contains("is no name: expected 1 to 63"), "{error}");
            assert!(!error.contains('\n'));
        }
    }
}
