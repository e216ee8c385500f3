//! Configuration requests of the host that are answered with Configuration Request Retry Status
//! (CRS). They are issued again, as section 2.3.2 requires of a root complex, or reported to
//! software that has enabled CRS Software Visibility.

use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::enumerate::{RETRY_PAUSE, RETRY_PAUSE_MAX};
use super::{Config, Output, RootComplex};
use crate::requester::{Answer, Busy, ConfigRegister, REQUESTS_MAX, RequestError};
use crate::wire::Bdf;

/// Value of the Vendor ID and Device ID double word that software with CRS visibility reads: Vendor
/// ID 0001h, which is not assigned, and all ones.
pub(super) const NOT_READY: u32 = 0xffff_0001;
/// Byte offset of the Vendor ID.
const VENDOR: u16 = 0;

/// A configuration request of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) cookie: u64,
    pub(super) target: Bdf,
    pub(super) offset: u16,
    /// Byte enables and value of a write; `None` for a read.
    pub(super) write: Option<(u8, u32)>,
}

/// An access that was answered with CRS.
#[derive(Clone, Copy, Debug)]
struct Retry {
    access: Access,
    /// Time until which the access is issued again.
    deadline: Instant,
    /// Length of the next pause.
    pause: Nanos,
}

/// Accesses that have no final answer yet.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    /// Accesses that are outstanding for the first time.
    first: Vec<Access>,
    /// Accesses that were issued again and are outstanding.
    again: Vec<Retry>,
    /// Accesses that pause, and the end of their pause.
    waiting: Vec<(Instant, Retry)>,
}

impl Accesses {
    /// Whether there is room for another access.
    pub(super) const fn room(&self) -> Result<(), Busy> {
        if self.waiting.len() < REQUESTS_MAX { Ok(()) } else { Err(Busy) }
    }
    pub(super) fn start(&mut self, access: Access) {
        self.first.push(access);
    }

    /// Removes the access that was answered, and returns it with the deadline and pause for the
    /// case that the answer is CRS. Accesses with the same cookie are answered in their order.
    fn take(&mut self, now: Instant, config: &Config, cookie: u64) -> Option<Retry> {
        if let Some(index) = self.first.iter().position(|access| access.cookie == cookie) {
            let access = self.first.remove(index);
            return Some(Retry { access, deadline: now + config.retry_deadline, pause: RETRY_PAUSE });
        }
        let index = self.again.iter().position(|retry| retry.access.cookie == cookie)?;
        Some(self.again.remove(index))
    }

    /// Handles an answer. Returns the result for the host, or `None` if the request will be issued
    /// again.
    fn on_answer(
        &mut self,
        now: Instant,
        config: &Config,
        cookie: u64,
        result: Result<u32, RequestError>,
    ) -> Option<Result<u32, RequestError>> {
        let Some(mut retry) = self.take(now, config, cookie) else { return Some(result) };
        if result != Err(RequestError::ConfigRequestRetry) {
            return Some(result);
        }
        if config.retry_visible && retry.access.offset == VENDOR && retry.access.write.is_none() {
            return Some(Ok(NOT_READY));
        }
        if now >= retry.deadline {
            return Some(result);
        }
        let at = now + retry.pause;
        retry.pause = (retry.pause * 2).min(RETRY_PAUSE_MAX);
        self.waiting.push((at, retry));
        None
    }

    fn take_due(&mut self, now: Instant) -> Option<Retry> {
        let index = self.waiting.iter().position(|(at, _)| *at <= now)?;
        Some(self.waiting.remove(index).1)
    }
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }
}

impl RootComplex {
    /// Handles the answer to a configuration request of the host.
    pub(super) fn on_register(&mut self, now: Instant, cookie: u64, result: Result<u32, RequestError>) {
        self.statistics.retries += u64::from(result == Err(RequestError::ConfigRequestRetry));
        if let Some(result) = self.accesses.on_answer(now, &self.config, cookie, result) {
            self.outputs.push_back(Output::Answer(Answer::Register { cookie, result }));
        }
    }

    /// Issues again the accesses whose pause is over.
    pub(super) fn retry(&mut self, now: Instant) {
        while let Some(retry) = self.accesses.take_due(now) {
            match self.issue(now, &retry.access) {
                Ok(()) => self.accesses.again.push(retry),
                Err(Busy) => self.accesses.waiting.push((now + RETRY_PAUSE, retry)),
            }
        }
        self.collect(now);
    }

    pub(super) fn issue(&mut self, now: Instant, access: &Access) -> Result<(), Busy> {
        let Access { cookie, target, offset, write } = *access;
        let register = ConfigRegister { routing: self.routing(target), target, offset };
        self.requester.config(now, cookie, register, write)
    }

    /// Fails all pausing accesses: the link is down, so no function can become ready any more.
    pub(super) fn give_up_retries(&mut self) {
        for (_, retry) in self.accesses.waiting.drain(..) {
            let result = Err(RequestError::LinkDown);
            self.outputs.push_back(Output::Answer(Answer::Register { cookie: retry.access.cookie, result }));
        }
    }
}
