//! `farlane recording replay`: sends a recording at its pace.

mod destination;
pub(crate) mod raw;

use live::sys::logging;
use std::thread;
use std::time::Duration;

use daemon::Settings;
use engine::{Instant, Nanos};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use live::drivers::record::{Handle, State, heed_file_limit};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use record::format::{Entry, HEADER_LENGTH};
use record::registers::Direction;
use record::{CLOCKS_APART, Pace};
use schemars::JsonSchema;
use serde::Serialize;

use super::part::{Chunk, LeftOut, Opened, Part};
use super::sessions::{self, Sessions};
use super::{first, need_medium, print, print_json};
use crate::args::{Destination, ReplayArgs};
use crate::commands::{OPENED_BY_NAMESPACE, json_line};
use crate::error::Error;
use destination::Outlet;

/// The longest sleep until the replayer looks for a request to end.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// So long before a chunk is due, sleeping ends and polling of the clock begins.
const POLLED: Duration = Duration::from_micros(200);

/// A replay under way.
struct Replay<'a> {
    args: &'a ReplayArgs,
    handle: &'a Handle,
    part: &'a Part,
    clock: Clock,
    pace: Pace,
    outlet: Outlet,
    /// Nanoseconds between the time when bytes were due and the time when they were handed to the
    /// kernel. The time of the call itself is the destination's doing, and delays at most the next
    /// bytes.
    errors: Histogram<u64>,
    bytes: u64,
    sends: u64,
    /// The warning that times are those of several clocks was printed.
    is_reported: bool,
}

impl Replay<'_> {
    /// Sends bytes that were recorded at `time`, in nanoseconds since 1970, once they are due. If
    /// the user asks for the end before that, they are not sent.
    fn send(&mut self, time: u64, bytes: &[u8]) -> Result<(), Error> {
        let is_apart = self.pace.follow(time) && self.args.speed.0.is_some();
        if is_apart && !std::mem::replace(&mut self.is_reported, true) {
            warn!("a recorded time is more than 30 days later than all before; it is not waited for");
        }
        let due = self.pace.due(time);
        let Some(called) = self.wait(due) else { return Ok(()) };
        if self.args.speed.0.is_some() {
            self.errors.saturating_record(called.as_nanos().saturating_sub(due.as_nanos()));
        }
        self.outlet.send(bytes).map_err(|error| Error::Replay { error })?;
        self.bytes += bytes.len() as u64;
        self.sends += 1;
        Ok(())
    }

    /// Waits until `due`. Returns the time then; `None` if the user asks for the end.
    fn wait(&self, due: Instant) -> Option<Instant> {
        loop {
            if self.handle.is_stopped() {
                return None;
            }
            let now = self.clock.now();
            let left = Duration::from_nanos(due.as_nanos().saturating_sub(now.as_nanos()));
            match left.checked_sub(POLLED) {
                _ if left.is_zero() => return Some(now),
                Some(long) => std::thread::sleep(long.min(SLEEP_MAX)),
                None => std::hint::spin_loop(),
            }
        }
    }

    /// Sends a chunk. The next one began at `until`.
    fn send_chunk(&mut self, chunk: &Chunk, until: u64) -> Result<(), Error> {
        let part = self.part;
        let is_datagrams = matches!(self.args.to, Destination::Datagrams(_));
        if is_datagrams && part.is_packets() {
            return chunk.packets(part).try_for_each(|packet| self.send(packet.time.nanos, packet.bytes));
        }
        let bytes = chunk.bytes(part);
        if !is_datagrams {
            return self.send(chunk.entry.time, bytes);
        }
        // The chunk has the time of its first byte, the next one the time when the last had come.
        let before = (chunk.place(part) - chunk.entry.offset) as u128;
        let span = until.saturating_sub(chunk.entry.time);
        let span = if span > CLOCKS_APART.get() { 0 } else { u128::from(span) };
        let mut at = 0_u128;
        for datagram in bytes.chunks(usize::from(self.args.datagram)) {
            let later = span * (before + at) / u128::from(chunk.entry.length.max(1));
            let time = chunk.entry.time.saturating_add(u64::try_from(later).unwrap_or(u64::MAX));
            self.send(time, datagram)?;
            at += datagram.len() as u128;
        }
        Ok(())
    }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Error> {
    heed_file_limit().map_err(Error::System)?;
    let (handle, end) = sessions::handle(Direction::Read)?;
    let own = handle.clone();
    let session = move || match args.raw.raw {
        true => raw::session(args, &own),
        false => session(args, &own),
    };
    thread::scope(|scope| {
        daemon::run(Sessions::<_, true> {
            settings: settings(args),
            needs: needs(args),
            control: &args.control,
            json: args.output.json,
            handle,
            end,
            session: Some(session),
            scope,
            registers: None,
        })
    })
}

/// The options that every daemon has.
fn settings(args: &ReplayArgs) -> Settings {
    Settings {
        cpu: None,
        spin: Nanos::ZERO,
        descriptors: (1 + OPENED_BY_NAMESPACE * args.paths.len()) as u64,
        confinement: args.sandbox.confinement(),
        control: args.control.control.clone(),
        metrics: args.watch.metrics,
    }
}

/// The resources that a replayer goes on using.
fn needs(args: &ReplayArgs) -> Needs {
    let mut needs = Needs::default();
    args.paths.iter().for_each(|path| need_medium(&mut needs, path));
    match &args.to {
        Destination::File(path) => need_medium(&mut needs, path),
        Destination::Connect(_) => needs.dials = true,
        Destination::Listen(_) | Destination::Datagrams(_) | Destination::StandardOutput => {}
    }
    needs
}

fn session(args: &ReplayArgs, handle: &Handle) -> Result<(), Error> {
    let opened = Opened::open(&args.paths)?;
    let part = Part::of(&opened.survey, args.stream, &args.range)?;
    if let Destination::File(to) = &args.to {
        super::check_output(&args.paths, to)?;
    }
    let sent = |error| Error::Replay { error };
    let outlet = Outlet::open(&args.to, handle).map_err(sent)?;
    let chunk = opened.survey.chunk;
    let ahead = opened.read(part.entries.clone(), args.passes, args.buffer);
    begin(handle, &part, chunk, ahead.room());
    let mut next = ahead.next(first(&args.paths))?;
    let clock = Clock::start();
    let started = clock.now();
    let mut replay = Replay {
        args,
        handle,
        part: &part,
        clock,
        pace: Pace::new(started, first_time(&part), args.speed.0),
        outlet,
        errors: Histogram::new(3).expect("3 digits are few enough"),
        bytes: 0,
        sends: 0,
        is_reported: false,
    };
    let bar = bar(&part, args.passes);
    let (mut chunks, mut pass_start) = (0_u64, started);
    let mut before = None;
    while let Some(chunk) = next.filter(|_| !handle.is_stopped()) {
        next = ahead.next(first(&args.paths))?;
        // Bytes that are read again from the start begin a pass of their own.
        if before.is_some_and(|before| before >= chunk.entry.offset) {
            pass_start = pass_end(&part, pass_start, args.speed.0);
            replay.pace = Pace::new(pass_start, first_time(&part), args.speed.0);
        }
        before = Some(chunk.entry.offset);
        let until = next.as_ref().map_or(chunk.entry.time, |next| next.entry.time);
        replay.send_chunk(&chunk, until)?;
        bar.set_position(replay.bytes);
        chunks += 1;
        advance(handle, replay.bytes, &chunk.entry);
        ahead.give_back(chunk);
    }
    replay.outlet.flush().map_err(sent)?;
    bar.finish_and_clear();
    let took = Duration::from_nanos(clock.now().as_nanos() - started.as_nanos());
    let left_out = ahead.finish();
    handle.update(|status| {
        (status.state, status.progress.lost) = (State::Ended, part.lost() + left_out.bytes);
    });
    report(&replay, chunks, left_out, took)
}

/// Publishes which part of the medium is read.
fn begin(handle: &Handle, part: &Part, chunk: u32, room: usize) {
    let slots = || part.entries.iter().map(|entry| entry.slot);
    let address = |slot: u64| slot.saturating_mul(u64::from(chunk));
    handle.update(|status| {
        status.state = State::Running;
        (status.chunk, status.buffer) = (chunk, room as u64 * u64::from(chunk));
        status.start_address = slots().min().map_or(0, address);
        status.maximum_address = slots().max().map_or(0, |slot| address(slot + 1));
    });
}

/// Publishes that a chunk was sent.
fn advance(handle: &Handle, bytes: u64, entry: &Entry) {
    handle.update(|status| {
        status.progress.bytes_in = bytes;
        let start = entry.slot.saturating_mul(u64::from(status.chunk));
        status.last_address = start + HEADER_LENGTH as u64 + u64::from(entry.length);
        status.progress.last_address = status.last_address;
    });
}

/// The recorded time at which the part begins.
fn first_time(part: &Part) -> u64 {
    part.entries.first().map_or(0, |entry| entry.time).max(part.time())
}

/// When the next pass over the part begins: as long after the last chunk as chunks are apart.
fn pass_end(part: &Part, start: Instant, speed: Option<u32>) -> Instant {
    let first = first_time(part);
    let last = part.entries.last().map_or(first, |entry| entry.time);
    let mut pace = Pace::new(start, first, speed);
    let mut is_apart = false;
    for entry in &part.entries {
        is_apart |= pace.follow(entry.time);
    }
    let others = (part.entries.len() as u64).saturating_sub(1).max(1);
    let mean = if is_apart { 0 } else { last.saturating_sub(first) / others };
    pace.due(last.saturating_add(mean))
}

fn bar(part: &Part, passes: u64) -> ProgressBar {
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar());
    let bar = match part.bytes().checked_mul(passes).filter(|bytes| *bytes > 0) {
        Some(bytes) => ProgressBar::new(bytes).with_style(style),
        None => ProgressBar::no_length(),
    };
    bar.set_position(0);
    bar
}

/// The data that were sent, and the errors of their times.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replayed {
    bytes: u64,
    chunks: u64,
    sends: u64,
    /// Chunks that can't be used.
    bad_chunks: u64,
    /// Bytes that were lost, or are in chunks that can't be used.
    bytes_lost: u64,
    /// Datagrams that no program received.
    refused_datagrams: u64,
    elapsed_s: f64,
    pacing_error_ns: PacingError,
}

/// The times by which bytes were sent later than due, in nanoseconds.
#[derive(Serialize, JsonSchema)]
struct PacingError {
    count: u64,
    min: u64,
    mean: f64,
    /// The standard deviation.
    stddev: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl From<&Histogram<u64>> for PacingError {
    fn from(errors: &Histogram<u64>) -> Self {
        Self {
            count: errors.len(),
            min: errors.min(),
            mean: errors.mean(),
            stddev: errors.stdev(),
            p50: errors.value_at_quantile(0.5),
            p90: errors.value_at_quantile(0.9),
            p99: errors.value_at_quantile(0.99),
            p999: errors.value_at_quantile(0.999),
            max: errors.max(),
        }
    }
}

fn report(replay: &Replay<'_>, chunks: u64, bad: LeftOut, took: Duration) -> Result<(), Error> {
    let (args, errors) = (replay.args, &replay.errors);
    let (refused, lost) = (replay.outlet.refused(), replay.part.lost() + bad.bytes);
    let to_stdout = matches!(args.to, Destination::StandardOutput);
    if args.output.json {
        let value = Replayed {
            bytes: replay.bytes,
            chunks,
            sends: replay.sends,
            bad_chunks: bad.chunks,
            bytes_lost: lost,
            refused_datagrams: refused,
            elapsed_s: took.as_secs_f64(),
            pacing_error_ns: errors.into(),
        };
        if to_stdout {
            logging::show(json_line(&value)? + "\n");
            return Ok(());
        }
        return print_json(&value);
    }
    let mut text = format!("{} B replayed in {:.3} s", replay.bytes, took.as_secs_f64());
    if !errors.is_empty() {
        let quantile = |quantile| Nanos::new(errors.value_at_quantile(quantile));
        text += &format!("; pacing error p50 {}, p99 {}, ", quantile(0.5), quantile(0.99));
        text += &format!("max {}", Nanos::new(errors.max()));
    }
    if lost > 0 || bad.chunks > 0 {
        text += &format!("\n  left out: {lost} B that were lost, {} bad chunks", bad.chunks);
    }
    if refused > 0 {
        text += &format!("\n  no receiver: {refused} datagrams were refused");
    }
    if to_stdout {
        logging::show(text + "\n");
        return Ok(());
    }
    print(&(text + "\n"))
}
