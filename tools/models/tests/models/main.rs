//! Models of what threads share without locks: the code of the library runs in every order of its
//! steps that the memory model of the language allows. Each planted fault is found.

#[path = "../../../../worlds/live/src/media/ram/guard.rs"]
mod guard;
#[path = "../../../../worlds/live/src/media/lanes/order.rs"]
mod order;
mod order_of_requests;
mod ram;

/// The parts of the code under test, as loom has them.
mod sync {
    use std::cell::Cell;

    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Arc, Mutex};
    pub(super) use std::sync::PoisonError;

    pub(super) const SLOTS: usize = 2;
    pub(super) const SHARDS: u64 = 2;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Plant {
        NoCheck,
        NoFence,
        Silent,
        NoScan,
        Left,
        Early,
    }

    thread_local! {
        /// Loom runs all threads of a model on the thread that asks for it.
        static PLANT: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    pub(super) fn plant(plant: Option<Plant>) {
        PLANT.set(plant);
    }

    pub(super) fn pause(_: u32) {
        loom::thread::yield_now();
    }

    pub(super) fn planted(plant: Plant) -> bool {
        PLANT.get() == Some(plant)
    }
}
