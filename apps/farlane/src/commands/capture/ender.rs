//! The ends of a capture: Ctrl-C, a time that is over, or a match of the search.
//!
//! The command asks the daemon to end the capture, so that it has its last packets and the count of
//! lost ones.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::Nanos;
use live::reactor::{Reactor, Stop};
use live::sys::clock::Clock;

use super::daemon::Request;
use crate::commands::control;
use crate::error::Error;

/// How often it is looked whether the capture should end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Shared {
    socket: PathBuf,
    id: u32,
    stop: Stop,
    /// When the capture is to end, if ever.
    at: Mutex<Option<Instant>>,
    /// The daemon was asked.
    is_asked: AtomicBool,
    /// The capture has ended.
    is_over: AtomicBool,
}

impl Shared {
    fn ask(&self) {
        if !self.is_asked.swap(true, Ordering::AcqRel) {
            let id = Some(self.id);
            // A daemon that is gone sends no more.
            let _ = control::ask(&self.socket, &Request::StopCapture { id });
        }
    }

    fn is_due(&self) -> bool {
        let at = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.is_asked_for() || at.is_some_and(|at| Instant::now() >= at)
    }
}

/// Ends a capture in good order.
pub(super) struct Ender {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Ender {
    /// Ends the capture `id` of the daemon at `socket` on a signal, or when `time` is over.
    pub(super) fn start(socket: &Path, id: u32, time: Option<Duration>) -> Result<Self, Error> {
        // Only its way to stop is used, which knows signals.
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).map_err(Error::System)?;
        let stop = reactor.stop();
        stop.on_signals().map_err(Error::System)?;
        let shared = Arc::new(Shared {
            socket: socket.to_owned(),
            id,
            stop,
            at: Mutex::new(time.map(|time| Instant::now() + time)),
            is_asked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let look = move || {
            while !own.is_over.load(Ordering::Acquire) {
                if own.is_due() {
                    own.ask();
                }
                std::thread::sleep(LOOK_EVERY);
            }
            drop(reactor);
        };
        let thread = std::thread::Builder::new().name("ender".into()).spawn(look).map_err(Error::System)?;
        Ok(Self { shared, thread })
    }

    /// Asks the daemon to end the capture now.
    pub(super) fn ask(&self) {
        self.shared.ask();
    }

    /// Asks the daemon to end the capture after `time`, or earlier if that was due earlier.
    pub(super) fn ask_after(&self, time: Duration) {
        let mut at = self.shared.at.lock().unwrap_or_else(PoisonError::into_inner);
        let then = Instant::now() + time;
        *at = Some(at.map_or(then, |at| at.min(then)));
    }

    /// The capture has ended.
    pub(super) fn end(self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}
