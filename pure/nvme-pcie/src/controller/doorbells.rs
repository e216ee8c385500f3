//! Doorbells: the host moves the tail of a submission queue, or the head of a completion queue.

use super::side::Side;
use super::{DoorbellFault, Queues};

impl<S: Side> Queues<S> {
    /// Handles a write of `value` to the tail or head doorbell of `queue`.
    #[inline]
    pub(super) fn ring(&mut self, queue: u16, is_tail: bool, value: u32) -> Result<(), DoorbellFault> {
        if is_tail { self.ring_tail(queue, value) } else { self.ring_head(queue, value) }
    }

    fn ring_tail(&mut self, queue: u16, tail: u32) -> Result<(), DoorbellFault> {
        let found = self.submission_queues.get_mut(usize::from(queue)).and_then(Option::as_mut);
        let found = found.ok_or(DoorbellFault::Register)?;
        if self.shadow.is_some() && queue != 0 {
            self.knock(queue);
            return Ok(());
        }
        found.ring(tail).map_err(|_| DoorbellFault::Value)?;
        self.ready |= u128::from(found.has_new()) << queue;
        Ok(())
    }

    fn ring_head(&mut self, queue: u16, head: u32) -> Result<(), DoorbellFault> {
        let found = self.completion_queues.get_mut(usize::from(queue)).and_then(Option::as_mut);
        let found = found.ok_or(DoorbellFault::Register)?;
        if self.shadow.is_some() && queue != 0 {
            if !found.pending.is_empty() {
                self.look_for_room(queue);
            }
            return Ok(());
        }
        found.ring(head).map_err(|_| DoorbellFault::Value)?;
        self.dirty |= u128::from(!found.pending.is_empty()) << queue;
        Ok(())
    }
}
