//! Answers to perftest's clients.

use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;

use engine::{Buffer, Instant, Nanos};

use super::counts_receives;
use super::wire::{CYCLE, Place, Report, Step, Version, WORD_MAX, Word, steps};
use crate::measure::run::{has_come, numbered};
use crate::measure::server::NO_RECEIVES;
use crate::measure::{DATA, Mode, NOTICE, Test, Verb, message, pattern, zeros};
use crate::{Done, Endpoint, Exposure, Operation, ReceiveRequest, Remote, SendRequest, SharedPool};

/// How long a client may take for its next word, or for its second connection, while its test does
/// not run: other clients are waiting.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// How long a client may take to end its first connection after its test.
const FAREWELL: Nanos = Nanos::from_secs(10);
/// How long the second connection stays after a client's last write has arrived. The client waits
/// for the acknowledgement of that write, and the end of the connection would overtake it.
const LINGER: Nanos = Nanos::from_millis(10);
/// Receive requests for messages of a test: the number of perftest's servers.
const RECEIVES: u16 = 512;

/// Why the server ends a client's connections early.
pub(in crate::measure) type Fault = &'static str;

/// The progress of a client.
#[derive(Debug)]
struct Session {
    /// The length in bytes of the area through which the client's accesses cycle.
    cycle: u32,
    /// The client may request its second connection.
    is_awaited: bool,
    /// The memory that this end lends there.
    lent: Option<Remote>,
    /// The memory that the client last announced.
    client: Place,
    is_running: bool,
    /// The test has ended, so the second connection must end.
    is_done: bool,
    /// The second connection is over.
    is_left: bool,
}

/// The meeting point of a server's connections with perftest's clients, which it serves one after
/// the other, for one test.
///
/// Connections of one server have clones of the desk, and both connections of a client meet there.
#[derive(Clone, Debug)]
pub struct Desk {
    test: Test,
    session: Rc<RefCell<Weak<RefCell<Session>>>>,
}

impl Desk {
    /// A desk for clients that measure `test`. Only the latency test of writes ends without a
    /// message, so the server must know its number of `iterations`. `depth` does not count.
    pub fn new(test: Test) -> Self {
        Self { test, session: Rc::default() }
    }

    fn session(&self) -> Option<Rc<RefCell<Session>>> {
        self.session.borrow().upgrade()
    }

    /// Whether a client that has its first connection is requesting the second.
    pub(in crate::measure) fn awaits(&self) -> bool {
        self.session().is_some_and(|session| session.borrow().is_awaited)
    }

    /// Whether the desk serves no client, or one that has only to leave.
    pub(in crate::measure) fn is_free(&self) -> bool {
        self.session().is_none_or(|session| session.borrow().is_done)
    }
}

/// The first connection of a client.
#[derive(Debug)]
pub(in crate::measure) struct Control {
    test: Test,
    steps: VecDeque<Step>,
    version: Version,
    session: Rc<RefCell<Session>>,
    /// When the client last sent a word.
    heard: Instant,
    /// When the client must have ended the connection, once the test has ended.
    farewell: Option<Instant>,
}

impl Control {
    /// Serves the client that has requested this connection.
    pub(in crate::measure) fn begin(desk: &Desk, end: &mut impl Endpoint, now: Instant) -> Option<Self> {
        let session = Rc::new(RefCell::new(Session {
            cycle: CYCLE,
            is_awaited: false,
            lent: None,
            client: Place::NONE,
            is_running: false,
            is_done: false,
            is_left: false,
        }));
        desk.session.replace(Rc::downgrade(&session));
        // The client's next word may arrive before this end has handled its last completion.
        receive(end, WORD_MAX)?;
        receive(end, WORD_MAX)?;
        let steps = steps(&desk.test);
        let version = Version::OWN;
        Some(Self { test: desk.test, steps, version, session, heard: now, farewell: None })
    }

    /// Handles a word of the client.
    pub(in crate::measure) fn on_word(
        &mut self,
        end: &mut impl Endpoint,
        now: Instant,
        word: &[u8],
    ) -> Result<(), Fault> {
        self.heard = now;
        let session = &mut *self.session.borrow_mut();
        // A client that sends the next word has its second connection and has run its test.
        while let Some(Step::Join | Step::Run) = self.steps.front() {
            if session.lent.is_none() {
                return Err("a client that continues without its second connection");
            }
            self.steps.pop_front();
        }
        let step = self.steps.pop_front().ok_or("a word after the last")?;
        let known =
            step.parse(word, self.version).ok_or("a word that the test does not have at this point")?;
        match known {
            Word::Version(version) if version < Version::OLDEST => {
                return Err("a version of perftest that is too old");
            }
            Word::Version(version) => self.version = version,
            Word::Cycle(cycle) => session.cycle = session.cycle.max(cycle),
            Word::Place(place) if session.lent.is_none() && place.pair != 0 => {
                return Err("a program of perftest without -R");
            }
            Word::Place(place) => session.client = place,
            Word::Other => {}
        }
        receive(end, WORD_MAX).ok_or(NO_RECEIVES)?;
        let own =
            session.lent.map_or(Place::NONE, |lent| Place { pair: 1, key: lent.key, address: lent.address });
        let report = Report { test: self.test, elapsed: Nanos::ZERO };
        let answer = step.emit(self.version, own, report);
        let operation =
            Operation::Send { inline: answer, data: Buffer::EMPTY, invalidate: None, immediate: None };
        post(end, NOTICE, operation).ok_or("the endpoint rejects an answer")?;
        session.is_awaited = self.steps.front() == Some(&Step::Join);
        session.is_running |= self.steps.front() == Some(&Step::Run);
        session.is_done |= self.steps.is_empty();
        Ok(())
    }

    /// When the client must have sent its next word; `None` while the test runs.
    ///
    /// # Errors
    /// When its other connection has gone.
    pub(in crate::measure) fn check(&mut self, now: Instant) -> Result<Option<Instant>, Fault> {
        let session = self.session.borrow();
        if session.is_left && !session.is_done {
            return Err("a client whose second connection is over before its test");
        }
        Ok(match self.steps.front() {
            _ if session.is_done => Some(*self.farewell.get_or_insert(now + FAREWELL)),
            Some(Step::Run) => None,
            _ => Some(self.heard + PATIENCE),
        })
    }
}

/// The second connection of a client.
#[derive(Debug)]
pub(in crate::measure) struct Data {
    test: Test,
    pool: SharedPool,
    data: Buffer,
    session: Weak<RefCell<Session>>,
    lent: Remote,
    counts: bool,
    /// Number of messages or writes received.
    come: u32,
    /// Number of messages reported to the client; or of writes by this end.
    reported: u32,
    /// When this connection ends, once the last write has arrived.
    leave: Option<Instant>,
}

impl Data {
    /// Serves the client that is waiting for this connection.
    ///
    /// # Errors
    /// When no client is waiting for it, or the endpoint lacks a resource.
    pub(in crate::measure) fn begin(
        desk: &Desk,
        end: &mut impl Endpoint,
        pool: &SharedPool,
    ) -> Result<Self, Fault> {
        let test = desk.test;
        let session = desk.session().ok_or("a connection that no client is waiting for")?;
        let limits = end.limits();
        let length = test.size.max(session.borrow().cycle);
        if length > limits.message_bytes {
            return Err("a client whose accesses cycle through too much memory");
        }
        let exposure = match test.verb {
            // Messages need no memory.
            Verb::Send | Verb::Write => Exposure::Write(length),
            Verb::Read => Exposure::Read(zeros(length)),
        };
        let lent = end.register(exposure).map_err(|_| "the endpoint cannot lend memory")?;
        for _ in 0..RECEIVES.min(limits.receive_requests) {
            receive(end, test.size).ok_or(NO_RECEIVES)?;
        }
        let mut awaiting = session.borrow_mut();
        awaiting.is_awaited = false;
        awaiting.lent = Some(lent);
        let counts = counts_receives(&limits) && (test.verb, test.mode) == (Verb::Send, Mode::Bandwidth);
        let (data, pool) = (pattern(pool, test.size), SharedPool::clone(pool));
        let session = Rc::downgrade(&session);
        Ok(Self { test, pool, data, session, lent, counts, come: 0, reported: 0, leave: None })
    }

    /// Handles the success of a request.
    pub(in crate::measure) fn on_done(&mut self, end: &mut impl Endpoint, done: &Done) -> Result<(), Fault> {
        let Done::Received { data, .. } = done else { return Ok(()) };
        if self.test.verb != Verb::Send {
            return Err("a message in a test without messages");
        }
        self.come = self.come.wrapping_add(1);
        receive(end, self.test.size).ok_or(NO_RECEIVES)?;
        match self.test.mode {
            // As long as the client's message, whose memory may be shorter than this end's.
            Mode::Latency => post(end, DATA, message(self.data.slice(0..data.len())))
                .ok_or("the endpoint rejects an answer"),
            Mode::Bandwidth => Ok(()),
        }
    }

    /// Performs the due actions when there is no event. Returns whether the test continues.
    pub(in crate::measure) fn go_on(&mut self, end: &mut impl Endpoint, now: Instant) -> Result<bool, Fault> {
        if let Some(leave) = self.leave {
            return Ok(now < leave);
        }
        let Some(session) = self.session.upgrade() else { return Ok(false) };
        let mut session = session.borrow_mut();
        if session.is_done || !session.is_running {
            return Ok(!session.is_done);
        }
        let Place { key, address, .. } = session.client;
        if self.counts && self.come != self.reported {
            let remote = Remote { key, address, length: 4 };
            let count = self.pool.borrow_mut().copy(&self.come.to_le_bytes());
            post(end, DATA, Operation::Write { data: count, remote })
                .ok_or("the endpoint rejects a write")?;
            self.reported = self.come;
        }
        if (self.test.verb, self.test.mode) == (Verb::Write, Mode::Latency) {
            let remote = Remote { key, address, length: self.test.size };
            session.is_done = self.answer_writes(end, remote)?;
            self.leave = session.is_done.then_some(now + LINGER);
        }
        Ok(true)
    }

    /// Answers a write that has arrived. Returns whether it was the last.
    fn answer_writes(&mut self, end: &mut impl Endpoint, remote: Remote) -> Result<bool, Fault> {
        if self.reported > 0 && self.reported == self.come + 1 {
            self.come += u32::from(has_come(end, self.lent.key, self.test.size, self.reported));
        }
        let Test { iterations, .. } = self.test;
        if self.come == self.reported && self.reported < iterations {
            self.reported += 1;
            let data = numbered(&self.pool, &self.data, self.reported);
            post(end, DATA, Operation::Write { data, remote }).ok_or("the endpoint rejects a write")?;
        }
        Ok(self.come == iterations)
    }

    /// Whether the client's progress shows in memory only.
    pub(in crate::measure) fn is_watching(&self) -> bool {
        let is_running = |session: Rc<RefCell<Session>>| session.borrow().is_running;
        (self.test.verb, self.test.mode) == (Verb::Write, Mode::Latency)
            && self.session.upgrade().is_some_and(is_running)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.borrow_mut().is_left = true;
        }
    }
}

fn receive(end: &mut impl Endpoint, length_max: u32) -> Option<()> {
    end.post_receive(ReceiveRequest { id: DATA, length_max }).ok()
}

fn post(end: &mut impl Endpoint, id: u64, operation: Operation) -> Option<()> {
    // Completions free the places of the send queue, and have no other use.
    end.post_send(SendRequest { id, operation, signalled: true }).ok()
}
