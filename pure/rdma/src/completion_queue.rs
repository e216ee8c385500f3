//! Completion queues.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;

use crate::WorkCompletion;

/// A completion queue that several queue pairs share.
pub type SharedCompletionQueue = Rc<RefCell<CompletionQueue>>;

/// Completions in the order in which they happened.
///
/// A queue pair has at most as many completions here as it has outstanding requests, so its queue
/// pairs bound the queue.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    completions: VecDeque<WorkCompletion>,
    is_armed: bool,
    is_notified: bool,
}

impl CompletionQueue {
    /// The next completion (ibv_poll_cq).
    pub fn poll(&mut self) -> Option<WorkCompletion> {
        self.completions.pop_front()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }

    /// Requests one notification for the next completion (ibv_req_notify_cq). Completions that are
    /// already queued do not notify: poll once more after this call.
    pub const fn arm(&mut self) {
        self.is_armed = true;
    }

    /// Whether there was a notification since the last call (ibv_get_cq_event).
    pub const fn take_notification(&mut self) -> bool {
        core::mem::replace(&mut self.is_notified, false)
    }

    /// Adds a completion.
    pub(crate) fn push(&mut self, completion: WorkCompletion) {
        self.is_notified |= core::mem::take(&mut self.is_armed);
        self.completions.push_back(completion);
    }
}
