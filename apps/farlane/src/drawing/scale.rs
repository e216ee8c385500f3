//! Axes with ticks at round values.

#[expect(clippy::cast_precision_loss, reason = "a pixel is coarser than the lost precision")]
pub(crate) const fn decimal(value: u64) -> f64 {
    value as f64
}

/// The values of an axis, from the least to the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Range {
    pub(crate) const fn new(low: f64, high: f64, logarithmic: bool) -> Self {
        Self { low, high, logarithmic }
    }

    pub(crate) fn share(&self, value: f64) -> f64 {
        let Self { low, high, logarithmic } = *self;
        if logarithmic { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) }
    }
}

/// The greatest power of ten that is not above `value`.
fn decade(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

/// A logarithmic axis with ticks at 1, 2 and 5 times each power of ten, from the last one not above
/// `low` to the first one not below `high`.
pub(crate) fn logarithmic(low: f64, high: f64) -> (Range, Vec<f64>) {
    let mut ticks: Vec<f64> = Vec::new();
    let mut power = decade(low);
    while ticks.last().is_none_or(|last| *last < high) {
        for times in [1.0, 2.0, 5.0] {
            let tick = power * times;
            if tick <= low {
                ticks.clear();
            }
            if ticks.last().is_none_or(|last| *last < high) {
                ticks.push(tick);
            }
        }
        power *= 10.0;
    }
    let range = Range { low: ticks[0], high: ticks[ticks.len() - 1], logarithmic: true };
    // Beyond three decades only the powers of ten have a tick.
    if ticks.len() > 10 {
        ticks.retain(|tick| (tick / decade(*tick) - 1.0).abs() < 1e-6);
    }
    (range, ticks)
}

/// A linear axis from 0 to a round value, with four to eight ticks.
pub(crate) fn linear(high: f64) -> (Range, Vec<f64>) {
    let least = high / 7.0;
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * decade(least)).find(|step| *step >= least);
    let step = step.unwrap_or(least);
    let count = (high / step).ceil();
    let mut ticks = vec![0.0];
    while decimal(ticks.len() as u64) <= count {
        ticks.push(step * decimal(ticks.len() as u64));
    }
    (Range { low: 0.0, high: step * count, logarithmic: false }, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_everything() {
        let (range, ticks) = logarithmic(1_300.0, 45_000.0);
        assert_eq!((range.low, range.high), (1_000.0, 50_000.0));
        assert_eq!(ticks, [1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0]);
        let (range, ticks) = linear(153.0);
        assert_eq!((range.low, range.high), (0.0, 200.0));
        assert_eq!(ticks, [0.0, 50.0, 100.0, 150.0, 200.0]);
    }
}
