//! The end that serves measurements.

use engine::{Buffer, Instant};

use super::perftest::{Control, Data, Desk};
use super::rping::{Rping, is_rping};
use super::run::RECEIVES;
use super::wire::{Answer, parse_region};
use super::{
    DATA, Mode, NOTICE, NOTICE_LENGTH, Refusal, SILENCE_MAX, Test, Verb, message, notice, pattern, zeros,
};
use crate::{
    Done, Endpoint, Event, Exposure, Key, Operation, ReceiveRequest, Remote, SendRequest, SharedPool,
};

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes of an iteration.
    pub size: u32,
    /// Maximum number of requests at a time; no more than the endpoint has receive requests.
    pub depth: u16,
    /// Whether the server refuses further tests at present.
    pub busy: bool,
}

/// An accepted test.
#[derive(Debug)]
struct Running {
    test: Test,
    /// The payload of answers.
    data: Buffer,
    /// Memory of the client, to which the server writes back.
    remote: Option<Remote>,
    /// Number of messages received, and how many of them the server has reported to the client.
    come: u32,
    reported: u32,
}

/// The fault when the endpoint rejects receive requests.
pub(super) const NO_RECEIVES: &str = "the endpoint rejects receive requests";

/// The kind of client.
#[derive(Debug)]
enum Role {
    /// The client has not asked yet.
    Unknown,
    Farlane(Running),
    Rping(Rping),
    /// The first and the second connection of a client of perftest.
    Control(Control),
    Data(Data),
}

/// The serving end of a measured connection.
#[derive(Debug)]
pub struct Server<E> {
    endpoint: E,
    limits: Limits,
    pool: SharedPool,
    desk: Option<Desk>,
    role: Role,
    /// When the client must have sent its next message.
    deadline: Instant,
    is_over: bool,
    fault: Option<&'static str>,
}

impl<E: Endpoint> Server<E> {
    /// Creates an end whose `endpoint` has a client's connection request. Its payloads are blocks
    /// of `pool`. With a `desk`, a client without private data is perftest's, otherwise rping.
    pub fn new(now: Instant, endpoint: E, limits: Limits, pool: SharedPool, desk: Option<Desk>) -> Self {
        let deadline = now + SILENCE_MAX;
        let role = Role::Unknown;
        Self { endpoint, limits, pool, desk, role, deadline, is_over: false, fault: None }
    }

    /// The endpoint, for inspection.
    pub const fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint, for the owner to move its bytes.
    pub const fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// When a silent client loses its connection.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Why a client of perftest or rping was turned away. Returns each reason once.
    pub const fn take_fault(&mut self) -> Option<&'static str> {
        self.fault.take()
    }

    /// Whether the owner must settle without a pause: the client's progress shows in memory only.
    pub fn is_watching(&self) -> bool {
        matches!(&self.role, Role::Data(data) if data.is_watching())
    }

    /// Handles all events of the endpoint. Returns whether the connection continues. If not, the
    /// owner drops it, after the endpoint has sent its last bytes.
    pub fn settle(&mut self, now: Instant) -> bool {
        while !self.is_over {
            if let Some(completion) = self.endpoint.poll_completion() {
                match completion.result {
                    Ok(done) => self.on_done(now, done),
                    Err(_) => self.end(),
                }
                continue;
            }
            match self.endpoint.poll_event() {
                Some(Event::Requested { private_data }) => self.on_request(now, &private_data),
                Some(Event::Established { .. }) => self.deadline = now + SILENCE_MAX,
                Some(Event::Rejected { .. } | Event::Disconnected(_)) => self.is_over = true,
                // The server does not see the client's reads and writes, so these tests have no
                // shorter limit.
                None if self.deadline <= now => self.end(),
                None => {
                    self.go_on(now);
                    break;
                }
            }
        }
        if self.is_over {
            // The client's other connection then ends as well.
            self.role = Role::Unknown;
        }
        !self.is_over
    }

    fn end(&mut self) {
        self.is_over = true;
        self.endpoint.disconnect();
    }

    fn fail(&mut self, fault: &'static str) {
        self.fault = Some(fault);
        self.end();
    }

    /// Handles the success of a request.
    fn on_done(&mut self, now: Instant, done: Done) {
        if let Done::Received { .. } = done {
            self.deadline = now + SILENCE_MAX;
        }
        let outcome = match (&mut self.role, done) {
            (Role::Control(control), Done::Received { data, .. }) => {
                control.on_word(&mut self.endpoint, now, &data)
            }
            (Role::Data(data), done) => data.on_done(&mut self.endpoint, &done),
            (_, Done::Sent | Done::Written) => Ok(()),
            (_, done) => {
                if self.on_our_done(done).is_none() {
                    self.end();
                }
                Ok(())
            }
        };
        if let Err(fault) = outcome {
            self.fail(fault);
        }
    }

    /// The same, for clients other than those of perftest.
    fn on_our_done(&mut self, done: Done) -> Option<()> {
        match (done, &mut self.role) {
            (Done::Received { data, .. }, Role::Rping(rping)) => rping.on_message(&mut self.endpoint, &data),
            (Done::Received { data, .. }, _) => self.on_message(&data),
            (Done::Read(data), Role::Rping(rping)) => rping.on_read(&mut self.endpoint, data),
            _ => None,
        }
    }

    /// Performs the due actions when there is no event.
    fn go_on(&mut self, now: Instant) {
        match &mut self.role {
            Role::Control(control) => match control.check(now) {
                Ok(until) => self.deadline = until.map_or(self.deadline, |until| self.deadline.min(until)),
                Err(fault) => self.fail(fault),
            },
            Role::Data(data) => match data.go_on(&mut self.endpoint, now) {
                Ok(true) => {}
                Ok(false) => self.end(),
                Err(fault) => self.fail(fault),
            },
            Role::Unknown | Role::Farlane(_) | Role::Rping(_) => {}
        }
    }

    fn on_request(&mut self, now: Instant, private_data: &[u8]) {
        if is_rping(private_data) && !self.limits.busy {
            return self.on_silent_request(now);
        }
        let answer = match self.take(private_data) {
            Ok((running, remote)) => {
                self.role = Role::Farlane(running);
                return self.endpoint.accept(&Answer::Taken(remote).emit());
            }
            Err(why) => Answer::Refused(why),
        };
        self.endpoint.reject(&answer.emit());
        self.is_over = true;
    }

    /// Handles a connection request without private data.
    fn on_silent_request(&mut self, now: Instant) {
        let end = &mut self.endpoint;
        let role = match &self.desk {
            None => Rping::begin(end, self.limits.size).map(Role::Rping).ok_or(NO_RECEIVES),
            Some(desk) if desk.awaits() => Data::begin(desk, end, &self.pool).map(Role::Data),
            Some(desk) if desk.is_free() => {
                Control::begin(desk, end, now).map(Role::Control).ok_or(NO_RECEIVES)
            }
            Some(_) => Err("one client of perftest is served at a time"),
        };
        match role {
            Ok(role) => {
                self.role = role;
                self.endpoint.accept(&[]);
            }
            Err(fault) => {
                self.fault = Some(fault);
                self.endpoint.reject(&[]);
                self.is_over = true;
            }
        }
    }

    fn take(&mut self, private_data: &[u8]) -> Result<(Running, Remote), Refusal> {
        let test = Test::parse(private_data)?;
        let limits = self.endpoint.limits();
        if test.size > self.limits.size.min(limits.message_bytes) {
            return Err(Refusal::Size);
        }
        let deep = test.mode == Mode::Bandwidth && test.verb == Verb::Send;
        let least = if deep { test.depth } else { 2 };
        if least > self.limits.depth.min(limits.receive_requests) {
            return Err(Refusal::Depth);
        }
        let receives = least.max(RECEIVES.min(limits.receive_requests));
        if self.limits.busy {
            return Err(Refusal::Busy);
        }
        let exposure = match test.verb {
            Verb::Send => None,
            Verb::Write => Some(Exposure::Write(test.size)),
            Verb::Read => Some(Exposure::Read(zeros(test.size))),
        };
        let nothing = Remote { key: Key(0), address: 0, length: 0 };
        let remote = exposure.map_or(Ok(nothing), |exposure| self.endpoint.register(exposure));
        let remote = remote.map_err(|_| Refusal::Busy)?;
        for _ in 0..receives {
            self.post_receive(test).ok_or(Refusal::Busy)?;
        }
        let returns = test.mode == Mode::Latency && test.verb != Verb::Read;
        let data = if returns { pattern(&self.pool, test.size) } else { Buffer::EMPTY };
        Ok((Running { test, data, remote: None, come: 0, reported: 0 }, remote))
    }

    fn post_receive(&mut self, test: Test) -> Option<()> {
        let length_max = match test.verb {
            Verb::Send => test.size,
            Verb::Write | Verb::Read => NOTICE_LENGTH,
        };
        self.endpoint.post_receive(ReceiveRequest { id: DATA, length_max }).ok()
    }

    fn post(&mut self, id: u64, operation: Operation) -> Option<()> {
        // Completions have no use here. In a latency test, they might cost packets.
        let is_latency = matches!(&self.role, Role::Farlane(one) if one.test.mode == Mode::Latency);
        self.endpoint.post_send(SendRequest { id, operation, signalled: !is_latency }).ok()
    }

    /// Answers a message of the client. `None` if the test does not have it at this point, or the
    /// endpoint rejects the answer.
    fn on_message(&mut self, message_of_client: &[u8]) -> Option<()> {
        let Role::Farlane(running) = &mut self.role else { return None };
        let test = running.test;
        running.come = running.come.checked_add(1)?;
        let (come, data) = (running.come, running.data.clone());
        match (test.verb, test.mode) {
            (Verb::Send, _) if message_of_client.len() != test.size as usize => None,
            (Verb::Send, Mode::Latency) => {
                self.post_receive(test)?;
                self.post(DATA, message(data))
            }
            (Verb::Send, Mode::Bandwidth) => {
                let is_due = come - running.reported >= u32::from(test.depth / 2).max(1);
                if is_due || come == test.iterations {
                    running.reported = come;
                    self.post_receive(test)?;
                    return self.post(NOTICE, notice(&come.to_le_bytes()));
                }
                self.post_receive(test)
            }
            (Verb::Write, Mode::Latency) => match (running.remote, message_of_client) {
                (None, region) => {
                    let remote = parse_region(region).filter(|remote| remote.length == test.size)?;
                    running.remote = Some(remote);
                    self.post_receive(test)
                }
                (Some(remote), []) => {
                    self.post_receive(test)?;
                    self.post(DATA, Operation::Write { data, remote })?;
                    self.post(NOTICE, message(Buffer::EMPTY))
                }
                _ => None,
            },
            (Verb::Write, Mode::Bandwidth) if message_of_client.is_empty() => {
                self.post_receive(test)?;
                self.post(NOTICE, message(Buffer::EMPTY))
            }
            (Verb::Write, Mode::Bandwidth) | (Verb::Read, _) => None,
        }
    }
}
