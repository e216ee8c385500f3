//! The conclusions from a measurement about a recording.

use engine::Nanos;
use record::format::{FIRST_SLOT, capacity};
use record::{BUFFER_MAX, BUFFER_MIN};
use serde::{Deserialize, Serialize};
use sim::models::ssd::plan::{Answer, Device, Step, plan};

/// How often the range in which the largest rate lies is halved.
const HALVINGS: u32 = 24;

/// How a medium takes chunks, as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Behaviour {
    /// Bytes written, and the rate in bytes a second from there on.
    pub(crate) steps: Vec<(u64, u64)>,
    /// Number of bytes between two pauses; 0 means no pauses.
    pub(crate) pause_every: u64,
    /// Length of a pause in nanoseconds.
    pub(crate) pause_ns: u64,
}

/// The wanted recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Bytes a second.
    pub(crate) rate: u64,
    pub(crate) time: Nanos,
    /// Length of a chunk in bytes.
    pub(crate) chunk: u32,
    /// Size of the recorder's buffer in bytes.
    pub(crate) buffer: u64,
    /// Number of bytes that the medium has room for.
    pub(crate) room: u64,
}

/// Whether a recording fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does.
    Fits,
    /// The recording fits with a larger buffer of this many chunks.
    FitsWith { chunks: u64 },
    /// The buffer overflows after this time, and no buffer is large enough.
    Overflows { at: Nanos },
    /// The medium is full after this time. It keeps up until then, if the buffer has this many
    /// chunks.
    Full { at: Nanos, chunks: u64 },
}

/// The conclusion of a measurement about a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forecast {
    pub(crate) verdict: Verdict,
    /// When the buffer that was wished for overflows, if it does.
    pub(crate) overflow: Option<Nanos>,
    /// Number of bytes that the buffer has to hold.
    pub(crate) needed: u64,
    /// Number of bytes of the medium that the recording takes.
    pub(crate) space: u64,
    /// The largest rate in bytes a second that fits for as long with the largest buffer.
    pub(crate) largest_rate: u64,
}

/// Number of bytes that `bytes` of streams take as a recording in chunks of this length.
pub(crate) fn space_of(bytes: u64, chunk: u32) -> u64 {
    let chunks = bytes.div_ceil(capacity(chunk) as u64).saturating_add(FIRST_SLOT);
    chunks.saturating_mul(chunk.into())
}

/// Number of bytes of streams that fit a medium with `room` bytes free.
fn stored_in(room: u64, chunk: u32) -> u64 {
    (room / u64::from(chunk)).saturating_sub(FIRST_SLOT).saturating_mul(capacity(chunk) as u64)
}

/// Number of bytes that come in `time` at `rate` bytes a second.
pub(crate) fn bytes_in(time: Nanos, rate: u64) -> u64 {
    u64::try_from(u128::from(time.get()) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The time in which `bytes` come at `rate` bytes a second.
pub(crate) fn time_of(bytes: u64, rate: u64) -> Nanos {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The recorder's buffer that holds `bytes` bytes, in chunks.
pub(crate) fn chunks_of(bytes: u64, chunk: u32) -> u64 {
    bytes.div_ceil(u64::from(chunk)).max(BUFFER_MIN as u64)
}

impl Behaviour {
    /// The forecast for a recording of `wish` to the medium.
    pub(crate) fn forecast(&self, wish: &Wish) -> Forecast {
        let steps: Vec<_> =
            self.steps.iter().map(|(after, rate)| Step { after: *after, rate: *rate }).collect();
        // The time of a pause is unknown: a recording meets one at least.
        let pause_every = self.pause_every.min(bytes_in(wish.time, wish.rate) / 2);
        let device = Device { steps: &steps, pause_every, pause: Nanos::new(self.pause_ns) };
        let full = time_of(stored_in(wish.room, wish.chunk), wish.rate);
        let time = wish.time.min(full);
        let (overflow, needed) = match plan(&device, wish.buffer, wish.rate, time) {
            Answer::Fits { high_water } => (None, high_water),
            Answer::Overflows { at, needed } => (Some(at), needed),
        };
        let chunks = chunks_of(needed, wish.chunk);
        let verdict = match overflow {
            Some(at) if chunks > BUFFER_MAX as u64 => Verdict::Overflows { at },
            _ if full < wish.time => Verdict::Full { at: full, chunks },
            Some(_) => Verdict::FitsWith { chunks },
            None => Verdict::Fits,
        };
        let space = space_of(bytes_in(wish.time, wish.rate), wish.chunk);
        Forecast { verdict, overflow, needed, space, largest_rate: largest(&device, wish) }
    }
}

/// The largest rate in bytes a second that fits for as long as `wish` says, with the largest
/// buffer and in the room that there is.
fn largest(device: &Device<'_>, wish: &Wish) -> u64 {
    let buffer = BUFFER_MAX as u64 * u64::from(wish.chunk);
    let nanos = u128::from(wish.time.get().max(1));
    let by_room = u128::from(stored_in(wish.room, wish.chunk)) * 1_000_000_000 / nanos;
    let fastest = device.steps.iter().map(|step| step.rate).max().unwrap_or(0);
    // A short recording may be faster than the device, and stay in the buffer.
    let by_buffer = u128::from(buffer) * 1_000_000_000 / nanos + u128::from(fastest);
    let (mut low, mut high) =
        (0, u64::try_from(by_room.min(by_buffer)).unwrap_or(u64::MAX).saturating_add(1));
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2;
        match plan(device, buffer, middle, wish.time) {
            Answer::Fits { .. } => low = middle,
            Answer::Overflows { .. } => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use record::BUFFER_DEFAULT;

    use super::*;

    const GB: u64 = 1_000_000_000;
    const CHUNK: u32 = 128 << 10;

    /// 2 GB/s for 20 GB, then 0.5 GB/s.
    fn cached() -> Behaviour {
        Behaviour { steps: vec![(0, 2 * GB), (20 * GB, GB / 2)], ..Behaviour::default() }
    }

    fn wish(rate: u64, seconds: u64, room: u64) -> Wish {
        let buffer = BUFFER_DEFAULT as u64 * u64::from(CHUNK);
        Wish { rate, time: Nanos::from_secs(seconds), chunk: CHUNK, buffer, room }
    }

    #[test]
    fn what_the_cache_takes_fits_and_what_is_longer_does_not() {
        let short = cached().forecast(&wish(GB, 20, 1000 * GB));
        assert_eq!(short.verdict, Verdict::Fits);
        let long = cached().forecast(&wish(GB, 3600, 4000 * GB));
        let Verdict::Overflows { at } = long.verdict else { panic!("{long:?}") };
        // The cache is full after 20 s, and then the buffer of 32 MiB gains 0.5 GB/s.
        assert_eq!(at.get(), 20_000_000_000 + (32_u64 << 20) * 2, "{at}");
        assert!(long.largest_rate.abs_diff(GB / 2) < GB / 200, "{long:?}");
    }

    #[test]
    fn a_larger_buffer_is_named_where_one_is_large_enough() {
        let paused = Behaviour { pause_every: GB, pause_ns: 500_000_000, steps: vec![(0, 3 * GB)] };
        let forecast = paused.forecast(&wish(GB / 2, 600, 1000 * GB));
        // Half a second of half a gigabyte a second.
        let chunks = (GB / 4).div_ceil(u64::from(CHUNK));
        assert_eq!(forecast.verdict, Verdict::FitsWith { chunks });
        assert_eq!(forecast.needed, GB / 4);
        let room = Wish { buffer: GB / 4, ..wish(GB / 2, 600, 1000 * GB) };
        assert_eq!(paused.forecast(&room).verdict, Verdict::Fits);
    }

    #[test]
    fn the_largest_buffer_lets_a_short_recording_be_faster() {
        let even = Behaviour { steps: vec![(0, GB)], ..Behaviour::default() };
        let forecast = even.forecast(&wish(GB / 2, 10, 1000 * GB));
        // 16,384 chunks of 128 KiB, over 10 s.
        let expected = GB + (2 << 30) / 10;
        assert!(forecast.largest_rate.abs_diff(expected) < GB / 1000, "{forecast:?}");
    }

    #[test]
    fn a_short_recording_meets_a_pause_at_least() {
        let paused = Behaviour { pause_every: 50 * GB, pause_ns: 500_000_000, steps: vec![(0, 3 * GB)] };
        let forecast = paused.forecast(&wish(GB / 2, 10, 1000 * GB));
        assert_eq!(forecast.needed, GB / 4, "{forecast:?}");
    }

    #[test]
    fn a_medium_that_is_too_small_is_full_in_time() {
        let forecast = cached().forecast(&wish(GB / 10, 3600, 36 * GB));
        let Verdict::Full { at, .. } = forecast.verdict else { panic!("{forecast:?}") };
        // A chunk has a header of 128 bytes, and three chunks are the recording's own.
        let stored = (36 * GB / u64::from(CHUNK) - 3) * (u64::from(CHUNK) - 128);
        assert_eq!(at.get(), stored * 10);
        assert!(forecast.space > 360 * GB && forecast.space < 361 * GB);
        assert!(forecast.largest_rate < GB / 100 && forecast.largest_rate > GB / 101, "{forecast:?}");
    }
}
