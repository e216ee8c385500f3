//! A driver on a thread of its own, next to the main loop of the process.

use std::io;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use engine::Nanos;

use crate::reactor::{Driver, Reactor, Stop};
use crate::sys::clock::Clock;
use crate::sys::unix::BindError;

/// Runs a driver until it is dropped.
#[derive(Debug)]
pub struct DriverThread {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl DriverThread {
    /// Starts a thread of the name `name`, and runs there the driver that `make` makes. The driver
    /// is made on its thread, since buffers stay on theirs.
    ///
    /// # Errors
    /// The error of `make`, or when the system has no thread or descriptor left.
    pub fn start<D: Driver>(
        name: &str,
        make: impl FnOnce(Clock) -> Result<D, BindError> + Send + 'static,
    ) -> Result<Self, BindError> {
        let (started, has_started) = channel();
        let open = move || {
            let clock = Clock::start();
            let reactor = Reactor::new(clock, Nanos::ZERO)?;
            Ok::<_, BindError>((make(clock)?, reactor))
        };
        let run = move || match open() {
            Ok((mut driver, mut reactor)) => {
                let _ = started.send(Ok(reactor.stop()));
                // When the kernel fails, the driver ends; the rest of the process goes on.
                drop(reactor.run(&mut driver));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        let stop = has_started.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
