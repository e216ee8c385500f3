//! Where a job's operations go.

use engine::Rng;

use super::draw::Draw;
use super::job::{Choice, Job, Kind};
use crate::args::Workload;

/// Where a job's operations go.
#[derive(Debug)]
pub(super) struct Places {
    choice: Choice,
    is_random: bool,
    /// Length of the job's part of the namespace.
    range: u64,
    draw: Draw,
    /// Where the last operation of each kind ended, and where it began; none before the first.
    last: [Option<(u64, u64)>; 3],
    /// Operations that still come with the last random place.
    repeats: u32,
    /// Where the current zone begins, and the bytes that were transferred in it.
    zone: (u64, u64),
}

impl Places {
    pub(super) fn new(job: &Job, range: u64, seed: u64) -> Self {
        let is_random = !matches!(
            job.workload,
            Workload::Read | Workload::Write | Workload::Rw | Workload::Trim | Workload::TrimWrite
        );
        let draw = Draw::new(job.choice.distribution.clone(), seed);
        Self { choice: job.choice.clone(), is_random, range, draw, last: [None; 3], repeats: 0, zone: (0, 0) }
    }

    /// Whether a place that can't be used now must come later: each comes once.
    pub(super) const fn is_exhaustive(&self) -> bool {
        !self.is_random || self.draw.is_mapped()
    }

    /// Where the next operation of `kind` goes, from the beginning of the job's part, and how many
    /// bytes were passed over to get there. Its length is `bytes`, and the shortest one `shortest`.
    pub(super) fn next(&mut self, kind: Kind, bytes: u64, shortest: u64, rng: &mut Rng) -> (u64, u64) {
        let (start, length, skipped) = self.window();
        let last = self.last[kind as usize];
        let offset = if self.goes_on(kind, rng) {
            self.following(kind, start, length, bytes)
        } else if let (true, Some((_, begun))) = (self.choice.is_identical && self.repeats > 0, last) {
            self.repeats -= 1;
            begun
        } else {
            self.repeats = self.choice.repeats - 1;
            let align = self.choice.align.unwrap_or(shortest).max(1);
            let count = length.saturating_sub(bytes) / align + 1;
            start + self.draw.next(count, bytes == shortest && align == bytes, rng) * align
        };
        self.last[kind as usize] = Some((offset + bytes, offset));
        self.zone.1 += bytes;
        (offset, skipped)
    }

    /// Whether the next operation follows the last one of its kind.
    fn goes_on(&mut self, kind: Kind, rng: &mut Rng) -> bool {
        if !self.is_random {
            return true;
        }
        if self.choice.random[kind as usize] < 100 && self.last[kind as usize].is_some() {
            return rng.below(100) >= u64::from(self.choice.random[kind as usize]);
        }
        if self.repeats > 0 && !self.choice.is_identical && self.last[kind as usize].is_some() {
            self.repeats -= 1;
            return true;
        }
        false
    }

    /// The place behind the last operation of `kind`, or the first place.
    fn following(&self, kind: Kind, start: u64, length: u64, bytes: u64) -> u64 {
        let step = if self.is_random { 0 } else { self.choice.step };
        let last = self.last[kind as usize].filter(|(end, _)| (start..=start + length).contains(end));
        let end = start + length;
        if step < 0 {
            let step = step.unsigned_abs();
            let from = last.map_or(end, |(end, _)| end);
            let at = from.checked_sub(step).filter(|at| *at >= start);
            return at.unwrap_or(end.saturating_sub(step).max(start)).min(end - bytes);
        }
        let at = last.map_or(start, |(end, _)| end.saturating_add(step.unsigned_abs()));
        if at.saturating_add(bytes) > end { start } else { at }
    }

    /// The part of the range where operations go now, and the bytes that were passed over.
    fn window(&mut self) -> (u64, u64, u64) {
        let Some(zones) = self.choice.zones else { return (0, self.range, 0) };
        let mut skipped = 0;
        if self.zone.1 >= zones.bytes {
            skipped = zones.skip;
            let next = self.zone.0.saturating_add(zones.range).saturating_add(zones.skip);
            self.zone = (if next.saturating_add(zones.range) > self.range { 0 } else { next }, 0);
            self.last = [None; 3];
        }
        (self.zone.0, zones.range.min(self.range), skipped)
    }
}

#[cfg(test)]
mod tests {
    use engine::Nanos;
    use nvme::host::Namespace;
    use nvme::wire::NamespaceId;

    use super::super::job::Zones;
    use super::*;
    use crate::args::RandomDistribution;

    const K: u64 = 1024;

    fn first(workload: Workload, choice: Choice, range: u64, count: usize) -> Vec<u64> {
        let namespace = Namespace {
            id: NamespaceId(1),
            blocks: 1 << 20,
            block_bytes: 512,
            metadata_bytes: 0,
            deallocate_features: 0,
        };
        let mut job = Job::plain(namespace, workload, 4096, 1, Nanos::from_secs(1));
        job.choice = choice;
        let (mut places, mut rng) = (Places::new(&job, range, 1), Rng::from_seed(1));
        let kind = job.kinds()[0];
        (0..count).map(|_| places.next(kind, 4 * K, 4 * K, &mut rng).0 / K).collect()
    }

    #[test]
    fn sequential_operations_go_forwards_backwards_and_with_holes() {
        let go = |step| first(Workload::Read, Choice { step, ..Choice::default() }, 32 * K, 6);
        assert_eq!(go(0), [0, 4, 8, 12, 16, 20]);
        // As fio's read:-8k with blocks of 4k.
        assert_eq!(go(-8192), [24, 20, 16, 12, 8, 4]);
        assert_eq!(go(8192), [0, 12, 24, 0, 12, 24]);
        assert_eq!(first(Workload::Write, Choice::default(), 8 * K, 3), [0, 4, 0]);
    }

    #[test]
    fn random_places_repeat_or_are_followed() {
        let choice = Choice { repeats: 3, ..Choice::default() };
        let places = first(Workload::RandRead, choice.clone(), 4096 * K, 9);
        assert!(
            places.chunks(3).all(|three| three[1] == three[0] + 4 && three[2] == three[0] + 8),
            "{places:?}"
        );
        let places = first(Workload::RandRead, Choice { is_identical: true, ..choice }, 4096 * K, 9);
        assert!(places.chunks(3).all(|three| three.iter().all(|one| *one == three[0])), "{places:?}");
        let choice = Choice { random: [0; 3], ..Choice::default() };
        let places = first(Workload::RandRead, choice, 4096 * K, 9);
        assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 4 || pair[1] == 0), "{places:?}");
    }

    #[test]
    fn mapped_places_come_once() {
        let choice =
            Choice { distribution: RandomDistribution::Uniform { is_mapped: true }, ..Choice::default() };
        let mut places = first(Workload::RandRead, choice, 64 * K, 16);
        places.sort_unstable();
        assert_eq!(places, (0..16).map(|block| block * 4).collect::<Vec<_>>());
    }

    #[test]
    fn zones_are_left_after_their_bytes() {
        let zones = Some(Zones { range: 8 * K, bytes: 8 * K, skip: 16 * K });
        let choice = Choice { zones, ..Choice::default() };
        assert_eq!(first(Workload::Read, choice, 48 * K, 6), [0, 4, 24, 28, 0, 4]);
    }
}
