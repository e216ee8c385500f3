//! The place of a constant's value.

use engine::Nanos;
use network_models::Chance;

/// The place of a whole number in [`Constants`](super::Constants), whatever its type.
#[derive(Debug)]
pub enum Quantity<'a> {
    /// A time in nanoseconds.
    Time(&'a mut Nanos),
    /// A count, a rate in units a second, or a time in a unit of its own.
    Number(&'a mut u64),
    /// A count that is small.
    Count(&'a mut u32),
    /// A chance in parts of 10^9.
    Chance(&'a mut Chance),
}

impl Quantity<'_> {
    /// The value.
    pub fn get(&self) -> u64 {
        match self {
            Self::Time(time) => time.get(),
            Self::Number(number) => **number,
            Self::Count(count) => u64::from(**count),
            Self::Chance(chance) => u64::from(chance.in_parts_per_billion()),
        }
    }

    /// Replaces the value by `value`, or by the largest one that the type holds.
    pub fn set(&mut self, value: u64) {
        let small = || u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::Time(time) => **time = Nanos::new(value),
            Self::Number(number) => **number = value,
            Self::Count(count) => **count = small(),
            Self::Chance(chance) => **chance = Chance::parts_per_billion(small()),
        }
    }

    /// Changes the value by `percent`, and by 1 at least.
    pub fn shift(&mut self, percent: i64) {
        let value = self.get();
        let step = (u128::from(value) * u128::from(percent.unsigned_abs())).div_ceil(100).max(1);
        let step = u64::try_from(step).unwrap_or(u64::MAX);
        self.set(if percent < 0 { value.saturating_sub(step) } else { value.saturating_add(step) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_a_step_at_least() {
        let (mut time, mut count, mut chance) = (Nanos::new(1_000), 2, Chance::percent(10));
        let mut time = Quantity::Time(&mut time);
        time.shift(10);
        assert_eq!(time.get(), 1_100);
        time.shift(-10);
        assert_eq!(time.get(), 990);
        let mut count = Quantity::Count(&mut count);
        count.shift(-10);
        assert_eq!(count.get(), 1);
        let mut chance = Quantity::Chance(&mut chance);
        chance.shift(10);
        assert_eq!(chance.get(), 110_000_000);
    }
}
