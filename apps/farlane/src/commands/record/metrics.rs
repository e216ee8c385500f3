//! The figures of a recording for programs that watch many: Prometheus' text format 0.0.4.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use live::drivers::record::{Handle, State, Status};

/// The most bytes of a request that are read.
const REQUEST_MAX: usize = 4_096;
/// How long a request and its answer may take together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers whoever asks at `address`, one after the other, as long as the process runs. Returns the
/// address, which has a port.
pub(super) fn serve(address: SocketAddr, handle: Handle) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // Who goes away early gets nothing.
                Ok(stream) => drop(answer(&stream, &handle)),
                // There are too many descriptors; that passes.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn answer(mut stream: &TcpStream, handle: &Handle) -> io::Result<()> {
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
    stream.set_write_timeout(Some(PATIENCE))?;
    let is_ours = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) = match is_ours {
        true => ("200 OK", text(&handle.status())),
        false => ("404 Not Found", "the figures are at GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}

fn text(status: &Status) -> String {
    let (progress, writes) = (&status.progress, &status.writes);
    let seconds = |nanos: engine::Nanos| nanos.get() as f64 / 1e9;
    let count = |value: u64| value as f64;
    let rows = [
        (
            "bytes_in_total",
            "counter",
            "Bytes that came, lost ones included",
            count(progress.bytes_in + progress.passed),
        ),
        (
            "bytes_passed_total",
            "counter",
            "Bytes that came before a trigger and were not kept",
            count(progress.passed),
        ),
        ("bytes_stored_total", "counter", "Bytes that the medium has taken", count(progress.stored)),
        (
            "bytes_acknowledged_total",
            "counter",
            "Bytes that survive a power cut",
            count(progress.acknowledged),
        ),
        ("bytes_lost_total", "counter", "Bytes lost in declared gaps", count(progress.lost)),
        ("gaps_total", "counter", "Declared gaps", count(status.gaps)),
        ("buffer_bytes", "gauge", "Size of the buffer", count(status.buffer)),
        ("buffer_fill_bytes", "gauge", "Bytes in the buffer", count(progress.fill)),
        (
            "buffer_high_water_bytes",
            "gauge",
            "The most bytes in the buffer so far",
            count(progress.high_water),
        ),
        ("writes_total", "counter", "Writes that have ended", count(writes.ended)),
        ("write_seconds_total", "counter", "Time that these took, all added", seconds(writes.time)),
        ("slowest_write_seconds", "gauge", "Time that the slowest took", seconds(writes.slowest)),
        ("pauses_total", "counter", "Pauses of the medium, 20 ms or longer", count(writes.pauses)),
        ("pause_seconds_total", "counter", "Time of these pauses, all added", seconds(writes.paused)),
        ("longest_pause_seconds", "gauge", "Time of the longest pause", seconds(writes.longest_pause)),
        (
            "running",
            "gauge",
            "1 while bytes are recorded",
            f64::from(u8::from(status.state == State::Running)),
        ),
    ];
    let row = |(name, kind, help, value): (&str, &str, &str, f64)| {
        let name = format!("farlane_record_{name}");
        format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
    };
    rows.into_iter().map(row).collect()
}
