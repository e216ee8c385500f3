//! Requests of the client that wait for an answer of the world.

use alloc::vec::Vec;

use super::output::Token;
use crate::errno::Errno;
use crate::limits::REQUESTS_MAX;
use crate::wire::{Command, DmaUnmap, RegionAccess};

/// A message that asks, as far as its reply needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: u16,
    pub(super) command: Command,
    pub(super) no_reply: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Map { address: u64 },
    Unmap { remaining: usize, unmap: DmaUnmap },
    Read(RegionAccess),
    Write(RegionAccess),
    WriteMultiple { remaining: usize, count: usize, failure: Option<Errno> },
    Reset,
}

/// The requests, by token: a slot's number, and how many requests there were before, so that no token comes twice.
#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Option<(Token, Asked, Request)>>,
    free: Vec<usize>,
    before: u64,
}

const SLOT_BITS: u32 = 10;
const _: () = assert!(REQUESTS_MAX == 1 << SLOT_BITS);

impl Pending {
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == REQUESTS_MAX
    }

    pub(super) fn insert(&mut self, asked: Asked, request: Request) -> Token {
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

    /// The request called `token`, if it still waits.
    pub(super) fn find(&mut self, token: Token) -> Option<&mut (Token, Asked, Request)> {
        self.slots.get_mut(slot_of(token))?.as_mut().filter(|(found, ..)| *found == token)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<(Asked, Request)> {
        self.find(token)?;
        let slot = slot_of(token);
        let (_, asked, request) = self.slots[slot].take()?;
        self.free.push(slot);
        Some((asked, request))
    }

    /// Forgets all requests, but not which tokens there were.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

fn slot_of(token: Token) -> usize {
    (token.0 & ((1 << SLOT_BITS) - 1)) as usize
}
