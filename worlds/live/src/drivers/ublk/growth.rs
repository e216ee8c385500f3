//! A namespace that becomes longer while its block device is used.
//!
//! Each thread has a host of its own, which learns of the new length by itself. The block device
//! becomes longer once all of them know it: before that, a thread would refuse requests behind the
//! end that it knows. A block device never becomes shorter, because its users would lose data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The length in bytes that each thread knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths(Arc<[AtomicU64]>);

impl Lengths {
    /// The lengths of so many threads, which all know `bytes`.
    pub(super) fn new(threads: usize, bytes: u64) -> Self {
        Self((0..threads).map(|_| AtomicU64::new(bytes)).collect())
    }

    /// Notes the length that a thread knows. Returns whether it is another one than before.
    pub(super) fn note(&self, thread: usize, bytes: u64) -> bool {
        self.0.get(thread).is_some_and(|known| known.swap(bytes, Ordering::AcqRel) != bytes)
    }

    /// The length that all threads know.
    pub(super) fn least(&self) -> u64 {
        self.0.iter().map(|known| known.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

/// What follows from the length of a namespace for its block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// The kernel is to give the block device this length.
    Resize(u64),
    /// The kernel can't give it this length.
    Warn(u64),
}

/// The length of a block device, and what its users were warned of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The length that the block device has.
    pub(super) bytes: u64,
    /// The longest length that the kernel can't give it, or has refused.
    refused: u64,
    can_resize: bool,
}

impl Growth {
    pub(super) const fn new(bytes: u64, can_resize: bool) -> Self {
        Self { bytes, refused: bytes, can_resize }
    }

    /// The next step, where all threads know that the namespace has `known` bytes.
    pub(super) const fn next(&mut self, known: u64) -> Step {
        if known <= self.bytes || known <= self.refused {
            return Step::Stay;
        }
        if self.can_resize {
            return Step::Resize(known);
        }
        self.refused = known;
        Step::Warn(known)
    }

    /// The kernel has given the block device this length.
    pub(super) const fn on_resized(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// The kernel has refused to give it this length.
    pub(super) const fn on_refused(&mut self, bytes: u64) {
        self.refused = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_grows_once_every_thread_knows_the_length() {
        let lengths = Lengths::new(3, 100);
        let mut growth = Growth::new(100, true);
        assert!(lengths.note(0, 300) && lengths.note(2, 200) && !lengths.note(2, 200));
        assert_eq!((lengths.least(), growth.next(lengths.least())), (100, Step::Stay));
        lengths.note(1, 300);
        assert_eq!(growth.next(lengths.least()), Step::Resize(200));
        growth.on_resized(200);
        lengths.note(2, 300);
        assert_eq!(growth.next(lengths.least()), Step::Resize(300));
        growth.on_refused(300);
        assert_eq!(growth.next(300), Step::Stay, "it is not tried again and again");
        assert_eq!(growth.next(400), Step::Resize(400));
        growth.on_resized(400);
        // What becomes shorter keeps its length.
        assert_eq!(growth.next(50), Step::Stay);
    }

    #[test]
    fn a_kernel_that_can_not_resize_is_named_once_for_each_length() {
        let mut growth = Growth::new(100, false);
        assert_eq!(
            [200, 200, 150, 300].map(|known| growth.next(known)),
            [Step::Warn(200), Step::Stay, Step::Stay, Step::Warn(300)]
        );
        assert_eq!(growth.bytes, 100);
    }
}
