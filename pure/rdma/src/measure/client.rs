//! The end that measures.

use core::fmt;

use engine::{Buffer, Instant, Nanos};

use super::wire::{Answer, emit_region};
use super::{DATA, Mode, NOTICE, NOTICE_LENGTH, Refusal, Test, Verb, message, notice, pattern};
use crate::{
    Disconnected, Done, Endpoint, Event, Exposure, Operation, PostError, ReceiveRequest, Remote, SendRequest,
    SharedPool, WorkCompletion, WorkError,
};

/// What a measurement tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// An iteration of a latency test has ended, after this time: to and fro.
    Sample(Nanos),
    /// So many iterations of a bandwidth test have ended.
    Progress(Step),
    /// Every iteration has ended, this long after the first began. The connection is being ended.
    Finished(Nanos),
    /// The measurement is over before its end. Nothing follows.
    Failed(Failure),
}

/// How far a bandwidth test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Iterations that have ended.
    pub done: u32,
    /// The time since the first began.
    pub elapsed: Nanos,
}

/// Why a measurement is over before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses the test; `None` if its answer cannot be understood.
    Refused(Option<Refusal>),
    /// The server said what has no place in the test.
    Nonsense,
    /// A request has failed.
    Work(WorkError),
    /// The endpoint does not take a request.
    Post(PostError),
    /// No memory could be lent.
    NoMemory,
    /// The connection is over.
    Disconnected(Disconnected),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Some(why)) => write!(f, "the server refuses the test: {why}"),
            Self::Refused(None) => f.write_str("whoever listens there is no server of measurements"),
            Self::Nonsense => f.write_str("the server said what has no place in the test"),
            Self::Work(error) => write!(f, "a request has failed: {error}"),
            Self::Post(error) => write!(f, "a request was not taken: {error}"),
            Self::NoMemory => f.write_str("no memory could be lent to the server"),
            Self::Disconnected(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for Failure {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The server has not answered.
    Connecting,
    Running,
    Over,
}

/// The end of a connection that measures.
#[derive(Debug)]
pub struct Client<E> {
    endpoint: E,
    test: Test,
    state: State,
    data: Buffer,
    /// Memory that the server lends.
    remote: Option<Remote>,
    /// Iterations that were begun; those whose own request has ended; those that have ended.
    begun: u32,
    completed: u32,
    done: u32,
    /// Iterations at a time.
    window: u32,
    started: Instant,
    /// When the current iteration of a latency test began.
    began: Instant,
    /// How much of the progress was told.
    told: u32,
    failure: Option<Failure>,
}

impl<E: Endpoint> Client<E> {
    /// A measurement over `endpoint`, which is asking for its connection with the private data
    /// [`Test::emit`]. What is sent is a block of `pool`.
    pub fn new(mut endpoint: E, test: Test, pool: &SharedPool) -> Self {
        let limits = endpoint.limits();
        // A write may have a message behind it, so the send queue has room for one more.
        let room = limits.send_requests.saturating_sub(1).min(limits.receive_requests);
        let window = match test.mode {
            Mode::Latency => 1,
            Mode::Bandwidth => test.depth.min(room).max(1).into(),
        };
        let length_max = test.size.max(NOTICE_LENGTH);
        // The connection cannot be made without them, and then it is over.
        let request = ReceiveRequest { id: DATA, length_max };
        let receives = RECEIVES.min(limits.receive_requests);
        let posted = (0..receives).try_for_each(|_| endpoint.post_receive(request));
        Self {
            endpoint,
            test,
            state: State::Connecting,
            data: pattern(pool, test.size),
            remote: None,
            begun: 0,
            completed: 0,
            done: 0,
            window,
            started: Instant::ZERO,
            began: Instant::ZERO,
            told: 0,
            failure: posted.err().map(Failure::Post),
        }
    }

    /// The endpoint, for whoever looks at it.
    pub const fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, for whoever moves its bytes.
    pub const fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// What the measurement tells next.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        loop {
            if let Some(failure) = self.failure.take() {
                self.state = State::Over;
                self.endpoint.disconnect();
                return Some(Output::Failed(failure));
            }
            if self.state == State::Over {
                return None;
            }
            // What was received before the end of a connection still counts.
            if let Some(completion) = self.endpoint.poll_completion() {
                if let Some(output) = self.on_completion(now, completion) {
                    return Some(output);
                }
                continue;
            }
            match self.endpoint.poll_event() {
                Some(event) => self.on_event(now, &event),
                None => return self.progress(now),
            }
        }
    }

    /// Tells how far a bandwidth test is, once for each part of it; and that the test has ended.
    fn progress(&mut self, now: Instant) -> Option<Output> {
        let elapsed = now - self.started;
        let part = (self.test.iterations / PARTS).max(1);
        let due = self.told.saturating_add(part).min(self.test.iterations);
        if self.test.mode == Mode::Bandwidth && self.done >= due && self.done > self.told {
            self.told = self.done;
            return Some(Output::Progress(Step { done: self.done, elapsed }));
        }
        if self.done < self.test.iterations {
            return None;
        }
        self.state = State::Over;
        self.endpoint.disconnect();
        Some(Output::Finished(elapsed))
    }

    fn fail(&mut self, failure: Failure) {
        if self.state != State::Over {
            self.failure.get_or_insert(failure);
        }
    }

    fn on_event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Established { private_data } => match Answer::parse(private_data) {
                Some(Answer::Taken(remote)) => self.begin(now, remote),
                _ => self.fail(Failure::Refused(None)),
            },
            Event::Rejected { private_data } => {
                let why = match Answer::parse(private_data) {
                    Some(Answer::Refused(why)) => Some(why),
                    _ => None,
                };
                self.fail(Failure::Refused(why));
            }
            Event::Disconnected(why) => self.fail(Failure::Disconnected(*why)),
            Event::Requested { .. } => self.fail(Failure::Nonsense),
        }
    }

    fn begin(&mut self, now: Instant, remote: Remote) {
        if remote.length < self.test.size && self.test.verb != Verb::Send {
            return self.fail(Failure::Nonsense);
        }
        let size = self.test.size;
        self.remote = Some(Remote { length: size, ..remote });
        self.state = State::Running;
        if let Test { verb: Verb::Write, mode: Mode::Latency, .. } = self.test {
            // The server writes back, so it is lent memory, too.
            match self.endpoint.register(Exposure::Write(size)) {
                Ok(lent) => self.post(NOTICE, notice(&emit_region(lent))),
                Err(_) => return self.fail(Failure::NoMemory),
            }
        }
        self.started = now;
        self.go_on(now);
    }

    fn post(&mut self, id: u64, operation: Operation) {
        // The answer of a latency test says more than a completion, which might cost a packet.
        let signalled = self.test.mode == Mode::Bandwidth;
        if let Err(error) = self.endpoint.post_send(SendRequest { id, operation, signalled }) {
            self.fail(Failure::Post(error));
        }
    }

    /// Begins as many iterations as may be under way.
    fn go_on(&mut self, now: Instant) {
        let Some(remote) = self.remote else { return };
        while self.state == State::Running
            && self.failure.is_none()
            && self.begun < self.test.iterations
            && self.begun - self.completed.min(self.done) < self.window
        {
            self.begun += 1;
            self.began = now;
            let data = self.data.clone();
            let operation = match self.test.verb {
                Verb::Send => message(data),
                Verb::Write => Operation::Write { data, remote },
                Verb::Read => Operation::Read { remote },
            };
            self.post(DATA, operation);
            if self.announces() {
                self.post(NOTICE, message(Buffer::EMPTY));
            }
        }
    }

    /// Whether an empty message goes behind the latest request.
    const fn announces(&self) -> bool {
        match (self.test.verb, self.test.mode) {
            (Verb::Write, Mode::Latency) => true,
            (Verb::Write, Mode::Bandwidth) => self.begun == self.test.iterations,
            _ => false,
        }
    }

    fn on_completion(&mut self, now: Instant, completion: WorkCompletion) -> Option<Output> {
        match completion.result {
            Err(error) => {
                // A flushed request says nothing that the end of the connection does not.
                if error != WorkError::Flushed {
                    self.fail(Failure::Work(error));
                }
                None
            }
            Ok(Done::Received { data, .. }) => self.on_message(now, &data),
            Ok(Done::Read(data)) => {
                if data.len() != self.test.size as usize {
                    self.fail(Failure::Nonsense);
                    return None;
                }
                self.completed += 1;
                self.on_done(now, 1)
            }
            Ok(Done::Sent | Done::Written) if completion.id == DATA => {
                self.completed += 1;
                // The server's word ends a write of the last iteration, or of a latency test.
                let counts = self.test.verb == Verb::Write
                    && self.test.mode == Mode::Bandwidth
                    && self.completed < self.test.iterations;
                if counts {
                    return self.on_done(now, 1);
                }
                self.go_on(now);
                None
            }
            Ok(Done::Sent | Done::Written) => None,
        }
    }

    fn on_message(&mut self, now: Instant, data: &[u8]) -> Option<Output> {
        let length_max = self.test.size.max(NOTICE_LENGTH);
        if let Err(error) = self.endpoint.post_receive(ReceiveRequest { id: DATA, length_max }) {
            self.fail(Failure::Post(error));
        }
        let more = match (self.test.verb, self.test.mode) {
            (Verb::Send, Mode::Latency) if data.len() == self.test.size as usize => Some(1),
            (Verb::Write, Mode::Latency) if data.is_empty() => Some(1),
            // The server counts what has come.
            (Verb::Send, Mode::Bandwidth) => parse_count(data).and_then(|all| all.checked_sub(self.done)),
            (Verb::Write, Mode::Bandwidth) if data.is_empty() => Some(self.begun - self.done),
            _ => None,
        };
        match more.filter(|more| *more > 0 && self.begun - self.done >= *more) {
            Some(more) => self.on_done(now, more),
            None => {
                self.fail(Failure::Nonsense);
                None
            }
        }
    }

    fn on_done(&mut self, now: Instant, count: u32) -> Option<Output> {
        self.done += count;
        if self.test.mode == Mode::Latency {
            self.completed = self.done;
        }
        let length = now - self.began;
        self.go_on(now);
        (self.test.mode == Mode::Latency).then_some(Output::Sample(length))
    }
}

/// The count that a server tells.
fn parse_count(data: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(data.try_into().ok()?))
}

/// Messages of the server that may wait for the client. A server tells a count for each half of
/// what may be under way, rounded down, and one more at the end: four messages. With as many
/// receive requests as this, no end of a latency test of RoCE asks for acknowledgements because it
/// may run out of them.
pub(super) const RECEIVES: u16 = 24;
/// How many times a bandwidth test tells its progress.
const PARTS: u32 = 16;
