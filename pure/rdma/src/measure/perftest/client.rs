//! A client's dialogue with a perftest server.

use alloc::collections::VecDeque;

use engine::{Buffer, Instant, Nanos};

use super::counts_receives;
use super::wire::{Place, Report, Step, Version, WORD_MAX, Word, steps};
use crate::measure::client::{Heard, Talk};
use crate::measure::run::{Run, Watched};
use crate::measure::{DATA, Failure, Mode, NOTICE, Output, Test, Verb};
use crate::{
    Disconnected, Done, Endpoint, Event, Exposure, Inline, Operation, ReceiveRequest, Remote, SendRequest,
    SharedPool,
};

/// Receive requests of a server for messages, by default.
const SERVER_RECEIVES: u32 = 512;
/// Delay before another attempt at the second connection: a server listens for it only after its
/// last answer.
const AGAIN: Nanos = Nanos::from_millis(100);
/// Maximum number of attempts at the second connection.
const TRIES: u8 = 50;

/// A client's dialogue with a perftest server.
#[derive(Debug)]
pub(in crate::measure) struct Perftest {
    test: Test,
    pool: SharedPool,
    /// The remaining steps.
    steps: VecDeque<Step>,
    version: Version,
    /// The memory that this end and the server have announced.
    own: Place,
    server: Place,
    run: Option<Run>,
    tries: u8,
    /// The second connection is established.
    is_joined: bool,
    /// When to attempt it again.
    again: Option<Instant>,
    /// How long all iterations took, once they have ended.
    elapsed: Option<Nanos>,
    /// The server has ended a connection after that.
    is_left: bool,
}

impl Perftest {
    pub(in crate::measure) fn new(test: Test, pool: &SharedPool) -> Self {
        Self {
            test,
            pool: SharedPool::clone(pool),
            steps: steps(&test),
            version: Version::OWN,
            own: Place::NONE,
            server: Place::NONE,
            run: None,
            tries: 0,
            is_joined: false,
            again: None,
            elapsed: None,
            is_left: false,
        }
    }

    /// Performs the next step.
    fn go_on(&mut self, ends: &mut [impl Endpoint], now: Instant) -> Heard {
        match self.steps.front() {
            None => {}
            Some(Step::Join) => return self.ask(now),
            Some(Step::Run) => {
                let Place { key, address, .. } = self.server;
                let remote = Remote { key, address, length: self.test.size };
                let (Some(run), Some(end)) = (&mut self.run, ends.get_mut(1)) else {
                    return Err(Failure::Nonsense);
                };
                run.begin(end, now, remote)?;
            }
            Some(word) => {
                let report = Report { test: self.test, elapsed: self.elapsed.unwrap_or(Nanos::ZERO) };
                say(&mut ends[0], word.emit(self.version, self.own, report))?;
            }
        }
        Ok(None)
    }

    /// Requests the second connection, up to [`TRIES`] times.
    fn ask(&mut self, now: Instant) -> Heard {
        if self.again.is_some_and(|again| again > now) {
            return Ok(None);
        }
        self.again = None;
        self.tries += 1;
        Ok(Some(Output::Connect))
    }

    /// Handles a word of the server.
    fn on_word(&mut self, ends: &mut [impl Endpoint], now: Instant, word: &[u8]) -> Heard {
        let step = self.steps.front().ok_or(Failure::Nonsense)?;
        match step.parse(word, self.version).ok_or(Failure::Nonsense)? {
            Word::Version(version) if version < Version::OLDEST => return Err(Failure::Version(version)),
            Word::Version(version) => self.version = version,
            Word::Place(place) => self.server = place,
            Word::Cycle(_) | Word::Other => {}
        }
        receive(&mut ends[0])?;
        self.steps.pop_front();
        self.go_on(ends, now)
    }

    /// Handles the second connection. The server may need memory that it writes to.
    fn on_joined(&mut self, ends: &mut [impl Endpoint], now: Instant) -> Heard {
        let end = ends.get_mut(1).filter(|_| self.steps.front() == Some(&Step::Join));
        let end = end.ok_or(Failure::Nonsense)?;
        let limits = end.limits();
        let length = match (self.test.verb, self.test.mode) {
            (Verb::Write, Mode::Latency) => self.test.size,
            // The server writes the count of received messages there.
            (Verb::Send, Mode::Bandwidth) if counts_receives(&limits) => 4,
            _ => 0,
        };
        let mut watched = None;
        if length > 0 {
            let memory = end.register(Exposure::Write(length)).map_err(|_| Failure::NoMemory)?;
            self.own = Place { pair: 1, key: memory.key, address: memory.address };
            // A server that expects fewer messages has receive requests for those only, rounded up
            // to an even number.
            let receives = SERVER_RECEIVES.min(self.test.iterations).next_multiple_of(2);
            watched = Some(Watched { memory, receives });
        }
        let run = Run::seen(self.test, limits, watched, &self.pool);
        run.post_receives(end).map_err(Failure::Post)?;
        self.run = Some(run);
        self.is_joined = true;
        self.steps.pop_front();
        self.go_on(ends, now)
    }

    /// Handles the end of a connection.
    fn on_over(&mut self, which: usize, now: Instant, why: Disconnected) -> Heard {
        // A server leaves once the last write has arrived: its acknowledgement may be lost or late.
        if which == 1
            && why == Disconnected::InOrder
            && let Some(run) = self.run.as_mut().filter(|run| run.awaits_only_acknowledgements())
        {
            run.on_acknowledged();
            self.is_left = true;
            return Ok(None);
        }
        // The end of the second connection may overtake the last word on the first.
        self.is_left |= self.elapsed.is_some() && (which == 1 || self.steps.is_empty());
        if self.is_left && which == 1 || self.steps.is_empty() {
            return Ok(None);
        }
        if which == 1 && !self.is_joined && self.tries < TRIES {
            self.again = Some(now + AGAIN);
            return Ok(None);
        }
        Err(Failure::Disconnected(why))
    }
}

impl<E: Endpoint> Talk<E> for Perftest {
    fn begin(&mut self, end: &mut E) -> Result<(), Failure> {
        // The server may answer before this end has handled the previous completion.
        receive(end)?;
        receive(end)
    }

    fn on_event(&mut self, ends: &mut [E], which: usize, now: Instant, event: &Event) -> Heard {
        match event {
            Event::Established { .. } if which == 0 => self.go_on(ends, now),
            Event::Established { .. } => self.on_joined(ends, now),
            Event::Rejected { .. } if which == 0 => Err(Failure::Refused(None)),
            Event::Rejected { .. } => self.on_over(which, now, Disconnected::Reported("it was refused")),
            Event::Disconnected(why) => self.on_over(which, now, *why),
            Event::Requested { .. } => Err(Failure::Nonsense),
        }
    }

    fn on_done(&mut self, ends: &mut [E], which: usize, now: Instant, done: (u64, Done)) -> Heard {
        match (done, which, &mut self.run) {
            ((_, Done::Received { data, .. }), 0, _) => self.on_word(ends, now, &data),
            (_, 0, _) => Ok(None),
            (done, _, Some(run)) => run.on_done(&mut ends[which], now, done),
            _ => Err(Failure::Nonsense),
        }
    }

    fn poll(&mut self, ends: &mut [E], now: Instant) -> Heard {
        if self.again.is_some_and(|again| again <= now) {
            return self.ask(now);
        }
        if let Some(elapsed) = self.elapsed.filter(|_| self.is_left && self.steps.is_empty()) {
            return Ok(Some(Output::Finished(elapsed)));
        }
        let (Some(run), Some(end)) = (&mut self.run, ends.get_mut(1)) else { return Ok(None) };
        if let Some(output) = run.look(end, now)? {
            return Ok(Some(output));
        }
        match run.progress(now) {
            Some(Output::Finished(elapsed)) => {
                self.elapsed = Some(elapsed);
                self.steps.pop_front();
                self.go_on(ends, now)
            }
            output => Ok(output),
        }
    }

    fn on_refused(&mut self, now: Instant) {
        self.again = Some(now + AGAIN);
    }

    fn deadline(&self) -> Option<Instant> {
        self.again
    }

    fn is_watching(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_watching)
    }
}

fn receive(end: &mut impl Endpoint) -> Result<(), Failure> {
    let request = ReceiveRequest { id: DATA, length_max: WORD_MAX };
    end.post_receive(request).map_err(Failure::Post)
}

/// Sends `word` on the first connection.
fn say(end: &mut impl Endpoint, word: Inline) -> Result<(), Failure> {
    let operation = Operation::Send { inline: word, data: Buffer::EMPTY, invalidate: None, immediate: None };
    end.post_send(SendRequest { id: NOTICE, operation, signalled: true }).map_err(Failure::Post)
}
