//! Receive queues, of one queue pair or shared.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;

use crate::{PostError, ReceiveRequest};

/// A receive queue that several queue pairs share (SRQ).
pub type SharedReceiveQueue = Rc<RefCell<ReceiveQueue>>;

/// Receive requests in the order in which they were posted.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    depth: u16,
}

impl ReceiveQueue {
    /// An empty queue for `depth` requests.
    pub const fn new(depth: u16) -> Self {
        Self { requests: VecDeque::new(), depth }
    }

    /// Posts a request (ibv_post_srq_recv).
    ///
    /// # Errors
    /// [`PostError::Full`] when the queue has its maximum number of requests.
    pub fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        if self.requests.len() >= usize::from(self.depth) {
            return Err(PostError::Full);
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// The number of requests posted.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request is posted.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes the oldest request.
    pub(crate) fn take(&mut self) -> Option<ReceiveRequest> {
        self.requests.pop_front()
    }
}
