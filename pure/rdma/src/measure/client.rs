//! The measuring end.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use engine::{Instant, Nanos};

use super::own::Own;
use super::perftest::{Perftest, Version};
use super::rping::Pings;
use super::{Refusal, Test};
use crate::{Disconnected, Done, Endpoint, Event, PostError, SharedPool, WorkError};

/// An output of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// An iteration of a latency test has ended. The duration is that of a round trip.
    Sample(Nanos),
    /// This many iterations of a bandwidth test have ended.
    Progress(Step),
    /// The client needs another connection to the same server. The owner passes it to
    /// [`Client::join`], or calls [`Client::refused`] if there is none.
    Connect,
    /// Every iteration has ended, this long after the first began. The client is ending the
    /// connection.
    Finished(Nanos),
    /// The measurement has failed. This is the last output.
    Failed(Failure),
}

/// The progress of a bandwidth test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Iterations that have ended.
    pub done: u32,
    /// The time since the first began.
    pub elapsed: Nanos,
}

/// Why a measurement has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses the test; `None` if its answer is invalid.
    Refused(Option<Refusal>),
    /// The server is a perftest program of an unsupported version.
    Version(Version),
    /// The server sent a message that the test does not have at this point.
    Nonsense,
    /// A request has failed.
    Work(WorkError),
    /// The endpoint rejects a request.
    Post(PostError),
    /// The endpoint cannot lend memory.
    NoMemory,
    /// The connection is over.
    Disconnected(Disconnected),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Some(why)) => write!(f, "the server refuses the test: {why}"),
            Self::Refused(None) => f.write_str("the listener there is not a measurement server"),
            Self::Version(found) => {
                write!(
                    f,
                    "the server speaks version {found} of perftest; expected {} or later",
                    Version::OLDEST
                )
            }
            Self::Nonsense => f.write_str("the server sent an unexpected message"),
            Self::Work(error) => write!(f, "a request has failed: {error}"),
            Self::Post(error) => write!(f, "the endpoint rejected a request: {error}"),
            Self::NoMemory => f.write_str("no memory could be lent to the server"),
            Self::Disconnected(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for Failure {}

/// The kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A [`Server`](super::Server).
    Farlane,
    /// A perftest program with the same test, started with `-R`.
    Perftest,
    /// rdma-core's `rping -s`. Each iteration is one of its pings: a read and a write of `size`
    /// bytes by the server, and two messages each way. Nothing else of the test counts.
    Rping,
}

impl Peer {
    /// The private data of the request for `test`.
    pub fn private_data(self, test: &Test) -> Vec<u8> {
        match self {
            Self::Farlane => test.emit().to_vec(),
            Self::Perftest | Self::Rping => Vec::new(),
        }
    }
}

/// The output of a step of the dialogue, or its failure.
pub(super) type Heard = Result<Option<Output>, Failure>;

/// The dialogue between a client and its server.
pub(super) trait Talk<E>: fmt::Debug {
    /// Prepares the endpoint while the connection is requested.
    fn begin(&mut self, end: &mut E) -> Result<(), Failure>;

    /// Handles an event of the connection with this number.
    fn on_event(&mut self, ends: &mut [E], which: usize, now: Instant, event: &Event) -> Heard;

    /// Handles the success of a request on the connection with this number.
    fn on_done(&mut self, ends: &mut [E], which: usize, now: Instant, done: (u64, Done)) -> Heard;

    /// Called when there is nothing more to handle.
    fn poll(&mut self, ends: &mut [E], now: Instant) -> Heard;

    /// Called when no further connection is available at present.
    fn on_refused(&mut self, _now: Instant) {}

    /// When to poll even without an event.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether the only sign of progress is in memory, without any event.
    fn is_watching(&self) -> bool {
        false
    }
}

/// The measuring end of a connection, and of a second one with servers that need it.
#[derive(Debug)]
pub struct Client<E> {
    ends: Vec<E>,
    talk: Box<dyn Talk<E>>,
    failure: Option<Failure>,
    is_over: bool,
}

impl<E: Endpoint> Client<E> {
    /// A measurement over `endpoint`, which is requesting a connection to `peer` with the private
    /// data [`Peer::private_data`]. The payload is a block of `pool`.
    pub fn new(mut endpoint: E, test: Test, peer: Peer, pool: &SharedPool) -> Self {
        let limits = endpoint.limits();
        let mut talk: Box<dyn Talk<E>> = match peer {
            Peer::Farlane => Box::new(Own::new(test, limits, pool)),
            Peer::Perftest => Box::new(Perftest::new(test, pool)),
            Peer::Rping => Box::new(Pings::new(test, pool)),
        };
        // A connection without receive requests cannot be established, and is over at once.
        let failure = talk.begin(&mut endpoint).err();
        Self { ends: vec![endpoint], talk, failure, is_over: false }
    }

    /// The endpoints, for the owner to move their bytes: the first, and the joined one.
    pub fn endpoints_mut(&mut self) -> &mut [E] {
        &mut self.ends
    }

    /// The endpoints, for inspection.
    pub fn endpoints(&self) -> &[E] {
        &self.ends
    }

    /// Passes in the connection that [`Output::Connect`] asks for. It is being requested without
    /// private data, and replaces a connection that failed.
    pub fn join(&mut self, endpoint: E) {
        self.ends.truncate(1);
        self.ends.push(endpoint);
    }

    /// Reports that the connection of [`Output::Connect`] is not available at present.
    pub fn refused(&mut self, now: Instant) {
        self.talk.on_refused(now);
    }

    /// When to poll even without an event.
    pub fn deadline(&self) -> Option<Instant> {
        self.talk.deadline()
    }

    /// Whether the owner must poll without a pause: the server's progress shows in memory only.
    pub fn is_watching(&self) -> bool {
        !self.is_over && self.talk.is_watching()
    }

    /// Ends the measurement. There are no more outputs.
    pub fn stop(&mut self) {
        self.is_over = true;
        self.ends.iter_mut().for_each(Endpoint::disconnect);
    }

    /// The next output.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        while !self.is_over {
            let heard = match self.failure.take() {
                Some(failure) => Err(failure),
                None => match self.hear(now) {
                    Some(heard) => heard,
                    None => match self.talk.poll(&mut self.ends, now) {
                        Ok(None) => return None,
                        heard => heard,
                    },
                },
            };
            match heard {
                Ok(None) => {}
                Ok(Some(output)) => {
                    if let Output::Finished(_) = output {
                        self.stop();
                    }
                    return Some(output);
                }
                Err(failure) => {
                    self.stop();
                    return Some(Output::Failed(failure));
                }
            }
        }
        None
    }

    /// The output of the next event of an endpoint; `None` if there is no event.
    fn hear(&mut self, now: Instant) -> Option<Heard> {
        for which in 0..self.ends.len() {
            // Messages received before the end of a connection still count.
            if let Some(completion) = self.ends[which].poll_completion() {
                return Some(match completion.result {
                    Ok(done) => self.talk.on_done(&mut self.ends, which, now, (completion.id, done)),
                    // A flushed request adds nothing to the end of the connection.
                    Err(WorkError::Flushed) => Ok(None),
                    Err(error) => Err(Failure::Work(error)),
                });
            }
            if let Some(event) = self.ends[which].poll_event() {
                return Some(self.talk.on_event(&mut self.ends, which, now, &event));
            }
        }
        None
    }
}
