//! A client's dialogue with a [`Server`](super::Server).

use engine::Instant;

use super::client::{Heard, Talk};
use super::run::Run;
use super::wire::{Answer, emit_region};
use super::{Failure, Mode, NOTICE, Output, Test, Verb, notice};
use crate::{Done, Endpoint, Event, Exposure, Limits, Remote, SendRequest, SharedPool};

/// A client's dialogue with a Farlane server.
#[derive(Debug)]
pub(super) struct Own {
    test: Test,
    run: Run,
}

impl Own {
    pub(super) fn new(test: Test, limits: Limits, pool: &SharedPool) -> Self {
        Self { test, run: Run::announced(test, limits, pool) }
    }

    /// The server accepts the test, and lends memory.
    fn start(&mut self, end: &mut impl Endpoint, now: Instant, remote: Remote) -> Result<(), Failure> {
        let Test { verb, mode, size, .. } = self.test;
        if remote.length < size && verb != Verb::Send {
            return Err(Failure::Nonsense);
        }
        if (verb, mode) == (Verb::Write, Mode::Latency) {
            // The server writes back, so the client lends it memory as well.
            let lent = end.register(Exposure::Write(size)).map_err(|_| Failure::NoMemory)?;
            let operation = notice(&emit_region(lent));
            let request = SendRequest { id: NOTICE, operation, signalled: false };
            end.post_send(request).map_err(Failure::Post)?;
        }
        self.run.begin(end, now, remote)
    }
}

impl<E: Endpoint> Talk<E> for Own {
    fn begin(&mut self, end: &mut E) -> Result<(), Failure> {
        self.run.post_receives(end).map_err(Failure::Post)
    }

    fn on_event(&mut self, ends: &mut [E], which: usize, now: Instant, event: &Event) -> Heard {
        match event {
            Event::Established { private_data } => match Answer::parse(private_data) {
                Some(Answer::Taken(remote)) => self.start(&mut ends[which], now, remote).map(|()| None),
                _ => Err(Failure::Refused(None)),
            },
            Event::Rejected { private_data } => Err(Failure::Refused(match Answer::parse(private_data) {
                Some(Answer::Refused(why)) => Some(why),
                _ => None,
            })),
            Event::Disconnected(why) => Err(Failure::Disconnected(*why)),
            Event::Requested { .. } => Err(Failure::Nonsense),
        }
    }

    fn on_done(&mut self, ends: &mut [E], which: usize, now: Instant, done: (u64, Done)) -> Heard {
        self.run.on_done(&mut ends[which], now, done)
    }

    fn poll(&mut self, _ends: &mut [E], now: Instant) -> Result<Option<Output>, Failure> {
        Ok(self.run.progress(now))
    }
}
