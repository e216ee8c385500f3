//! Whether a recording at a rate and of a length fits an SSD, and the buffer that it needs.

use engine::Nanos;

use super::{transfer, transferred};

/// A rate of an SSD, and the number of bytes written from which on the rate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of bytes written since the SSD last rested.
    pub after: u64,
    /// Rate in bytes a second at which the SSD takes writes from then on.
    pub rate: u64,
}

/// How an SSD takes writes: measured, or of a preset ([`super::Parameters::steps`]).
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// Sorted by [`Step::after`]; the first step begins at 0.
    pub steps: &'a [Step],
    /// Number of bytes written between two pauses; 0 means no pauses.
    pub pause_every: u64,
    /// Length of a pause.
    pub pause: Nanos,
}

/// The answer of [`plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The recording fits.
    Fits {
        /// The largest number of bytes in the buffer.
        high_water: u64,
    },
    /// The buffer overflows.
    Overflows {
        /// Time from the beginning until the first byte finds no room.
        at: Nanos,
        /// Number of bytes that the buffer has to hold for the whole recording to fit.
        needed: u64,
    },
}

/// The largest number of steps and pauses that are looked at one by one.
const PARTS_MAX: usize = 1 << 20;

/// A time in which the device takes bytes at one rate.
struct Part {
    bytes: u64,
    rate: u64,
}

/// The parts of writing `total` bytes. A pause is a part without bytes and with a rate of 0.
fn parts<'a>(device: &Device<'a>, total: u64) -> impl Iterator<Item = Part> + use<'a> {
    let (steps, every, mut written, mut paused) = (device.steps, device.pause_every, 0_u64, true);
    let parts = std::iter::from_fn(move || {
        if !paused && every > 0 && written.is_multiple_of(every) {
            paused = true;
            return Some(Part { bytes: 0, rate: 0 });
        }
        if written >= total {
            return None;
        }
        let next = steps.iter().find(|step| step.after > written).map_or(total, |step| step.after);
        let pause = written.checked_div(every).map_or(total, |times| (times + 1) * every);
        let rate = steps.iter().rev().find(|step| step.after <= written).or(steps.first());
        let part = Part { bytes: next.min(pause).min(total) - written, rate: rate?.rate.max(1) };
        (written, paused) = (written + part.bytes, false);
        Some(part)
    });
    parts.take(PARTS_MAX)
}

/// The time to write `total` bytes flat out; `None` if the device has no steps.
pub fn time_to_write(device: &Device<'_>, total: u64) -> Option<Nanos> {
    device.steps.first()?;
    let time = |part: Part| if part.rate == 0 { device.pause } else { transfer(part.bytes, part.rate) };
    Some(parts(device, total).map(time).fold(Nanos::ZERO, |sum, time| sum + time))
}

/// Whether `rate` bytes a second for `duration` fit `device` behind a buffer of `buffer` bytes.
/// The recording arrives evenly; the device writes whenever the buffer holds data.
pub fn plan(device: &Device<'_>, buffer: u64, rate: u64, duration: Nanos) -> Answer {
    let total = transferred(duration, rate);
    let (mut now, mut held, mut high, mut overflow) = (Nanos::ZERO, 0_u64, 0_u64, None);
    for part in parts(device, total) {
        // A device that is faster than the source waits for it once the buffer is empty.
        let time = match part.rate {
            0 => device.pause,
            out if out <= rate => transfer(part.bytes, out),
            out => {
                let alone = transfer(part.bytes, out);
                let arrived = transfer(part.bytes.saturating_sub(held), rate);
                alone.max(arrived)
            }
        };
        // The buffer is fullest when the source ends, or at the end of the part.
        let fills = time.min(duration.saturating_sub(now));
        let arriving = transferred(fills, rate);
        let peak = (held + arriving).saturating_sub(part.bytes.min(transferred(fills, part.rate)));
        if peak > buffer && overflow.is_none() {
            let gain = rate.saturating_sub(part.rate);
            overflow = Some(now + transfer(buffer.saturating_sub(held), gain));
        }
        high = high.max(peak);
        (held, now) = ((held + arriving).saturating_sub(part.bytes), now + time);
    }
    overflow.map_or(Answer::Fits { high_water: high }, |at| Answer::Overflows { at, needed: high })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn device(steps: &[Step]) -> Device<'_> {
        Device { steps, pause_every: 0, pause: Nanos::ZERO }
    }

    /// 2 GB/s into 1.5 GB/s: a buffer of 8 GB lasts 16 s.
    #[test]
    fn a_buffer_lasts_its_size_by_the_difference_of_the_rates() {
        let steps = [Step { after: 0, rate: 3 * GB / 2 }];
        let answer = plan(&device(&steps), 8 * GB, 2 * GB, Nanos::from_secs(60));
        let Answer::Overflows { at, needed } = answer else { panic!("{answer:?}") };
        assert_eq!(at, Nanos::from_secs(16));
        assert!(needed.abs_diff(30 * GB) < 10, "{needed}");
        let answer = plan(&device(&steps), 8 * GB, 2 * GB, Nanos::from_secs(16));
        assert_eq!(answer, Answer::Fits { high_water: 8 * GB });
    }

    #[test]
    fn a_drop_of_the_rate_overflows_only_after_it() {
        let steps = [Step { after: 0, rate: 2 * GB }, Step { after: 22 * GB, rate: GB / 2 }];
        let answer = plan(&device(&steps), GB, GB, Nanos::from_secs(22));
        assert_eq!(answer, Answer::Fits { high_water: 0 });
        let answer = plan(&device(&steps), GB, GB, Nanos::from_secs(30));
        assert_eq!(answer, Answer::Overflows { at: Nanos::from_secs(24), needed: 4 * GB });
    }

    /// Half a second of pause each gigabyte: the buffer holds what arrives meanwhile.
    #[test]
    fn pauses_need_rate_times_pause() {
        let steps = [Step { after: 0, rate: 4 * GB }];
        let pauses = Device { pause_every: GB, pause: Nanos::from_millis(500), ..device(&steps) };
        let answer = plan(&pauses, GB, GB, Nanos::from_secs(100));
        assert_eq!(answer, Answer::Fits { high_water: GB / 2 });
        let answer = plan(&pauses, GB / 4, GB, Nanos::from_secs(100));
        assert_eq!(answer, Answer::Overflows { at: Nanos::from_millis(1250), needed: GB / 2 });
        assert_eq!(time_to_write(&pauses, 2 * GB), Some(Nanos::from_millis(1500)));
    }
}
