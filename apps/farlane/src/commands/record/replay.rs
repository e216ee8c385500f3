//! `farlane replay`: what was recorded, at its pace.

use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use live::sys::clock::Clock;
use record::Pace;
use serde_json::json;

use super::{print, print_json, unreadable};
use crate::args::{Destination, ReplayArgs};
use crate::error::Error;

/// So long before a chunk is due, sleeping ends and polling of the clock begins.
const POLLED: Duration = Duration::from_micros(200);

fn open(to: &Destination) -> io::Result<Box<dyn Write>> {
    Ok(match to {
        Destination::StandardOutput => Box::new(io::stdout()),
        Destination::File(path) => Box::new(File::create(path)?),
        Destination::Connect(address) => Box::new(TcpStream::connect(address)?),
        Destination::Listen(address) => Box::new(TcpListener::bind(address)?.accept()?.0),
    })
}

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Error> {
    let recording = super::read_recording(&args.path, false)?;
    let entries = recording.survey.entries.iter().filter(|entry| entry.stream == args.stream);
    let entries: Vec<_> = entries.copied().collect();
    let streams = recording.survey.streams() as u64;
    if u64::from(args.stream) >= streams {
        let (value, expected) = (u64::from(args.stream), format!("less than {streams}"));
        return Err(Error::Range { what: "--stream", value, expected });
    }
    let sent = |error| Error::Replay { error };
    let mut to = open(&args.to).map_err(sent)?;
    let mut errors = hdrhistogram::Histogram::<u64>::new(3).expect("3 digits are few enough");
    let mut bytes = vec![0; recording.survey.chunk as usize];
    let clock = Clock::start();
    let first = entries.first().map_or(0, |entry| entry.time);
    let pace = Pace::new(clock.now(), first, args.speed.0);
    let mut total = 0;
    for entry in &entries {
        let payload = recording.payload(entry, &mut bytes).map_err(|error| unreadable(&args.path, error))?;
        let due = pace.due(entry.time);
        loop {
            let left = Duration::from_nanos(due.as_nanos().saturating_sub(clock.now().as_nanos()));
            match left.checked_sub(POLLED) {
                _ if left.is_zero() => break,
                Some(long) => std::thread::sleep(long),
                None => std::hint::spin_loop(),
            }
        }
        if args.speed.0.is_some() {
            errors.saturating_record(clock.now().as_nanos().saturating_sub(due.as_nanos()));
        }
        to.write_all(payload).map_err(sent)?;
        total += payload.len() as u64;
    }
    to.flush().map_err(sent)?;
    let (p50, p99, max) = (errors.value_at_quantile(0.5), errors.value_at_quantile(0.99), errors.max());
    let to_stdout = matches!(args.to, Destination::StandardOutput);
    if args.output.json {
        let value = json!({ "bytes": total, "chunks": entries.len(), "pacing_error_ns": {
            "count": errors.len(), "min": errors.min(), "mean": errors.mean(), "p50": p50,
            "p90": errors.value_at_quantile(0.9), "p99": p99,
            "p999": errors.value_at_quantile(0.999), "max": max } });
        if to_stdout {
            tell!("{value}");
            return Ok(());
        }
        return print_json(&value);
    }
    let text = format!("{total} B replayed; pacing error p50 {p50} ns, p99 {p99} ns, max {max} ns\n");
    if to_stdout {
        tell!("{}", text.trim_end());
        return Ok(());
    }
    print(&text)
}
