//! Weighted round robin: which submission queue is next, by the class of priority that it was created in.

use super::Controller;
use nvme::wire::{Bits, SubmissionQueueEntry};

/// Queue Priority (QPRIO), in CDW11 of Create I/O Submission Queue: urgent, high, medium, low.
const QUEUE_PRIORITY: Bits = Bits::new(2, 1);
/// The classes that are served by weight: all but the urgent one.
const WEIGHTED_CLASSES: usize = 3;
const URGENT: u32 = 0;

/// The classes of queues, while CC.AMS selects weighted round robin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    /// Urgent queues, a bit each.
    urgent: u128,
    /// Queues of high, medium and low priority, a bit each.
    weighted: [u128; WEIGHTED_CLASSES],
    /// Commands that each of those classes may still have fetched in this round.
    left: [u32; WEIGHTED_CLASSES],
}

/// Whose turn it is.
struct Pick {
    queue: u32,
    /// Commands at most.
    most: u32,
    /// The class that pays for them.
    class: Option<usize>,
}

impl Classes {
    pub(super) const fn new() -> Self {
        Self { urgent: 0, weighted: [0; WEIGHTED_CLASSES], left: [0; WEIGHTED_CLASSES] }
    }

    /// A queue was created by `entry`.
    pub(super) fn insert(&mut self, queue: u16, entry: &SubmissionQueueEntry) {
        let bit = 1 << queue;
        match QUEUE_PRIORITY.of(entry.cdw11) {
            URGENT => self.urgent |= bit,
            class => self.weighted[class as usize - 1] |= bit,
        }
    }

    /// A queue was deleted.
    pub(super) fn remove(&mut self, queue: u16) {
        let bit: u128 = 1 << queue;
        self.urgent &= !bit;
        self.weighted.iter_mut().for_each(|class| *class &= !bit);
    }
}

impl Controller {
    /// Fetches from queues that have entries: from the admin queue before all others, from urgent ones before those
    /// with a weight, from those by weight, and within a class in turn.
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

    /// The next queue of `among`, which has one, in turn.
    pub(super) const fn in_turn(&mut self, among: u128) -> u32 {
        let turned = among.rotate_right(self.turn);
        let queue = (turned.trailing_zeros() + self.turn) % u128::BITS;
        self.turn = (queue + 1) % u128::BITS;
        queue
    }
}
