//! Queue pairs: states, requests in order, completions.

use alloc::collections::VecDeque;
use core::fmt;

use engine::Buffer;

use crate::{
    Done, Key, Operation, PostError, ReceiveQueue, ReceiveRequest, SendRequest, SharedCompletionQueue,
    SharedReceiveQueue, WorkCompletion, WorkError,
};

/// The number of a queue pair (QPN), which also identifies the borrower of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePairId(pub u32);

/// The state of a queue pair (ibv_qp_state). The states of a send queue alone (SQD, SQE) do not
/// occur on reliable connections whose requests are checked when they are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing may be posted (RESET).
    Reset,
    /// Receive requests may be posted (INIT).
    Initialised,
    /// The queue pair accepts messages of the peer (RTR).
    ReadyToReceive,
    /// The queue pair accepts send requests as well (RTS).
    ReadyToSend,
    /// The connection is over; every request is flushed (ERROR).
    Error,
}

impl State {
    /// Whether a queue pair may go from this state to `next` (figure 124 of the specification).
    const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (_, Self::Error | Self::Reset)
                | (Self::Reset, Self::Initialised)
                | (Self::Initialised, Self::Initialised | Self::ReadyToReceive)
                | (Self::ReadyToReceive | Self::ReadyToSend, Self::ReadyToSend)
        )
    }
}

/// A change of state that the specification does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitionError {
    /// The state of the queue pair.
    pub from: State,
    /// The requested state.
    pub to: State,
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue pair in state {:?} cannot become {:?}", self.from, self.to)
    }
}

impl core::error::Error for TransitionError {}

/// The settings of a queue pair.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of the queue pair.
    pub id: QueuePairId,
    /// Maximum number of outstanding send requests.
    pub send_depth: u16,
    /// Maximum number of posted receive requests, unless the receive queue is shared.
    pub receive_depth: u16,
    /// The receive queue, if it is shared.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// The queue of its completions.
    pub completions: SharedCompletionQueue,
}

#[derive(Debug)]
enum Receives {
    Own(ReceiveQueue),
    Shared(SharedReceiveQueue),
}

/// A request that the wire protocol has taken.
#[derive(Debug)]
struct Taken {
    id: u64,
    /// The user wants a completion on success.
    signalled: bool,
}

impl From<&SendRequest> for Taken {
    fn from(request: &SendRequest) -> Self {
        let signalled = request.signalled || matches!(request.operation, Operation::Read { .. });
        Self { id: request.id, signalled }
    }
}

/// A queue pair without its wire protocol. The wire protocol takes send requests in order, and
/// reports their results in the same order.
#[derive(Debug)]
pub struct QueuePair {
    id: QueuePairId,
    state: State,
    send_depth: usize,
    posted: VecDeque<SendRequest>,
    taken: VecDeque<Taken>,
    receives: Receives,
    completions: SharedCompletionQueue,
}

impl QueuePair {
    /// A queue pair in state [`State::Reset`].
    pub fn new(config: Config) -> Self {
        Self {
            id: config.id,
            state: State::Reset,
            send_depth: config.send_depth.into(),
            posted: VecDeque::new(),
            taken: VecDeque::new(),
            receives: match config.shared_receives {
                Some(shared) => Receives::Shared(shared),
                None => Receives::Own(ReceiveQueue::new(config.receive_depth)),
            },
            completions: config.completions,
        }
    }

    /// The number of the queue pair.
    pub const fn id(&self) -> QueuePairId {
        self.id
    }

    /// The state of the queue pair.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Changes the state (ibv_modify_qp). [`State::Error`] flushes every request, [`State::Reset`]
    /// forgets them.
    ///
    /// # Errors
    /// When the specification does not allow the change.
    pub fn modify(&mut self, next: State) -> Result<(), TransitionError> {
        if !self.state.may_become(next) {
            return Err(TransitionError { from: self.state, to: next });
        }
        match next {
            State::Error => self.fail(WorkError::Flushed),
            State::Reset => {
                self.posted.clear();
                self.taken.clear();
                if let Receives::Own(own) = &mut self.receives {
                    while own.take().is_some() {}
                }
            }
            _ => {}
        }
        self.state = next;
        Ok(())
    }

    /// Posts a send request (ibv_post_send).
    ///
    /// # Errors
    /// When the queue pair rejects the request. In state [`State::Error`] it accepts and flushes
    /// it.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        match self.state {
            State::ReadyToSend => {}
            State::Error => {
                self.complete(request.id, Err(WorkError::Flushed));
                return Ok(());
            }
            _ => return Err(PostError::State),
        }
        if self.posted.len() + self.taken.len() >= self.send_depth {
            return Err(PostError::Full);
        }
        self.posted.push_back(request);
        Ok(())
    }

    /// Posts a receive request (ibv_post_recv).
    ///
    /// # Errors
    /// When the queue pair rejects the request. In state [`State::Error`] it accepts and flushes
    /// it.
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        match (&mut self.receives, self.state) {
            (Receives::Shared(_), _) => Err(PostError::Unsupported),
            (_, State::Reset) => Err(PostError::State),
            (_, State::Error) => {
                self.complete(request.id, Err(WorkError::Flushed));
                Ok(())
            }
            (Receives::Own(own), _) => own.post(request),
        }
    }

    /// The number of receive requests posted.
    pub fn receives_posted(&self) -> usize {
        match &self.receives {
            Receives::Own(own) => own.len(),
            Receives::Shared(shared) => shared.borrow().len(),
        }
    }

    /// Takes a send request past the queue, for a wire protocol that can perform it at once.
    /// Returns whether it was taken. If not, the caller must post it.
    pub fn pass(&mut self, request: &SendRequest) -> bool {
        let is_next =
            self.state == State::ReadyToSend && self.posted.is_empty() && self.taken.len() < self.send_depth;
        if is_next {
            self.taken.push_back(Taken::from(request));
        }
        is_next
    }

    /// Whether half of the places of the send queue are taken.
    pub fn is_half_full(&self) -> bool {
        2 * (self.posted.len() + self.taken.len()) >= self.send_depth
    }

    /// The send request that the wire protocol would take next.
    pub fn next_send(&self) -> Option<&SendRequest> {
        self.posted.front().filter(|_| self.state == State::ReadyToSend)
    }

    /// Takes the next send request for the wire protocol, which reports its result to
    /// [`QueuePair::complete_send`].
    pub fn take_send(&mut self) -> Option<SendRequest> {
        self.next_send()?;
        let request = self.posted.pop_front()?;
        self.taken.push_back(Taken::from(&request));
        Some(request)
    }

    /// Completes the oldest send request that was taken.
    pub fn complete_send(&mut self, done: Done) {
        if let Some(taken) = self.taken.pop_front().filter(|taken| taken.signalled) {
            self.complete(taken.id, Ok(done));
        }
    }

    /// Takes a receive request for a beginning message of the peer. `None` if there is none.
    pub fn take_receive(&mut self) -> Option<ReceiveRequest> {
        if !matches!(self.state, State::ReadyToReceive | State::ReadyToSend) {
            return None;
        }
        match &mut self.receives {
            Receives::Own(own) => own.take(),
            Receives::Shared(shared) => shared.borrow_mut().take(),
        }
    }

    /// Completes a receive request that was taken: its message has arrived.
    pub fn complete_receive(
        &mut self,
        request: ReceiveRequest,
        data: Buffer,
        invalidated: Option<Key>,
        immediate: Option<u32>,
    ) {
        self.complete(request.id, Ok(Done::Received { data, invalidated, immediate }));
    }

    /// Ends a receive request that was taken without its message.
    pub fn fail_receive(&mut self, request: ReceiveRequest, error: WorkError) {
        self.complete(request.id, Err(error));
    }

    /// Ends the connection: the oldest send request that was taken ends with `error`, and every
    /// other request is flushed. Requests that were posted and not taken had no effect.
    pub fn fail(&mut self, error: WorkError) {
        if self.state == State::Error {
            return;
        }
        self.state = State::Error;
        let mut error = error;
        while let Some(taken) = self.taken.pop_front() {
            self.complete(taken.id, Err(core::mem::replace(&mut error, WorkError::Flushed)));
        }
        while let Some(request) = self.posted.pop_front() {
            self.complete(request.id, Err(WorkError::Flushed));
        }
        // The requests of a shared queue stay for the other queue pairs.
        while let Receives::Own(own) = &mut self.receives {
            let Some(request) = own.take() else { break };
            self.complete(request.id, Err(WorkError::Flushed));
        }
    }

    fn complete(&self, id: u64, result: Result<Done, WorkError>) {
        self.completions.borrow_mut().push(WorkCompletion { id, queue_pair: self.id, result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inline, Remote};
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    fn pair(shared: Option<SharedReceiveQueue>) -> (QueuePair, SharedCompletionQueue) {
        let completions = SharedCompletionQueue::default();
        let config = Config {
            id: QueuePairId(7),
            send_depth: 3,
            receive_depth: 2,
            shared_receives: shared,
            completions: Rc::clone(&completions),
        };
        (QueuePair::new(config), completions)
    }

    fn ready(pair: &mut QueuePair) {
        for state in [State::Initialised, State::ReadyToReceive, State::ReadyToSend] {
            pair.modify(state).unwrap();
        }
    }

    fn send(id: u64, signalled: bool) -> SendRequest {
        let operation = Operation::Send {
            inline: Inline::new(b"x"),
            data: Buffer::EMPTY,
            invalidate: None,
            immediate: None,
        };
        SendRequest { id, operation, signalled }
    }

    fn all(completions: &SharedCompletionQueue) -> Vec<(u64, Result<Done, WorkError>)> {
        core::iter::from_fn(|| completions.borrow_mut().poll()).map(|one| (one.id, one.result)).collect()
    }

    #[test]
    fn states_change_as_the_specification_says() {
        use State::{Error, Initialised, ReadyToReceive, ReadyToSend, Reset};
        let states = [Reset, Initialised, ReadyToReceive, ReadyToSend, Error];
        let legal = states.map(|from| states.map(|to| from.may_become(to)));
        assert_eq!(
            legal,
            [
                [true, true, false, false, true],
                [true, true, true, false, true],
                [true, false, false, true, true],
                [true, false, false, true, true],
                [true, false, false, false, true],
            ]
        );
    }

    #[test]
    fn requests_are_taken_in_the_right_states_and_numbers() {
        let (mut pair, _) = pair(None);
        let receive = |id| ReceiveRequest { id, length_max: 64 };
        assert_eq!(pair.post_receive(receive(1)), Err(PostError::State));
        pair.modify(State::Initialised).unwrap();
        assert_eq!(pair.post_receive(receive(1)), Ok(()));
        assert_eq!(pair.take_receive(), None);
        assert_eq!(pair.post_send(send(2, true)), Err(PostError::State));
        pair.modify(State::ReadyToReceive).unwrap();
        assert_eq!(pair.take_receive(), Some(receive(1)));
        pair.modify(State::ReadyToSend).unwrap();
        for id in 0..3 {
            assert_eq!(pair.post_send(send(id, false)), Ok(()));
        }
        assert_eq!(pair.post_send(send(3, false)), Err(PostError::Full));
        pair.take_send().unwrap();
        assert_eq!(
            pair.post_send(send(3, false)),
            Err(PostError::Full),
            "a taken request still occupies its place"
        );
        pair.complete_send(Done::Sent);
        assert_eq!(pair.post_send(send(3, false)), Ok(()));
    }

    #[test]
    fn only_signalled_requests_and_reads_complete() {
        let (mut pair, completions) = pair(None);
        ready(&mut pair);
        let remote = Remote { key: Key(1), address: 0, length: 4 };
        let read = SendRequest { id: 3, operation: Operation::Read { remote }, signalled: false };
        for request in [send(1, false), send(2, true), read] {
            pair.post_send(request).unwrap();
            pair.take_send().unwrap();
        }
        pair.complete_send(Done::Sent);
        pair.complete_send(Done::Sent);
        pair.complete_send(Done::Read(Buffer::copy_from_slice(b"data")));
        let read = Done::Read(Buffer::copy_from_slice(b"data"));
        assert_eq!(all(&completions), [(2, Ok(Done::Sent)), (3, Ok(read))]);
    }

    #[test]
    fn a_failure_names_one_request_and_flushes_the_others() {
        let (mut pair, completions) = pair(None);
        ready(&mut pair);
        for id in 1..=3 {
            pair.post_send(send(id, false)).unwrap();
        }
        pair.post_receive(ReceiveRequest { id: 9, length_max: 64 }).unwrap();
        pair.take_send().unwrap();
        pair.take_send().unwrap();
        pair.fail(WorkError::RemoteAccess);
        pair.fail(WorkError::RemoteAccess);
        let flushed = |id| (id, Err(WorkError::Flushed));
        assert_eq!(
            all(&completions),
            [(1, Err(WorkError::RemoteAccess)), flushed(2), flushed(3), flushed(9)]
        );
        pair.post_send(send(4, false)).unwrap();
        pair.post_receive(ReceiveRequest { id: 5, length_max: 64 }).unwrap();
        assert_eq!(all(&completions), [flushed(4), flushed(5)]);
        assert_eq!(pair.modify(State::ReadyToSend).unwrap_err().from, State::Error);
    }

    #[test]
    fn a_shared_receive_queue_outlives_its_queue_pairs() {
        let shared = Rc::new(RefCell::new(ReceiveQueue::new(2)));
        let (mut first, completions) = pair(Some(Rc::clone(&shared)));
        let (mut second, _) = pair(Some(Rc::clone(&shared)));
        ready(&mut first);
        ready(&mut second);
        let receive = |id| ReceiveRequest { id, length_max: 64 };
        assert_eq!(first.post_receive(receive(1)), Err(PostError::Unsupported));
        shared.borrow_mut().post(receive(1)).unwrap();
        shared.borrow_mut().post(receive(2)).unwrap();
        assert_eq!(shared.borrow_mut().post(receive(3)), Err(PostError::Full));
        assert_eq!(first.take_receive(), Some(receive(1)));
        first.fail(WorkError::Flushed);
        assert!(all(&completions).is_empty());
        assert_eq!(second.take_receive(), Some(receive(2)));
    }

    #[test]
    fn a_notification_comes_once_for_each_arming() {
        let (mut pair, completions) = pair(None);
        ready(&mut pair);
        for id in 1..=2 {
            completions.borrow_mut().arm();
            assert!(!completions.borrow_mut().take_notification());
            pair.post_send(send(id, true)).unwrap();
            pair.take_send().unwrap();
            pair.complete_send(Done::Sent);
            assert!(completions.borrow_mut().take_notification());
            assert!(!completions.borrow_mut().take_notification());
        }
        pair.modify(State::Error).unwrap();
        assert_eq!(all(&completions).len(), 2);
    }
}
