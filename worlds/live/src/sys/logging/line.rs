//! One event as bytes of a log: as text, as JSON, and in the journal's own form.

use std::fmt::Write as _;
use std::time::SystemTime;

use tracing::Level;

/// An event to log.
#[derive(Clone, Debug)]
pub struct Line {
    /// When it happened.
    pub at: SystemTime,
    /// How grave it is.
    pub level: Level,
    /// The module that logs it.
    pub module: &'static str,
    /// The event, as a sentence without its end.
    pub text: String,
    /// The fields of the event: names and values.
    pub fields: Vec<(&'static str, String)>,
    /// Number of events like this one that were counted instead of written.
    pub repeated: u64,
    /// Whether the line is written even if others are like it.
    pub each: bool,
}

impl Line {
    /// A warning of this module's own.
    pub(super) fn warning(text: String) -> Self {
        let (at, level, module) = (SystemTime::now(), Level::WARN, module_path!());
        Self { at, level, module, text, fields: Vec::new(), repeated: 0, each: false }
    }

    /// The number of this line's level in syslog's terms (`syslog(3)`).
    fn rank(&self) -> u8 {
        match self.level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        }
    }

    fn level_word(&self) -> &'static str {
        match self.level {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        }
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    Text {
        /// Whether the time stands before each line.
        stamped: bool,
        /// Whether the level stands before each line as a service manager reads it
        /// (`sd-daemon(3)`).
        ranked: bool,
    },
    /// One JSON object a line.
    Json,
    /// Entries of the journal's native protocol.
    Journal,
}

impl Form {
    /// The bytes of `line`, with its end.
    pub(super) fn of(self, line: &Line) -> Vec<u8> {
        match self {
            Self::Text { stamped, ranked } => text(line, stamped, ranked).into_bytes(),
            Self::Json => json(line).into_bytes(),
            Self::Journal => journal(line),
        }
    }
}

fn text(line: &Line, stamped: bool, ranked: bool) -> String {
    let rank = if ranked { format!("<{}>", line.rank()) } else { String::new() };
    let stamp = if stamped { format!("{} ", stamp(line.at)) } else { String::new() };
    // A further line is no event of its own.
    format!("{rank}{stamp}farlane: {}\n", line.text.replace('\n', "\n  "))
}

/// The time in UTC, to the millisecond, by RFC 3339.
fn stamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

fn json(line: &Line) -> String {
    let mut text = format!("{{\"time\":\"{}\",\"level\":\"{}\"", stamp(line.at), line.level_word());
    let _ = write!(text, ",\"module\":{},\"message\":{}", quoted(line.module), quoted(&line.text));
    if line.repeated > 0 {
        let _ = write!(text, ",\"repeated\":{}", line.repeated);
    }
    if !line.fields.is_empty() {
        let fields = line.fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
        let _ = write!(text, ",\"fields\":{{{}}}", fields.collect::<Vec<_>>().join(","));
    }
    text + "}\n"
}

/// A JSON string (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for one in text.chars() {
        match one {
            '"' | '\\' => quoted.extend(['\\', one]),
            '\n' => quoted.push_str("\\n"),
            control if control < ' ' || control == '\x7f' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            one => quoted.push(one),
        }
    }
    quoted.push('"');
    quoted
}

/// An entry of the journal (`systemd.journal-fields(7)`, "Native Journal Protocol"). Fields of the
/// event have names with `FARLANE_` before them.
fn journal(line: &Line) -> Vec<u8> {
    let mut entry = Vec::new();
    put(&mut entry, "MESSAGE", &line.text);
    put(&mut entry, "PRIORITY", &line.rank().to_string());
    put(&mut entry, "SYSLOG_IDENTIFIER", "farlane");
    put(&mut entry, "FARLANE_MODULE", line.module);
    if line.repeated > 0 {
        put(&mut entry, "FARLANE_REPEATED", &line.repeated.to_string());
    }
    for (name, value) in &line.fields {
        let name = name.to_ascii_uppercase().replace(|one: char| !one.is_ascii_alphanumeric(), "_");
        put(&mut entry, &format!("FARLANE_{name}"), value);
    }
    entry
}

/// Appends a field. A value of several lines has its length before it, in 64 bits, little-endian.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn line(text: &str) -> Line {
        let at = UNIX_EPOCH + Duration::from_millis(1_000);
        Line { at, fields: vec![("peer", "a\"b\\c\n\u{1}".to_owned())], ..Line::warning(text.to_owned()) }
    }

    #[test]
    fn text_has_the_time_and_the_rank_where_they_are_wanted() {
        let plain = Form::Text { stamped: false, ranked: false };
        let all = Form::Text { stamped: true, ranked: true };
        assert_eq!(plain.of(&line("link down")), b"farlane: link down\n");
        assert_eq!(all.of(&line("link down")), b"<4>1970-01-01T00:00:01.000Z farlane: link down\n");
    }

    #[test]
    fn json_is_what_other_programs_read() {
        let mut repeated = line("what \"they\" said\t");
        repeated.repeated = 7;
        let text = String::from_utf8(Form::Json.of(&repeated)).unwrap();
        let expected = "{\"time\":\"1970-01-01T00:00:01.000Z\",\"level\":\"warning\",\
            \"module\":\"live::sys::logging::line\",\
            \"message\":\"what \\\"they\\\" said\\u0009\",\"repeated\":7,\
            \"fields\":{\"peer\":\"a\\\"b\\\\c\\n\\u0001\"}}\n";
        assert_eq!(text.replace("farlane_live", "live"), expected);
    }

    #[test]
    fn the_journal_gets_values_of_several_lines_whole() {
        let entry = Form::Journal.of(&line("two\nlines"));
        let module = format!("FARLANE_MODULE={}\n", line("").module);
        let expected = [
            b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\nPRIORITY=4\nSYSLOG_IDENTIFIER=farlane\n".as_slice(),
            module.as_bytes(),
            b"FARLANE_PEER\n\x07\0\0\0\0\0\0\0a\"b\\c\n\x01\n",
        ];
        assert_eq!(entry, expected.concat());
    }
}
