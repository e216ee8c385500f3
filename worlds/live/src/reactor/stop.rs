//! Ending a loop from outside: another thread, or a signal.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Asks a loop to end, from any thread.
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    waker: Arc<mio::Waker>,
}

impl Stop {
    pub(super) fn new(waker: Arc<mio::Waker>) -> Self {
        Self { asked: Arc::default(), waker }
    }

    /// Asks the loop to end in good order.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends the loop's sleep: its driver has something to do that no descriptor tells of.
    pub fn wake(&self) {
        // It fails only when the loop is gone, and nothing needs waking then.
        let _ = self.waker.wake();
    }

    /// Whether the loop is to end.
    pub fn is_asked_for(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Lets SIGINT (ctrl-c) and SIGTERM ask for the end. The second of them ends the process at once, by the
    /// status that a shell expects.
    ///
    /// # Errors
    /// When the system refuses the handlers or their thread.
    pub fn on_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let stop = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in &mut signals {
                if stop.is_asked_for() {
                    std::process::exit(128 + signal);
                }
                stop.ask();
            }
        })?;
        Ok(())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({})", self.is_asked_for())
    }
}
