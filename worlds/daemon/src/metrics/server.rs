//! The server of figures: one reader after the other.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use live::sys::urgency;

use crate::http::{self, Answer, Limits, Request};

/// The limits of a reader's request, and of the time for which it may keep others waiting.
const LIMITS: Limits =
    Limits { head: 4_096, body: 0, patience: Duration::from_secs(2), reading: Duration::from_secs(2) };
/// How long a process that ends may keep its address.
const FREED_WITHIN: Duration = Duration::from_secs(2);
/// OpenMetrics 1.0, which every Prometheus since 2.5 reads.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests at `address` with `text`, one after the other, as long as the process runs and
/// `text` returns a page. Returns the address, which has a port.
pub(super) fn serve(
    address: SocketAddr,
    is_being_freed: bool,
    mut text: impl FnMut() -> Option<String> + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = bind(address, if is_being_freed { FREED_WITHIN } else { Duration::ZERO })?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        urgency::step_back();
        for stream in listener.incoming() {
            match stream {
                // A reader that goes away early gets nothing.
                Ok(stream) => drop(http::answer(&stream, &LIMITS, |request| answer(request, &mut text))),
                // There are too many descriptors; that passes.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

/// Listens on `address`, which another process may still have for as long as `patience`.
fn bind(address: SocketAddr, patience: Duration) -> io::Result<TcpListener> {
    let until = Instant::now() + patience;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

fn answer(request: Option<&mut Request<'_>>, text: impl FnOnce() -> Option<String>) -> Answer {
    let is_ours = request
        .is_some_and(|request| request.method == "GET" && ["/", "/metrics"].contains(&request.path.as_str()));
    let (status, kind, body) = match is_ours.then(text) {
        Some(Some(text)) => (200, FORMAT, text),
        Some(None) => (503, "text/plain", "the process ends\n".to_owned()),
        None => (404, "text/plain", "the figures are at GET /metrics\n".to_owned()),
    };
    Answer { status, kind, headers: &[], body: body.into_bytes().into() }
}
