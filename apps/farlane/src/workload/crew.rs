//! Threads that work together: all begin when the last one is ready, and the first error ends all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use live::reactor::Stop;

use crate::error::{Error, ThreadError};

/// How often the thread that waits for the others does its own work.
const TICK: Duration = Duration::from_millis(100);

/// The states of a crew.
const GATHERING: u8 = 0;
const WORKING: u8 = 1;
const OVER: u8 = 2;

/// A message of a member to the thread that waits.
enum Said<T> {
    /// The member can begin. The handle ends its waits.
    Ready(Stop),
    Ended(Result<T, Error>),
}

/// One of the threads.
pub(super) struct Member<'a, T> {
    number: usize,
    state: &'a AtomicU8,
    said: Sender<(usize, Said<T>)>,
}

impl<T> Member<'_, T> {
    /// The member's number, counted from 0.
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// Reports that this member can begin and that `stop` ends its waits. Returns when all members
    /// can begin. `idle` does this thread's other work meanwhile.
    ///
    /// # Errors
    /// When the crew's work ended before it began, or `idle` fails.
    pub(super) fn wait_for_all(
        &self,
        stop: Stop,
        mut idle: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // The other end of the channel lives as long as this thread.
        let _ = self.said.send((self.number, Said::Ready(stop)));
        loop {
            match self.state.load(Ordering::Acquire) {
                GATHERING => idle()?,
                WORKING => return Ok(()),
                _ => return Err(Error::Interrupted),
            }
        }
    }
}

/// The view of the thread that waits for the members.
struct Crew<'a, T> {
    state: &'a AtomicU8,
    stops: Vec<Option<Stop>>,
    results: Vec<Option<T>>,
    ended: usize,
    error: Option<Error>,
}

impl<T> Crew<'_, T> {
    fn on_said(&mut self, number: usize, said: Said<T>) {
        let count = self.stops.len();
        match said {
            Said::Ready(stop) if self.error.is_some() => stop.ask(),
            Said::Ready(stop) => {
                self.stops[number] = Some(stop);
                if self.stops.iter().all(Option::is_some) {
                    self.state.store(WORKING, Ordering::Release);
                }
            }
            Said::Ended(Ok(result)) => {
                self.ended += 1;
                self.results[number] = Some(result);
            }
            Said::Ended(Err(error)) => {
                self.ended += 1;
                self.fail(named(number, count, error));
            }
        }
    }

    /// Ends the work of all members. The first error is the reason for the later ones.
    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.state.store(OVER, Ordering::Release);
        self.stops.iter().flatten().for_each(Stop::ask);
    }

    fn wait(
        &mut self,
        spawned: usize,
        heard: &Receiver<(usize, Said<T>)>,
        meanwhile: &mut impl FnMut() -> Result<(), Error>,
    ) {
        while self.ended < spawned {
            match heard.recv_timeout(TICK) {
                Ok((number, said)) => self.on_said(number, said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.error.is_none()
                && let Err(error) = meanwhile()
            {
                self.fail(error);
            }
        }
    }
}

/// Has `count` threads do `work`, and this one do its own work `meanwhile`, several times a second.
/// Returns the results in the members' order.
///
/// # Errors
/// The first error of a member, named by its number, or of `meanwhile`; also when a member panics,
/// or the system has no more threads.
pub(super) fn run<T: Send>(
    count: usize,
    work: impl Fn(&Member<'_, T>) -> Result<T, Error> + Sync,
    mut meanwhile: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<T>, Error> {
    let state = AtomicU8::new(GATHERING);
    let (said, heard) = channel();
    let mut crew = Crew {
        state: &state,
        stops: (0..count).map(|_| None).collect(),
        results: (0..count).map(|_| None).collect(),
        ended: 0,
        error: None,
    };
    thread::scope(|scope| {
        let mut spawned = 0;
        for number in 0..count {
            let member = Member { number, state: &state, said: said.clone() };
            let work = &work;
            let all = move || {
                let result = catch_unwind(AssertUnwindSafe(|| work(&member)));
                let result =
                    result.unwrap_or_else(|panic| Err(ThreadError::Panicked { why: words(&*panic) }.into()));
                let _ = member.said.send((number, Said::Ended(result)));
            };
            match thread::Builder::new().name(format!("jobs {}", number + 1)).spawn_scoped(scope, all) {
                Ok(_) => spawned += 1,
                Err(error) => {
                    crew.fail(named(number, count, Error::System(error)));
                    break;
                }
            }
        }
        drop(said);
        crew.wait(spawned, &heard, &mut meanwhile);
    });
    match crew.error {
        Some(error) => Err(error),
        None => Ok(crew.results.into_iter().flatten().collect()),
    }
}

/// An error of one of `count` members. Nothing is wrong with the member that the user interrupted.
fn named(number: usize, count: usize, error: Error) -> Error {
    match error {
        Error::Interrupted => error,
        error => ThreadError::Failed { thread: number + 1, of: count, error: Box::new(error) }.into(),
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    use engine::Nanos;
    use live::client::AttachError;
    use live::reactor::Reactor;
    use live::sys::clock::Clock;

    use super::*;
    use crate::exit::Exit;

    fn stop() -> (Reactor, Stop) {
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
        let stop = reactor.stop();
        (reactor, stop)
    }

    fn pause() -> Result<(), Error> {
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    /// Waits until the crew ends this member, as a loop does that serves a connection.
    fn work_until(stop: &Stop) -> Result<(), Error> {
        let begun = Instant::now();
        while !stop.is_asked_for() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing ends this thread");
            pause()?;
        }
        Err(Error::Interrupted)
    }

    #[test]
    fn all_begin_together_and_report_in_order() {
        let ready = AtomicUsize::new(0);
        let results = run(
            4,
            |member| {
                thread::sleep(Duration::from_millis(5 * member.number() as u64));
                ready.fetch_add(1, Ordering::SeqCst);
                let (_reactor, stop) = stop();
                member.wait_for_all(stop, pause)?;
                Ok((member.number(), ready.load(Ordering::SeqCst)))
            },
            || Ok(()),
        );
        assert_eq!(results.unwrap(), [(0, 4), (1, 4), (2, 4), (3, 4)]);
    }

    #[test]
    fn a_thread_that_panics_ends_the_others_and_is_named() {
        let error = run(
            3,
            |member| {
                let (_reactor, stop) = stop();
                member.wait_for_all(stop.clone(), pause)?;
                assert!(member.number() != 1, "the second thread has a fault");
                work_until(&stop)
            },
            || Ok(()),
        );
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "thread 2 of 3: a fault of farlane: the second thread has a fault");
        assert_eq!(error.exit(), Exit::Fault);
    }

    #[test]
    fn a_thread_that_cannot_begin_ends_those_that_wait_for_it() {
        let error = run(
            3,
            |member| {
                if member.number() == 2 {
                    // EMFILE: the process has no descriptor left.
                    return Err(AttachError::Io(std::io::Error::from_raw_os_error(24)).into());
                }
                let (_reactor, stop) = stop();
                member.wait_for_all(stop, pause)
            },
            || Ok(()),
        );
        let error = error.unwrap_err();
        assert!(error.to_string().starts_with("thread 3 of 3: "), "{error}");
        assert!(error.to_string().contains("Too many open files"), "{error}");
        let help = miette::Diagnostic::help(&error).map(|help| help.to_string());
        assert!(help.as_ref().is_some_and(|help| help.contains("ulimit -n")), "{help:?}");
        assert_eq!(error.exit(), Exit::Failed);
    }

    #[test]
    fn an_error_of_the_waiting_thread_ends_all() {
        let error = run(
            2,
            |member| {
                let (_reactor, stop) = stop();
                member.wait_for_all(stop.clone(), pause)?;
                work_until(&stop)
            },
            || Err(Error::NoSecrets),
        );
        assert!(matches!(error, Err(Error::NoSecrets)), "{error:?}");
    }
}
