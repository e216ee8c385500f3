//! Queues of outputs.

use alloc::collections::VecDeque;

/// Takes the first item of `queue`. A queue is empty most times that it is polled: the check for
/// that costs no call, which [`VecDeque::pop_front`] is for long items.
#[inline(always)]
pub fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    if queue.is_empty() { None } else { queue.pop_front() }
}
