//! Readers and writers of memory that lanes share.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::guard::{Entry, Registry, Version, protect};
use crate::sync::{Plant, plant};

/// How many pages there are. A run has two of them.
const PAGES: usize = 6;

struct World {
    version: Version,
    entries: [Entry; 2],
    contents: [UnsafeCell<u32>; PAGES],
    registry: Registry,
}

/// The name of a page.
const fn name(page: usize) -> usize {
    (page + 1) * 4096
}

const fn page(name: usize) -> usize {
    name / 4096 - 1
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            version: Version::new(),
            entries: [0, 1].map(|page| Entry::new(name(page))),
            contents: std::array::from_fn(|_| UnsafeCell::new(0)),
            registry: Registry::new(),
        })
    }

    /// Writes both pages. `free` has pages that no thread uses.
    fn write(&self, value: u32, free: &mut Vec<usize>) {
        if free.len() < 2 {
            return;
        }
        self.version.lock();
        let new = [free.remove(0), free.remove(0)];
        for page in new {
            // SAFETY: loom finds another access at the same time.
            self.contents[page].with_mut(|contents| unsafe { *contents = value });
        }
        let old = [0, 1].map(|index: usize| page(self.entries[index].load()));
        self.version.begin_change();
        for (entry, new) in self.entries.iter().zip(new) {
            entry.store(name(new));
        }
        self.version.release();
        let mut held = Vec::new();
        self.registry.held(&mut held);
        free.extend(old.into_iter().filter(|page| held.binary_search(&name(*page)).is_err()));
    }

    /// Reads both pages, unless a writer changes them. Both are of one write.
    fn read(&self) {
        let slots = self.registry.register();
        let Some(version) = self.version.begin_read() else { return };
        let names = [0, 1].map(|index: usize| {
            let name = self.entries[index].load();
            slots.set(index, name);
            name
        });
        protect();
        if self.version.is_still(version) {
            // SAFETY: loom finds a write at the same time.
            let [one, other] = names.map(|name| self.contents[page(name)].with(|page| unsafe { *page }));
            assert_eq!(one, other, "a read has seen half of a write");
        }
        (0..2).for_each(|slot| slots.clear(slot));
    }

    /// Reads one page.
    fn read_one(&self) {
        let slots = self.registry.register();
        let name = self.entries[1].load();
        slots.set(0, name);
        protect();
        if self.entries[1].is_still(name) {
            // SAFETY: loom finds a write at the same time.
            self.contents[page(name)].with(|page| unsafe { *page });
        }
        slots.clear(0);
    }
}

/// A reader of one page, and a writer.
fn check_one(fault: Option<Plant>) {
    plant(fault);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = World::new();
        let reader = Arc::clone(&world);
        let reader = thread::spawn(move || reader.read_one());
        let mut free = vec![2, 3];
        (1..=3).for_each(|value| world.write(value, &mut free));
        reader.join().expect("the reader ends");
    });
}

#[test]
fn a_single_page_is_not_freed_while_it_is_read() {
    check_one(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_page_whose_entry_is_not_checked_is_found() {
    check_one(Some(Plant::NoCheck));
}

/// A reader and a writer, which writes as often as `writes` says.
fn check(fault: Option<Plant>, writes: u32) {
    plant(fault);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = World::new();
        let reader = Arc::clone(&world);
        let reader = thread::spawn(move || reader.read());
        let mut free = vec![2, 3];
        (1..=writes).for_each(|value| world.write(value, &mut free));
        reader.join().expect("the reader ends");
    });
}

#[test]
fn a_read_is_a_snapshot_of_pages_that_no_thread_frees() {
    check(None, 1);
    check(None, 2);
}

#[test]
fn two_writers_at_once_are_safe() {
    plant(None);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let other = thread::spawn(move || other.write(1, &mut vec![4, 5]));
        let mut free = vec![2, 3];
        world.write(2, &mut free);
        world.read();
        other.join().expect("the writer ends");
        world.read();
    });
}

#[test]
fn two_readers_at_once_are_safe() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.check(|| {
        let world = World::new();
        let readers = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.read())
        });
        let mut free = vec![2, 3];
        (1..=2).for_each(|value| world.write(value, &mut free));
        readers.into_iter().for_each(|reader| reader.join().expect("the reader ends"));
    });
}

#[test]
#[should_panic(expected = "half of a write")]
fn a_version_that_is_not_checked_is_found() {
    check(Some(Plant::NoCheck), 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn pages_that_are_used_before_the_check_are_found() {
    check(Some(Plant::NoFence), 2);
}

#[test]
#[should_panic(expected = "half of a write")]
fn a_writer_that_announces_nothing_is_found() {
    check(Some(Plant::Silent), 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn pages_that_are_freed_under_readers_are_found() {
    check(Some(Plant::NoScan), 2);
}
