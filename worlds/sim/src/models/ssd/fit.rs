//! A model of an SSD's writes, fitted to the times when writes ended: rates by the number of bytes
//! written, and pauses.

use engine::Nanos;

use super::plan::{Device, Step};

/// The shortest time without the end of a write that may count as a pause.
pub const PAUSE_MIN: Nanos = Nanos::from_millis(5);
/// A pause is at least this many times as long as an average write.
const PAUSE_WRITES: u64 = 16;
/// Maximum number of parts, equal in bytes, whose rates are compared.
const PARTS: usize = 64;
/// The least number of writes of a part. Many end at once.
const WRITES_MIN: usize = 64;
/// A step of the rate takes this time at least.
const STEP_MIN: Nanos = Nanos::from_millis(50);
/// A step of the rate is a part of at least one of this many of all bytes.
const STEP_SHARE: u64 = 16;
/// Two rates are different if they differ by this many percent of the larger one.
const DIFFERENT_PERCENT: u64 = 20;
/// Pauses more frequent than once in this many bytes are not distinguished: they lower the rate.
const PAUSE_EVERY_MIN: u64 = 16 << 20;

/// A write that has ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// When it ended, since the first write began.
    pub at: Nanos,
    /// Number of its bytes.
    pub bytes: u64,
}

/// The writes of an SSD, as fitted to a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Rates by the number of bytes written. The last one was seen up to [`Fit::bytes`].
    pub steps: Vec<Step>,
    /// Number of bytes between two long pauses; 0 means that there was no pause.
    pub pause_every: u64,
    /// The longest pause.
    pub pause: Nanos,
    /// Number of long pauses, which are at least half as long as the longest.
    pub pauses: u64,
    /// Number of bytes that were measured.
    pub bytes: u64,
    /// How long the measurement took.
    pub time: Nanos,
    /// Number of writes that were measured.
    pub writes: u64,
}

/// Bytes, and the time in which they were written.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    bytes: u64,
    time: Nanos,
}

impl Part {
    fn rate(self) -> u64 {
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.time.get().max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// How different the rates of two parts are, in percent of the larger one.
    fn difference(self, other: Self) -> u64 {
        let (one, other) = (self.rate(), other.rate());
        one.abs_diff(other).saturating_mul(100) / one.max(other).max(1)
    }

    const fn with(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, time: Nanos::new(self.time.get() + other.time.get()) }
    }
}

impl Fit {
    /// The fit as a device for [`super::plan::plan`].
    pub fn device(&self) -> Device<'_> {
        Device { steps: &self.steps, pause_every: self.pause_every, pause: self.pause }
    }

    /// Number of fitted constants: each rate, the positions where it changes, and for pauses the
    /// length and the distance.
    pub fn constants(&self) -> usize {
        let pauses = if self.pause_every > 0 { 2 } else { 0 };
        (2 * self.steps.len()).saturating_sub(1) + pauses
    }

    /// The rate of a fresh device, in bytes a second.
    pub fn burst(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.rate)
    }

    /// The last rate that was seen, in bytes a second.
    pub fn sustained(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.rate)
    }
}

/// Fits rates and pauses to writes at full speed, sorted by the time when they ended; `None` if
/// there are too few for a rate.
pub fn fit(writes: &[Written]) -> Option<Fit> {
    let time = writes.last()?.at;
    let bytes: u64 = writes.iter().map(|write| write.bytes).sum();
    let count = writes.len() as u64;
    if writes.len() < 2 || time == Nanos::ZERO || bytes == 0 {
        return None;
    }
    let least = PAUSE_MIN.get().max(time.get() / count * PAUSE_WRITES);
    let longest = gaps(writes).max().unwrap_or_default();
    let long = least.max(longest.get() / 2);
    let pauses = gaps(writes).filter(|gap| gap.get() >= long).count() as u64;
    let every = bytes.checked_div(pauses).unwrap_or(0);
    // Pauses that are that frequent are the device's pace.
    let is_paused = pauses > 0 && every >= PAUSE_EVERY_MIN;
    let left_out = if is_paused { long } else { u64::MAX };
    let mut fit =
        Fit { steps: Vec::new(), pause_every: 0, pause: Nanos::ZERO, pauses: 0, bytes, time, writes: count };
    if is_paused {
        (fit.pause_every, fit.pause, fit.pauses) = (every, longest, pauses);
    }
    let mut at = 0;
    for part in steps(parts(writes, bytes, left_out), bytes) {
        fit.steps.push(Step { after: at, rate: part.rate().max(1) });
        at += part.bytes;
    }
    Some(fit)
}

/// The times from the end of one write to the end of the next.
fn gaps(writes: &[Written]) -> impl Iterator<Item = Nanos> {
    writes.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at))
}

/// Parts that are equal in bytes, without the gaps of at least `left_out` nanoseconds.
fn parts(writes: &[Written], bytes: u64, left_out: u64) -> Vec<Part> {
    let count = (writes.len() / WRITES_MIN).clamp(1, PARTS);
    let wanted = bytes.div_ceil(count as u64).max(1);
    let (mut parts, mut open, mut before) = (Vec::with_capacity(count), Part::default(), Nanos::ZERO);
    for write in writes {
        let gap = write.at.saturating_sub(before);
        before = write.at;
        let time = if gap.get() >= left_out { Nanos::ZERO } else { gap };
        open = open.with(Part { bytes: write.bytes, time });
        if open.bytes >= wanted {
            parts.push(std::mem::take(&mut open));
        }
    }
    if open.bytes > 0 {
        parts.push(open);
    }
    parts
}

/// Joins neighbours until their rates are different, and each is long enough to be a step.
fn steps(mut parts: Vec<Part>, bytes: u64) -> Vec<Part> {
    loop {
        let pairs = parts.windows(2).enumerate();
        let short = |part: Part| part.bytes < bytes / STEP_SHARE || part.time < STEP_MIN;
        // A short part joins the neighbour that it resembles, but not before those that are alike.
        let nearest = pairs.clone().map(|(at, pair)| (pair[0].difference(pair[1]), at)).min();
        let shortest = pairs
            .filter(|(_, pair)| short(pair[0]) || short(pair[1]))
            .map(|(at, pair)| (pair[0].difference(pair[1]), at))
            .min();
        let alike = nearest.filter(|(difference, _)| *difference < DIFFERENT_PERCENT);
        let Some((_, at)) = alike.or(shortest) else { return parts };
        parts[at] = parts[at].with(parts[at + 1]);
        parts.remove(at + 1);
    }
}

/// The steps of `fit`, and beyond the measured range those of `preset`, unless it is faster there
/// than the last measured rate.
pub fn continued(fit: &Fit, preset: &[Step]) -> Vec<Step> {
    let mut steps = fit.steps.clone();
    let seen = fit.sustained();
    // Of a preset's steps, one may have begun already, at another place than the preset's.
    let beyond = preset.iter().filter(|step| step.after >= fit.bytes && step.rate < seen);
    steps.extend(beyond.copied());
    steps
}

#[cfg(test)]
mod tests {
    use engine::{Instant, Rng};

    use super::*;
    use crate::models::ssd::drive::{self, Load};
    use crate::models::ssd::plan::{Answer, plan};
    use crate::models::ssd::{Parameters, Ssd};

    const GB: u64 = 1_000_000_000;
    const CHUNK: u64 = 128 << 10;

    fn load(bytes: u64, rate: Option<u64>) -> Load {
        Load { write: true, random: false, length: CHUNK, depth: 64, count: bytes / CHUNK, rate }
    }

    /// Measures the model with writes at full speed.
    fn measured(parameters: Parameters, bytes: u64) -> Vec<Written> {
        let mut rng = Rng::from_seed(3);
        let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
        let mut writes = Vec::new();
        drive::run(&mut ssd, &load(bytes, None), Instant::ZERO, parameters.capacity, &mut rng, |done| {
            writes.push(Written { at: done.at - Instant::ZERO, bytes: CHUNK });
        });
        writes.sort_by_key(|write| write.at);
        writes
    }

    fn near(found: u64, expected: u64, percent: u64) -> bool {
        found.abs_diff(expected) * 100 <= expected * percent
    }

    #[test]
    fn the_end_of_a_cache_is_found() {
        let parameters = Parameters::named("970-evo").unwrap();
        let fit = fit(&measured(parameters, 40 * GB)).unwrap();
        let [fast, slow] = fit.steps[..] else { panic!("{fit:?}") };
        assert!(near(fast.rate, 2300 * GB / 1000, 5) && near(slow.rate, 600 * GB / 1000, 5), "{fit:?}");
        assert!(near(slow.after, 22 * GB, 5) && fit.pauses == 0, "{fit:?}");
        assert_eq!((fit.constants(), fit.writes), (3, 40 * GB / CHUNK));
    }

    #[test]
    fn pauses_are_found_and_are_not_taken_for_a_slow_device() {
        let plain = Parameters::named("tlc").unwrap();
        let parameters = Parameters { pause_every: GB, pause: Nanos::from_millis(300), ..plain };
        let fit = fit(&measured(parameters, 20 * GB)).unwrap();
        assert_eq!(fit.steps.len(), 1, "{fit:?}");
        assert!(near(fit.sustained(), GB, 3), "{fit:?}");
        assert!(near(fit.pause_every, GB, 6) && near(fit.pause.get(), 300_000_000, 6), "{fit:?}");
    }

    /// Writes that end many at a time have meaningless rates from nothing to terabytes a second.
    #[test]
    fn a_short_measurement_has_one_rate() {
        for count in [32_u64, 200, 400] {
            let burst = |number: u64| Nanos::from_millis(1 + number / 10) + Nanos::new(number % 10);
            let writes: Vec<_> =
                (0..count).map(|number| Written { at: burst(number), bytes: CHUNK }).collect();
            let fit = fit(&writes).unwrap();
            assert_eq!((fit.steps.len(), fit.constants()), (1, 1), "{fit:?}");
            assert!(near(fit.burst(), CHUNK * 10_000, 25), "{fit:?}");
        }
    }

    #[test]
    fn an_even_device_has_one_rate_and_too_little_has_none() {
        let fit_of = fit(&measured(Parameters::named("tlc").unwrap(), 5 * GB)).unwrap();
        assert_eq!((fit_of.steps.len(), fit_of.pauses, fit_of.constants()), (1, 0, 1));
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[Written { at: Nanos::from_secs(1), bytes: 4096 }]), None);
        let at_once = [Written { at: Nanos::ZERO, bytes: 4096 }; 3];
        assert_eq!(fit(&at_once), None);
    }

    #[test]
    fn a_preset_goes_on_where_the_measurement_ended() {
        let parameters = Parameters::named("970-evo").unwrap();
        let fit = fit(&measured(parameters, 10 * GB)).unwrap();
        assert_eq!(fit.steps.len(), 1);
        let steps = continued(&fit, &parameters.steps());
        assert_eq!((steps.len(), steps[1].after), (2, 22 * GB));
        // A preset that is faster than the measured rate is of another device.
        assert_eq!(continued(&fit, &[Step { after: 50 * GB, rate: 9 * GB }]), fit.steps);
    }

    /// The time at which a recording to the model overflows a buffer, by the model and as planned
    /// from a measurement of it.
    #[test]
    fn a_plan_from_a_measurement_says_when_the_model_overflows() {
        for (model, pause) in [("970-evo", 0), ("960-evo", 0), ("tlc", 400)] {
            let preset = Parameters::named(model).unwrap();
            let pause = Nanos::from_millis(pause);
            let parameters =
                Parameters { pause_every: if pause == Nanos::ZERO { 0 } else { GB }, pause, ..preset };
            let fit = fit(&measured(parameters, 40 * GB)).unwrap();
            let (rate, buffer) = (800_000_000, 256 << 20);
            let Answer::Overflows { at, .. } = plan(&fit.device(), buffer, rate, Nanos::from_secs(50)) else {
                panic!("{model}: {fit:?}")
            };
            let mut rng = Rng::from_seed(4);
            let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
            let mut first = None;
            let paced = load(40 * GB, Some(rate));
            drive::run(&mut ssd, &paced, Instant::ZERO, parameters.capacity, &mut rng, |done| {
                // Data that arrive between a write's turn and its end wait in the buffer.
                let late = (done.at - done.due).get();
                if u128::from(late) * u128::from(rate) > u128::from(buffer) * 1_000_000_000 {
                    first.get_or_insert(done.at - Instant::ZERO);
                }
            });
            let first = first.expect("it overflows");
            println!("{model}: overflows after {first}, {at} planned");
            assert!(near(at.get(), first.get(), 6), "{model}: {first}, {at} planned");
        }
    }
}
