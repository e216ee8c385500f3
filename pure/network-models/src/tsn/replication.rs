//! Frame replication and elimination (IEEE 802.1CB).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::Instant;

use crate::trail::Crossing;
use crate::{Counts, Frame, Hop, Path};

/// Length in bytes of the redundancy tag, which carries the sequence number (IEEE 802.1CB-2017,
/// 7.8).
pub const REDUNDANCY_TAG: u32 = 6;

/// Sends every frame over each of several paths, and lets the first copy to arrive through.
///
/// The delay is the shortest of the paths' delays, and a frame is lost only if all paths lose it. A
/// copy that is more than [`Replicated::HISTORY`] frames behind the latest frame counts as seen, as
/// in the vector recovery algorithm (7.4.3.4) for frames outside its history.
#[derive(Clone, Debug)]
pub struct Replicated {
    ways: Vec<Path>,
    /// Sequence number of the next frame.
    next: u64,
    /// Frames whose copies may still come, the oldest first. The last one has sequence number
    /// `next` - 1.
    history: VecDeque<Remembered>,
    counts: Counts,
    /// When the winning copies left the hops of their ways, while the ways are watched. The number
    /// of a hop counts through all ways.
    crossings: Option<Vec<Crossing>>,
}

/// The sender's number of a frame, and whether a copy of the frame has arrived.
#[derive(Clone, Debug)]
struct Remembered {
    id: u64,
    arrived: bool,
    /// The way and the time of each hop that a copy has left, until the first copy arrives.
    crossed: Vec<(usize, Crossing)>,
}

impl Replicated {
    /// Number of frames that are remembered. The standard's default is 2, which is only enough for
    /// paths of equal length (`frerSeqRcvyHistoryLength`, 10.4.1.5).
    pub const HISTORY: usize = 4096;
    /// Maximum number of paths.
    pub const WAYS_MAX: usize = 8;

    /// Replication over each of `ways`.
    ///
    /// # Panics
    /// When `ways` is empty or has more than [`Replicated::WAYS_MAX`] paths.
    pub fn new(ways: impl IntoIterator<Item = Path>) -> Self {
        let ways: Vec<_> = ways.into_iter().collect();
        assert!((1..=Self::WAYS_MAX).contains(&ways.len()), "replication over {} ways", ways.len());
        Self { ways, next: 0, history: VecDeque::new(), counts: Counts::default(), crossings: None }
    }

    /// The paths that frames are replicated over.
    pub fn ways(&self) -> &[Path] {
        &self.ways
    }

    /// The place in the history of the frame with the sequence number `number`.
    fn place(&self, number: u64) -> Option<usize> {
        let oldest = self.next - self.history.len() as u64;
        let place = number.checked_sub(oldest).and_then(|place| usize::try_from(place).ok());
        place.filter(|place| *place < self.history.len())
    }

    /// Starts or stops recording when the winning copies leave the hops of their ways.
    pub(crate) fn watch(&mut self, on: bool) {
        self.crossings = on.then(Vec::new);
        self.ways.iter_mut().for_each(|way| way.watch(on));
        self.history.iter_mut().for_each(|remembered| remembered.crossed.clear());
    }

    /// Takes the crossings of the copies that have won since the last call.
    pub(crate) fn crossings(&mut self) -> impl Iterator<Item = Crossing> + use<'_> {
        self.crossings.iter_mut().flat_map(|crossings| crossings.drain(..))
    }

    /// Records which copies have left which hops of the way `index`. Copies of frames that have
    /// arrived are left out.
    fn follow(&mut self, index: usize) {
        if self.crossings.is_none() {
            return;
        }
        let crossings: Vec<_> = self.ways[index].crossings().collect();
        for crossing in crossings {
            let remembered = self.place(crossing.frame).map(|place| &mut self.history[place]);
            if let Some(remembered) = remembered.filter(|remembered| !remembered.arrived) {
                remembered.crossed.push((index, crossing));
            }
        }
    }

    /// Lets the first copy of a frame through, which came over the way `index`.
    fn arrive(&mut self, index: usize, mut frame: Frame) -> Option<Frame> {
        match self.place(frame.id).map(|place| &mut self.history[place]) {
            Some(remembered) if !remembered.arrived => {
                remembered.arrived = true;
                frame.id = remembered.id;
                let crossed = core::mem::take(&mut remembered.crossed);
                if let Some(crossings) = &mut self.crossings {
                    let first: usize = self.ways[..index].iter().map(Path::places_count).sum();
                    let won = crossed.into_iter().filter(|(way, _)| *way == index);
                    crossings.extend(won.map(|(_, crossing)| Crossing {
                        frame: frame.id,
                        hop: first + crossing.hop,
                        at: crossing.at,
                    }));
                }
                frame.length -= REDUNDANCY_TAG;
                self.counts.left += 1;
                Some(frame)
            }
            _ => {
                self.counts.lost += 1;
                None
            }
        }
    }
}

impl Hop for Replicated {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        self.counts.copied += self.ways.len() as u64 - 1;
        self.history.push_back(Remembered { id: frame.id, arrived: false, crossed: Vec::new() });
        if self.history.len() > Self::HISTORY {
            self.history.pop_front();
        }
        frame.id = self.next;
        frame.length += REDUNDANCY_TAG;
        self.next += 1;
        for way in &mut self.ways {
            way.enter(now, frame.clone());
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        loop {
            let times = self.ways.iter().enumerate().filter_map(|(index, way)| Some((way.next()?, index)));
            let (at, index) = times.min().filter(|(at, _)| *at <= now)?;
            let frame = self.ways[index].poll(at);
            self.follow(index);
            if let Some(frame) = frame.and_then(|frame| self.arrive(index, frame)) {
                return Some(frame);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.ways.iter().filter_map(Path::next).min()
    }

    fn counts(&self) -> Counts {
        let lost: u64 = self.ways.iter().map(|way| way.counts().lost).sum();
        let copied: u64 = self.ways.iter().map(|way| way.counts().copied).sum();
        Counts { lost: self.counts.lost + lost, copied: self.counts.copied + copied, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Behaviour, Faults};
    use crate::{AnyHop, Chance, Class, Wire};
    use engine::{Buffer, Nanos, Rng};

    fn way(latency: u64, loss: Chance, seed: u64) -> Path {
        let faults = Faults::new(Behaviour { loss, ..Behaviour::default() }, Rng::from_seed(seed));
        Path::new([AnyHop::from(Wire::new(Nanos::from_micros(latency), None)), faults.into()])
    }

    fn run(mut hop: Replicated, frames: u64) -> (Vec<(u64, u64)>, Counts) {
        let mut out = Vec::new();
        let mut drain = |hop: &mut Replicated, until: u64| {
            while let Some(at) = hop.next().filter(|at| at.as_nanos() <= until) {
                if let Some(frame) = hop.poll(at) {
                    assert_eq!(frame.length, 100);
                    out.push((frame.id, at.as_nanos()));
                }
            }
        };
        for id in 0..frames {
            drain(&mut hop, id * 10_000);
            hop.enter(
                Instant::from_nanos(id * 10_000),
                Frame::new(id + 7, 100, Class::HIGHEST, Buffer::EMPTY),
            );
        }
        drain(&mut hop, u64::MAX);
        let counts = hop.counts();
        assert_eq!(counts.entered + counts.copied, counts.left + counts.lost);
        (out, counts)
    }

    #[test]
    fn the_first_copy_wins() {
        let (out, counts) = run(Replicated::new([way(30, Chance::NEVER, 1), way(20, Chance::NEVER, 2)]), 100);
        assert!(out.iter().zip(0..).all(|((id, at), sent)| (*id, *at) == (sent + 7, sent * 10_000 + 20_000)));
        assert_eq!((counts.left, counts.lost), (100, 100));
    }

    #[test]
    fn the_loss_is_the_product_of_the_ways_losses() {
        let ways = [way(30, Chance::percent(10), 1), way(20, Chance::percent(20), 2)];
        let (out, _) = run(Replicated::new(ways), 100_000);
        let lost = 100_000 - out.len();
        assert!(lost.abs_diff(2_000) < 150, "{lost}");
        // Frames that only the slower path brought come later, each once.
        let mut ids: Vec<_> = out.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), out.len());
        let late = out.iter().filter(|(id, at)| at - (id - 7) * 10_000 == 30_000).count();
        assert!(late.abs_diff(18_000) < 500, "{late}");
    }

    #[test]
    fn what_is_too_far_behind_is_taken_for_seen() {
        let frames = Replicated::HISTORY as u64 + 100;
        let slow = 10 * (frames + 1);
        let (out, _) = run(Replicated::new([way(slow, Chance::NEVER, 1), way(1, Chance::ALWAYS, 2)]), frames);
        assert_eq!(out.len(), Replicated::HISTORY);
    }
}
