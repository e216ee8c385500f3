//! The memory that a target holds for its hosts: data that hosts have not read, and data that hosts
//! are asked for. One budget covers the whole target and is shared fairly.
//!
//! A host that holds its share is made to wait: no further command of the host is taken, and
//! no further data are asked for. If the budget is spent all the same, the connections that
//! take nothing are ended, those with the most memory first. A connection that takes nothing
//! for [`UNREAD_MAX`] is ended in any case. For a host without Keep Alive Timeout, this is the
//! only bound. A host that has not said who it is has no share: no further command of its
//! connection is taken while [`UNCONNECTED_MAX`] bytes wait for it.

use alloc::vec::Vec;

use engine::{Instant, Nanos, Outbox};
use nvme_fabrics::target::AssociationKey;
use nvme_fabrics::transport::ControllerEnd;

use super::guests::GuestIndex;
use super::peer::{Peer, Standing};
use super::{Close, ConnectionId, Output, Target};
use crate::fabric::controller::{Held, Permission};

/// Maximum number of bytes held for all hosts together, unless [`Target::set_memory_max`]
/// says otherwise.
pub const MEMORY_MAX: u64 = 1 << 30;
/// How long a connection may leave unread what waits for it, or owe data that it was asked for.
pub const UNREAD_MAX: Nanos = Nanos::from_secs(30);
/// How long a connection may leave unread what waits for it, or owe data that it was asked for,
/// while others wait for memory.
pub const UNREAD_MAX_UNDER_PRESSURE: Nanos = Nanos::from_secs(1);
/// How many connections are looked at in one go for those that take nothing: thousands would keep
/// the others waiting.
pub(super) const LOOKED_AT_ONCE: usize = 512;
/// How long others have their turn before the look goes on.
pub(super) const LOOK_ON: Nanos = Nanos::from_millis(1);
/// An Admin Queue that holds fewer bytes than this does not wait for the I/O queues of its host,
/// because it keeps the association alive.
const ADMIN_FREE: u64 = 64 << 10;
/// How many bytes may wait for a host before its Connect.
pub(super) const UNCONNECTED_MAX: usize = 64 << 10;

/// Bytes held, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    to_host: u64,
    from_host: u64,
}

impl Sum {
    const fn all(self) -> u64 {
        self.to_host + self.from_host
    }

    const fn change(&mut self, before: Held, now: Held) {
        self.to_host = self.to_host + now.to_host - before.to_host;
        self.from_host = self.from_host + now.from_host - before.from_host;
    }
}

/// A host that memory is held for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Association(AssociationKey),
    /// An association of another reactor, which has queues here.
    Guest(GuestIndex),
}

/// How much memory a target holds for its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStatus {
    /// Bytes that the target may hold.
    pub budget: u64,
    /// Bytes that the target holds.
    pub used: u64,
    /// Number of connections that wait for memory.
    pub waiting: usize,
}

/// The memory budget of a target, and who uses it.
#[derive(Debug)]
pub(super) struct Memory {
    budget: u64,
    used: Sum,
    /// Bytes held, indexed by association.
    hosts: Vec<Sum>,
    /// Bytes held, indexed by guest.
    guests: Vec<Sum>,
    /// Number of associations and guests that hold anything, by direction.
    active: [u64; 2],
    /// Connections that have something to say but may not.
    waiting: Vec<ConnectionId>,
    /// When to look for connections that have taken nothing for [`UNREAD_MAX`].
    look: Option<Instant>,
    /// The connection at which a look that is under way goes on, or 0.
    looked: usize,
    /// Since when a connection has taken nothing, of those that the look has found.
    oldest: Option<Instant>,
    /// When to look for connections that take nothing while others wait.
    pressed: Option<Instant>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            budget: MEMORY_MAX,
            used: Sum::default(),
            hosts: Vec::new(),
            guests: Vec::new(),
            active: [0; 2],
            waiting: Vec::new(),
            look: None,
            looked: 0,
            oldest: None,
            pressed: None,
        }
    }
}

impl Memory {
    /// The budget of each direction. Commands wait for hosts to read, data wait for hosts to send,
    /// and neither must wait for the other.
    const fn most(&self) -> u64 {
        self.budget / 2
    }

    /// The share of one host in the budget of a direction that `active` hosts use. A host that came
    /// when there were fewer may still hold more than its share. Half of the budget is therefore
    /// left for newcomers, who need not wait for that host.
    const fn share(&self, active: u64) -> u64 {
        self.most() / 2 / if active == 0 { 1 } else { active }
    }

    fn host(&self, holder: Holder) -> Sum {
        let found = match holder {
            Holder::Association(key) => self.hosts.get(key.0 as usize),
            Holder::Guest(GuestIndex(index)) => self.guests.get(index),
        };
        found.copied().unwrap_or_default()
    }

    fn change(&mut self, holder: Option<Holder>, before: Held, now: Held) {
        self.used.change(before, now);
        let (hosts, index) = match holder {
            None => return,
            Some(Holder::Association(key)) => (&mut self.hosts, key.0 as usize),
            Some(Holder::Guest(GuestIndex(index))) => (&mut self.guests, index),
        };
        if hosts.len() <= index {
            hosts.resize(index + 1, Sum::default());
        }
        let host = &mut hosts[index];
        let was = *host;
        host.change(before, now);
        let is = *host;
        for (active, (was, is)) in
            self.active.iter_mut().zip([(was.to_host, is.to_host), (was.from_host, is.from_host)])
        {
            *active = *active + u64::from(is > 0) - u64::from(was > 0);
        }
    }

    fn permission(&self, holder: Holder, is_admin: bool, own: Held) -> Permission {
        let host = self.host(holder);
        let may = |used: u64, host: u64, active: u64| {
            used < self.most() && (host == 0 || host < self.share(active))
        };
        Permission {
            commands: may(self.used.to_host, host.to_host, self.active[0])
                || (is_admin && own.to_host < ADMIN_FREE),
            data: may(self.used.from_host, host.from_host, self.active[1]),
        }
    }

    /// How much is held for a guest.
    pub(super) fn of_guest(&self, guest: GuestIndex) -> u64 {
        self.host(Holder::Guest(guest)).all()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look.into_iter().chain(self.pressed).min()
    }
}

impl Target {
    /// Limits all that is held for hosts to about `bytes`: each connection may exceed the limit by
    /// one command.
    pub const fn set_memory_max(&mut self, bytes: u64) {
        self.memory.budget = bytes;
    }

    /// How much is held for hosts.
    pub const fn memory(&self) -> MemoryStatus {
        let Memory { budget, used, waiting, .. } = &self.memory;
        MemoryStatus { budget: *budget, used: used.all(), waiting: waiting.len() }
    }

    pub(super) fn memory_of(&self, association: AssociationKey) -> u64 {
        self.memory.host(Holder::Association(association)).all()
    }

    /// Permits a connection its next steps.
    pub(super) fn permit(&mut self, id: ConnectionId) {
        let now = self.now;
        let is_below_ceiling = self.is_below_ceiling(id);
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let queue = match &peer.standing {
            Standing::Queue(queue) => queue,
            Standing::AwaitingConnect(_) => {
                // What has just been sent is not counted yet.
                let unsent = peer.connection.outbox().map_or(0, Outbox::len);
                let commands = unsent < UNCONNECTED_MAX;
                return peer.connection.permit(Permission { commands, ..Permission::ALL });
            }
            Standing::Over => return,
        };
        let permission = memory.permission(queue.holder(), queue.queue.is_admin(), peer.counted);
        let commands = permission.commands && is_below_ceiling;
        peer.connection.permit(Permission { commands, ..permission });
        if permission != Permission::ALL && !core::mem::replace(&mut peer.is_waiting, true) {
            memory.waiting.push(id);
            memory.pressed.get_or_insert(now + UNREAD_MAX_UNDER_PRESSURE);
        }
    }

    /// Updates what the budget counts as held by a connection.
    pub(super) fn count(&mut self, id: ConnectionId) {
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let held = peer.connection.held();
        let before = core::mem::replace(&mut peer.counted, held);
        if held == before {
            return;
        }
        let holder = peer.queue().map(|queue| queue.holder());
        memory.change(holder, before, held);
        if held.all() < before.all() {
            self.resume();
        }
    }

    /// A connection stands for nothing any more, or is about to: it no longer counts in the budget.
    pub(super) fn uncount(&mut self, id: ConnectionId) {
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let before = core::mem::take(&mut peer.counted);
        memory.change(peer.queue().map(|queue| queue.holder()), before, Held::default());
        self.resume();
    }

    /// Continues connections that waited for memory which is free again.
    fn resume(&mut self) {
        if self.memory.waiting.is_empty() {
            return;
        }
        let mut waiting = core::mem::take(&mut self.memory.waiting);
        waiting.retain(|id| {
            let Self { peers, memory, outputs, touched, .. } = &mut *self;
            let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return false };
            let Standing::Queue(queue) = &peer.standing else { return false };
            let permission = memory.permission(queue.holder(), queue.queue.is_admin(), peer.counted);
            if permission != Permission::ALL {
                return true;
            }
            peer.is_waiting = false;
            outputs.push_back(Output::Listen(*id));
            if !core::mem::replace(&mut peer.is_touched, true) {
                touched.push(*id);
            }
            false
        });
        self.memory.waiting.append(&mut waiting);
        if self.memory.waiting.is_empty() {
            self.memory.pressed = None;
        }
    }

    /// A connection has something to send, or its host was asked for data. Starts the watch over
    /// the host's progress.
    pub(super) fn watch_for_reading(&mut self) {
        self.memory.look.get_or_insert(self.now + UNREAD_MAX);
        if self.memory.looked > 0 {
            // The look that is under way may have passed the connection.
            self.memory.oldest.get_or_insert(self.now);
        }
    }

    /// Ends connections whose hosts take nothing: for too long, or while others wait.
    pub(super) fn end_unread(&mut self) {
        let now = self.now;
        if self.memory.look.is_some_and(|at| at <= now) {
            self.look_for_unread();
        }
        if self.memory.pressed.is_some_and(|at| at <= now) {
            self.relieve();
            let again = !self.memory.waiting.is_empty();
            self.memory.pressed = again.then(|| now + UNREAD_MAX_UNDER_PRESSURE);
        }
    }

    /// Ends connections whose hosts have taken nothing for too long, among the next
    /// [`LOOKED_AT_ONCE`].
    fn look_for_unread(&mut self) {
        let (now, from) = (self.now, self.memory.looked);
        let until = self.peers.len().min(from + LOOKED_AT_ONCE);
        for index in from..until {
            let id = ConnectionId(u32::try_from(index).expect("connections are fewer than 2^32"));
            match self.peer_takes_nothing_since(id) {
                Some(since) if since + UNREAD_MAX <= now => self.give_up(id, &Close::Unread),
                since => self.memory.oldest = self.memory.oldest.into_iter().chain(since).min(),
            }
        }
        let memory = &mut self.memory;
        (memory.looked, memory.look) = match until < self.peers.len() {
            true => (until, Some(now + LOOK_ON)),
            false => (0, memory.oldest.take().map(|since| since + UNREAD_MAX)),
        };
    }

    /// Makes room when the budget is spent. Frees a quarter of the budget, so that the next
    /// commands need no further end. The host that holds most comes first, and of its connections
    /// the one that holds most.
    fn relieve(&mut self) {
        let (now, most) = (self.now, self.memory.most());
        let used = self.memory.used;
        if used.to_host < most && used.from_host < most {
            return;
        }
        let enough = most / 4 * 3;
        let mut owing = self.owing();
        let of_host = |id: ConnectionId| {
            let queue = self.peers.get(id.0 as usize).and_then(Option::as_ref).and_then(Peer::queue);
            queue.map_or(0, |queue| self.memory.host(queue.holder()).all())
        };
        owing.sort_by_cached_key(|(id, held)| core::cmp::Reverse((of_host(*id), *held)));
        for (id, _) in owing {
            let used = self.memory.used;
            if used.to_host <= enough && used.from_host <= enough {
                return;
            }
            let since = self.peer_takes_nothing_since(id);
            if since.is_some_and(|since| since + UNREAD_MAX_UNDER_PRESSURE <= now) {
                self.give_up(id, &Close::Memory);
            }
        }
    }

    /// Connections whose hosts have something to read or to send, and how much is held for each.
    fn owing(&self) -> Vec<(ConnectionId, u64)> {
        let of = |(index, peer): (u32, &Option<Peer>)| {
            let id = ConnectionId(index);
            let held = peer.as_ref()?.counted.all();
            self.peer_takes_nothing_since(id).map(|_| (id, held))
        };
        (0..).zip(&self.peers).filter_map(of).collect()
    }

    /// Since when the host of a connection has neither taken anything of what waits for it, nor
    /// sent anything of what it was asked for.
    fn peer_takes_nothing_since(&self, id: ConnectionId) -> Option<Instant> {
        let peer = self.peers.get(id.0 as usize)?.as_ref().filter(|peer| !peer.is_over())?;
        let owes = peer.is_sending || peer.connection.is_owed_data();
        owes.then(|| if peer.is_sending { peer.taken } else { peer.taken.max(peer.given) })
    }

    /// Ends a connection without sending what the host has not taken.
    fn give_up(&mut self, id: ConnectionId, why: &Close) {
        if let Some(peer) = self.peer(id) {
            peer.connection.give_up();
            peer.is_sending = false;
        }
        self.retire(id, why);
    }
}
