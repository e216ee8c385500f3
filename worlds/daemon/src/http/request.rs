//! A request: its head, which is read first, and its body.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::{Limits, receive};

/// The most headers of a head.
const HEADERS_MAX: usize = 100;
const END: &[u8] = b"\r\n\r\n";

/// A request whose head has come.
pub struct Request<'a> {
    stream: &'a TcpStream,
    limits: &'a Limits,
    /// The method.
    pub method: String,
    /// The requested path.
    pub path: String,
    /// The text behind a question mark.
    pub query: String,
    /// The name by which the peer came, if it has said one and no more.
    pub host: Option<String>,
    /// Bytes of the body; `None` if the head does not say them as it should.
    length: Option<usize>,
    /// The body, as far as it has come.
    body: Vec<u8>,
}

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The head does not say one length.
    NoLength,
    /// It is longer than the limit.
    TooLong,
    /// It has not come in time, or not to its end.
    Late,
}

impl<'a> Request<'a> {
    /// Reads a head. `None` if it is no HTTP.
    ///
    /// # Errors
    /// The system's, and when the head is too long, comes too late or does not end.
    pub(super) fn read(stream: &'a TcpStream, limits: &'a Limits) -> io::Result<Option<Self>> {
        let until = Instant::now() + limits.patience;
        let (mut bytes, mut length) = (vec![0; limits.head], 0);
        let end = loop {
            if length == bytes.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let more = receive(stream, &mut bytes[length..], until)?;
            if more == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The end may have begun before.
            let from = length.saturating_sub(END.len() - 1);
            length += more;
            if let Some(at) = bytes[from..length].windows(END.len()).position(|part| part == END) {
                break from + at + END.len();
            }
        };
        bytes.truncate(length);
        let body = bytes.split_off(end);
        Ok(Self::parse(stream, limits, &bytes, body))
    }

    fn parse(stream: &'a TcpStream, limits: &'a Limits, head: &[u8], body: Vec<u8>) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        parsed.parse(head).ok().filter(httparse::Status::is_complete)?;
        let target = parsed.path.filter(|target| target.starts_with('/'))?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let only = |name: &str| {
            let mut all = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let first = all.next().map(|header| header.value);
            (first, all.next().is_some())
        };
        let length = match (only("content-length"), only("transfer-encoding")) {
            ((None, _), (None, _)) => Some(0),
            ((Some(value), false), (None, _)) => number(value),
            _ => None,
        };
        let host = match only("host") {
            (Some(value), false) => str::from_utf8(value).ok().filter(|host| host.is_ascii()),
            _ => None,
        };
        Some(Self {
            stream,
            limits,
            method: parsed.method?.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            host: host.map(str::to_owned),
            length,
            body,
        })
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When there is none that can be read.
    pub fn body(&mut self) -> Result<Vec<u8>, BodyFault> {
        let length = self.length.ok_or(BodyFault::NoLength)?;
        if length > self.limits.body {
            return Err(BodyFault::TooLong);
        }
        let until = Instant::now() + self.limits.patience;
        let mut done = self.body.len();
        self.body.resize(done.max(length), 0);
        while done < length {
            match receive(self.stream, &mut self.body[done..], until) {
                Ok(more) if more > 0 => done += more,
                _ => {
                    self.body.truncate(done);
                    return Err(BodyFault::Late);
                }
            }
        }
        Ok(self.body[..length].to_vec())
    }

    /// Whether the peer may have sent more than was read.
    pub(super) fn has_more(&self) -> bool {
        self.length.is_none_or(|length| self.body.len() < length)
    }
}

/// A number of digits and nothing else.
fn number(text: &[u8]) -> Option<usize> {
    text.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(text).ok()?.parse().ok())?
}
