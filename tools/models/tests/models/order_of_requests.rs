//! Overlapping requests of several controllers on threads of their own.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::order::{Claim, Entry, Mailbox, Order};
use crate::sync::{Plant, plant};

const ZONE: u64 = 1 << 20;

/// The mailbox of a thread that sleeps until it may begin.
struct Letter {
    came: Mutex<Option<u64>>,
    bell: Condvar,
}

impl Mailbox for Letter {
    fn put(&self, key: u64) {
        let before = self.came.lock().expect("no thread panics").replace(key);
        assert_eq!(before, None, "a request begins once");
        self.bell.notify_one();
    }
}

struct World {
    order: Order<u64, Letter>,
    /// The bytes of two zones.
    bytes: [UnsafeCell<u64>; 2],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { order: Order::new(), bytes: [0, 0].map(UnsafeCell::new) })
    }

    /// A controller writes, or reads, the zones from `first` to `last`.
    fn access(&self, controller: u64, first: usize, last: usize, changes: bool) {
        let claim = Claim {
            key: controller,
            medium: 0,
            start: first as u64 * ZONE,
            end: (last as u64 + 1) * ZONE,
            changes,
        };
        let letter = Arc::new(Letter { came: Mutex::new(None), bell: Condvar::new() });
        let entry = self.order.enter(claim, controller, &letter);
        if entry == Entry::Waiting {
            let mut came = letter.came.lock().expect("no thread panics");
            while came.is_none() {
                came = letter.bell.wait(came).expect("no thread panics");
            }
            drop(came);
        }
        if changes {
            for zone in &self.bytes[first..=last] {
                // SAFETY: loom finds another access at the same time.
                zone.with_mut(|bytes| unsafe { *bytes += controller });
            }
        }
        if entry != Entry::Free {
            self.order.end(&claim);
        }
    }
}

/// One thread writes both zones; two others write one of them each.
fn check(fault: Option<Plant>) {
    plant(fault);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let threads = [(2, 0), (4, 1)].map(|(controller, zone)| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.access(controller, zone, zone, true))
        });
        world.access(1, 0, 1, true);
        threads.into_iter().for_each(|thread| thread.join().expect("each request begins"));
        // SAFETY: all threads have ended.
        let bytes = [0, 1].map(|zone: usize| world.bytes[zone].with(|bytes| unsafe { *bytes }));
        assert_eq!(bytes, [3, 5], "each write was done");
    });
}

#[test]
fn overlapping_changes_are_never_at_the_same_time_and_all_begin() {
    check(None);
}

#[test]
fn a_read_that_waits_begins_and_lets_others_begin() {
    plant(None);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let threads = [(2, false), (4, true)].map(|(controller, changes)| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.access(controller, 0, 0, changes))
        });
        world.access(1, 0, 1, true);
        threads.into_iter().for_each(|thread| thread.join().expect("each request begins"));
    });
}

#[test]
fn even_its_controller_waits_for_a_change_without_an_owner() {
    plant(None);
    loom::model(|| {
        let world = World::new();
        let claim = |key| Claim { key, medium: 0, start: 0, end: 2 * ZONE, changes: true };
        let letter = Arc::new(Letter { came: Mutex::new(None), bell: Condvar::new() });
        assert_eq!(world.order.enter(claim(1), 7, &letter), Entry::Begun);
        world.order.disown(&claim(1));
        assert_eq!(world.order.enter(claim(2), 7, &letter), Entry::Waiting);
        world.order.end(&claim(1));
        assert_eq!(letter.came.lock().expect("no thread panics").take(), Some(2));
        world.order.end(&claim(2));
    });
}

/// Two threads write other zones at the same time; nothing of them is left.
fn check_the_end(fault: Option<Plant>) {
    plant(fault);
    loom::model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || other.access(2, 1, 1, true));
        world.access(1, 0, 0, true);
        thread.join().expect("it waits for no other request");
        for controller in [3, 4] {
            let claim = Claim { key: controller, medium: 0, start: 0, end: 2 * ZONE, changes: true };
            let letter = Arc::new(Letter { came: Mutex::new(None), bell: Condvar::new() });
            let entry = world.order.enter(claim, controller, &letter);
            assert_eq!(entry, Entry::Begun, "a range was not released");
            world.order.end(&claim);
        }
    });
}

#[test]
fn requests_leave_nothing_behind() {
    check_the_end(None);
}

#[test]
#[should_panic(expected = "a range was not released")]
fn a_range_that_is_not_released_is_found() {
    check_the_end(Some(Plant::Left));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_request_that_begins_early_is_found() {
    check(Some(Plant::Early));
}
