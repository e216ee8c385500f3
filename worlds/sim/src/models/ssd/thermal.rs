//! The temperature rise from writing, and the slowdown of a warm device.

use engine::Nanos;

/// How writes warm the device, and how warmth slows it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thermal {
    /// Rise of the temperature in mK for each GiB written.
    pub rise_per_gib: u64,
    /// The time in which half of the difference to the surroundings is lost.
    pub half_life: Nanos,
    /// Difference to the surroundings in mK from which on the device is throttled.
    pub limit: u64,
    /// The rate of a throttled device in percent of its full rate.
    pub throttled_percent: u64,
}

/// Difference to the temperature of the surroundings, in µK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Warmth(u64);

impl Warmth {
    /// `elapsed` passes, then `length` bytes are written. Warmth falls by half each half-life,
    /// linearly in between.
    pub(super) fn advance(&mut self, thermal: &Thermal, elapsed: Nanos, length: u64) {
        let (elapsed, half) = (elapsed.get(), thermal.half_life.get().max(1));
        self.0 >>= u32::try_from(elapsed / half).unwrap_or(u32::MAX).min(63);
        let lost = u128::from(elapsed % half) * u128::from(self.0 / 2) / u128::from(half);
        let rise = u128::from(thermal.rise_per_gib) * 1000 * u128::from(length) / (1 << 30);
        self.0 -= u64::try_from(lost).unwrap_or(0);
        self.0 = self.0.saturating_add(u64::try_from(rise).unwrap_or(u64::MAX));
    }

    /// The device's rate in percent of its full rate.
    pub(super) fn percent(self, thermal: Option<&Thermal>) -> u64 {
        match thermal {
            Some(thermal) if self.0 / 1000 >= thermal.limit => thermal.throttled_percent.clamp(1, 100),
            _ => 100,
        }
    }
}
