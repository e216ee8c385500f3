//! HTTP/1.1 for browsers and for readers of figures: one request a connection, with limits.
//!
//! `httparse` takes heads apart. Other parts of HTTP/1.1 are not needed here and are refused:
//! further requests of a connection, and bodies without a length.

mod request;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

pub use request::{BodyFault, Request};

/// The most bytes that are read of a request after its answer, and how long that may take.
const REST_MAX: usize = 1 << 20;
const REST_WITHIN: Duration = Duration::from_secs(1);

/// How much of a request is taken, and how long it may take.
pub struct Limits {
    /// The most bytes of a head.
    pub head: usize,
    /// The most bytes of a body.
    pub body: usize,
    /// How long a head may take to come, and a body.
    pub patience: Duration,
    /// How long an answer may take to be read.
    pub reading: Duration,
}

/// An answer to a request.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The type of the body.
    pub kind: &'static str,
    /// Further headers of the answer.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body.
    pub body: Cow<'static, [u8]>,
}

impl Answer {
    /// The answer as bytes, without its body where only the head was asked for.
    fn emit(&self, is_head: bool) -> Vec<u8> {
        let (status, length) = (self.status, self.body.len());
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: close\r\n",
            reason(status),
            self.kind
        );
        for (name, value) in self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        let body: &[u8] = if is_head { &[] } else { &self.body };
        [head.as_bytes(), body].concat()
    }
}

/// The meaning of a status, in words.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        421 => "Misdirected Request",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    }
}

/// Answers the request that comes over `stream`, as `by` says. A request that is no HTTP is `None`
/// to it. A head that is longer than the limit, or comes too late, has no answer.
///
/// # Errors
/// The system's, and those of requests without an answer.
pub fn answer(
    stream: &TcpStream,
    limits: &Limits,
    by: impl FnOnce(Option<&mut Request<'_>>) -> Answer,
) -> io::Result<()> {
    let mut request = Request::read(stream, limits)?;
    let answer = by(request.as_mut());
    let is_head = request.as_ref().is_some_and(|request| request.method == "HEAD");
    send(stream, &answer.emit(is_head), Instant::now() + limits.reading)?;
    // Unread bytes of a request in the kernel reset a connection when it is closed, and its peer
    // may lose the answer.
    if request.is_none_or(|request| request.has_more()) { read_rest(stream) } else { Ok(()) }
}

/// Sends all of `bytes` before `until`: a slow reader keeps others waiting no longer.
fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the bytes that have come before `until`. Zero bytes are the end.
fn receive(mut stream: &TcpStream, place: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(place) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read_rest(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + REST_WITHIN;
    let (mut place, mut sum) = ([0; 4096], 0);
    while sum < REST_MAX {
        match receive(stream, &mut place, until)? {
            0 => break,
            more => sum += more,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LIMITS: Limits =
        Limits { head: 1024, body: 16, patience: Duration::from_secs(10), reading: Duration::from_secs(10) };

    /// The answer to a peer that sends `said`, and the request.
    fn asked(said: &[u8]) -> (String, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        peer.write_all(said).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut found = None;
        let done = answer(&stream, &LIMITS, |request| {
            found = request.map(|request| {
                let body = request.body();
                let Request { method, path, query, host, .. } = request;
                format!("{method} {path} {query:?} {host:?} {body:?}")
            });
            let status = if found.is_some() { 200 } else { 400 };
            Answer { status, kind: "text/plain", headers: &[("X", "y")], body: b"seen".into() }
        });
        drop(stream);
        let mut answered = String::new();
        peer.read_to_string(&mut answered).unwrap();
        assert_eq!(done.is_err(), answered.is_empty());
        (answered, found)
    }

    #[test]
    fn a_request_has_an_answer() {
        let (answered, found) = asked(b"GET /a/b?c=d HTTP/1.1\r\nHost: here\r\n\r\n");
        assert_eq!(found.unwrap(), "GET /a/b \"c=d\" Some(\"here\") Ok([])");
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nConnection: close\r\n";
        assert_eq!(answered, format!("{head}X: y\r\n\r\nseen"));
        let (answered, _) = asked(b"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n");
        assert_eq!(answered, format!("{head}X: y\r\n\r\n"));
    }

    #[test]
    fn a_body_has_the_length_that_its_head_says() {
        let body =
            |head: &str| asked(format!("POST / HTTP/1.1\r\n{head}\r\n\r\nhello!").as_bytes()).1.unwrap();
        assert!(body("Content-Length: 5").ends_with(&format!("Ok({:?})", b"hello")));
        assert!(body("content-length: 0").ends_with("Ok([])"));
        assert!(body("Content-Length: 17").ends_with("Err(TooLong)"));
        assert!(body("Content-Length: 99999999999999999999").ends_with("Err(NoLength)"));
        assert!(body("Content-Length: +5").ends_with("Err(NoLength)"));
        assert!(body("Content-Length: 5\r\nContent-Length: 5").ends_with("Err(NoLength)"));
        assert!(body("Content-Length: 5\r\nTransfer-Encoding: chunked").ends_with("Err(NoLength)"));
        assert!(body("Content-Length: 7").ends_with("Err(Late)"), "it ends too early");
    }

    #[test]
    fn of_two_hosts_none_is_the_host() {
        for head in ["Host: a\r\nHost: a", "X: y", "Host: \u{e4}"] {
            let found = asked(format!("GET / HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).1.unwrap();
            assert_eq!(found, "GET / \"\" None Ok([])", "{head}");
        }
    }

    #[test]
    fn what_is_no_http_is_refused_and_what_never_ends_has_no_answer() {
        for said in [
            &b"\0\0\0\0\r\n\r\n"[..],
            b"\r\n\r\n\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/2.0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost here\r\n\r\n",
            b"GET here HTTP/1.1\r\n\r\n",
            format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(150)).as_bytes(),
        ] {
            let (answered, found) = asked(said);
            assert!(found.is_none() && answered.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answered}");
        }
        assert_eq!(asked(b"GET / HTTP/1.1\r\n").0, "");
        assert_eq!(asked(&[b'x'; 1024]).0, "");
    }

    #[test]
    fn an_answer_is_given_up_when_its_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        send(&stream, b"all of it", Instant::now() + Duration::from_secs(600)).unwrap();
        // Each piece comes in time by itself, but the answer does not.
        let late = send(&stream, b"too late", Instant::now()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "all of it");
    }
}
