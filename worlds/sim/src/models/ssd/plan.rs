//! Whether a recording at a rate and of a length fits an SSD, and the buffer that it needs.

use engine::Nanos;

use super::{transfer, transferred};

/// A rate of an SSD, and the number of bytes written from which on the rate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of bytes written since the SSD last rested.
    pub after: u64,
    /// Rate in bytes a second at which the SSD accepts writes from then on.
    pub rate: u64,
}

/// The writes of an SSD: measured, or of a preset ([`super::Parameters::steps`]).
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

/// A time during which the device accepts bytes at one rate. A pause has no bytes and a rate of 0.
#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: u64,
    rate: u64,
}

/// The parts of writing a number of bytes.
struct Parts<'a> {
    device: &'a Device<'a>,
    total: u64,
    written: u64,
    /// Whether the pause at this place is over.
    paused: bool,
}

impl<'a> Parts<'a> {
    const fn new(device: &'a Device<'a>, total: u64) -> Self {
        Self { device, total, written: 0, paused: true }
    }

    /// Number of periods from one pause to the next that are left and whole, if all of them are
    /// alike: the rate changes no more.
    fn periods(&self) -> u64 {
        let is_last = self.device.steps.iter().all(|step| step.after <= self.written);
        let left = self.total.saturating_sub(self.written).checked_div(self.device.pause_every).unwrap_or(0);
        if is_last { left } else { 0 }
    }

    /// Leaves out this many periods.
    const fn leave_out(&mut self, periods: u64) {
        self.written += periods * self.device.pause_every;
    }
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let Device { steps, pause_every: every, .. } = *self.device;
        if !self.paused && every > 0 && self.written.is_multiple_of(every) {
            self.paused = true;
            return Some(Part { bytes: 0, rate: 0 });
        }
        if self.written >= self.total {
            return None;
        }
        let next = steps.iter().find(|step| step.after > self.written).map_or(self.total, |step| step.after);
        let pause = self.written.checked_div(every).map_or(self.total, |times| (times + 1) * every);
        let rate = steps.iter().rev().find(|step| step.after <= self.written).or(steps.first());
        let bytes = next.min(pause).min(self.total) - self.written;
        let part = Part { bytes, rate: rate?.rate.max(1) };
        (self.written, self.paused) = (self.written + part.bytes, false);
        Some(part)
    }
}

/// The beginning of a period from one pause to the next.
#[derive(Clone, Copy, Debug)]
struct Period {
    now: Nanos,
    held: u64,
}

/// The time to write `total` bytes at full speed; `None` if the device has no steps.
pub fn time_to_write(device: &Device<'_>, total: u64) -> Option<Nanos> {
    device.steps.first()?;
    let (mut parts, mut time) = (Parts::new(device, total), Nanos::ZERO);
    while let Some(part) = parts.next() {
        time += if part.rate == 0 { device.pause } else { transfer(part.bytes, part.rate) };
        let periods = if part.rate == 0 { parts.periods().saturating_sub(1) } else { 0 };
        if let Some(last) = device.steps.last().filter(|_| periods > 0) {
            time += (device.pause + transfer(device.pause_every, last.rate)) * periods;
            parts.leave_out(periods);
        }
    }
    Some(time)
}

/// Whether `rate` bytes a second for `duration` fit `device` behind a buffer of `buffer` bytes.
/// The recording arrives evenly; the device writes whenever the buffer holds data.
pub fn plan(device: &Device<'_>, buffer: u64, rate: u64, duration: Nanos) -> Answer {
    let total = transferred(duration, rate);
    let mut parts = Parts::new(device, total);
    let (mut now, mut held, mut high, mut overflow) = (Nanos::ZERO, 0_u64, 0_u64, None);
    // Of the last period: its beginning, its peak, and by how much the buffer filled.
    let (mut before, mut top, mut growth) = (None::<Period>, 0, None::<u64>);
    while let Some(part) = parts.next() {
        if part.rate == 0 {
            let grown = before.and_then(|before| held.checked_sub(before.held));
            let is_steady = grown.zip(growth).is_some_and(|(one, other)| one.abs_diff(other) <= 1);
            if let (Some(before), Some(grown), true) = (before, grown, is_steady) {
                let length = now.saturating_sub(before.now);
                let until_end = duration.saturating_sub(now).get() / length.get().max(1);
                let until_full = match overflow {
                    None => buffer.saturating_sub(top).checked_div(grown).unwrap_or(u64::MAX),
                    Some(_) => u64::MAX,
                };
                let periods = parts.periods().min(until_end).min(until_full).saturating_sub(2);
                parts.leave_out(periods);
                (now, held) = (now + length * periods, held + grown * periods);
                high = high.max(top + grown * periods);
            }
            // Periods of an earlier step do not apply to the last one.
            let is_last = parts.periods() > 0;
            (before, growth, top) = (is_last.then_some(Period { now, held }), grown, 0);
        }
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
        (high, top) = (high.max(peak), top.max(peak));
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

    /// Half a second of pause each gigabyte: the buffer holds the data that arrive meanwhile.
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

    /// A hundred days with a pause every 16 MiB are computed in no time, with the same result as
    /// for a shorter recording.
    #[test]
    fn a_long_recording_is_as_a_short_one_but_longer() {
        let steps = [Step { after: 0, rate: 2 * GB }, Step { after: 22 * GB, rate: GB }];
        let every = 16 << 20;
        let device = Device { steps: &steps, pause_every: every, pause: Nanos::from_millis(2) };
        // 16 MiB take 16.777 ms and a pause of 2 ms, a rate of 893 MB/s.
        let pace = u64::try_from(u128::from(every) * 1_000_000_000 / 18_777_216).unwrap();
        let fits = [100, 8_640_000].map(|seconds| plan(&device, GB, pace - 10, Nanos::from_secs(seconds)));
        assert_eq!(fits[0], fits[1], "a rate that fits a long recording fits a longer one");
        let Answer::Fits { high_water } = fits[0] else { panic!("{fits:?}") };
        assert!(high_water >= pace / 500 && high_water < pace / 490, "{high_water}");
        for over in [100_000, 1_000_000] {
            let answer = plan(&device, GB, pace + over, Nanos::from_secs(8_640_000));
            let Answer::Overflows { at, needed } = answer else { panic!("{over}: {answer:?}") };
            let expected = GB / over;
            let seconds = at.get() / 1_000_000_000;
            assert!(seconds.abs_diff(expected) <= expected / 50 + 30, "{seconds} s, {expected} expected");
            let all = 8_640_000 * over;
            assert!(needed.abs_diff(all) <= all / 50, "{needed} B, {all} expected");
        }
        let written = time_to_write(&device, pace * 1_000_000).unwrap().get() / 1_000_000_000;
        assert!(written.abs_diff(1_000_000) < 100, "{written} s");
    }
}
