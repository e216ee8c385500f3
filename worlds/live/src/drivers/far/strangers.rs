//! Connections whose hosts have proved nothing yet: they are accepted and heard, and cost the hosts
//! that are served no more than a small part of the loop's time.

use std::collections::BTreeSet;
use std::io;

use assemblies::far::{ConnectionId, Input};
use engine::{Engine, Instant, Nanos};
use tunnel::downstream;

use super::{Backing, Event, FarDriver, Peer};
use crate::carrier::ACCEPTS_PER_TURN;
use crate::carrier::Stream;
use crate::carrier::datagrams;
use crate::carrier::quic;
use crate::reactor::Context;

/// How long a connection that was refused may take to receive the reason.
pub(super) const LINGER: Nanos = Nanos::from_secs(2);
/// The most refused connections that wait for that at once. Further ones replace the oldest.
const LINGERING_MAX: usize = 32;
/// While hosts are served, strangers get one part in this many of the loop's time.
const SHARE: u64 = 20;
/// The most of that time at once.
const BURST: Nanos = Nanos::from_millis(2);
/// The most time that strangers owe: hosts come as strangers, and a process that was stopped during
/// a visit must not keep them out for long.
const DEBT_MAX: Nanos = Nanos::from_millis(20);
/// How often strangers without a descriptor of their own are looked at while hosts are served.
const SWEEP_EVERY: Nanos = Nanos::from_millis(1);

/// Waiting strangers, and the time spent on them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Connections of which there is news. They are looked at until nothing comes.
    named: Vec<u32>,
    /// Whether connections may wait at a listener.
    is_called: bool,
    /// Whether strangers without a descriptor of their own may have news, and when they were
    /// last looked at.
    is_stirred: bool,
    swept_at: Instant,
    /// When strangers may cost time again.
    free_at: Instant,
    /// The time at which postponed work goes on.
    again_at: Option<Instant>,
}

impl Strangers {
    /// When strangers are heard again that have had all of their time.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.again_at
    }

    const fn has_work(&self) -> bool {
        self.is_called || self.is_stirred || !self.named.is_empty()
    }

    /// Takes note that strangers have cost `spent` of the time before `now`.
    fn spend(&mut self, now: Instant, spent: Nanos) {
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(BURST.get() * SHARE));
        self.free_at = (self.free_at.max(earliest) + spent * SHARE).min(now + DEBT_MAX * SHARE);
    }
}

impl<F: FnMut(Event), B: Backing> FarDriver<F, B> {
    /// Whether strangers have something to be heard, or wait to be accepted.
    pub(super) fn has_callers(&mut self, context: &Context<'_>) -> bool {
        let now = context.now;
        let of_quic = |listener: &quic::Listener| {
            listener.has_arrivals() || listener.poll_timeout().is_some_and(|at| at <= now)
        };
        let by_datagrams = |listener: &datagrams::Listener| {
            listener.has_arrivals() || listener.poll_timeout().is_some_and(|at| at <= now)
        };
        let is_called = context.news
            || self.quic.as_ref().is_some_and(of_quic)
            || self.datagrams.iter().any(by_datagrams);
        let has_host = self.far.engine().has_host();
        let Strangers { named, is_called: was_called, is_stirred, swept_at, .. } = &mut self.strangers;
        *was_called |= is_called;
        named.extend_from_slice(context.named);
        *is_stirred |= is_called || !context.named.is_empty() || !has_host || now - *swept_at >= SWEEP_EVERY;
        *is_stirred &= self.shell.peers.iter().any(|peer| peer.is_swept());
        self.strangers.has_work()
    }

    /// Reads the messages of strangers, and accepts further ones. Returns whether there were any.
    pub(super) fn greet(&mut self, context: &Context<'_>) -> bool {
        self.strangers.again_at = None;
        let mut ids = core::mem::take(&mut self.strangers.named);
        if core::mem::take(&mut self.strangers.is_stirred) {
            self.strangers.swept_at = context.now;
            ids.extend(self.shell.peers.iter().filter(|peer| peer.is_swept()).map(|peer| peer.id.0));
        }
        // In the order of their news: those that were put off go first.
        let mut seen = BTreeSet::new();
        ids.retain(|id| seen.insert(*id));
        let mut busy = false;
        for id in ids {
            let is_meant = |peer: &Peer| peer.id.0 == id && !peer.is_host;
            let Some(index) = self.shell.peers.iter().position(is_meant) else { continue };
            if !self.is_time(context) {
                self.strangers.named.push(id);
                continue;
            }
            let has_said = self.charged(context, |driver| driver.receive_from(index, context));
            // The kernel reports news only once: there may be more.
            if has_said {
                self.strangers.named.push(id);
            }
            busy |= has_said;
        }
        if self.strangers.is_called && self.is_time(context) {
            // The connections left at a listener that fails are news again once it has more.
            self.strangers.is_called = self.charged(context, |driver| driver.accept(context));
            busy |= self.strangers.is_called;
        }
        if self.strangers.has_work() && !busy {
            self.strangers.again_at = Some(self.strangers.free_at.max(context.now));
        }
        busy
    }

    /// Whether strangers may cost time now. While no host is served, they may.
    fn is_time(&self, context: &Context<'_>) -> bool {
        self.strangers.free_at <= context.now || !self.far.engine().has_host()
    }

    /// Does `work` for strangers, and counts the time that it takes.
    fn charged<T>(&mut self, context: &Context<'_>, work: impl FnOnce(&mut Self) -> T) -> T {
        let began = context.clock.now();
        let result = work(self);
        let now = context.clock.now();
        self.strangers.spend(now, now - began);
        result
    }

    fn accept(&mut self, context: &Context<'_>) -> bool {
        let mut accepted = self.accept_each(context, |driver| {
            let Some(listener) = &driver.quic else { return Ok(None) };
            Ok(listener.accept()?.map(|stream| Stream::Quic(Box::new(stream))))
        });
        accepted |= self.accept_each(context, |driver| {
            let Some(listener) = &driver.shm else { return Ok(None) };
            Ok(listener.accept()?.map(|shared| Stream::Shared(Box::new(shared))))
        });
        accepted |= self.accept_each(context, |driver| {
            let stream = datagrams::Listener::accept_any(&driver.datagrams)?;
            Ok(stream.map(|stream| Stream::Datagrams(Box::new(stream))))
        });
        accepted |= self.accept_each(context, |driver| Ok(driver.listener.accept()?.map(Stream::Tcp)));
        accepted
    }

    /// Accepts the connections that `next` has. Listeners for QUIC and datagrams also open and
    /// close connections meanwhile.
    fn accept_each(
        &mut self,
        context: &Context<'_>,
        next: impl Fn(&Self) -> io::Result<Option<Stream>>,
    ) -> bool {
        let mut accepted = false;
        for _ in 0..ACCEPTS_PER_TURN {
            let next = next(self);
            if !self.admit_next(context, next) {
                break;
            }
            accepted = true;
        }
        accepted
    }

    /// Admits the connection that a listener had, if it had one. Returns whether there may be more.
    fn admit_next(&mut self, context: &Context<'_>, next: io::Result<Option<Stream>>) -> bool {
        match next {
            Ok(Some(stream)) => {
                self.admit(context, stream);
                true
            }
            Ok(None) => false,
            // No descriptor is left: established connections go on.
            Err(error) => {
                self.refuse(error);
                false
            }
        }
    }

    /// Reports that connections are turned away, once until a connection is admitted.
    fn refuse(&mut self, error: io::Error) {
        if !core::mem::replace(&mut self.is_refusing, true) {
            (self.shell.report)(Event::AcceptFailed(error));
        }
    }

    fn admit(&mut self, context: &Context<'_>, stream: Stream) {
        let id = ConnectionId(self.next_id);
        if let Err(error) = stream.register_named(id.0, context.sources()) {
            return self.refuse(error);
        }
        self.is_refusing = false;
        self.next_id = self.next_id.wrapping_add(1);
        // Only a TCP connection may be one of several paths.
        let opening = matches!(stream, Stream::Tcp(_)).then(Vec::new);
        let address = stream.peer().ip();
        tracing::debug!(peer = %stream.peer(), "{}: connected", stream.peer());
        self.shell.peers.push(Peer { id, stream, identified: false, opening, is_host: false, closing: None });
        self.hasten();
        let now = context.now.max(self.latest);
        let input = Input::Network(downstream::Input::Accepted(id, address));
        self.far.engine_mut().handle_input(now, input);
        self.far.exchange(now, &mut self.shell);
        // A host that has said Hello keeps its place before hosts that come behind it in the
        // same turn.
        if self.receive_from(self.shell.peers.len() - 1, context) {
            self.strangers.named.push(id.0);
        }
    }

    /// Drops refused connections beyond [`LINGERING_MAX`], the oldest first, with the next flush.
    fn hasten(&mut self) {
        let lingers = |peer: &&mut Peer| peer.closing.is_some() && !peer.is_host;
        let count = self.shell.peers.iter_mut().filter(lingers).count();
        let oldest = self.shell.peers.iter_mut().filter(lingers).take(count.saturating_sub(LINGERING_MAX));
        oldest.for_each(|peer| peer.closing = Some(Instant::ZERO));
    }
}

impl Peer {
    /// Whether the kernel doesn't name this stranger when it has news.
    fn is_swept(&self) -> bool {
        !self.is_host && !matches!(self.stream, Stream::Tcp(_))
    }
}
