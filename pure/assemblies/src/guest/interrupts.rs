//! MSI-X between the far function, which has the slot's addresses, and the guest, which hears of
//! vectors.

use alloc::vec::Vec;

/// The effect of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The guest is interrupted.
    Signal,
    /// The interrupt is kept until the guest wants to hear of the vector.
    Keep,
    /// The interrupt is lost: the guest has no MSI-X, and a function whose MSI-X is disabled says
    /// nothing.
    Drop,
}

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// The guest has said how to signal the vector.
    wanted: bool,
    /// The guest had said so at some time since MSI-X was enabled, so the vector is only being set
    /// up anew.
    known: bool,
    pending: bool,
}

/// The vectors of a function.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    vectors: Vec<Vector>,
    /// The guest has MSI-X enabled.
    enabled: bool,
}

impl Vectors {
    pub(super) fn new(count: u16) -> Self {
        Self { vectors: alloc::vec![Vector::default(); usize::from(count)], enabled: false }
    }

    /// The function raises vector `index`.
    pub(super) fn raise(&mut self, index: usize) -> Verdict {
        let enabled = self.enabled;
        let Some(vector) = self.vectors.get_mut(index) else { return Verdict::Drop };
        if vector.wanted {
            return Verdict::Signal;
        }
        if vector.known || enabled {
            vector.pending = true;
            return Verdict::Keep;
        }
        Verdict::Drop
    }

    /// The guest wants to hear of vector `index`, or no longer. Returns whether a kept interrupt
    /// must be signalled at once.
    pub(super) fn want(&mut self, index: usize, wanted: bool) -> bool {
        let Some(vector) = self.vectors.get_mut(index) else { return false };
        vector.wanted = wanted;
        vector.known |= wanted;
        wanted && core::mem::take(&mut vector.pending)
    }

    /// Whether the guest wants to hear of vector `index`.
    pub(super) fn is_wanted(&self, index: usize) -> bool {
        self.vectors.get(index).is_some_and(|vector| vector.wanted)
    }

    /// Number of vectors.
    pub(super) const fn count(&self) -> usize {
        self.vectors.len()
    }

    /// The guest has enabled or disabled MSI-X. Interrupts pending when MSI-X is disabled mean
    /// nothing any more.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        if !enabled {
            self.forget_pending();
        }
    }

    /// The function was reset: no interrupt is pending.
    pub(super) fn reset(&mut self) {
        self.enabled = false;
        self.forget_pending();
    }

    fn forget_pending(&mut self) {
        for vector in &mut self.vectors {
            vector.pending = false;
            vector.known = vector.wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_lost_while_a_client_sets_up_its_vectors_anew() {
        let mut vectors = Vectors::new(2);
        assert_eq!(vectors.raise(0), Verdict::Drop);
        vectors.set_enabled(true);
        assert_eq!(vectors.raise(0), Verdict::Keep);
        assert!(vectors.want(0, true));
        assert!(!vectors.want(0, true), "signalled once");
        assert_eq!(vectors.raise(0), Verdict::Signal);
        // The client tears down all vectors and sets them up again.
        vectors.want(0, false);
        assert_eq!((vectors.raise(0), vectors.raise(1)), (Verdict::Keep, Verdict::Keep));
        assert!(vectors.want(0, true) && vectors.want(1, true));
    }

    #[test]
    fn a_client_that_never_writes_the_capability_loses_none_either() {
        let mut vectors = Vectors::new(1);
        vectors.want(0, true);
        vectors.want(0, false);
        assert_eq!(vectors.raise(0), Verdict::Keep);
        assert!(vectors.want(0, true));
    }

    #[test]
    fn an_interrupt_pending_when_msix_went_off_is_not_sent_later() {
        let mut vectors = Vectors::new(1);
        vectors.set_enabled(true);
        vectors.raise(0);
        vectors.set_enabled(false);
        vectors.set_enabled(true);
        assert!(!vectors.want(0, true));
    }

    #[test]
    fn vectors_that_there_are_not_say_nothing() {
        let mut vectors = Vectors::new(1);
        vectors.set_enabled(true);
        assert_eq!(vectors.raise(9), Verdict::Drop);
        assert!(!vectors.want(9, true) && !vectors.is_wanted(9));
    }
}
