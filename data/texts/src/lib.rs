//! Untrusted texts: files are read within bounds, TOML is parsed within bounds, and quotes of
//! either in an error, a report or a log do not harm a terminal, a journal or memory.
//! ```
//! let quoted = texts::clean("the name '\u{1b}[31mred\u{1b}[0m' is taken");
//! assert_eq!(quoted, "the name 'red' is taken");
//! let why = texts::parse::<toml::Table>(&"[".repeat(100_000)).unwrap_err();
//! assert!(why.contains("64 levels") && why.len() < 200);
//! ```

#![forbid(unsafe_code)]

mod message;
mod nesting;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

pub use message::{MESSAGE_MAX, QUOTE_MAX, clean, clean_words, quote};
pub use nesting::{NESTING_MAX, check_nesting};

/// The longest configuration, scenario or job file, in bytes.
pub const FILE_MAX: u64 = 1 << 20;
/// The longest list of namespaces, hosts or keys, in bytes.
pub const LIST_MAX: u64 = 16 << 20;
/// The longest trace of a workload, in bytes.
pub const TRACE_MAX: u64 = 256 << 20;

/// Reads the text at `path`, which may be a file, a pipe or a device, and has at most `most` bytes.
///
/// # Errors
/// Those of the system; also when there are more bytes, or when they are no UTF-8.
pub fn read(path: &Path, most: u64) -> io::Result<String> {
    read_from(File::open(path)?, most)
}

/// Reads the text of at most `most` bytes that `source` has.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} B, which is the most that is read; shorten or split it");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("byte {at} is not UTF-8 text"))
    })
}

/// Parses a text of TOML.
///
/// # Errors
/// A message with the line, which quotes at most [`QUOTE_MAX`] bytes of the text at once.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    check_nesting(text)?;
    toml::from_str(text).map_err(|error| explain(text, &error))
}

/// Describes the error in a TOML text. Shows the line if it is short.
pub fn explain(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let shown = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    if shown.len() <= QUOTE_MAX {
        return clean(error.to_string().trim_end());
    }
    let (line, column) = (before.iter().filter(|byte| **byte == b'\n').count() + 1, at - start + 1);
    clean(&format!("TOML parse error at line {line}, column {column}\n{}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_not_beyond() {
        let why = |bytes: &[u8], most| read_from(bytes, most).map_err(|error| error.to_string());
        assert_eq!(why(b"abc", 3), Ok("abc".to_owned()));
        assert!(why(b"abcd", 3).unwrap_err().contains("more than 3 B"));
        assert_eq!(why(b"ab\xff", 3).unwrap_err(), "byte 2 is not UTF-8 text");
        let endless = read(Path::new("/dev/zero"), FILE_MAX).unwrap_err();
        assert_eq!(endless.kind(), ErrorKind::FileTooLarge);
        assert!(read(Path::new("/"), FILE_MAX).is_err());
    }

    #[test]
    fn faults_are_named_with_their_position_and_quoted_in_part() {
        let why = parse::<toml::Table>("a = 1\nb = \n").unwrap_err();
        assert!(why.contains("line 2") && why.contains("b = "), "{why}");
        let long = "x".repeat(5_000_000);
        for text in [
            format!("a = 1\n  b = \"{long}"),
            format!("a = 1\n  {long} = 1\n  {long} = 2"),
            format!("a = 1\n  b = {long}"),
            format!("a = 1\n  \"\u{1b}[31m{long}\u{7}"),
        ] {
            let why = parse::<toml::Table>(&text).unwrap_err();
            assert!(why.contains("line ") && why.len() < 1_000, "{} B: {why:.300}", why.len());
            assert!(!why.contains('\u{1b}'), "{why}");
        }
    }

    #[test]
    fn hostile_texts_are_answered() {
        let deep = 100_000;
        let close = |open: &str, shut: &str| format!("a = {}{}", open.repeat(deep), shut.repeat(deep));
        for text in [
            close("[", "]"),
            close("{a=", "}"),
            close("[{a=", "}]"),
            "[".repeat(deep),
            format!("{}a = 1", "a.".repeat(deep)),
            format!("[{}a]", "a.".repeat(deep)),
            format!("[[{}a]]", "a . ".repeat(deep)),
            format!("{}a = 1", "\"a\".".repeat(deep)),
            format!("a = 1\n{}a = 1", "'a'\t.\t".repeat(deep)),
        ] {
            let why = parse::<toml::Table>(&text).unwrap_err();
            assert!(why.contains("64 levels"), "{why:.300}");
        }
        for text in [
            "a = 99999999999999999999999999999999",
            "a = 1e999999999",
            "a = \0",
            "a = \"\0\"",
            "\u{feff}a",
            "a = 1\na = 2",
            "a = 9999-99-99",
            "a = 1979-05-27T25:61:61Z",
            "a.b = 1\na = 2",
            "[a]\n[a]",
            "a = \"\\uD800\"",
            "a = 0x",
            "a = inf.",
            "= 1",
            "a",
            "a = '''",
            "a = [1,",
            "\r",
            "a = \u{202e}",
        ] {
            let answered = parse::<toml::Table>(text);
            assert!(answered.is_err() || text.contains("1e9"), "{text:?}: {answered:?}");
        }
    }
}
