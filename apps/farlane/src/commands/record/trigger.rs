//! The messages about a trigger, for people and programs.

use engine::Nanos;
use live::drivers::record::{Status, Triggered};
use record::format::Trigger;
use record::{Kept, pre_trigger_buffer};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::RecordArgs;

/// How long bytes are kept until a trigger.
pub(super) fn keep(args: &RecordArgs) -> Option<Nanos> {
    args.pre_trigger.map(Nanos::from)
}

/// The number of chunks that the buffer needs to keep the requested time; 0 if that is not known.
pub(super) fn chunks(args: &RecordArgs) -> u64 {
    let known = args.rate.zip(keep(args));
    known.map_or(0, |(rate, keep)| pre_trigger_buffer(rate, keep, args.chunk, args.from.len()))
}

/// Warns if a buffer of `buffer` chunks keeps less than was asked for.
pub(super) fn warn(args: &RecordArgs, buffer: usize) {
    let (Some(keep), needed) = (keep(args), chunks(args)) else { return };
    let buffer = buffer as u64;
    if needed > buffer {
        let time = u128::from(keep.get()) * u128::from(buffer) / u128::from(needed);
        let time = Nanos::new(u64::try_from(time).unwrap_or(u64::MAX));
        let bytes = needed * u64::from(args.chunk);
        warn!(
            each = true,
            "at this rate the buffer keeps about {time} of the {keep} before a trigger: it needs \
             --buffer {bytes}"
        );
    }
}

/// The kept part of the requested time.
pub(super) fn kept_text(status: &Status, kept: &Kept) -> String {
    let asked = status.pre_trigger.unwrap_or_default();
    let short = if kept.is_short { "; the buffer is full and has no room for more" } else { "" };
    format!("armed: the last {} of {asked} are kept{short}", kept.time)
}

/// A trigger, as reports have it.
pub(super) const fn of(triggered: Triggered) -> status::Trigger {
    let Trigger { time, before } = triggered.trigger;
    status::Trigger { when: time, before_ns: before, bytes_before: triggered.bytes }
}

/// The event that reports a trigger.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event {
    /// `trigger`.
    event: &'static str,
    #[serde(flatten)]
    trigger: status::Trigger,
}

pub(super) const fn event(triggered: Triggered) -> Event {
    Event { event: "trigger", trigger: of(triggered) }
}

pub(super) fn text(triggered: Triggered) -> String {
    let Trigger { time, before } = triggered.trigger;
    let (when, before) = (date(time), Nanos::new(before));
    format!("triggered at {when}; the recording begins {before} earlier, with {} B", triggered.bytes)
}

/// A time in nanoseconds since 1970, as a date.
pub(super) fn date(nanos: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(nanos);
    humantime::format_rfc3339_millis(time).to_string()
}
