//! Requests for the send queue: in order, no more than fit, most of them without a completion.

use alloc::collections::VecDeque;

use engine::Buffer;
use rdma::{Endpoint, Inline, Key, Operation, PostError, SendRequest};

/// Most requests of which only the last has a completion.
const UNSIGNALLED_MAX: usize = 16;

/// The send queue of an endpoint, with a tag for each request.
///
/// The completion of a request shows that all requests before it are done, too. So only the last of
/// several requests needs one. A request keeps its place in the send queue until such a completion,
/// because cards free places only then.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    /// Requests that wait for a place in the send queue.
    waiting: VecDeque<(Operation, T, bool)>,
    /// Tags of the requests that were posted and are not known to be done.
    posted: VecDeque<T>,
    /// The identifier of the first of them.
    first: u64,
    /// Places in the send queue.
    places: usize,
    /// At least one of this many requests asks for a completion.
    signal_every: usize,
    /// Requests since the last that has a completion.
    unsignalled: usize,
}

impl<T> Sender<T> {
    /// The sender of a send queue with `places` places. Requests that are done but not known to be
    /// done may occupy `spare` of them.
    pub(crate) fn new(places: u16, spare: u16) -> Self {
        Self {
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            first: 0,
            places: places.into(),
            signal_every: (usize::from(spare) + 1).min(UNSIGNALLED_MAX),
            unsignalled: 0,
        }
    }

    /// Whether a request would be posted at once.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.posted.len() < self.places
    }

    /// Number of requests that wait for a place in the send queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Posts a request, or queues it for a place. With `signal`, the request always has a
    /// completion.
    #[inline]
    pub(crate) fn post(
        &mut self,
        endpoint: &mut impl Endpoint,
        operation: Operation,
        tag: T,
        signal: bool,
    ) -> Result<(), PostError> {
        if !self.has_room() {
            self.waiting.push_back((operation, tag, signal));
            return Ok(());
        }
        self.post_now(endpoint, operation, tag, signal)
    }

    #[inline]
    fn post_now(
        &mut self,
        endpoint: &mut impl Endpoint,
        operation: Operation,
        tag: T,
        signal: bool,
    ) -> Result<(), PostError> {
        let signalled = signal
            || matches!(operation, Operation::Read { .. })
            || self.unsignalled + 1 >= self.signal_every;
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        let id = self.first + self.posted.len() as u64;
        self.posted.push_back(tag);
        endpoint.post_send(SendRequest { id, operation, signalled })
    }

    /// Posts waiting requests as long as there are places.
    #[inline]
    pub(crate) fn post_waiting(&mut self, endpoint: &mut impl Endpoint) -> Result<(), PostError> {
        while self.posted.len() < self.places
            && let Some((operation, tag, signal)) = self.waiting.pop_front()
        {
            self.post_now(endpoint, operation, tag, signal)?;
        }
        Ok(())
    }

    /// Whether a request with this identifier is posted.
    #[inline]
    pub(crate) fn knows(&self, id: u64) -> bool {
        id.checked_sub(self.first).is_some_and(|index| index < self.posted.len() as u64)
    }

    /// The oldest of the requests that the completion of `id` covers, and whether it is that one.
    /// `None` when there are no more.
    #[inline]
    pub(crate) fn take_done(&mut self, id: u64) -> Option<(T, bool)> {
        if id < self.first {
            return None;
        }
        let tag = self.posted.pop_front()?;
        self.first += 1;
        Some((tag, id + 1 == self.first))
    }

    /// Forgets every request.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.posted.clear();
    }
}

/// The message of a capsule: an entry, with data behind it.
#[inline]
pub(crate) fn capsule(entry: &[u8], data: Buffer, invalidate: Option<Key>) -> Operation {
    Operation::Send { inline: Inline::new(entry), data, invalidate, immediate: None }
}
