//! Connections whose hosts have not proved their identities. A turn of the loop looks only at those
//! of which the kernel has news, and at few of them. While hosts that are admitted have work,
//! strangers have a small share of the loop's time.
//!
//! They are in an epoll instance of their own: thousands of them are one source of the loop, and
//! their news do not stand before those of hosts.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use assemblies::target::{ConnectionId, Input};
use engine::{Engine, Instant, Nanos};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::{Event, LIVELY_MAX, TargetDriver};
use crate::reactor::{Attention, Context, Sources};

/// The name of all strangers among the sources of the loop; no connection has it.
const NAME: u32 = u32::MAX;
/// The token that the end of a piece of work has.
const WORKED: Token = Token(usize::MAX - 1);
/// Number of news that are taken from the kernel in one call.
const NEWS_MAX: usize = 64;
/// How long strangers may keep a turn of the loop, about.
const TURN_MAX: Nanos = Nanos::from_micros(200);
/// The share of the loop's time for strangers while admitted hosts have work: 5 %.
const SHARE: u64 = 20;
/// The most time that this share saves up while strangers need none.
const SAVED_MAX: Nanos = Nanos::from_millis(100);
/// The most debt of strangers, which may use all time while no host has work.
const DEBT_MAX: Nanos = Nanos::from_millis(20);

/// The state by which the target waits for strangers.
#[derive(Debug)]
pub(super) struct Strangers {
    poll: Option<Poll>,
    events: Events,
    /// The kernel may have news of strangers.
    has_news: bool,
    /// Connections that may have something to give, or have closed their side.
    waiting: VecDeque<(ConnectionId, bool)>,
    /// Connections wait to be accepted.
    pub(super) has_arrivals: bool,
    /// When the time that strangers have had is paid for.
    paid: Instant,
}

impl Default for Strangers {
    fn default() -> Self {
        Self {
            poll: None,
            events: Events::with_capacity(NEWS_MAX),
            has_news: false,
            waiting: VecDeque::new(),
            has_arrivals: false,
            paid: Instant::ZERO,
        }
    }
}

impl Strangers {
    fn poll(&mut self, sources: &Sources) -> io::Result<&Poll> {
        if self.poll.is_none() {
            let poll = Poll::new()?;
            sources.add(poll.as_raw_fd(), Attention::Named(NAME))?;
            self.poll = Some(poll);
        }
        self.poll.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Ends the loop's sleep from another thread.
    pub(super) fn waker(&mut self, sources: &Sources) -> io::Result<Waker> {
        Waker::new(self.poll(sources)?.registry(), WORKED)
    }

    /// Waits for news of a stranger.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn add(&mut self, sources: &Sources, descriptor: RawFd, id: ConnectionId) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(id.0 as usize);
        self.poll(sources)?.registry().register(&mut SourceFd(&descriptor), token, interest)
    }

    /// Waits no more for news of a descriptor.
    pub(super) fn remove(&self, descriptor: RawFd) {
        if let Some(poll) = &self.poll {
            // A descriptor that is not there needs no removal.
            let _ = poll.registry().deregister(&mut SourceFd(&descriptor));
        }
    }

    /// A connection is gone: its name may soon be another's.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.waiting.retain(|(one, _)| *one != id);
    }

    /// Looks again at a stranger whose news the kernel has reported already.
    pub(super) fn look_again(&mut self, id: ConnectionId) {
        self.waiting.push_back((id, false));
    }

    /// The loop has news of these sources.
    pub(super) fn heed(&mut self, named: &[u32]) {
        self.has_news |= named.contains(&NAME);
    }

    /// Whether strangers have their turn: no host has work, or their share has time left.
    fn may(&self, now: Instant, hosts_work: bool) -> bool {
        !hosts_work || self.paid <= now
    }

    fn charge(&mut self, now: Instant, spent: Nanos) {
        let oldest = Instant::from_nanos(now.as_nanos().saturating_sub(SAVED_MAX.get() * SHARE));
        let most = now + Nanos::new(DEBT_MAX.get() * SHARE);
        self.paid = (self.paid.max(oldest) + Nanos::new(spent.get() * SHARE)).min(most);
    }

    fn has_any(&self) -> bool {
        self.has_news || self.has_arrivals || !self.waiting.is_empty()
    }

    /// When strangers have their next turn, if any of them waits for it.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.has_any().then_some(self.paid)
    }

    /// Takes news of strangers from the kernel.
    fn ask(&mut self) {
        let Self { poll: Some(poll), events, waiting, .. } = self else { return };
        // A call that the system refuses is repeated with the next news.
        if poll.poll(events, Some(Duration::ZERO)).is_err() {
            return;
        }
        let mut count = 0;
        for event in &*events {
            count += 1;
            if event.token() != WORKED
                && let Ok(name) = u32::try_from(event.token().0)
            {
                waiting.push_back((ConnectionId(name), event.is_read_closed() || event.is_error()));
            }
        }
        self.has_news = count == NEWS_MAX;
    }
}

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Whether hosts that are admitted have had work lately.
    fn hosts_work(&self) -> bool {
        !self.lively.is_empty() || self.pairs.has_any() || self.is_media_busy()
    }

    /// Accepts connections and takes bytes of strangers, for a short time and within their share.
    /// Returns whether there was anything to do.
    pub(super) fn serve_strangers(&mut self, context: &Context<'_>) -> bool {
        self.strangers.heed(context.named);
        self.strangers.has_arrivals |= context.news;
        if !self.strangers.has_any() {
            return false;
        }
        let began = context.clock.now();
        if !self.strangers.may(began, self.hosts_work()) {
            return false;
        }
        let mut busy = false;
        if core::mem::take(&mut self.strangers.has_arrivals) && !self.stopping {
            let accepted = self.accept(self.now.max(began), context.sources());
            self.strangers.has_arrivals = accepted;
            busy |= accepted;
        }
        if self.strangers.waiting.is_empty() && self.strangers.has_news {
            self.strangers.ask();
        }
        let mut now = context.clock.now();
        // A connection that needs another look waits for the next turn.
        for _ in 0..self.strangers.waiting.len() {
            if now - began >= TURN_MAX {
                break;
            }
            let Some((id, is_closed)) = self.strangers.waiting.pop_front() else { break };
            busy = true;
            self.serve_stranger(id, is_closed, context);
            now = context.clock.now();
        }
        if busy {
            self.strangers.charge(now, now - began);
        }
        self.settle_strangers(context.sources());
        busy
    }

    fn serve_stranger(&mut self, id: ConnectionId, is_closed: bool, context: &Context<'_>) {
        let link = self.shell.links.get(id.0 as usize).and_then(Option::as_ref);
        // The name may belong to a younger connection by now, or its host is admitted.
        if link.is_none_or(|link| link.is_admitted || link.socket.is_none()) {
            return;
        }
        let is_busy = self.receive_from(id, context);
        self.send(self.now, id);
        let Some(link) = self.shell.links[id.0 as usize].as_mut() else { return };
        if link.is_admitted {
            return;
        }
        if is_closed {
            // A host that has closed its side proves nothing more.
            return self.forget(self.now, id, context.sources());
        }
        match (is_busy, &mut link.socket) {
            (true, _) => self.strangers.look_again(id),
            (false, Some(socket)) => socket.rest(&mut self.pool.borrow_mut()),
            (false, None) => {}
        }
    }

    /// Closes strangers that must go, lets admitted connections be looked at as all others are, and
    /// has work done that authentications need.
    pub(super) fn settle_strangers(&mut self, sources: &Sources) {
        while let Some((id, product, spent)) = self.worker.take() {
            self.target.engine_mut().handle_input(self.now, Input::Worked { id, product, spent });
            self.target.exchange(self.now, &mut self.shell);
        }
        while let Some(id) = self.shell.left.pop() {
            self.strangers.forget(id);
        }
        while let Some(id) = self.shell.dropped.pop() {
            self.forget(self.now, id, sources);
        }
        while let Some(id) = self.shell.admitted.pop() {
            self.promote(id, sources);
        }
        while let Some((id, work)) = self.shell.work.take() {
            self.worker.begin(id, work, || self.strangers.waker(sources));
        }
    }

    /// A connection's host is admitted.
    fn promote(&mut self, id: ConnectionId, sources: &Sources) {
        let Some(link) = self.shell.links.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if core::mem::replace(&mut link.is_admitted, true) {
            return;
        }
        let Some(socket) = &link.socket else { return };
        self.strangers.remove(socket.as_raw_fd());
        // The kernel does not report bytes that TLS has decrypted already.
        let is_lively = self.lively.len() < LIVELY_MAX || socket.is_encrypted();
        let attention = if is_lively { Attention::EachTurn } else { Attention::Named(id.0) };
        // Without it, the connection is looked at in each turn for as long as it is there.
        let is_added = sources.add(socket.as_raw_fd(), attention).is_ok();
        link.is_lively = is_lively || !is_added;
        if link.is_lively {
            self.lively.push(id);
        }
    }
}
