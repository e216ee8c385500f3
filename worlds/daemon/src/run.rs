//! The life of a daemon, in the order of the crate's documentation.

use std::cell::RefCell;
use std::path::Path;

use live::reactor::{Outcome, Reactor, SecondSignal, Terminal, jobs, pin};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use live::sys::usage::MEMORY_FILE;
use live::sys::{descriptors, service};

use crate::answer_thread::AnswerThread;
use crate::serving::{Inner, Serving};
use crate::succession::Predecessor;
use crate::{Captures, Daemon, Failure, Opening, Settings, control, metrics};

/// Descriptors that every daemon opens: for its loop, signals, the control socket, and saving a
/// state.
const DESCRIPTORS: u64 = 12;

/// Runs `daemon` until it ends by itself, SIGINT or SIGTERM comes, or its terminal is gone.
///
/// # Errors
/// When the daemon can't begin, its loop fails, or its state can't be saved.
pub fn run<D: Daemon>(mut daemon: D) -> Result<(), D::Error> {
    let settings = daemon.settings();
    begin(&settings)?;
    let mut predecessor = Predecessor::find::<D>()?;
    let clock = predecessor.as_ref().map_or_else(Clock::start, Predecessor::clock);
    let terminal = Terminal::open();
    daemon.prepare(clock)?;
    confine(&daemon, &settings)?;

    let mut reactor = Reactor::new(clock, settings.spin).map_err(Failure::System)?;
    if D::IS_PATIENT {
        reactor.wait_for_close();
    }
    let stop = reactor.stop();
    let hand_over = predecessor.as_mut().map(Predecessor::inherit).transpose()?;
    let is_successor = hand_over.is_some();
    let opening = Opening { clock, stop: stop.clone(), hand_over: RefCell::new(hand_over) };
    let driver = daemon.open(&opening)?;
    predecessor.map_or(Ok(()), Predecessor::succeed)?;
    let hang_up = match daemon.has_configuration() {
        true => stop.on_signals_but_hang_up(),
        false => stop.on_signals_of(terminal, second::<D>()),
    };
    let hang_up = hang_up.map_err(Failure::System)?;
    let control = control::bind(D::KIND, settings.control.as_deref())?;
    let (sender, jobs) = jobs(stop.clone());
    let (ask, asked) = metrics::ask(stop.clone());
    metrics::serve(settings.metrics, is_successor, ask)?;

    let (captures, answer_thread) = (D::Captures::new(clock), AnswerThread::default());
    let successor = None;
    let inner = Inner {
        daemon,
        driver,
        sender,
        jobs,
        asked,
        captures,
        answer_thread,
        hang_up,
        stop,
        clock,
        successor,
    };
    let mut serving = Serving { inner, control };
    settle(&mut reactor, &mut serving, clock)?;
    let inner = &mut serving.inner;
    inner.daemon.announce(&mut inner.driver)?;
    settings.confinement.renounce()?;
    inner.report_ready();
    reactor.serve();
    reactor.run(&mut serving).map_err(failed::<D>)?;

    let Serving { inner: Inner { daemon, driver, captures, stop, successor, .. }, control } = serving;
    drop((control, captures));
    if let Some(successor) = successor {
        drop((driver, successor));
        info!("another process goes on in the place of this one");
        return Ok(());
    }
    daemon.end(driver)?;
    // A daemon whose work was finite has reported its result.
    if stop.is_asked_for() {
        info!("{} has shut down", D::ENDS);
    }
    Ok(())
}

fn begin(settings: &Settings) -> Result<(), Failure> {
    service::begin();
    descriptors::prepare(DESCRIPTORS + settings.descriptors)?;
    settings.cpu.map_or(Ok(()), |cpu| pin(cpu).map_err(Failure::Processor))
}

fn confine<D: Daemon>(daemon: &D, settings: &Settings) -> Result<(), Failure> {
    let mut needs = Needs::default();
    daemon.needs(&mut needs);
    if settings.metrics.is_some() {
        needs.read_beside(Path::new(MEMORY_FILE));
    }
    control::need(&mut needs, D::KIND, settings.control.as_deref());
    settings.confinement.confine(needs)
}

/// Turns the loop until the offer can be used.
fn settle<D: Daemon>(reactor: &mut Reactor, serving: &mut Serving<D>, clock: Clock) -> Result<(), D::Error> {
    let mut settled = look(&mut serving.inner);
    if settled.is_none() {
        let deadline = serving.inner.daemon.patience().map(|patience| clock.now() + patience);
        let met = |serving: &mut Serving<D>| {
            settled = look(&mut serving.inner);
            settled.is_some()
        };
        match reactor.run_until(serving, deadline, met).map_err(failed::<D>)? {
            Outcome::Met => {}
            Outcome::TimedOut => return Err(serving.inner.daemon.late()),
            Outcome::Done | Outcome::Abandoned => return Err(Failure::Interrupted.into()),
        }
    }
    settled.unwrap_or(Ok(()))
}

/// Whether the offer can be used, or never will be usable; `None` while it may still be.
fn look<D: Daemon>(inner: &mut Inner<D>) -> Option<Result<(), D::Error>> {
    match inner.daemon.settle(&mut inner.driver) {
        Ok(false) => None,
        result => Some(result.map(drop)),
    }
}

const fn second<D: Daemon>() -> SecondSignal {
    if D::HEEDS_SECOND_SIGNAL { SecondSignal::Exit } else { SecondSignal::Nothing }
}

fn failed<D: Daemon>(error: std::io::Error) -> D::Error {
    Failure::Loop { what: D::WHAT, error }.into()
}
