//! The iterations of a test at the measuring end.

use engine::{Buffer, Instant};

use super::{DATA, Failure, Mode, NOTICE, NOTICE_LENGTH, Output, Step, Test, Verb, message, pattern};
use crate::{
    Done, Endpoint, Key, Limits, Operation, PostError, ReceiveRequest, Remote, SendRequest, SharedPool,
};

/// Messages of the server that may wait for the client. A server sends a count for each half of the
/// requests in progress, rounded down, and one more at the end: four messages. With this many
/// receive requests, neither end of a latency test over RoCE requests acknowledgements because it
/// may run out of receive requests.
pub(super) const RECEIVES: u16 = 24;
/// Number of progress reports of a bandwidth test.
const PARTS: u32 = 16;

/// The sign of progress of a server that sends no messages: its writes into memory of this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// Where it writes, and how much.
    pub(super) memory: Remote,
    /// Number of the server's receive requests. The server writes how many messages it has
    /// received.
    pub(super) receives: u32,
}

/// The end of an iteration.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// A message of the server, which counts messages and answers writes.
    Announced,
    /// The completion of the client's own request, as in perftest. The number counts the writes
    /// that arrived, or the sends that the server has received.
    Seen(Option<Watched>, u32),
}

/// The iterations of a test: those in progress, and the duration of each.
#[derive(Debug)]
pub(super) struct Run {
    test: Test,
    manner: Manner,
    pool: SharedPool,
    data: Buffer,
    /// Memory that the server lends, once the test has begun.
    remote: Option<Remote>,
    /// Counts of iterations begun, of those whose own request has ended, and of those that have
    /// ended.
    begun: u32,
    completed: u32,
    done: u32,
    /// Maximum number of iterations in progress, and number of receive requests.
    window: u32,
    receives: u16,
    started: Instant,
    /// When the current iteration of a latency test began.
    began: Instant,
    /// Number of iterations that progress reports have covered.
    reported: u32,
}

impl Run {
    /// Iterations over an endpoint with `limits`. The server sends a message at the end of each.
    /// The payload is a block of `pool`.
    pub(super) fn announced(test: Test, limits: Limits, pool: &SharedPool) -> Self {
        // A write may have a message behind it, so one place of the send queue stays reserved for
        // it.
        let room = limits.send_requests.saturating_sub(1).min(limits.receive_requests);
        let window = match test.mode {
            Mode::Latency => 1,
            Mode::Bandwidth => test.depth.min(room).max(1).into(),
        };
        Self {
            test,
            manner: Manner::Announced,
            pool: SharedPool::clone(pool),
            data: pattern(pool, test.size),
            remote: None,
            begun: 0,
            completed: 0,
            done: 0,
            window,
            receives: RECEIVES.min(limits.receive_requests),
            started: Instant::ZERO,
            began: Instant::ZERO,
            reported: 0,
        }
    }

    /// Iterations that end with the client's own requests.
    pub(super) fn seen(test: Test, limits: Limits, watched: Option<Watched>, pool: &SharedPool) -> Self {
        Self { manner: Manner::Seen(watched, 0), ..Self::announced(test, limits, pool) }
    }

    /// Posts requests for the messages of the server.
    pub(super) fn post_receives(&self, end: &mut impl Endpoint) -> Result<(), PostError> {
        (0..self.receives).try_for_each(|_| end.post_receive(self.receive()))
    }

    fn receive(&self) -> ReceiveRequest {
        ReceiveRequest { id: DATA, length_max: self.test.size.max(NOTICE_LENGTH) }
    }

    /// Begins with the first iteration. `remote` is memory that the server lends.
    pub(super) fn begin(
        &mut self,
        end: &mut impl Endpoint,
        now: Instant,
        remote: Remote,
    ) -> Result<(), Failure> {
        self.remote = Some(Remote { length: self.test.size, ..remote });
        self.started = now;
        self.go_on(end, now)
    }

    /// Begins as many iterations as the window allows.
    fn go_on(&mut self, end: &mut impl Endpoint, now: Instant) -> Result<(), Failure> {
        let Some(remote) = self.remote else { return Ok(()) };
        while self.begun < self.test.iterations
            && self.begun - self.completed.min(self.done) < self.window
            && self.is_answered()
        {
            self.begun += 1;
            self.began = now;
            let operation = match self.test.verb {
                Verb::Send => message(self.data.clone()),
                Verb::Write => Operation::Write { data: self.next_data(), remote },
                Verb::Read => Operation::Read { remote },
            };
            self.post(end, DATA, operation)?;
            if self.announces() {
                self.post(end, NOTICE, message(Buffer::EMPTY))?;
            }
        }
        Ok(())
    }

    fn post(&self, end: &mut impl Endpoint, id: u64, operation: Operation) -> Result<(), Failure> {
        // The answer of a latency test makes a completion redundant, and that might cost a packet.
        // For a last write without an answer, the completion is the end.
        let signalled = self.test.mode == Mode::Bandwidth
            || matches!((self.manner, self.test.verb), (Manner::Seen(..), Verb::Write));
        end.post_send(SendRequest { id, operation, signalled }).map_err(Failure::Post)
    }

    /// Whether a server that sends no messages is as far as the next iteration needs it.
    const fn is_answered(&self) -> bool {
        match (self.test.verb, self.test.mode, self.manner) {
            // Each write answers one of the server.
            (Verb::Write, Mode::Latency, Manner::Seen(Some(_), come)) => self.begun < come,
            (Verb::Send, Mode::Bandwidth, Manner::Seen(Some(watched), received)) => {
                self.begun + 1 - received < watched.receives
            }
            _ => true,
        }
    }

    /// The payload of the next write. The reader of the memory waits for its last byte, a number.
    fn next_data(&self) -> Buffer {
        match (self.test.mode, self.manner) {
            (Mode::Latency, Manner::Seen(..)) => numbered(&self.pool, &self.data, self.begun),
            _ => self.data.clone(),
        }
    }

    /// Whether an empty message follows the latest request.
    const fn announces(&self) -> bool {
        match (self.test.verb, self.test.mode, self.manner) {
            (Verb::Write, Mode::Latency, Manner::Announced) => true,
            (Verb::Write, Mode::Bandwidth, Manner::Announced) => self.begun == self.test.iterations,
            _ => false,
        }
    }

    /// Whether the owner must poll the memory, because no message announces a write.
    pub(super) const fn is_watching(&self) -> bool {
        self.remote.is_some() && matches!(self.manner, Manner::Seen(Some(_), _))
    }

    /// Whether every write of a latency test is answered, apart from the last, which has no answer.
    pub(super) fn awaits_only_acknowledgements(&self) -> bool {
        let is_seen = matches!(self.manner, Manner::Seen(..));
        let is_write = (self.test.verb, self.test.mode) == (Verb::Write, Mode::Latency);
        self.remote.is_some() && is_seen && is_write && self.begun == self.test.iterations
    }

    /// The server's end of the connection acknowledges the writes.
    pub(super) const fn on_acknowledged(&mut self) {
        (self.completed, self.done) = (self.begun, self.begun);
    }

    /// Checks the memory for writes of the server.
    pub(super) fn look(&mut self, end: &mut impl Endpoint, now: Instant) -> Result<Option<Output>, Failure> {
        let Manner::Seen(Some(watched), seen) = self.manner else { return Ok(None) };
        if self.remote.is_none() || self.is_answered() {
            return Ok(None);
        }
        let Remote { key, length, .. } = watched.memory;
        let (seen, output) = match self.test.verb {
            Verb::Send => (received(end, key, seen..=self.begun)?, None),
            _ if !has_come(end, key, length, seen + 1) => return Ok(None),
            // The first write of the server is not an answer.
            _ => (seen + 1, (seen > 0).then(|| Output::Sample(now - self.began))),
        };
        self.manner = Manner::Seen(Some(watched), seen);
        self.go_on(end, now)?;
        Ok(output)
    }

    /// Handles the success of a request.
    pub(super) fn on_done(
        &mut self,
        end: &mut impl Endpoint,
        now: Instant,
        (id, done): (u64, Done),
    ) -> Result<Option<Output>, Failure> {
        match done {
            Done::Received { data, .. } => self.on_message(end, now, &data),
            Done::Read(data) if data.len() != self.test.size as usize => Err(Failure::Nonsense),
            Done::Read(_) => {
                self.completed += 1;
                self.on_ended(end, now, 1)
            }
            Done::Sent | Done::Written if id == DATA => {
                self.completed += 1;
                match (self.manner, self.test.verb, self.test.mode) {
                    // The server's message ends a write of the last iteration, or of a latency
                    // test.
                    (Manner::Announced, Verb::Write, Mode::Bandwidth)
                        if self.completed < self.test.iterations =>
                    {
                        self.on_ended(end, now, 1)
                    }
                    (Manner::Seen(..), _, Mode::Bandwidth) => self.on_ended(end, now, 1),
                    (Manner::Seen(..), Verb::Write, Mode::Latency) => {
                        self.done += 1;
                        self.go_on(end, now).map(|()| None)
                    }
                    _ => self.go_on(end, now).map(|()| None),
                }
            }
            Done::Sent | Done::Written => Ok(None),
        }
    }

    fn on_message(
        &mut self,
        end: &mut impl Endpoint,
        now: Instant,
        data: &[u8],
    ) -> Result<Option<Output>, Failure> {
        end.post_receive(self.receive()).map_err(Failure::Post)?;
        let more = match (self.test.verb, self.test.mode, self.manner) {
            (Verb::Send, Mode::Latency, _) if data.len() == self.test.size as usize => Some(1),
            (Verb::Write, Mode::Latency, Manner::Announced) if data.is_empty() => Some(1),
            // The server's message is a count of received messages.
            (Verb::Send, Mode::Bandwidth, Manner::Announced) => {
                parse_count(data).and_then(|all| all.checked_sub(self.done))
            }
            (Verb::Write, Mode::Bandwidth, Manner::Announced) if data.is_empty() => {
                Some(self.begun - self.done)
            }
            _ => None,
        };
        match more.filter(|more| *more > 0 && self.begun - self.done >= *more) {
            Some(more) => self.on_ended(end, now, more),
            None => Err(Failure::Nonsense),
        }
    }

    /// Records the end of `count` iterations.
    fn on_ended(
        &mut self,
        end: &mut impl Endpoint,
        now: Instant,
        count: u32,
    ) -> Result<Option<Output>, Failure> {
        self.done += count;
        if self.test.mode == Mode::Latency {
            self.completed = self.done;
        }
        let length = now - self.began;
        self.go_on(end, now)?;
        Ok((self.test.mode == Mode::Latency).then_some(Output::Sample(length)))
    }

    /// Reports the progress of a bandwidth test, once for each part of it, and the end of the test.
    pub(super) fn progress(&mut self, now: Instant) -> Option<Output> {
        let Test { iterations, mode, .. } = self.test;
        self.remote?;
        let elapsed = now - self.started;
        let is_due = self.done - self.reported >= (iterations / PARTS).max(1) || self.done == iterations;
        if mode == Mode::Bandwidth && is_due && self.done > self.reported {
            self.reported = self.done;
            return Some(Output::Progress(Step { done: self.done, elapsed }));
        }
        if self.done < iterations {
            return None;
        }
        self.remote = None;
        Some(Output::Finished(elapsed))
    }
}

/// Parses the count in a server's message.
fn parse_count(data: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(data.try_into().ok()?))
}

/// A copy of `data` whose last byte is the low byte of `number`: perftest's mark of a write.
pub(super) fn numbered(pool: &SharedPool, data: &[u8], number: u32) -> Buffer {
    let mut place = pool.borrow_mut().take(data.len());
    place.copy_from_slice(data);
    if let Some(last) = place.last_mut() {
        *last = number.to_le_bytes()[0];
    }
    pool.borrow_mut().seal(place)
}

/// Whether the write with this number has arrived completely in the `length` bytes behind `key`.
pub(super) fn has_come(end: &mut impl Endpoint, key: Key, length: u32, number: u32) -> bool {
    let mut last = [0];
    end.peek(key, length.saturating_sub(1), &mut last) && last == [number.to_le_bytes()[0]]
}

/// Reads the server's count of received messages: a number from its last count up to the number of
/// messages sent.
fn received(
    end: &mut impl Endpoint,
    key: Key,
    known: core::ops::RangeInclusive<u32>,
) -> Result<u32, Failure> {
    let mut count = [0; 4];
    if !end.peek(key, 0, &mut count) {
        return Ok(*known.start());
    }
    let count = u32::from_le_bytes(count);
    if known.contains(&count) { Ok(count) } else { Err(Failure::Nonsense) }
}
