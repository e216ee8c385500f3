//! Ending a loop from outside: from another thread, or by a signal.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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

    /// Ends the loop's sleep, when its driver has work that no descriptor reports.
    pub fn wake(&self) {
        // Waking fails only when the loop is gone, and then nothing needs waking.
        let _ = self.waker.wake();
    }

    /// Whether the loop was asked to end.
    pub fn is_asked_for(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Lets SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone) ask the loop to end. SIGHUP
    /// stays ignored if this process was started with SIGHUP ignored (nohup). The second SIGINT or
    /// SIGTERM ends the process at once, with the status that a shell expects.
    ///
    /// # Errors
    /// When the system refuses the handlers or their thread.
    pub fn on_signals(&self) -> io::Result<()> {
        self.watch(!is_ignored(SIGHUP)?, SecondSignal::Exit, |stop| stop.ask())
    }

    /// Lets SIGINT and SIGTERM ask the loop to end, like [`Stop::on_signals`]. SIGHUP only wakes
    /// the loop, and the [`HangUp`] reports it, also if this process was started with SIGHUP
    /// ignored: it ends nothing.
    ///
    /// # Errors
    /// When the system refuses the handlers or their thread.
    pub fn on_signals_but_hang_up(&self) -> io::Result<HangUp> {
        let hang_up = HangUp::default();
        let asked = Arc::clone(&hang_up.0);
        self.watch(true, SecondSignal::Exit, move |stop| {
            asked.store(true, Ordering::Release);
            stop.wake();
        })?;
        Ok(hang_up)
    }

    /// Lets SIGINT and SIGTERM ask the loop to end, and a second one act as `second` says. SIGHUP
    /// asks the loop to end if `terminal` is gone. Otherwise SIGHUP wakes the loop, and the
    /// [`HangUp`] reports it. SIGHUP stays ignored if this process was started with SIGHUP ignored
    /// (nohup).
    ///
    /// # Errors
    /// When the system refuses the handlers or their thread.
    pub fn on_signals_of(&self, terminal: Terminal, second: SecondSignal) -> io::Result<HangUp> {
        let hang_up = HangUp::default();
        let asked = Arc::clone(&hang_up.0);
        self.watch(!is_ignored(SIGHUP)?, second, move |stop| {
            if terminal.is_gone() {
                return stop.ask();
            }
            asked.store(true, Ordering::Release);
            stop.wake();
        })?;
        Ok(hang_up)
    }

    fn watch(
        &self,
        hangs_up: bool,
        second: SecondSignal,
        on_hang_up: impl Fn(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let mut wanted = vec![SIGINT, SIGTERM];
        if hangs_up {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted)?;
        let stop = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut is_first = true;
            for signal in &mut signals {
                match signal {
                    SIGHUP => on_hang_up(&stop),
                    _ => {
                        // A loop that ends by itself is asked, too, while another one may go on.
                        if !std::mem::take(&mut is_first) && second == SecondSignal::Exit {
                            std::process::exit(128 + signal);
                        }
                        stop.ask();
                    }
                }
            }
        })?;
        Ok(())
    }
}

/// The effect of a second SIGINT or SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondSignal {
    /// Nothing: received data are written, however long that takes.
    Nothing,
    /// It ends the process at once, with the status that a shell expects.
    Exit,
}

/// Reports whether SIGHUP has come.
#[derive(Clone, Debug, Default)]
pub struct HangUp(Arc<AtomicBool>);

impl HangUp {
    /// Whether SIGHUP has come since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// The terminal that controls this process, if one does.
#[derive(Debug)]
pub struct Terminal(Option<File>);

impl Terminal {
    /// Finds the terminal. A process that is confined by then may find none.
    pub fn open() -> Self {
        Self(File::open("/dev/tty").ok())
    }

    /// Whether there was a terminal that controls this process no longer.
    fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|terminal| rustix::termios::tcgetpgrp(terminal).is_err())
    }
}

/// Whether the process was started with `signal` ignored.
pub(crate) fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: a `sigaction` of zeroes is a valid value, which the system overwrites.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action, the call only writes the present action to `action`, which
    // outlives the call.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } {
        0 => Ok(action.sa_sigaction == libc::SIG_IGN),
        _ => Err(io::Error::last_os_error()),
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({})", self.is_asked_for())
    }
}
