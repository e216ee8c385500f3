//! A driver that answers questions over a control socket while it runs.

use std::fmt;
use std::io;

use engine::Instant;

use crate::drivers::control::{Control, Request};
use crate::reactor::{Context, Driver, Glance, Sources, Turn};

/// A driver together with a [`Control`], through which `answer` tells about the driver.
pub struct Answering<D, A> {
    driver: D,
    control: Option<Control>,
    answer: A,
}

impl<D, A> Answering<D, A> {
    /// Wraps `driver`, which can be asked if there is a `control`.
    pub const fn new(driver: D, control: Option<Control>, answer: A) -> Self {
        Self { driver, control, answer }
    }
    /// The driver that is asked.
    pub const fn driver(&self) -> &D {
        &self.driver
    }
}

impl<D: Driver, A: FnMut(&mut D, Request<'_>) -> String> Driver for Answering<D, A> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.control.as_ref().map_or(Ok(()), |control| control.start(sources))?;
        self.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let Self { driver, control, answer } = self;
        let mut answered = false;
        if let Some(control) = control.as_mut().filter(|_| context.news) {
            answered = control.turn(context.sources(), |request| answer(driver, request))?;
        }
        Ok(match driver.turn(context)? {
            Turn::Idle if answered => Turn::Busy,
            turn => turn,
        })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.driver.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.driver.on_stop(now);
    }
}

impl<D: fmt::Debug, A> fmt::Debug for Answering<D, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering")
            .field("driver", &self.driver)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
