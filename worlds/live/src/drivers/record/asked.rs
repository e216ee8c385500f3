//! A control socket beside a recording.

use std::io;
use std::path::Path;

use engine::Instant;

use crate::drivers::beside::Beside;
use crate::drivers::control::Control;
use crate::reactor::{Context, Driver, Sources, Turn};
use crate::sys::unix::BindError;

struct Answerer<A> {
    control: Control,
    answer: A,
    is_over: bool,
}

impl<A: FnMut(&str) -> String> Driver for Answerer<A> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.control.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if self.is_over {
            return Ok(Turn::Done);
        }
        let Self { control, answer, .. } = self;
        let is_busy = control.turn(context.sources(), |request| answer(request.line))?;
        Ok(if is_busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

/// Listens at `path`, and answers each line that somebody sends there with what `answer` makes of
/// it, until the result is dropped.
///
/// # Errors
/// When the path is taken or can't be created, or the system has no thread or descriptor left.
pub fn answer_at(
    path: &Path,
    answer: impl FnMut(&str) -> String + Send + 'static,
) -> Result<Beside, BindError> {
    let path = path.to_owned();
    Beside::start("control", move |_| Ok(Answerer { control: Control::bind(&path)?, answer, is_over: false }))
}
