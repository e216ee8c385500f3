//! The differences between daemons.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;

use engine::{Instant, Nanos};
use live::drivers::control;
use live::reactor::{Driver, JobSender, Stop};
use live::sys::clock::Clock;
use live::sys::hand_over::HandOver;
use live::sys::sandbox::Needs;
use serde::Serialize;
use serde_json::Value;
use status::metrics::Metrics;

use crate::control::Request;
use crate::{Confinement, Failure};

/// The options that every daemon has.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The processor on which the loop stays.
    pub cpu: Option<usize>,
    /// How long the loop spins after it last had something to do.
    pub spin: Nanos,
    /// The descriptors that the daemon is about to use for its offer.
    pub descriptors: u64,
    /// The rights that the process gives up.
    pub confinement: Confinement,
    /// Path of the control socket, if it is not the default one.
    pub control: Option<PathBuf>,
    /// Where Prometheus reads figures, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// The context in which a daemon opens its media and listeners.
#[derive(Debug)]
pub struct Opening {
    /// The clock of the loop.
    pub clock: Clock,
    /// Wakes and ends the loop.
    pub stop: Stop,
    /// What a predecessor leaves to this process, until the daemon takes it.
    pub hand_over: RefCell<Option<HandOver>>,
}

/// The answer to the request for a status.
pub enum Reply<T> {
    /// The status.
    Now(T),
    /// Why there is none, as a sentence.
    Refused(String),
    /// The status as a thread beside the loop makes it, for one that would hold up the loop. `None`
    /// means that the process ends.
    Later(Box<dyn FnOnce() -> Option<T> + Send>),
}

/// Captures of a driver's traffic.
pub trait Captures<D> {
    /// Captures of a daemon that has this clock.
    fn new(clock: Clock) -> Self;

    /// Answers a request about captures. `None` if the request is about something else.
    fn answer(&mut self, asked: &mut control::Request<'_>, driver: &mut D) -> Option<Result<Value, String>>;
}

/// The requests about captures.
const CAPTURES: [&str; 3] = ["capture", "captures", "stop_capture"];

/// The captures of a daemon that nothing passes.
#[derive(Clone, Copy, Debug)]
pub struct NoCaptures;

impl<D> Captures<D> for NoCaptures {
    fn new(_clock: Clock) -> Self {
        Self
    }

    fn answer(&mut self, asked: &mut control::Request<'_>, _driver: &mut D) -> Option<Result<Value, String>> {
        let request: Value = serde_json::from_str(asked.line).ok()?;
        let is_about_captures = CAPTURES.iter().any(|command| request["command"] == *command);
        is_about_captures.then(|| {
            Err("neither packets nor commands pass this daemon: expected one of \
            attach, connect, device, export and target"
                .to_owned())
        })
    }
}

/// A daemon, as far as it differs from others. [`run`](crate::run) calls each method in the order
/// of the [crate's documentation](crate).
pub trait Daemon: Sized {
    /// The kind of daemon, as its status and the name of its control socket have it.
    const KIND: &'static str;
    /// The name of the driver in the error of a loop that fails.
    const WHAT: &'static str;
    /// The name of the part that has shut down when the process ends in good order.
    const ENDS: &'static str = Self::WHAT;
    /// Whether the driver takes as long as it takes to end. Otherwise the loop ends without it
    /// after [`CLOSE_MAX`](live::reactor::CLOSE_MAX).
    const IS_PATIENT: bool = false;
    /// Whether a second SIGINT or SIGTERM ends the process at once.
    const HEEDS_SECOND_SIGNAL: bool = true;

    /// Moves the bytes of the offer.
    type Driver: Driver;
    /// A request to the control socket.
    type Request: Request;
    /// The state that is reported, and from which the metrics are derived.
    type Status: Serialize + Metrics + Send + 'static;
    /// Captures of the driver's traffic; [`NoCaptures`] where there is none.
    type Captures: Captures<Self::Driver>;
    /// Why the daemon could not begin, or failed.
    type Error: From<Failure>;

    /// The options that every daemon has.
    fn settings(&self) -> Settings;

    /// Takes the steps that need the whole machine, before the process is confined.
    ///
    /// # Errors
    /// When the machine lacks something that the daemon needs.
    fn prepare(&mut self, clock: Clock) -> Result<(), Self::Error> {
        let _ = clock;
        Ok(())
    }

    /// Adds the files, folders and rights that the daemon uses from now on.
    fn needs(&self, needs: &mut Needs);

    /// Opens media and listeners.
    ///
    /// # Errors
    /// When one can't be opened.
    fn open(&mut self, opening: &Opening) -> Result<Self::Driver, Self::Error>;

    /// Whether the offer can be used by now. The loop turns until then.
    ///
    /// # Errors
    /// When it never will be.
    fn settle(&mut self, driver: &mut Self::Driver) -> Result<bool, Self::Error> {
        let _ = driver;
        Ok(true)
    }

    /// How long the offer may take until it can be used; without a limit, as long as it takes.
    fn patience(&self) -> Option<Nanos> {
        None
    }

    /// Why the offer can't be used in time.
    fn late(&mut self) -> Self::Error {
        Failure::Interrupted.into()
    }

    /// Prints where the daemon can be reached.
    ///
    /// # Errors
    /// When standard output can't be written.
    fn announce(&mut self, driver: &mut Self::Driver) -> Result<(), Self::Error>;

    /// A summary of the offer, for the service manager.
    fn summary(&self, driver: &Self::Driver) -> String;

    /// Reports the state, as it is `now`. A thread beside the loop makes a long status of parts,
    /// for which `sender` hands small jobs to the loop.
    fn status(
        &mut self,
        driver: &mut Self::Driver,
        now: Instant,
        sender: &JobSender<Self::Driver>,
    ) -> Reply<Self::Status>;

    /// Carries out a request of its own, which is none of [`Common`](crate::Common). `stop` ends
    /// the loop.
    ///
    /// # Errors
    /// Why it could not be carried out, as a sentence.
    fn answer(
        &mut self,
        driver: &mut Self::Driver,
        request: Self::Request,
        stop: &Stop,
    ) -> Result<Value, String> {
        let _ = (driver, request, stop);
        Err(format!("{} does not support this request", Self::KIND))
    }

    /// Whether there is a configuration that [`Daemon::reload`] reads.
    fn has_configuration(&self) -> bool {
        false
    }

    /// Reads the configuration again, and applies its changes. Returns these.
    ///
    /// # Errors
    /// Why nothing has changed, as a sentence.
    fn reload(&mut self, driver: &mut Self::Driver) -> Result<Value, String> {
        let _ = driver;
        Err(format!("{} has no configuration file", Self::KIND))
    }

    /// Brings the offer to rest, and returns what a successor needs to go on with it.
    ///
    /// # Errors
    /// Why a successor could not go on, as a sentence. The offer does not rest then.
    fn leave(&mut self, driver: &mut Self::Driver) -> Result<HandOver, String> {
        let _ = driver;
        Err(format!("{} can't be upgraded in place: restart it", Self::WHAT))
    }

    /// Goes on with the offer after [`Daemon::leave`]: the successor has not taken over.
    ///
    /// # Errors
    /// When the offer can't go on either, as a sentence.
    fn go_on(&mut self, driver: &mut Self::Driver) -> Result<(), String> {
        let _ = driver;
        Ok(())
    }

    /// Reports the work done, and saves the state. The loop has ended.
    ///
    /// # Errors
    /// When something can't be saved or reported.
    fn end(self, driver: Self::Driver) -> Result<(), Self::Error>;
}
