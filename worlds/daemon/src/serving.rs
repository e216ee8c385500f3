//! A driver that does jobs, reloads and answers between its turns.

use std::io;
use std::os::fd::OwnedFd;

use engine::Instant;
use live::drivers::control::{Control, Reply as Line, Request as Asked};
use live::reactor::{Context, Driver, Glance, HangUp, JobSender, Jobs, Sources, Stop, Turn};
use live::sys::clock::Clock;
use live::sys::hand_over::Channel;
use live::sys::service;
use serde_json::Value;

use crate::answer_thread::AnswerThread;
use crate::control::{Common, Request, line};
use crate::metrics;
use crate::{Captures, Daemon, Reply, succession};

/// A daemon and its driver while they serve.
pub(crate) struct Serving<D: Daemon> {
    pub(crate) inner: Inner<D>,
    pub(crate) control: Option<Control>,
}

/// The state that answers requests, apart from the socket by which they come.
pub(crate) struct Inner<D: Daemon> {
    pub(crate) daemon: D,
    pub(crate) driver: D::Driver,
    /// The way to give jobs to this loop.
    pub(crate) sender: JobSender<D::Driver>,
    pub(crate) jobs: Jobs<D::Driver>,
    /// Requests of the thread of the metrics.
    pub(crate) asked: metrics::Asked<D::Status>,
    pub(crate) captures: D::Captures,
    pub(crate) answer_thread: AnswerThread,
    pub(crate) hang_up: HangUp,
    pub(crate) stop: Stop,
    pub(crate) clock: Clock,
    /// The successor that has taken over, if one has.
    pub(crate) successor: Option<Channel>,
}

impl<D: Daemon> Inner<D> {
    /// Reports a summary of the offer to the service manager.
    pub(crate) fn report_ready(&self) {
        service::ready(&self.daemon.summary(&self.driver));
    }

    fn reload(&mut self) -> Result<Value, String> {
        service::reloading();
        let result = self.daemon.reload(&mut self.driver);
        self.report_ready();
        result
    }

    /// Reloads if SIGHUP has come. Returns whether it has.
    fn heed_hang_up(&mut self) -> bool {
        let has_come = self.hang_up.take();
        if has_come && !self.daemon.has_configuration() {
            info!("SIGHUP: this process has no configuration file to read again");
        } else if has_come && let Err(error) = self.reload() {
            warn!("nothing has changed: {error}");
        }
        has_come
    }

    /// Answers one request.
    fn answer(&mut self, mut asked: Asked<'_>, now: Instant) -> Line {
        if let Some(successor) = succession::Asked::read(asked.line) {
            return self.answer_successor(&successor, asked.descriptors);
        }
        if let Some(result) = self.captures.answer(&mut asked, &mut self.driver) {
            return line(result).into();
        }
        let request: D::Request = match serde_json::from_str(asked.line) {
            Ok(request) => request,
            Err(error) => return line::<()>(Err(format!("invalid request: {error}"))).into(),
        };
        match request.common() {
            Some(Common::Status) => self.report_status(now),
            Some(Common::Reload) => line(self.reload()).into(),
            None => line(self.daemon.answer(&mut self.driver, request, &self.stop)).into(),
        }
    }

    fn answer_successor(&mut self, asked: &succession::Asked, descriptors: Vec<OwnedFd>) -> Line {
        match asked {
            succession::Asked::Succeed { kind, form } => {
                line(succession::terms(D::KIND, kind, *form, self.clock)).into()
            }
            succession::Asked::Leave {} => line(self.leave(descriptors)).into(),
        }
    }

    /// Leaves the offer to a successor, and ends the loop when it has taken over.
    fn leave(&mut self, descriptors: Vec<OwnedFd>) -> Result<Value, String> {
        if self.successor.is_some() {
            return Err("another process has taken over".to_owned());
        }
        let hand_over = self.daemon.leave(&mut self.driver)?;
        match succession::leave(descriptors, &hand_over) {
            Ok(successor) => {
                successor.maker().into_iter().for_each(service::succeeded_by);
                self.successor = Some(successor);
                self.stop.ask();
                Ok(Value::Null)
            }
            Err(why) => {
                warn!("no process has taken over: {why}");
                self.daemon.go_on(&mut self.driver).map_err(|why| {
                    error!("the offer can't go on: {why}");
                    self.stop.ask();
                    why
                })?;
                Err(why)
            }
        }
    }

    fn report_status(&mut self, now: Instant) -> Line {
        let make = match self.daemon.status(&mut self.driver, now, &self.sender) {
            Reply::Now(status) => return line(Ok(status)).into(),
            Reply::Refused(why) => return line::<()>(Err(why)).into(),
            Reply::Later(make) => make,
        };
        let job = Box::new(move || make().map(|status| line(Ok(status))));
        let later = self.answer_thread.answer(job, &self.stop);
        later.unwrap_or_else(|error| {
            line::<()>(Err(format!("no thread is available to answer: {error}"))).into()
        })
    }
}

impl<D: Daemon> Driver for Serving<D> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.control.as_ref().map_or(Ok(()), |control| control.start(sources))?;
        self.inner.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let Self { inner, control } = self;
        let turn = inner.driver.turn(context)?;
        if turn == Turn::Done || !context.news {
            return Ok(turn);
        }
        let mut busy = inner.heed_hang_up();
        // One job a turn: each is short, and many of them must not keep the driver waiting.
        busy |= inner.jobs.turn(&mut inner.driver);
        let Inner { daemon, driver, sender, asked, .. } = inner;
        busy |= asked.turn(|| daemon.status(driver, context.now, sender));
        if let Some(control) = control {
            busy |= control.turn(context.sources(), |asked| inner.answer(asked, context.now))?;
        }
        Ok(if busy && turn == Turn::Idle { Turn::Busy } else { turn })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.inner.driver.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.driver.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.inner.driver.on_stop(now);
    }
}
