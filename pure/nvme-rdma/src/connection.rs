//! The common part of both ends of a connection: an endpoint, a state, and the reason for its end.

use alloc::vec::Vec;
use core::fmt;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::wire::{CommandId, QueueId};
use rdma::{Disconnected, Done, Endpoint, Event, Key, Operation, PostError, ReceiveRequest, WorkError};

use crate::sender::Sender;
use crate::wire::{PrivateDataError, Rejection};

/// Set in the identifiers of receive requests, so that they differ from those of send requests.
const RECEIVE: u64 = 1 << 63;

/// The parameters that both ends have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The queue that the connection carries.
    pub queue: QueueId,
    /// The controller that the host has named (CNTLID); 0 on an Admin Queue.
    pub controller_id: u16,
    /// Receive requests that the host posts (HRQSIZE).
    pub host_receives: u16,
    /// Receive requests that the controller posts (CRQSIZE): no more commands may be outstanding.
    pub controller_receives: u16,
    /// Whether this end supports Send with Invalidate.
    pub remote_invalidate: bool,
}

impl fmt::Display for Parameters {
    /// Formats the queue's number and its size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let invalidate = if self.remote_invalidate { "" } else { ", no remote invalidation" };
        write!(f, "queue {}, {} commands{invalidate}", self.queue, self.controller_receives)
    }
}

/// How a peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message is shorter than the entry that it should be. Holds its length in bytes.
    CapsuleLength(usize),
    /// A response is to no outstanding command.
    UnknownCommand(CommandId),
    /// A response to this command invalidates a key that is not the command's.
    ForeignKey(CommandId),
    /// More commands are outstanding than the queue has.
    TooManyCommands,
    /// The private data of the acceptance are wrong.
    PrivateData(PrivateDataError),
    /// The owner of this end has found a fault.
    Command,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapsuleLength(length) => write!(f, "a capsule of {length} B is shorter than its entry"),
            Self::UnknownCommand(id) => write!(f, "a response to command {}, which is not outstanding", id.0),
            Self::ForeignKey(id) => {
                write!(f, "the response to command {} invalidates the key of another", id.0)
            }
            Self::TooManyCommands => f.write_str("more commands are outstanding than the queue has"),
            Self::PrivateData(error) => write!(f, "{error}"),
            Self::Command => f.write_str("a command that is not allowed now"),
        }
    }
}

impl core::error::Error for Fault {}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer broke the protocol.
    PeerFault(Fault),
    /// The controller refuses the connection for this reason; `None` if it gives no reason or an
    /// unknown one.
    Rejected(Option<Rejection>),
    /// The connection was not established in time.
    InitialiseTimeout,
    /// The endpoint reports that the connection is over.
    Disconnected(Disconnected),
    /// A request of this end has failed.
    Failed(WorkError),
    /// The endpoint does not take a request of this end.
    NotTaken(PostError),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerFault(fault) => write!(f, "the peer broke the protocol: {fault}"),
            Self::Rejected(Some(why)) => write!(f, "the controller refuses the connection: {why}"),
            Self::Rejected(None) => {
                f.write_str("the controller refuses the connection without a known reason")
            }
            Self::InitialiseTimeout => f.write_str("the connection was not established in time"),
            Self::Disconnected(why) => write!(f, "{why}"),
            Self::Failed(error) => write!(f, "a request has failed: {error}"),
            Self::NotTaken(error) => write!(f, "the endpoint does not take a request: {error}"),
        }
    }
}

impl core::error::Error for Closed {}

/// How far a connection is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The connection is not established.
    Initialising {
        deadline: Instant,
    },
    Ready,
    /// The end is reported to the owner next; then the connection is over.
    Closing(Closed),
    Over,
}

/// An event of an endpoint.
#[derive(Debug)]
pub(crate) enum News {
    /// The peer requests the connection, with this private data.
    Requested(Vec<u8>),
    /// The connection is established, with this private data.
    Established(Vec<u8>),
    /// The send request with this identifier is done.
    Done(u64, Done),
    /// A message of the peer, and the key that it has invalidated.
    Received(Buffer, Option<Key>),
}

/// One end of a connection, without the commands. `T` tags requests of the send queue.
#[derive(Debug)]
pub(crate) struct Core<E, T> {
    pub(crate) endpoint: E,
    state: State,
    pub(crate) sender: Sender<T>,
    /// Receive requests that were posted since the beginning.
    receives: u64,
}

impl<E: Endpoint, T> Core<E, T> {
    /// An end that waits for the connection to be established.
    pub(crate) fn new(endpoint: E, sender: Sender<T>, now: Instant, timeout: Nanos) -> Self {
        Self { endpoint, state: State::Initialising { deadline: now + timeout }, sender, receives: 0 }
    }

    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.state, State::Initialising { .. })
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Closing(_) | State::Over)
    }

    /// Marks the connection as established.
    pub(crate) const fn begin(&mut self) {
        self.state = State::Ready;
    }

    /// Ends the connection if it was not established in time.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.close(Closed::InitialiseTimeout);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Initialising { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Why the connection is over. Returned once.
    pub(crate) const fn take_closed(&mut self) -> Option<Closed> {
        let State::Closing(why) = self.state else { return None };
        self.state = State::Over;
        Some(why)
    }

    /// Posts a receive request for a message of at most `length_max` bytes.
    #[inline]
    pub(crate) fn post_receive(&mut self, length_max: u32) {
        let request = ReceiveRequest { id: RECEIVE | self.receives, length_max };
        self.receives += 1;
        if let Err(error) = self.endpoint.post_receive(request) {
            self.close(Closed::NotTaken(error));
        }
    }

    /// Posts a send request, or lets it wait for a place in the send queue.
    #[inline]
    pub(crate) fn post(&mut self, operation: Operation, tag: T, signal: bool) {
        if self.is_over() {
            return;
        }
        if let Err(error) = self.sender.post(&mut self.endpoint, operation, tag, signal) {
            self.close(Closed::NotTaken(error));
        }
    }

    /// Posts requests that have waited for a place in the send queue.
    #[inline]
    pub(crate) fn post_waiting(&mut self) {
        if let Err(error) = self.sender.post_waiting(&mut self.endpoint) {
            self.close(Closed::NotTaken(error));
        }
    }

    /// The next event of the endpoint. `None` if there is none, or the connection is over.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<News> {
        if self.is_over() {
            return None;
        }
        if let Some(completion) = self.endpoint.poll_completion() {
            let id = completion.id;
            return match completion.result {
                Ok(Done::Received { data, invalidated, .. }) => Some(News::Received(data, invalidated)),
                Ok(done) if id & RECEIVE == 0 && self.sender.knows(id) => Some(News::Done(id, done)),
                Ok(_) => {
                    self.close(Closed::Failed(WorkError::BadResponse));
                    None
                }
                Err(error) => {
                    self.on_failure(error);
                    None
                }
            };
        }
        match self.endpoint.poll_event()? {
            Event::Requested { private_data } => Some(News::Requested(private_data)),
            Event::Established { private_data } => Some(News::Established(private_data)),
            Event::Rejected { private_data } => {
                self.end(Closed::Rejected(Rejection::parse(&private_data)));
                None
            }
            Event::Disconnected(why) => {
                self.end(Closed::Disconnected(why));
                None
            }
        }
    }

    /// Handles a failed request. The endpoint's event has more details, if it is already available.
    #[cold]
    fn on_failure(&mut self, error: WorkError) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Disconnected(why) => return self.end(Closed::Disconnected(why)),
                Event::Rejected { private_data } => {
                    return self.end(Closed::Rejected(Rejection::parse(&private_data)));
                }
                _ => {}
            }
        }
        self.close(Closed::Failed(error));
    }

    /// Refuses the connection that the peer has requested.
    pub(crate) fn reject(&mut self, why: Rejection) {
        self.endpoint.reject(&why.emit());
        self.end(Closed::Rejected(Some(why)));
    }

    /// Ends the connection for the reason `why`.
    #[cold]
    pub(crate) fn close(&mut self, why: Closed) {
        if !self.is_over() {
            self.endpoint.disconnect();
            self.end(why);
        }
    }

    /// The connection has ended.
    fn end(&mut self, why: Closed) {
        self.state = State::Closing(why);
        self.sender.clear();
    }

    /// Ends the connection at once, without a report to the owner.
    pub(crate) fn give_up(&mut self) {
        if !self.is_over() {
            self.endpoint.disconnect();
        }
        self.state = State::Over;
        self.sender.clear();
    }
}

impl<E: Endpoint + Engine, T> Core<E, T> {
    /// Handles everything that has become due, also in the endpoint.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.on_time(now);
    }

    /// When [`Core::handle_timeout`] is due, if ever.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.endpoint.poll_timeout(), self.deadline()].into_iter().flatten().min()
    }
}
