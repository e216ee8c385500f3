//! The report of a preflight.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distribution::Distribution;
use engine::Nanos;
use indicatif::{BinaryBytes, DecimalBytes};
use record::BUFFER_MAX;
use schemars::JsonSchema;
use serde::Serialize;

use super::Preflight;
use super::answer::{Forecast, Verdict, Wish, bytes_in, space_of, time_of};
use super::kept::Kept;
use crate::args::PreflightArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Times of at least this many seconds are printed without fractions.
const LONG: u64 = 10;

/// Whether a medium keeps up with a recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    device: &'a Path,
    /// The identity that distinguishes the medium from others.
    medium: &'a str,
    /// Whether writes went past the page cache.
    direct: bool,
    measured: Measured,
    model: Model,
    /// The answer in words.
    answer: &'static str,
    /// Whether the whole recording fits, if with another buffer.
    fits: bool,
    /// When the buffer overflows, or the medium is full; none if neither happens.
    at_ns: Option<u64>,
    /// When the buffer that was asked for overflows; none if it does not.
    overflow_ns: Option<u64>,
    /// The wanted rate in bytes per second.
    rate: u64,
    /// The wanted time.
    time_ns: u64,
    buffer_bytes: u64,
    /// The buffer that the recording needs.
    needed_bytes: u64,
    /// The same in chunks, where a buffer is large enough.
    needed_chunks: Option<u64>,
    /// The room on the medium that the recording needs.
    space_bytes: u64,
    /// The room on the medium.
    room_bytes: u64,
    /// The largest rate in bytes per second that fits for that time.
    largest_rate: u64,
}

/// The measurement.
#[derive(Serialize, JsonSchema)]
struct Measured {
    bytes: u64,
    time_ns: u64,
    chunk_bytes: u32,
    /// Whether the medium was full then.
    full: bool,
    burst_bytes_per_second: u64,
    sustained_bytes_per_second: u64,
    pauses: u64,
    longest_pause_ns: u64,
    /// The times of chunks.
    latency_ns: Distribution,
}

/// The model of the medium that the measurement was fitted to.
#[derive(Serialize, JsonSchema)]
struct Model {
    steps: Vec<RateStep>,
    pause_every_bytes: u64,
    pause_ns: u64,
    constants: usize,
    fitted_to_writes: u64,
    /// Bytes of the recording beyond the measured ones.
    extrapolated_bytes: u64,
    /// The name of the model that was chosen; none for the best fit.
    preset: Option<&'static str>,
}

/// A rate from a number of bytes on.
#[derive(Serialize, JsonSchema)]
struct RateStep {
    after_bytes: u64,
    bytes_per_second: u64,
}

/// A size as people read it, in powers of ten, as rates are.
pub(super) fn size(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

/// A rate as people read it.
pub(super) fn rate(bytes: u64) -> String {
    format!("{}/s", DecimalBytes(bytes))
}

/// A time as people read it.
fn time(nanos: Nanos) -> String {
    let seconds = nanos.get() / 1_000_000_000;
    if seconds < LONG {
        return nanos.to_string();
    }
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

impl Verdict {
    /// The word for machines.
    const fn word(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::FitsWith { .. } => "fits with a larger buffer",
            Self::Overflows { .. } => "overflows",
            Self::Full { .. } => "medium full",
        }
    }

    /// Whether the whole recording fits, if with another buffer.
    const fn is_good(self) -> bool {
        matches!(self, Self::Fits | Self::FitsWith { .. })
    }
}

impl Wish {
    /// The buffer's options that hold this many chunks.
    fn options(&self, chunks: u64) -> String {
        let pause = time_of(chunks * u64::from(self.chunk), self.rate);
        let millis = pause.get().div_ceil(1_000_000);
        format!("--buffer {} ({chunks} chunks), or --pause {millis}ms", chunks * u64::from(self.chunk))
    }

    /// The answer in words.
    fn answer(&self, forecast: &Forecast) -> String {
        let own = BinaryBytes(self.buffer);
        let overflow = forecast.overflow.map(time).unwrap_or_default();
        match forecast.verdict {
            Verdict::Fits => format!("the buffer of {own} holds {} at most", size(forecast.needed)),
            Verdict::FitsWith { chunks } => {
                let options = self.options(chunks);
                format!("the buffer of {own} overflows after {overflow}; large enough: {options}")
            }
            Verdict::Overflows { at } => {
                let largest = rate(forecast.largest_rate);
                format!(
                    "the buffer of {own} overflows after {}, and the largest, {BUFFER_MAX} chunks, does, too; \
                     {largest} for as long fit",
                    time(at)
                )
            }
            Verdict::Full { at, chunks } => {
                let (room, space, full) = (size(self.room), size(forecast.space), time(at));
                let buffer = match forecast.overflow {
                    None => String::new(),
                    Some(_) => format!("; until then it takes {}", self.options(chunks)),
                };
                format!("the medium has room for {room} of {space}, and is full after {full}{buffer}")
            }
        }
    }
}

/// Prints the answer. A recording that does not fit is an error.
pub(super) fn print_answer(args: &PreflightArgs, preflight: &Preflight) -> Result<(), Error> {
    if args.output.json {
        print_json(&json(args, preflight))?;
    } else {
        print(&text(args, preflight))?;
    }
    match preflight.forecast.verdict.is_good() {
        true => Ok(()),
        false => Err(Error::DoesNotFit { path: args.device.clone(), rate: rate(preflight.wish.rate) }),
    }
}

fn latency(preflight: &Preflight) -> Distribution {
    preflight.measured.chunks.iter().map(|chunk| chunk.took).collect()
}

fn json<'a>(args: &'a PreflightArgs, preflight: &'a Preflight) -> Json<'a> {
    let Preflight { fit, behaviour, wish, forecast, .. } = preflight;
    let step = |(after, rate): &(u64, u64)| RateStep { after_bytes: *after, bytes_per_second: *rate };
    let steps = behaviour.steps.iter().map(step).collect();
    let wanted = bytes_in(wish.time, wish.rate);
    let (at, chunks) = match forecast.verdict {
        Verdict::Fits => (None, None),
        Verdict::FitsWith { chunks } => (forecast.overflow, Some(chunks)),
        Verdict::Overflows { at } => (Some(at), None),
        Verdict::Full { at, chunks } => (Some(at), Some(chunks)),
    };
    Json {
        device: &args.device,
        medium: &preflight.medium,
        direct: preflight.is_direct,
        measured: Measured {
            bytes: fit.bytes,
            time_ns: fit.time.get(),
            chunk_bytes: wish.chunk,
            full: preflight.measured.is_full,
            burst_bytes_per_second: fit.burst(),
            sustained_bytes_per_second: fit.sustained(),
            pauses: fit.pauses,
            longest_pause_ns: fit.pause.get(),
            latency_ns: latency(preflight),
        },
        model: Model {
            steps,
            pause_every_bytes: behaviour.pause_every,
            pause_ns: behaviour.pause_ns,
            constants: fit.constants(),
            fitted_to_writes: fit.writes,
            extrapolated_bytes: wanted.saturating_sub(fit.bytes),
            preset: args.model.map(|model| model.name),
        },
        answer: forecast.verdict.word(),
        fits: forecast.verdict.is_good(),
        at_ns: at.map(Nanos::get),
        overflow_ns: forecast.overflow.map(Nanos::get),
        rate: wish.rate,
        time_ns: wish.time.get(),
        buffer_bytes: wish.buffer,
        needed_bytes: forecast.needed,
        needed_chunks: chunks,
        space_bytes: forecast.space,
        room_bytes: wish.room,
        largest_rate: forecast.largest_rate,
    }
}

fn text(args: &PreflightArgs, preflight: &Preflight) -> String {
    let Preflight { fit, behaviour, wish, forecast, is_direct, measured, .. } = preflight;
    let how = if *is_direct {
        "past the page cache"
    } else {
        "through the page cache, so that a rate may be that of memory"
    };
    let mut text = format!(
        "{}: {} measured in {}, in chunks of {}, {how}\n",
        args.device.display(),
        size(fit.bytes),
        time(fit.time),
        BinaryBytes(wish.chunk.into())
    );
    if measured.is_full {
        text += "  the medium was full then\n";
    }
    for (number, (after, step)) in behaviour.steps.iter().enumerate() {
        let from = match number {
            0 if behaviour.steps.len() == 1 => "throughout".to_owned(),
            0 => "at first".to_owned(),
            _ => format!("from {} on", size(*after)),
        };
        let is_seen = *after < fit.bytes;
        let source = if is_seen { "" } else { ", by the model" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {} {from}{source}", rate(*step));
    }
    let _ = match (behaviour.pause_every, fit.pause) {
        (0, _) => writeln!(text, "  no pauses"),
        (every, longest) => {
            writeln!(text, "  pauses: {}, of up to {longest}, one each {}", fit.pauses, size(every))
        }
    };
    let _ = writeln!(text, "  time of a chunk: {}", latency(preflight));
    let _ = writeln!(text, "  constants: {}, fitted to {} writes", fit.constants(), fit.writes);
    let wanted = bytes_in(wish.time, wish.rate);
    let wished = format!("{} for {} are {}", rate(wish.rate), time(wish.time), size(wanted));
    let _ = match wanted.checked_sub(fit.bytes).filter(|beyond| *beyond > 0) {
        None => writeln!(text, "{wished}, less than was measured"),
        Some(_) => {
            let most = size(fit.bytes);
            writeln!(text, "{wished}; the last rate is extrapolated beyond {most}")
        }
    };
    let word = if forecast.verdict.is_good() { "it fits" } else { "it does not fit" };
    let _ = writeln!(text, "{word}: {}", wish.answer(forecast));
    text
}

/// The warning that `farlane record` prints before it begins. `is_limited`: the recording ends by
/// itself within the wish's time.
pub(super) fn warning(path: &Path, wish: &Wish, is_limited: bool, kept: Option<&Kept>) -> Option<String> {
    let path = path.display();
    if let Some(kept) = kept {
        let forecast = kept.behaviour.forecast(wish);
        if forecast.verdict == Verdict::Fits {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let ago = time(Nanos::from_secs(now.saturating_sub(kept.when)));
        let answer = wish.answer(&forecast);
        return Some(format!("{path}: by the preflight {ago} ago, at {}: {answer}", rate(wish.rate)));
    }
    let wanted = space_of(bytes_in(wish.time, wish.rate), wish.chunk);
    if is_limited && wanted <= wish.room || wish.room == u64::MAX {
        return None;
    }
    let full = time(time_of(wish.room, wish.rate));
    let (room, rate) = (size(wish.room), rate(wish.rate));
    Some(format!(
        "{path}: there is room for {room}, which is full after {full} at {rate}; farlane recording preflight measures whether it keeps up"
    ))
}
