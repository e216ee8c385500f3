//! What the protocols of threads that share media are made of. The models in `tools/models`
//! replace this module, so that they run the same code in every order of its steps.

pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
pub(super) use std::sync::{Arc, Mutex, PoisonError};

/// How many slots a block of them has.
pub(super) const SLOTS: usize = 64;
/// How many shards the order between overlapping requests has, at most 64.
pub(super) const SHARDS: u64 = 64;

/// Faults that models plant, to see that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    /// A reader does not check the version after it has taken its pages.
    NoCheck,
    /// A reader's slots become visible late.
    NoFence,
    /// A writer does not announce that it changes pages.
    Silent,
    /// A writer frees pages that slots protect.
    NoScan,
    /// A request that ends leaves one of its shards as it is.
    Left,
    /// A request begins when the first of its shards lets it.
    Early,
}

/// Whether a fault is planted.
#[inline(always)]
pub(super) const fn planted(_: Plant) -> bool {
    false
}

/// How often a thread waits for another one before it lets other threads run first.
const SPINS: u32 = 100;

/// Waits a moment for another thread, after so many moments before.
#[cold]
pub(super) fn pause(before: u32) {
    if before < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}
