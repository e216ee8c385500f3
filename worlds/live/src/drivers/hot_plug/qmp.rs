//! QEMU Machine Protocol (QMP): messages as lines of JSON. Source: QEMU, `docs/interop/qmp-spec`.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of the longest line that is taken from QEMU. Its longest answer to the commands of this
/// module has some 2 KiB.
pub const LINE_MAX: usize = 64 << 10;
/// Characters of a bad line that are quoted.
const QUOTED_MAX: usize = 60;

/// A message from QEMU.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// The first message on a connection.
    Greeting,
    /// The answer to a command.
    Answer {
        /// The number that the command had; `None` where QEMU could not read one.
        id: Option<u64>,
        /// What the command returns, or why QEMU refuses it.
        result: Result<Value, Refusal>,
    },
    /// Something happened.
    Event {
        /// The name, such as `DEVICE_DELETED`.
        name: String,
        /// The device that the event is about, if it has an id.
        device: Option<String>,
    },
}

/// Why QEMU refuses a command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Refusal {
    /// The kind of error: `GenericError`, `DeviceNotFound`, `CommandNotFound` and few others.
    pub(super) class: String,
    /// The error as a sentence.
    #[serde(rename = "desc")]
    pub(super) description: String,
}

/// Why bytes are no messages of QMP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A line is longer than [`LINE_MAX`].
    TooLong,
    /// A line is not a JSON object of QMP. The field is the line's beginning.
    NotQmp(String),
}

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a line of more than {} KiB", LINE_MAX >> 10),
            Self::NotQmp(line) => write!(f, "{line:?}"),
        }
    }
}

/// The bytes from QEMU, cut anywhere, on their way to become messages.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the first line begins that was not returned yet.
    begin: usize,
}

impl Lines {
    /// Appends a piece of the stream. [`Lines::poll`] must have returned `None` before.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// The next message; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// When the next line is no message of QMP. The connection is of no use then.
    pub(super) fn poll(&mut self) -> Option<Result<Message, Garbage>> {
        loop {
            let rest = &self.bytes[self.begin..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            if end.unwrap_or(rest.len()) > LINE_MAX {
                return Some(Err(Garbage::TooLong));
            }
            let line = &rest[..end?];
            self.begin += line.len() + 1;
            if !line.trim_ascii().is_empty() {
                return Some(parse(line));
            }
        }
    }
}

/// The members that messages of QMP have; others are passed over.
#[derive(Deserialize)]
struct Object {
    #[serde(rename = "QMP")]
    greeting: Option<serde::de::IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    r#return: Option<Value>,
    error: Option<Refusal>,
    event: Option<String>,
    data: Option<Value>,
    id: Option<Value>,
}

/// Keeps a member that is null apart from one that is absent.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn parse(line: &[u8]) -> Result<Message, Garbage> {
    let garbage = || {
        let text = String::from_utf8_lossy(line);
        Garbage::NotQmp(text.trim().chars().take(QUOTED_MAX).collect())
    };
    let object: Object = serde_json::from_slice(line).map_err(|_| garbage())?;
    let id = object.id.as_ref().and_then(Value::as_u64);
    match object {
        Object { event: Some(name), data, .. } => {
            let device = data.as_ref().and_then(|data| data.get("device")).and_then(Value::as_str);
            Ok(Message::Event { name, device: device.map(str::to_owned) })
        }
        Object { error: Some(refusal), .. } => Ok(Message::Answer { id, result: Err(refusal) }),
        Object { r#return: Some(value), .. } => Ok(Message::Answer { id, result: Ok(value) }),
        Object { greeting: Some(_), .. } => Ok(Message::Greeting),
        _ => Err(garbage()),
    }
}

/// The line of the command `name` with `arguments`, whose answer will have the number `id`.
pub(super) fn command(id: u64, name: &str, arguments: &Value) -> Vec<u8> {
    let mut line = json!({"execute": name, "arguments": arguments, "id": id}).to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages as QEMU 11.1.3 sent them.
    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 3, "minor": 1, "major": 11}, "package": "Debian 1:11.1.3+ds-1~bpo13+1"}, "capabilities": ["oob"]}}"#;
    const EVENT: &str = r#"{"timestamp": {"seconds": 1796068741, "microseconds": 734140}, "event": "DEVICE_DELETED", "data": {"device": "farlane-dn1", "path": "/machine/peripheral/farlane-dn1"}}"#;
    const REFUSAL: &str = r#"{"id": 4, "error": {"class": "GenericError", "desc": "Bus 'dnx' not found"}}"#;

    fn messages(pieces: &[&[u8]]) -> Vec<Result<Message, Garbage>> {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Some(message) = lines.poll() {
                let is_end = message.is_err();
                all.push(message);
                if is_end {
                    return all;
                }
            }
        }
        all
    }

    #[test]
    fn qemus_own_messages_are_read_wherever_they_are_cut() {
        let text = format!("{GREETING}\r\n{EVENT}\r\n{REFUSAL}\r\n{}\r\n", r#"{"return": {}, "id": 5}"#);
        let refusal = Refusal { class: "GenericError".into(), description: "Bus 'dnx' not found".into() };
        let expected = [
            Ok(Message::Greeting),
            Ok(Message::Event { name: "DEVICE_DELETED".into(), device: Some("farlane-dn1".into()) }),
            Ok(Message::Answer { id: Some(4), result: Err(refusal) }),
            Ok(Message::Answer { id: Some(5), result: Ok(json!({})) }),
        ];
        for cut in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(cut);
            assert_eq!(messages(&[one, other]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_messages_are_refused() {
        for line in ["SSH-2.0-OpenSSH_9.9", "{}", "[1]", "{\"event\": 7}", "\u{0}\u{1}", "null"] {
            let found = messages(&[line.as_bytes(), b"\n"]);
            assert!(matches!(&found[..], [Err(Garbage::NotQmp(_))]), "{line}: {found:?}");
        }
        let nested = [b"[".repeat(10_000), b"\n".to_vec()].concat();
        assert!(matches!(&messages(&[&nested])[..], [Err(Garbage::NotQmp(_))]));
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_its_limit() {
        let piece = [b' '; 4096];
        let pieces = vec![&piece[..]; 32];
        assert_eq!(messages(&pieces), [Err(Garbage::TooLong)]);
        let mut lines = Lines::default();
        lines.push(&[b' '; LINE_MAX]);
        assert_eq!(lines.poll(), None);
        lines.push(b"\n{\"return\": null}\n");
        assert!(matches!(lines.poll(), Some(Ok(Message::Answer { result: Ok(Value::Null), .. }))));
    }

    #[test]
    fn a_command_is_one_line() {
        let line = command(3, "device_del", &json!({"id": "a\nb"}));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value, json!({"execute": "device_del", "arguments": {"id": "a\nb"}, "id": 3}));
    }
}
