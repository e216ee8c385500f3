//! Requests by the other end that wait for an answer from the world.

use alloc::vec::Vec;

use crate::limits::REQUESTS_MAX;
use crate::wire::Command;

/// Names a request by the other end until the request is answered. An engine never uses a token
/// again, and ignores answers to requests whose connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The parts of a request message that its reply needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) id: u16,
    pub(crate) command: Command,
    pub(crate) no_reply: bool,
}

/// The requests by token. A token consists of a slot number and a count of earlier requests, so
/// that no token is issued twice.
#[derive(Debug)]
pub(crate) struct Pending<R> {
    slots: Vec<Option<(Token, RequestHead, R)>>,
    free: Vec<usize>,
    before: u64,
}

impl<R> Default for Pending<R> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), before: 0 }
    }
}

const SLOT_BITS: u32 = 10;
const _: () = assert!(REQUESTS_MAX == 1 << SLOT_BITS);

impl<R> Pending<R> {
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == REQUESTS_MAX
    }

    pub(crate) fn insert(&mut self, asked: RequestHead, request: R) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        assert!(slot < REQUESTS_MAX, "a request was taken although there was no room");
        self.before += 1;
        let token = Token(self.before << SLOT_BITS | slot as u64);
        self.slots[slot] = Some((token, asked, request));
        token
    }

    /// The request called `token`, if it is still waiting.
    pub(crate) fn find(&mut self, token: Token) -> Option<&mut (Token, RequestHead, R)> {
        self.slots.get_mut(slot_of(token))?.as_mut().filter(|(found, ..)| *found == token)
    }

    /// Takes the request called `token` if it is still waiting and `is` holds for it.
    pub(crate) fn take(
        &mut self,
        token: Token,
        is: impl Fn(RequestHead, &R) -> bool,
    ) -> Option<(RequestHead, R)> {
        self.find(token).filter(|(_, asked, request)| is(*asked, request))?;
        self.remove(token)
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<(RequestHead, R)> {
        self.find(token)?;
        let slot = slot_of(token);
        let (_, asked, request) = self.slots[slot].take()?;
        self.free.push(slot);
        Some((asked, request))
    }

    /// Forgets all requests, but keeps the count, so that no token is issued twice.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

fn slot_of(token: Token) -> usize {
    (token.0 & ((1 << SLOT_BITS) - 1)) as usize
}
