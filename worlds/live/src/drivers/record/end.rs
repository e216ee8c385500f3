//! Asking recordings, replays and measurements to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::reactor::{Bell, SecondSignal, is_ignored};

/// Asks all sessions of its [`Handle`](super::Handle)s to end, from any thread, and wakes their
/// loops. A clone asks the same ones.
#[derive(Clone, Debug)]
pub struct End {
    asked: Arc<AtomicBool>,
    pub(super) bell: Bell,
}

impl End {
    /// An end that is not asked for.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { asked: Arc::default(), bell: Bell::new()? })
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the end was asked for.
    pub fn is_asked_for(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Lets `signal` ask for the end.
    fn on_signal(&self, signal: libc::c_int) -> io::Result<()> {
        let end = self.clone();
        on_signal(signal, move || end.ask())
    }
}

/// Calls `action` when `signal` comes. A signal handler may do what `action` does: set flags and
/// ring a [`Bell`].
pub(super) fn on_signal(signal: libc::c_int, action: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    // SAFETY: all callers are in this module's parent. Their actions set atomic flags and write to
    // a descriptor by one system call: no lock, no memory, no panic.
    unsafe { signal_hook::low_level::register(signal, action) }.map(drop)
}

/// Lets SIGINT and SIGTERM ask for the end that is returned. So does SIGHUP (the terminal is gone)
/// where a second signal does nothing, unless this process was started with SIGHUP ignored (nohup).
/// A file that would become too large is an error of its write from now on, not the end of the
/// process with all that it holds.
///
/// # Errors
/// When the system refuses the handlers.
pub fn stop_on_signals(second: SecondSignal) -> io::Result<End> {
    let end = End::new()?;
    for signal in [SIGINT, SIGTERM] {
        if second == SecondSignal::Exit {
            // It looks at the flag before the next handler sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&end.asked))?;
        }
        end.on_signal(signal)?;
    }
    // A program that ignores further signals must not keep a process whose terminal is gone.
    if second == SecondSignal::Nothing && !is_ignored(SIGHUP)? {
        end.on_signal(SIGHUP)?;
    }
    heed_file_limit()?;
    Ok(end)
}

/// Makes a file that would become too large an error of its write from now on, not the end of the
/// process with all that it holds.
///
/// # Errors
/// When the system refuses the handler.
pub fn heed_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}
