//! How the values of options are written: sizes, addresses, times.

use std::net::SocketAddr;
use std::time::Duration;

use live::sys::address;

/// Parses a size as fio does: `4k` and `4KiB` are both 4096.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|_| "expected a size such as 4096, 4k or 64MiB, below 16 EiB".to_owned())
}

/// Parses an address or a host name, with a port, to listen on.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected ADDRESS:PORT or NAME:PORT, such as 127.0.0.1:4430 or [::1]:4430";
    let found = address::resolve(text).map_err(|error| format!("{error}; {expected}"))?;
    found.first().copied().ok_or_else(|| format!("the name has no address; {expected}"))
}

/// Parses a time with its unit, or a number of seconds as fio does.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let time = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    time.map_err(|_| "expected a time such as 10s, 500ms, or 10 for seconds".to_owned())
}

/// Parses a time that is long enough to measure something.
pub(super) fn parse_runtime(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("a run of no time measures nothing; expected 10 or 500ms".to_owned()),
        runtime => Ok(runtime),
    }
}

/// Parses a time that is not 0.
pub(super) fn parse_positive_time(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("no time is too short; expected a time such as 10s or 500ms".to_owned()),
        time => Ok(time),
    }
}

/// Parses a size that is not 0.
pub(super) fn parse_positive_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("0 bytes show nothing; expected a size such as 64MiB".to_owned()),
        size => Ok(size),
    }
}

/// Notes in `given` the key of `part`, which is before `=` or `:`. Of two parts with one key, the
/// last would win in silence.
pub(super) fn note_once<'a>(given: &mut Vec<&'a str>, part: &'a str) -> Result<(), String> {
    let key = part.split(['=', ':']).next().unwrap_or(part);
    if given.contains(&key) {
        return Err(format!("{key} is given twice; give it once"));
    }
    given.push(key);
    Ok(())
}

pub(super) fn parse_serial(text: &str) -> Result<String, String> {
    match text.len() {
        1..=20 if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) => Ok(text.to_owned()),
        _ => Err("a serial number is 1 to 20 printable ASCII characters".to_owned()),
    }
}
