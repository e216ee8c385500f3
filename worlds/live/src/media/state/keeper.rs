//! The medium in which a controller has its state kept.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use nvme::subsystem::{Counters, NamespaceConfig, Notification};
use nvme::wire::NamespaceId;

use super::ssd::{SECTION, SsdState};
use super::store::{Generation, Notice, Store, Watch};

/// How old the saved counters of the health log may become while the SSD is used.
const COUNTERS_AGE: Nanos = Nanos::from_secs(30);

/// A medium that keeps the state of an SSD in a [`Store`], and saves each change that the
/// controller reports. A flush ends when every earlier change is durable.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    watch: Watch,
    state: SsdState,
    /// The state has changes that were not put into the store.
    dirty: bool,
    latest: Generation,
    /// Flushes that have not ended, each with the generation that it waits for.
    waiting: VecDeque<(IoId, Generation)>,
    /// Other media were asked for something since the counters were last saved.
    used: bool,
    counters_due: Instant,
    /// An attempt to save has ended since the owner last asked.
    news: bool,
    /// The process is to end in good order.
    ending: bool,
}

impl Keeper {
    /// Keeps `state` in `store`, from now on.
    ///
    /// # Errors
    /// When the process has no descriptor left for a watch.
    pub fn new(store: Store, state: SsdState) -> io::Result<Self> {
        let watch = store.watch()?;
        let (latest, waiting) = (Generation::default(), VecDeque::new());
        let counters_due = Instant::ZERO;
        let (used, news, ending) = (false, false, false);
        Ok(Self { store, watch, state, dirty: true, latest, waiting, used, counters_due, news, ending })
    }

    /// The descriptor that becomes readable when `reap` has something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.watch.poll_fd()
    }

    /// The number of flushes that have not ended.
    pub fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    /// Takes note of a change that the controller has made.
    pub fn note(&mut self, notification: &Notification) {
        self.dirty |= self.state.apply(notification);
        if matches!(notification, Notification::ReadyForPowerLoss(_)) {
            self.used = false;
        }
    }

    /// Takes note of a namespace of this origin that the world has added, and saves it.
    pub fn add_namespace(&mut self, namespace: &NamespaceConfig, origin: &str) {
        self.state.add_namespace(namespace, origin);
        self.dirty = true;
        self.put();
    }

    /// Takes note of a namespace that the world has removed, and saves that.
    pub fn remove_namespace(&mut self, id: NamespaceId) {
        self.state.remove_namespace(id);
        self.dirty = true;
        self.put();
    }

    /// Takes note that a medium is asked for something. From now on, the end of the process is not
    /// that of an SSD at rest.
    #[inline]
    pub fn on_use(&mut self) {
        if !self.used {
            self.used = true;
            self.dirty |= self.state.set_in_use();
        }
    }

    /// The time at which the counters of the health log are to be saved; `None` while the SSD is
    /// idle.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.used.then_some(self.counters_due)
    }

    /// Whether it is time to save the counters of the health log.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.used && now >= self.counters_due
    }

    /// Saves the counters of the health log, if it is time to. Later use is counted in a later
    /// save.
    #[inline]
    pub fn keep(&mut self, now: Instant, counters: impl FnOnce() -> Counters) {
        if self.is_due(now) {
            self.counters_due = now + COUNTERS_AGE;
            self.keep_now(&counters());
            // An idle SSD wakes no thread. The next use sets this again.
            self.used = false;
        }
    }

    /// Saves the counters of the health log.
    #[cold]
    fn keep_now(&mut self, counters: &Counters) {
        self.dirty |= self.state.set_counters(counters);
        self.put();
    }

    /// Saves `counters` and announces that the process is to end in good order.
    pub fn on_stop(&mut self, counters: &Counters) {
        self.keep_now(counters);
        self.ending = true;
    }

    /// Whether the process is to end in good order.
    pub const fn is_ending(&self) -> bool {
        self.ending
    }

    /// Records that this end is that of an SSD at rest: nothing is under way any more, and
    /// everything written is durable.
    pub fn on_rest(&mut self) {
        self.dirty |= self.state.set_shut_down();
    }

    /// Takes a request. A flush is the only operation that can succeed; others end at once as out
    /// of range.
    pub fn submit(&mut self, request: &Request, out: &mut impl FnMut(Completion)) {
        let id = request.id;
        if !matches!(request.operation, Operation::Flush) {
            return out(Completion::Done { id, result: Err(MediaError::OutOfRange) });
        }
        // A state that could not be saved is tried again at once.
        self.dirty |= matches!(self.watch.outcome(self.latest), Some(Err(_)));
        self.put();
        self.waiting.push_back((id, self.latest));
    }

    /// Hands over the flushes that have ended; returns how many.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        if self.dirty {
            self.put();
        }
        let news = self.watch.has_news();
        self.news |= news;
        if !news && self.waiting.is_empty() {
            return 0;
        }
        let mut ended = 0;
        while let Some(&(id, generation)) = self.waiting.front()
            && let Some(outcome) = self.watch.outcome(generation)
        {
            self.waiting.pop_front();
            let result = outcome.map_err(|kind| match kind {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    MediaError::NoSpace
                }
                _ => MediaError::Write,
            });
            out(Completion::Done { id, result });
            ended += 1;
        }
        ended
    }

    /// The next notice for the owner, if any. Each notice is returned once.
    pub fn notice(&mut self) -> Option<Notice> {
        std::mem::take(&mut self.news).then(|| self.watch.notice())?
    }

    fn put(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.latest = self.store.put(SECTION, &self.state);
        }
    }
}

impl Drop for Keeper {
    /// Saves the latest changes too: dropping the last clone of the store waits for that.
    fn drop(&mut self) {
        self.put();
    }
}
