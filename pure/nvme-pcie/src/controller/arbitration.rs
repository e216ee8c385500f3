//! Weighted round robin: chooses the next submission queue by the priority classes of the queues.

use super::Queues;
use super::side::Side;
use nvme::wire::{Bits, SubmissionQueueEntry};
use serde::{Deserialize, Serialize};

/// Queue Priority (QPRIO), in CDW11 of Create I/O Submission Queue: urgent, high, medium, low.
const QUEUE_PRIORITY: Bits = Bits::new(2, 1);
/// Number of classes that are served by weight: all but the urgent one.
const WEIGHTED_CLASSES: usize = 3;
const URGENT: u32 = 0;

/// The queues by class, while CC.AMS selects weighted round robin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Classes {
    /// The set of urgent queues, one bit each.
    urgent: u128,
    /// The sets of queues with high, medium and low priority, one bit each.
    weighted: [u128; WEIGHTED_CLASSES],
    /// Number of commands that may still be fetched in this round from each class of `weighted`.
    left: [u32; WEIGHTED_CLASSES],
}

/// The queue to serve next.
struct Pick {
    queue: u32,
    /// The most commands to fetch.
    most: u32,
    /// The class whose share of the round the commands use.
    class: Option<usize>,
}

impl Classes {
    pub(super) const fn new() -> Self {
        Self { urgent: 0, weighted: [0; WEIGHTED_CLASSES], left: [0; WEIGHTED_CLASSES] }
    }

    /// Adds a queue that `entry` created.
    pub(super) fn insert(&mut self, queue: u16, entry: &SubmissionQueueEntry) {
        let bit = 1 << queue;
        match QUEUE_PRIORITY.of(entry.cdw11) {
            URGENT => self.urgent |= bit,
            class => self.weighted[class as usize - 1] |= bit,
        }
    }

    /// Removes a queue that was deleted.
    pub(super) fn remove(&mut self, queue: u16) {
        let bit: u128 = 1 << queue;
        self.urgent &= !bit;
        self.weighted.iter_mut().for_each(|class| *class &= !bit);
    }
}

impl<S: Side> Queues<S> {
    /// Fetches from queues that have entries: first from the admin queue, then from urgent queues,
    /// then from the others by weight. Queues of one class take turns.
    pub(super) fn fetch_by_weight(&mut self) {
        let mut candidates = self.ready;
        while let Some(Pick { queue, most, class }) = self.pick(candidates) {
            let bit = 1_u128 << queue;
            let fetched = self.fetch_from(queue, most);
            if let (Some(class), Some(classes)) = (class, &mut self.classes) {
                classes.left[class] = classes.left[class].saturating_sub(fetched);
            }
            if fetched == 0 {
                candidates &= !bit;
            } else if !self.submission_queues[queue as usize].as_ref().is_some_and(|queue| queue.has_new()) {
                candidates &= !bit;
                self.ready &= !bit;
            }
        }
    }

    fn pick(&mut self, candidates: u128) -> Option<Pick> {
        if candidates == 0 {
            return None;
        }
        if candidates & 1 != 0 {
            return Some(Pick { queue: 0, most: u32::MAX, class: None });
        }
        let weights = self.weights;
        let classes = self.classes.as_mut()?;
        if candidates & classes.urgent != 0 {
            let among = candidates & classes.urgent;
            return Some(Pick { queue: self.in_turn(among), most: u32::MAX, class: None });
        }
        let can = |classes: &Classes, class: usize| {
            candidates & classes.weighted[class] != 0 && classes.left[class] > 0
        };
        if !(0..WEIGHTED_CLASSES).any(|class| can(classes, class)) {
            classes.left = weights.map(u32::from);
        }
        let class = (0..WEIGHTED_CLASSES).find(|class| can(classes, *class))?;
        let (among, most) = (candidates & classes.weighted[class], classes.left[class]);
        Some(Pick { queue: self.in_turn(among), most, class: Some(class) })
    }

    /// The next queue in turn from the set `among`, which must not be empty.
    pub(super) const fn in_turn(&mut self, among: u128) -> u32 {
        let turned = among.rotate_right(self.turn);
        let queue = (turned.trailing_zeros() + self.turn) % u128::BITS;
        self.turn = (queue + 1) % u128::BITS;
        queue
    }
}
