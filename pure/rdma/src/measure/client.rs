//! The end that measures.

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

/// What a measurement tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// An iteration of a latency test has ended, after this time: to and fro.
    Sample(Nanos),
    /// So many iterations of a bandwidth test have ended.
    Progress(Step),
    /// Another connection to the same server is wanted. The owner gives it to [`Client::join`], or
    /// says by [`Client::refused`] that there is none.
    Connect,
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
    /// The server is one of perftest, of a version that is not spoken here.
    Version(Version),
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
            Self::Version(found) => {
                write!(
                    f,
                    "the server speaks version {found} of perftest; expected {} or later",
                    Version::OLDEST
                )
            }
            Self::Nonsense => f.write_str("the server said what has no place in the test"),
            Self::Work(error) => write!(f, "a request has failed: {error}"),
            Self::Post(error) => write!(f, "a request was not taken: {error}"),
            Self::NoMemory => f.write_str("no memory could be lent to the server"),
            Self::Disconnected(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for Failure {}

/// Who the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A [`Server`](super::Server).
    Farlane,
    /// A program of perftest, which was given the same test, with `-R`.
    Perftest,
    /// rdma-core's `rping -s`. Each iteration is one of its pings: a read and a write of `size`
    /// bytes by the server, and two messages each way. Nothing else of the test counts.
    Rping,
}

impl Peer {
    /// The private data with which the server is asked for `test`.
    pub fn private_data(self, test: &Test) -> Vec<u8> {
        match self {
            Self::Farlane => test.emit().to_vec(),
            Self::Perftest | Self::Rping => Vec::new(),
        }
    }
}

/// What a step of a talk tells, or why it has failed.
pub(super) type Heard = Result<Option<Output>, Failure>;

/// What a client and its server have to tell each other.
pub(super) trait Talk<E>: fmt::Debug {
    /// The connection is being asked for.
    fn begin(&mut self, end: &mut E) -> Result<(), Failure>;

    /// News of the connection with this number.
    fn on_event(&mut self, ends: &mut [E], which: usize, now: Instant, event: &Event) -> Heard;

    /// A request has ended well on the connection with this number.
    fn on_done(&mut self, ends: &mut [E], which: usize, now: Instant, done: (u64, Done)) -> Heard;

    /// Nothing more has come.
    fn poll(&mut self, ends: &mut [E], now: Instant) -> Heard;

    /// There is no further connection now.
    fn on_refused(&mut self, _now: Instant) {}

    /// When to poll even without news.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether news show in memory only, and nothing tells of them.
    fn is_watching(&self) -> bool {
        false
    }
}

/// The end of a connection that measures, and of a second one with servers that want it.
#[derive(Debug)]
pub struct Client<E> {
    ends: Vec<E>,
    talk: Box<dyn Talk<E>>,
    failure: Option<Failure>,
    is_over: bool,
}

impl<E: Endpoint> Client<E> {
    /// A measurement over `endpoint`, which is asking a `peer` for its connection with the private
    /// data [`Peer::private_data`]. What is sent is a block of `pool`.
    pub fn new(mut endpoint: E, test: Test, peer: Peer, pool: &SharedPool) -> Self {
        let limits = endpoint.limits();
        let mut talk: Box<dyn Talk<E>> = match peer {
            Peer::Farlane => Box::new(Own::new(test, limits, pool)),
            Peer::Perftest => Box::new(Perftest::new(test, pool)),
            Peer::Rping => Box::new(Pings::new(test, pool)),
        };
        // The connection cannot be made without receive requests, and then it is over.
        let failure = talk.begin(&mut endpoint).err();
        Self { ends: vec![endpoint], talk, failure, is_over: false }
    }

    /// The endpoints, for whoever moves their bytes: the first, and what was joined.
    pub fn endpoints_mut(&mut self) -> &mut [E] {
        &mut self.ends
    }

    /// The endpoints, for whoever looks at them.
    pub fn endpoints(&self) -> &[E] {
        &self.ends
    }

    /// Gives the connection that [`Output::Connect`] asks for. It is being asked for, without
    /// private data, and replaces one that was not made.
    pub fn join(&mut self, endpoint: E) {
        self.ends.truncate(1);
        self.ends.push(endpoint);
    }

    /// Says that the connection that [`Output::Connect`] asks for cannot be had now.
    pub fn refused(&mut self, now: Instant) {
        self.talk.on_refused(now);
    }

    /// When to poll even without news.
    pub fn deadline(&self) -> Option<Instant> {
        self.talk.deadline()
    }

    /// Whether the owner is to poll without a pause: what the server does shows in memory only.
    pub fn is_watching(&self) -> bool {
        !self.is_over && self.talk.is_watching()
    }

    /// Ends the measurement. Nothing more is told.
    pub fn stop(&mut self) {
        self.is_over = true;
        self.ends.iter_mut().for_each(Endpoint::disconnect);
    }

    /// What the measurement tells next.
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

    /// What the next news of an endpoint tell; `None` if there are none.
    fn hear(&mut self, now: Instant) -> Option<Heard> {
        for which in 0..self.ends.len() {
            // What was received before the end of a connection still counts.
            if let Some(completion) = self.ends[which].poll_completion() {
                return Some(match completion.result {
                    Ok(done) => self.talk.on_done(&mut self.ends, which, now, (completion.id, done)),
                    // A flushed request says nothing that the end of the connection does not.
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
