//! Decides when completions raise an interrupt: coalescing by threshold and time (features 08h and
//! 09h).

use alloc::vec::Vec;

use engine::{DeadlineList, Instant, Nanos};
use serde::{Deserialize, Serialize};

/// The decoded value of Interrupt Coalescing (feature 08h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Coalescing {
    /// Number of waiting entries that raise an interrupt at once; 0 and 1 mean every entry.
    pub(super) threshold: u16,
    /// How long an entry may wait for others; zero means that it may not wait.
    pub(super) time: Nanos,
}

impl Coalescing {
    const fn is_off(self) -> bool {
        self.threshold <= 1 || self.time.get() == 0
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Vector {
    waiting: u32,
    /// Coalescing Disable (CD) of Interrupt Vector Configuration (feature 09h).
    coalescing_disabled: bool,
}

/// The interrupt vectors of a controller.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Interrupts {
    vectors: Vec<Vector>,
    deadlines: DeadlineList,
    coalescing: Coalescing,
}

impl Interrupts {
    pub(super) fn new(vectors: u16) -> Self {
        Self {
            vectors: (0..vectors).map(|_| Vector::default()).collect(),
            deadlines: DeadlineList::new(u32::from(vectors)),
            coalescing: Coalescing::default(),
        }
    }

    /// Returns to no coalescing and no waiting entries.
    pub(super) fn reset(&mut self) {
        *self = Self::new(u16::try_from(self.vectors.len()).expect("vectors are numbered by 16 bits"));
    }

    /// Sets the coalescing, and passes each vector with waiting entries to `raise`.
    pub(super) fn configure(&mut self, coalescing: Coalescing, mut raise: impl FnMut(u16)) {
        self.coalescing = coalescing;
        for (number, vector) in (0..).zip(&mut self.vectors) {
            self.deadlines.disarm(u32::from(number));
            if core::mem::take(&mut vector.waiting) > 0 {
                raise(number);
            }
        }
    }

    /// Sets Coalescing Disable (CD) of `vector`.
    pub(super) fn configure_vector(&mut self, vector: u16, coalescing_disabled: bool) {
        if let Some(vector) = self.vectors.get_mut(usize::from(vector)) {
            vector.coalescing_disabled = coalescing_disabled;
        }
    }

    /// Counts `count` entries that were posted for `vector`. Returns whether to raise the interrupt
    /// now.
    pub(super) fn on_posted(&mut self, now: Instant, vector: u16, count: u32, is_admin: bool) -> bool {
        let Some(state) = self.vectors.get_mut(usize::from(vector)) else { return false };
        let slot = u32::from(vector);
        state.waiting += count;
        if is_admin
            || state.coalescing_disabled
            || self.coalescing.is_off()
            || state.waiting >= u32::from(self.coalescing.threshold)
        {
            state.waiting = 0;
            self.deadlines.disarm(slot);
            return true;
        }
        if state.waiting == count {
            self.deadlines.arm(slot, now + self.coalescing.time);
        }
        false
    }

    /// The next vector whose entries have waited long enough.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u16> {
        let vector = u16::try_from(self.deadlines.expire(now)?).ok()?;
        self.vectors[usize::from(vector)].waiting = 0;
        Some(vector)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn coalescing(threshold: u16) -> Coalescing {
        Coalescing { threshold, time: Nanos::from_micros(100) }
    }

    #[test]
    fn entries_wait_for_company_or_time() {
        let mut interrupts = Interrupts::new(2);
        let at = Instant::from_nanos;
        assert!(interrupts.on_posted(at(0), 1, 1, false));
        interrupts.configure(coalescing(4), |_| panic!("nothing waits"));
        assert!(!interrupts.on_posted(at(0), 1, 3, false));
        assert!(interrupts.on_posted(at(1), 1, 1, false));
        assert_eq!(interrupts.earliest(), None);
        assert!(!interrupts.on_posted(at(5), 1, 1, false));
        assert!(!interrupts.on_posted(at(6), 1, 1, false));
        assert_eq!(interrupts.earliest(), Some(at(100_005)));
        assert_eq!(interrupts.expire(at(100_005)), Some(1));
        assert_eq!(interrupts.expire(at(100_005)), None);
        assert!(interrupts.on_posted(at(7), 0, 1, true));
        interrupts.configure_vector(1, true);
        assert!(interrupts.on_posted(at(8), 1, 1, false));
    }

    #[test]
    fn a_new_setting_raises_waiting_interrupts() {
        let mut interrupts = Interrupts::new(1);
        interrupts.configure(coalescing(256), |_| ());
        assert!(!interrupts.on_posted(Instant::ZERO, 0, 1, false));
        let mut raised = Vec::new();
        interrupts.configure(Coalescing::default(), |vector| raised.push(vector));
        assert_eq!((raised, interrupts.earliest()), (Vec::from([0]), None));
    }
}
