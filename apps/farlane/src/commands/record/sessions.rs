//! A recorder or replayer as a daemon: a thread makes a recording or replay, at once or on request,
//! and the loop answers meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use ::status::Report;
use daemon::{Daemon, NoCaptures, Opening, Reply, Settings};
use engine::Instant;
use live::drivers::driver_thread::DriverThread;
use live::drivers::record::{End, Handle, offer_registers};
use live::reactor::{Context, Driver, JobSender, Sources, Stop, Turn};
use live::sys::sandbox::Needs;
use record::registers::Direction;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::ctl::{self, Request};
use crate::args::RecorderControl;
use crate::commands::guest::report;
use crate::commands::report_json;
use crate::error::Error;

/// The differences between recorder and replayer.
pub(super) struct Sessions<'a, 'scope, 'env, S, const IS_REPLAY: bool> {
    pub(super) settings: Settings,
    pub(super) needs: Needs,
    pub(super) control: &'a RecorderControl,
    /// Whether events are reported as JSON.
    pub(super) json: bool,
    pub(super) handle: Handle,
    /// Ends the process, once it is asked for.
    pub(super) end: End,
    /// Makes one recording or replay.
    pub(super) session: Option<S>,
    pub(super) scope: &'scope Scope<'scope, 'env>,
    /// Answers a guest's accesses to the registers.
    pub(super) registers: Option<DriverThread>,
}

/// The handle of a recorder or replayer, and the end of its process.
pub(super) fn handle(direction: Direction) -> Result<(Handle, End), Error> {
    let end = End::new().map_err(Error::System)?;
    Ok((Handle::new(direction, end.clone()), end))
}

/// Waits in the loop for the thread that makes recordings or replays.
pub(super) struct Waiting<'scope, 'env, S> {
    work: Option<Work<S>>,
    scope: &'scope Scope<'scope, 'env>,
    thread: Option<ScopedJoinHandle<'scope, Result<(), Error>>>,
    end: End,
    is_over: Arc<AtomicBool>,
    stop: Stop,
}

/// The work of the thread.
struct Work<S> {
    session: S,
    handle: Handle,
    is_on_demand: bool,
    json: bool,
}

impl<S: Fn() -> Result<(), Error>> Work<S> {
    /// Makes one recording or replay, or one whenever it is asked for until the process is to end.
    /// One on demand that fails is reported, and the next one may be asked for.
    fn run(&self) -> Result<(), Error> {
        if !self.is_on_demand {
            return (self.session)();
        }
        while self.handle.wait_for_start().map_err(Error::System)? {
            if let Err(error) = (self.session)() {
                self.handle.fail();
                warn!("this one failed: {error}");
                if self.json {
                    report_json(&Failed { event: "error", error: error.to_string() })?;
                }
            }
        }
        Ok(())
    }
}

/// The event that reports why a recording or replay on demand failed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failed {
    /// `error`.
    event: &'static str,
    error: String,
}

/// Reports the thread's end to the loop, also when the thread panics.
struct Ending {
    is_over: Arc<AtomicBool>,
    stop: Stop,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.stop.wake();
    }
}

impl<S> Drop for Waiting<'_, '_, S> {
    fn drop(&mut self) {
        // A loop that has failed leaves no thread behind.
        self.end.ask();
    }
}

impl<'scope, S: Fn() -> Result<(), Error> + Send + 'scope> Driver for Waiting<'scope, '_, S> {
    fn start(&mut self, _sources: &Sources) -> io::Result<()> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let ending = Ending { is_over: Arc::clone(&self.is_over), stop: self.stop.clone() };
        let run = move || {
            let _ending = ending;
            work.run()
        };
        self.thread = Some(Builder::new().name("session".into()).spawn_scoped(self.scope, run)?);
        Ok(())
    }

    fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
        Ok(if self.is_over.load(Ordering::Acquire) { Turn::Done } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {
        self.end.ask();
    }
}

impl<'scope, 'env, S, const IS_REPLAY: bool> Daemon for Sessions<'_, 'scope, 'env, S, IS_REPLAY>
where
    S: Fn() -> Result<(), Error> + Send + 'scope,
{
    const KIND: &'static str = if IS_REPLAY { "replay" } else { "record" };
    const WHAT: &'static str = if IS_REPLAY { "the replayer" } else { "the recorder" };
    // The bytes taken so far are written, however long that takes.
    const IS_PATIENT: bool = true;
    const HEEDS_SECOND_SIGNAL: bool = IS_REPLAY;
    type Driver = Waiting<'scope, 'env, S>;
    type Request = Request;
    type Status = Report;
    type Captures = NoCaptures;
    type Error = Error;

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn needs(&self, needs: &mut Needs) {
        needs.clone_from(&self.needs);
        self.control.registers.iter().for_each(|path| needs.change_beside(path));
    }

    fn open(&mut self, opening: &Opening) -> Result<Self::Driver, Error> {
        if let Some(path) = &self.control.registers {
            let offered = offer_registers(path, &self.handle, report);
            self.registers = Some(offered.map_err(|error| Error::Bind { path: path.clone(), error })?);
        }
        let session = self.session.take().expect("it is opened once");
        let (handle, is_on_demand) = (self.handle.clone(), self.control.on_demand);
        Ok(Waiting {
            work: Some(Work { session, handle, is_on_demand, json: self.json }),
            scope: self.scope,
            thread: None,
            end: self.end.clone(),
            is_over: Arc::default(),
            stop: opening.stop.clone(),
        })
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        if self.control.on_demand {
            info!("waiting for a start");
        }
        Ok(())
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        let what = if IS_REPLAY { "a replay" } else { "a recording" };
        if self.control.on_demand { format!("{what} on demand") } else { what.to_owned() }
    }

    fn status(
        &mut self,
        _driver: &mut Self::Driver,
        _now: Instant,
        _sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        Reply::Now(ctl::report(&self.handle.status()))
    }

    fn answer(
        &mut self,
        _driver: &mut Self::Driver,
        request: Request,
        _stop: &Stop,
    ) -> Result<Value, String> {
        ctl::answer(request, &self.handle, self.control.on_demand)
    }

    fn end(self, mut driver: Self::Driver) -> Result<(), Error> {
        match driver.thread.take().map(ScopedJoinHandle::join) {
            None => Ok(()),
            Some(result) => result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }
}
