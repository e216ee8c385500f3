//! The parameters of a request, and the reasons for its refusal.

use std::fmt::Display;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;

/// Why a request is refused: an HTTP status, and words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    message: String,
    help: Option<String>,
}

/// Why a question is refused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Refused<'a> {
    error: Reason<'a>,
}

/// The reason of a refusal.
#[derive(Debug, Serialize, JsonSchema)]
struct Reason<'a> {
    message: &'a str,
    /// The remedy.
    help: Option<&'a str>,
}

impl Refusal {
    /// There is nothing of this name.
    pub(crate) fn nothing(what: &str) -> Self {
        Self { status: 404, message: format!("there is no {what}"), help: None }
    }

    /// It is there, but not yet or not any more.
    pub(crate) fn conflict(message: String) -> Self {
        Self { status: 409, message, help: None }
    }

    /// A value is none of the expected values.
    pub(crate) fn value(name: &str, value: &str, expected: &str) -> Self {
        let value: String = value.chars().take(80).collect();
        Self { status: 400, message: format!("{name}={value:?}: expected {expected}"), help: None }
    }

    /// The program has a fault.
    pub(crate) fn fault() -> Self {
        let message = "farlane has a fault, and its standard error names the place".to_owned();
        Self { status: 500, message, help: Some("please report it".to_owned()) }
    }

    /// The request is malformed.
    pub(crate) fn malformed(error: impl Display) -> Self {
        Self { status: 400, message: error.to_string(), help: None }
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Refused<'_> {
        Refused { error: Reason { message: &self.message, help: self.help.as_deref() } }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let help = miette::Diagnostic::help(&error).map(|help| help.to_string());
        Self { status: 500, message: error.to_string(), help }
    }
}

/// The values behind the question mark of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Takes `name=value` pairs apart. Bytes that are no UTF-8 are replaced.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// The value called `name`, if it is there and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Whether `name` is 1.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }

    /// The number called `name`, if it is there.
    ///
    /// # Errors
    /// When it is no number, or none of `range`.
    pub(crate) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Refusal::value(name, text, &expected()))
    }

    /// The value of `name` among `all`, by their names.
    ///
    /// # Errors
    /// When it is none of them.
    pub(crate) fn one_of<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        known: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let names = || all.iter().map(|one| known(*one)).collect::<Vec<_>>().join(", ");
        let found = all.iter().copied().find(|one| known(*one) == text);
        found.map(Some).ok_or_else(|| Refusal::value(name, text, &format!("one of {}", names())))
    }
}

/// Text of a URL without its escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let escaped = more.first_chunk::<2>().and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        let (byte, length) = match (first, escaped) {
            (b'%', Some(byte)) => (byte, 2),
            (b'+', _) => (b' ', 0),
            _ => (*first, 0),
        };
        bytes.push(byte);
        rest = &more[length..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_apart_and_nothing_is_too_strange() {
        let query = Query::parse("a=1&b=x%20y+z&&c&a=2&d=%e2%82%ac&%=%2&e=%zz&f=%ff");
        assert_eq!(query.text("a"), Some("1"));
        assert_eq!(query.text("b"), Some("x y z"));
        assert_eq!((query.text("c"), query.text("none")), (None, None));
        assert_eq!((query.text("d"), query.text("e"), query.text("%")), (Some("€"), Some("%zz"), Some("%2")));
        assert_eq!(query.text("f"), Some("\u{fffd}"));
        assert!(query.flag("a") && !query.flag("b"));
    }

    #[test]
    fn a_refusal_names_the_value_and_what_was_expected() {
        let query = Query::parse("bins=9&from=-1&sort=up");
        assert_eq!(query.number("bins", 1..=9).unwrap(), Some(9));
        assert_eq!(query.number("to", 1..=9).unwrap(), None);
        for (name, words) in [("bins", "from 1 to 8"), ("from", "from 1 to 8")] {
            let refusal = query.number(name, 1..=8).unwrap_err().message;
            assert!(refusal.contains(name) && refusal.contains(words), "{refusal}");
        }
        let refusal = query.one_of("sort", &["a", "b"], |name| name).unwrap_err().message;
        assert!(refusal.contains("one of a, b"), "{refusal}");
        let long = Refusal::value("x", &"y".repeat(1 << 20), "less").message;
        assert!(long.len() < 200);
    }
}
