//! The turns of one thread's requests among the overlapping ones of all threads.

use std::collections::HashMap;
use std::sync::Arc;

use nvme::media::{IoId, Operation, Request};
use nvme::subsystem::ControllerKey;

use super::mail::Mail;
use super::order::{Claim, Entry, Order};

/// The order of all threads.
pub(super) type SharedOrder = Order<ControllerKey, Mail>;

/// How many requests a thread can name. The names of all threads differ.
const NAMES: u64 = 1 << 48;

/// The requests of one thread that others may wait for, or that wait.
#[derive(Debug)]
pub(super) struct Turns {
    order: Arc<SharedOrder>,
    next: u64,
    claims: HashMap<IoId, Claim>,
    waiting: HashMap<u64, Request>,
}

impl Turns {
    pub(super) fn new(order: Arc<SharedOrder>, thread: u16) -> Self {
        let next = u64::from(thread) * NAMES;
        Self { order, next, claims: HashMap::new(), waiting: HashMap::new() }
    }

    /// Enters a request of the controller `owner`. Returns the request if it may begin now.
    pub(super) fn enter(
        &mut self,
        owner: ControllerKey,
        request: Request,
        mail: &Arc<Mail>,
    ) -> Option<Request> {
        let Some(claim) = self.claim(&request) else { return Some(request) };
        let entry = self.order.enter(claim, owner, mail);
        if entry != Entry::Free {
            self.claims.insert(request.id, claim);
            self.next += 1;
        }
        if entry == Entry::Waiting {
            self.waiting.insert(claim.key, request);
            return None;
        }
        Some(request)
    }

    /// The claim of a request. A flush has none: what it makes durable has ended.
    fn claim(&self, request: &Request) -> Option<Claim> {
        let (start, length, changes) = match &request.operation {
            Operation::Read { offset, length } => (*offset, u64::from(*length), false),
            Operation::Write { offset, data, .. } => (*offset, u64::try_from(data.len()).ok()?, true),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                (*offset, *length, true)
            }
            Operation::Flush => return None,
        };
        let end = start.saturating_add(length);
        Some(Claim { key: self.next, medium: request.medium.0, start, end, changes })
    }

    /// Takes a request that may begin by now; `None` if it was given up.
    pub(super) fn begin(&mut self, key: u64) -> Option<Request> {
        let request = self.waiting.remove(&key)?;
        if let Some(claim) = self.claims.get(&request.id).filter(|claim| !claim.changes) {
            // Nothing waits for a read that has begun.
            self.order.end(claim);
            self.claims.remove(&request.id);
        }
        Some(request)
    }

    /// Notes that a medium has ended a request.
    #[inline]
    pub(super) fn end(&mut self, id: IoId) {
        if !self.claims.is_empty()
            && let Some(claim) = self.claims.remove(&id)
        {
            self.order.end(&claim);
        }
    }

    /// Notes that the command of a request has ended without a completion. Returns whether the
    /// request had not begun, and never will.
    pub(super) fn disown(&mut self, id: IoId) -> bool {
        let Some(claim) = self.claims.get(&id) else { return false };
        if self.waiting.remove(&claim.key).is_none() {
            self.order.disown(claim);
            return false;
        }
        self.end(id);
        true
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Drop for Turns {
    /// Lets the requests of other threads begin: the media of this thread have ended its own.
    fn drop(&mut self) {
        self.claims.drain().for_each(|(_, claim)| self.order.end(&claim));
    }
}
