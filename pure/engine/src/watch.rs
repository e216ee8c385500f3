//! The only way to observe an engine: captures, recorders and latency analysers.
//!
//! An engine that can be watched holds a [`Watch`] and shows it each event. A program may add any
//! number of [`Watcher`]s. The engine knows no watcher, and a watcher changes nothing in the
//! engine.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use crate::Instant;

/// A kind of place at which engines can be watched, named by a type that has no values.
pub trait Watched: 'static {
    /// An event at such a place. A watcher that needs it later copies the parts that it needs.
    type Seen<'a>: Copy;
}

/// An observer of places of kind `W`.
///
/// A watcher that is shared (`Rc<RefCell<_>>`) is a watcher too: one handle goes into the engine,
/// and the other handle reads the results.
pub trait Watcher<W: Watched> {
    /// Called with each event, in the order of events. `now` is the engine's time.
    fn on_seen(&mut self, now: Instant, seen: W::Seen<'_>);

    /// Whether the watcher needs no more events. The [`Watch`] then drops it.
    fn is_done(&self) -> bool {
        false
    }
}

impl<W: Watched, T: Watcher<W>> Watcher<W> for Rc<RefCell<T>> {
    fn on_seen(&mut self, now: Instant, seen: W::Seen<'_>) {
        self.borrow_mut().on_seen(now, seen);
    }
    fn is_done(&self) -> bool {
        self.borrow().is_done()
    }
}

/// The watchers of one place. Without watchers, showing an event costs one branch.
pub struct Watch<W: Watched> {
    watchers: Vec<Box<dyn Watcher<W>>>,
}

impl<W: Watched> Watch<W> {
    /// A place without watchers.
    pub const fn new() -> Self {
        Self { watchers: Vec::new() }
    }
    /// Shows `watcher` every event from now on.
    pub fn add(&mut self, watcher: impl Watcher<W> + 'static) {
        self.watchers.push(Box::new(watcher));
    }
    /// Drops all watchers.
    pub fn clear(&mut self) {
        self.watchers.clear();
    }
    /// Whether there is at least one watcher.
    #[inline]
    pub const fn is_on(&self) -> bool {
        !self.watchers.is_empty()
    }
    /// Shows an event at `now` to all watchers, in the order in which they were added. Calls `seen`
    /// only if there is a watcher.
    #[inline]
    pub fn show<'a>(&mut self, now: Instant, seen: impl FnOnce() -> W::Seen<'a>) {
        if self.is_on() {
            self.notify(now, seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify<'a>(&mut self, now: Instant, seen: impl FnOnce() -> W::Seen<'a>) {
        let seen = seen();
        self.watchers.retain_mut(|watcher| {
            watcher.on_seen(now, seen);
            !watcher.is_done()
        });
    }
}

impl<W: Watched> Default for Watch<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Watched> fmt::Debug for Watch<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("watchers", &self.watchers.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Words {}

    impl Watched for Words {
        type Seen<'a> = &'a str;
    }

    #[derive(Default)]
    struct Log(Vec<(u64, usize)>);

    impl Watcher<Words> for Log {
        fn on_seen(&mut self, now: Instant, seen: &str) {
            self.0.push((now.as_nanos(), seen.len()));
        }
    }

    #[test]
    fn every_watcher_sees_everything_from_when_it_was_added_until_it_is_dropped() {
        let logs = [(); 2].map(|()| Rc::new(RefCell::new(Log::default())));
        let mut watch = Watch::<Words>::new();
        for (at, log) in (1..).zip(&logs) {
            watch.add(log.clone());
            watch.show(Instant::from_nanos(at), || "seen");
        }
        watch.clear();
        watch.show(Instant::from_nanos(3), || panic!("there is no watcher"));
        assert_eq!(logs[0].borrow().0, [(1, 4), (2, 4)]);
        assert_eq!(logs[1].borrow().0, [(2, 4)]);
    }

    /// Sees two things.
    struct Twice(Rc<RefCell<u32>>);

    impl Watcher<Words> for Twice {
        fn on_seen(&mut self, _: Instant, _: &str) {
            *self.0.borrow_mut() += 1;
        }
        fn is_done(&self) -> bool {
            *self.0.borrow() >= 2
        }
    }

    #[test]
    fn a_watcher_that_has_seen_enough_is_dropped_and_the_others_stay() {
        let (seen, log) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(Log::default())));
        let mut watch = Watch::<Words>::new();
        watch.add(Twice(seen.clone()));
        watch.show(Instant::ZERO, || "one");
        watch.add(log.clone());
        for _ in 0..3 {
            watch.show(Instant::ZERO, || "more");
        }
        assert_eq!((*seen.borrow(), Rc::strong_count(&seen)), (2, 1));
        assert_eq!(log.borrow().0.len(), 3);
        assert!(watch.is_on());
    }
}
