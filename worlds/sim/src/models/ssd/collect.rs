//! Free space in the flash, and the cost of reclaiming space while the host writes.

use std::collections::BTreeMap;

use engine::Nanos;

use super::flash::SECTOR;
use super::{Parameters, transferred};

/// Number of sectors in a region of the map.
const REGION: u64 = 1 << 15;
/// Weights of older writes in the share of scattered ones, of [`WEIGHTS`] in all.
const OLD: u64 = 4095;
/// Sum of the weights of older writes and the newest one.
const WEIGHTS: u64 = 4096;
/// 1000 is all.
const PERMILLE: u64 = 1000;

/// Valid share of the blocks that are reclaimed, by the share of the flash that holds data, both in
/// permille, for overwrites evenly at random: the `v` with `u = (v - 1) / ln v` (first-in
/// first-out cleaning: Desnoyers, "Analytic Models of SSD Write Performance", 2014).
const VALID: [(u64, u64); 9] =
    [(0, 0), (500, 203), (600, 324), (700, 467), (800, 629), (850, 716), (900, 807), (930, 864), (970, 941)];

/// Which sectors hold data, how much of the flash is free, and how scattered overwrites are.
#[derive(Debug, Default)]
pub(super) struct Collector {
    regions: BTreeMap<u64, Vec<u64>>,
    /// Number of bytes that hold data of the host.
    mapped: u64,
    /// Number of bytes programmed since space was last reclaimed in peace.
    taken: u64,
    /// Where the last write ended.
    end: u64,
    /// Share of scattered overwrites in the last writes, times [`PERMILLE`] and [`WEIGHTS`].
    scattered: u64,
}

impl Collector {
    /// Notes a write of the host.
    pub(super) fn write(&mut self, offset: u64, length: u64) {
        let (first, last) = (offset / SECTOR, (offset + length).div_ceil(SECTOR));
        let mut fresh = 0;
        let mut sector = first;
        while sector < last {
            let words = self
                .regions
                .entry(sector / REGION)
                .or_insert_with(|| vec![0; usize::try_from(REGION / 64).expect("a short region")]);
            let at = sector % REGION;
            let count = (64 - at % 64).min(last - sector);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let word = &mut words[usize::try_from(at / 64).expect("within a region")];
            fresh += u64::from((mask & !*word).count_ones());
            *word |= mask;
            sector += count;
        }
        self.mapped += fresh * SECTOR;
        let scattered = offset != self.end && fresh < last - first;
        let new = if scattered { PERMILLE * WEIGHTS } else { 0 };
        self.scattered = (self.scattered * OLD + new) / WEIGHTS;
        self.end = offset + length;
    }

    /// Programs a row of `bytes`. Returns the time for reclaiming during the program, in percent of
    /// its time.
    pub(super) fn take(&mut self, parameters: &Parameters, bytes: u64) -> u64 {
        self.taken = self.taken.saturating_add(bytes);
        let flash = parameters.capacity + parameters.spare;
        if self.taken <= parameters.direct.min(flash.saturating_sub(self.mapped)) {
            return 0;
        }
        let valid = valid_share(self.mapped * PERMILLE / flash.max(1));
        let moved = valid * 100 / (PERMILLE - valid);
        parameters.reclaim_percent + moved * (self.scattered / WEIGHTS) / PERMILLE
    }

    /// Reclaims for `time`, during which the flash accepts `rate` bytes a second.
    pub(super) fn reclaim(&mut self, time: Nanos, rate: u64) {
        self.taken = self.taken.saturating_sub(transferred(time, rate));
    }

    /// All of the flash was written in the past, evenly at random if `scattered`.
    pub(super) fn age(&mut self, parameters: &Parameters, scattered: bool) {
        self.mapped = parameters.capacity;
        self.regions = (0..parameters.capacity.div_ceil(REGION * SECTOR))
            .map(|region| (region, vec![u64::MAX; usize::try_from(REGION / 64).expect("a short region")]))
            .collect();
        self.taken = parameters.capacity + parameters.spare;
        self.scattered = if scattered { PERMILLE * WEIGHTS } else { 0 };
    }
}

/// The valid share of reclaimed blocks when `used` permille of the flash hold data.
fn valid_share(used: u64) -> u64 {
    let above = VALID.iter().position(|(u, _)| *u >= used).unwrap_or(VALID.len() - 1).max(1);
    let ((u0, v0), (u1, v1)) = (VALID[above - 1], VALID[above]);
    v0 + (v1 - v0) * (used.clamp(u0, u1) - u0) / (u1 - u0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table against the equation it was computed from.
    #[test]
    fn the_table_solves_its_equation() {
        for (u, v) in &VALID[1..] {
            let [u, v] = [*u, *v].map(|share| f64::from(u32::try_from(share).unwrap()) / 1000.0);
            assert!(((v - 1.0) / v.ln() - u).abs() < 0.002, "{u} {v}");
        }
        assert_eq!(valid_share(850), 716);
        assert_eq!(valid_share(875), 761);
        assert_eq!(valid_share(1000), 941);
    }

    #[test]
    fn each_sector_counts_once() {
        let mut collector = Collector::default();
        collector.write(0, 128 << 10);
        collector.write(64 << 10, 128 << 10);
        assert_eq!(collector.mapped, 192 << 10);
        collector.write((REGION - 1) * SECTOR, 2 * SECTOR);
        assert_eq!(collector.mapped, (192 << 10) + 2 * SECTOR);
    }
}
