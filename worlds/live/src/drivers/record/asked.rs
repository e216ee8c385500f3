//! A control socket beside a recording, on a thread of its own.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use engine::{Instant, Nanos};

use crate::drivers::control::Control;
use crate::reactor::{Context, Driver, Reactor, Stop, Turn};
use crate::sys::clock::Clock;
use crate::sys::unix::BindError;

/// Answers whoever asks at a control socket, until it is dropped.
#[derive(Debug)]
pub struct Asked {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

struct Answerer<A> {
    control: Control,
    answer: A,
    is_over: bool,
}

impl<A: FnMut(&str) -> String> Driver for Answerer<A> {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if self.is_over {
            return Ok(Turn::Done);
        }
        let is_busy = self.control.turn(context.sources(), &mut self.answer)?;
        Ok(if is_busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

fn open(path: &Path) -> Result<(Control, Reactor), BindError> {
    Ok((Control::bind(path)?, Reactor::new(Clock::start(), Nanos::ZERO)?))
}

impl Asked {
    /// Listens at `path`, and answers each line that somebody sends there with what `answer` makes
    /// of it.
    ///
    /// # Errors
    /// When the path is taken or can't be created, or the system has no thread or descriptor left.
    pub fn start(
        path: &Path,
        answer: impl FnMut(&str) -> String + Send + 'static,
    ) -> Result<Self, BindError> {
        let (started, has_started) = channel();
        let path = path.to_owned();
        // What the socket's buffers are made of stays on one thread.
        let run = move || match open(&path) {
            Ok((control, mut reactor)) => {
                let mut answerer = Answerer { control, answer, is_over: false };
                let _ = started.send(Ok(reactor.stop()));
                // Without a socket that can be waited for, nobody is answered; the recording goes on.
                drop(reactor.run(&mut answerer));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(run)?;
        let stop = has_started.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
