//! Rings: turns the user's options into the recorder's configuration.

use std::time::Duration;

use engine::Nanos;
use record::format::Pin;
use record::{BUFFER_MIN, Config, Keep, PinRefusal, RingConfig, Survey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::args::{KeepFor, RecordArgs};
use crate::error::Error;

/// The most slots of a ring: the recorder keeps the content of each slot in memory.
const SLOTS_MAX: u64 = 1 << 26;

/// Makes a ring of the recording, if there is to be one. A buffer of the default size fits a short
/// ring.
pub(super) fn configure(args: &RecordArgs, config: Config) -> Result<Config, Error> {
    let Some(size) = args.ring.ring else { return Ok(config) };
    let mut keep = vec![Keep::default(); args.from.len()];
    for spec in &args.ring.keep {
        let streams = match spec.stream {
            None => keep.as_mut_slice(),
            Some(stream) => keep.get_mut(stream..=stream).ok_or_else(|| Error::Range {
                what: "the stream of --keep",
                value: stream as u64,
                expected: format!("less than {}", args.from.len()),
            })?,
        };
        for stream in streams {
            match spec.what {
                KeepFor::Time(time) => stream.time = Some(nanos(time)),
                KeepFor::Bytes(bytes) => stream.bytes = Some(bytes),
            }
        }
    }
    let slots = size.map(|bytes| bytes / u64::from(config.chunk));
    let mut config = Config { ring: Some(RingConfig { keep }), slots, ..config };
    if let (Some(slots), None, None) = (slots, args.buffer, args.rate) {
        while RingConfig::slots_min(config.buffer) > slots && config.buffer > BUFFER_MIN {
            config.buffer = (config.buffer / 2).max(BUFFER_MIN);
        }
    }
    let needed = RingConfig::slots_min(config.buffer);
    match slots {
        Some(slots) if slots < needed => {
            let (value, buffer) = (slots * u64::from(config.chunk), config.buffer);
            let least = needed * u64::from(config.chunk);
            let expected = format!("{least} B or more, twice the {buffer} chunks of the buffer and a little");
            Err(Error::Range { what: "--ring", value, expected })
        }
        Some(slots) if slots > SLOTS_MAX => {
            let (value, most) = (slots * u64::from(config.chunk), SLOTS_MAX);
            let expected = format!("at most {most} chunks of {} B: give a larger --chunk", config.chunk);
            Err(Error::Range { what: "--ring", value, expected })
        }
        _ => Ok(config),
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Bytes of a stream that follow each other.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Range {
    pub(super) stream: u32,
    /// The place of the first byte in the stream.
    pub(super) from: u64,
    pub(super) bytes: u64,
}

impl From<&Pin> for Range {
    fn from(pin: &Pin) -> Self {
        Self { stream: pin.stream, from: pin.from, bytes: pin.end - pin.from }
    }
}

/// The content of a ring by streams, in order: stream, place of the first byte, and behind the
/// last.
fn held(survey: &Survey) -> Vec<Pin> {
    let Some(ring) = &survey.ring else { return Vec::new() };
    let streams = 0..u32::try_from(survey.streams()).unwrap_or(u32::MAX);
    let of_stream = |stream| {
        let ranges = ring.holding.ranges(stream, survey.end_of(stream));
        ranges.into_iter().map(move |(from, end)| Pin { stream, from, end })
    };
    streams.flat_map(of_stream).collect()
}

/// The ranges that a ring holds; none if the recording is no ring.
pub(super) fn ranges(survey: &Survey) -> Option<Vec<Range>> {
    survey.is_ring().then(|| held(survey).iter().map(Range::from).collect())
}

/// Bytes that a ring does not hold any more.
pub(super) fn overwritten(survey: &Survey) -> u64 {
    let Some(ring) = &survey.ring else { return 0 };
    let streams = 0..u32::try_from(survey.streams()).unwrap_or(u32::MAX);
    streams.map(|stream| ring.holding.overwritten(stream, survey.end_of(stream))).sum()
}

pub(super) fn held_text(survey: &Survey) -> String {
    if !survey.is_ring() {
        return String::new();
    }
    let one = |held: &Pin| {
        format!("  held: stream {}, {} B from {}\n", held.stream, held.end - held.from, held.from)
    };
    let ranges: String = held(survey).iter().map(one).collect();
    format!("  a ring: {} B are overwritten\n{ranges}", overwritten(survey))
}

/// Why the ring has refused to pin a part, with the remedy.
pub(super) fn refusal(why: PinRefusal) -> String {
    match why {
        PinRefusal::NoRing => "the recorder writes no ring, or is ending: start it with --ring".to_owned(),
        PinRefusal::NoStream(streams) => {
            format!("there is no such stream: expected --stream below {streams}")
        }
        PinRefusal::NotHeld { floor, end } => format!(
            "the ring does not hold it: the stream is held from byte {floor} up to {end}; name bytes between"
        ),
        PinRefusal::TooMany => {
            let most = record::format::PINS_MAX;
            format!("there are {most} pinned ranges, and no more fit: unpin them with pin --nothing")
        }
        PinRefusal::NoRoom { left, needed } => format!(
            "it would leave {left} chunks of the ring, and the buffer needs {needed}: pin less, or unpin all with pin --nothing"
        ),
    }
}
