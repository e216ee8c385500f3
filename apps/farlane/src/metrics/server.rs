//! The least of an HTTP server that a reader of figures needs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use live::sys::urgency;

/// The most bytes of a request that are read.
const REQUEST_MAX: usize = 4_096;
/// How long a request may take to come, and its answer to be read.
const PATIENCE: Duration = Duration::from_secs(2);
/// OpenMetrics 1.0, which every Prometheus since 2.5 reads.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers whoever asks at `address` with `text`, one after the other, as long as the process runs
/// and has something to tell. Returns the address, which has a port.
pub(super) fn serve(
    address: SocketAddr,
    mut text: impl FnMut() -> Option<String> + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        urgency::step_back();
        for stream in listener.incoming() {
            match stream {
                // Who goes away early gets nothing.
                Ok(stream) => drop(answer(&stream, &mut text)),
                // There are too many descriptors; that passes.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn answer(mut stream: &TcpStream, text: impl FnOnce() -> Option<String>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (mut request, mut length) = ([0; REQUEST_MAX], 0);
    while !request[..length].windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || length == REQUEST_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut request[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    let is_ours = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, format, body) = match is_ours.then(text) {
        Some(Some(text)) => ("200 OK", FORMAT, text),
        Some(None) => ("503 Service Unavailable", "text/plain", "the process ends\n".to_owned()),
        None => ("404 Not Found", "text/plain", "the figures are at GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {format}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(stream, (head + &body).as_bytes(), Instant::now() + PATIENCE)
}

/// Sends all of `bytes` before `until`: whoever reads slowly keeps others waiting no longer.
fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
