//! The figures that a running process answers HTTP requests with.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::running::wait_until;

/// Sends `request` to `address`. Returns the whole answer, which may be none.
pub(crate) fn asked(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A request that was not read to its end resets the connection.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Where a process that was started with `--metrics` serves its figures.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) address: String,
}

impl Figures {
    /// Waits until the process, whose standard error `said` returns, has logged where they are.
    pub(crate) fn of(said: impl Fn() -> String) -> Self {
        let mut address = String::new();
        wait_until("the figures are served", || {
            let said = said();
            let at = said
                .lines()
                .find_map(|line| line.split_once("figures at http://")?.1.strip_suffix("/metrics"));
            address = at.unwrap_or_default().to_owned();
            !address.is_empty()
        });
        Self { address }
    }

    /// The page with all figures.
    pub(crate) fn page(&self) -> String {
        let answer = asked(&self.address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"), "{head}");
        page.to_owned()
    }

    /// The sum of all figures called `name` whose labels contain all of `labels`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.page();
        let of = |line: &str| -> Option<f64> {
            let (series, value) = line.rsplit_once(' ')?;
            let (called, with) = series.split_once('{').unwrap_or((series, ""));
            (called == name && labels.iter().all(|label| with.contains(label)))
                .then(|| value.parse().unwrap())
        };
        let figures: Vec<_> = page.lines().filter_map(of).collect();
        assert!(!figures.is_empty(), "there is no {name} with {labels:?} in:\n{page}");
        figures.iter().sum()
    }
}
