//! Memory that is held for hosts: what they have not read, and what they are asked for. One budget for all of a target,
//! shared fairly.
//!
//! A host that holds its share is made to wait: no further command of it is taken, no further data are asked for. Where the
//! budget is spent all the same, the connections that take nothing are ended, the greediest first. A connection that takes
//! nothing for [`UNREAD_MAX`] is ended in any case: a host without Keep Alive Timeout is bounded by this alone.

use alloc::vec::Vec;

use engine::{Instant, Nanos};
use nvme_fabrics::target::AssociationKey;
use nvme_tcp::controller::{Held, Permission};

use super::peer::{Peer, Standing};
use super::{Close, ConnectionId, Output, Target};

/// Bytes that are held for all hosts at most, unless [`Target::set_memory_max`] says otherwise.
pub const MEMORY_MAX: u64 = 1 << 30;
/// How long a connection may leave unread what waits for it, or owe data that it was asked for.
pub const UNREAD_MAX: Nanos = Nanos::from_secs(30);
/// The same while others wait for memory.
pub const UNREAD_MAX_UNDER_PRESSURE: Nanos = Nanos::from_secs(1);
/// An Admin Queue that holds less is not made to wait for the I/O queues of its host: it keeps the association alive.
const ADMIN_FREE: u64 = 64 << 10;

/// What is held of each kind.
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

/// What a target holds for its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStatus {
    /// Bytes that it may hold.
    pub budget: u64,
    /// Bytes that it holds.
    pub used: u64,
    /// Connections that wait for memory.
    pub waiting: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    budget: u64,
    used: Sum,
    /// By association.
    hosts: Vec<Sum>,
    /// Associations for which anything is held.
    active: [u64; 2],
    /// Connections that have something to say and may not.
    waiting: Vec<ConnectionId>,
    /// When those are looked for that take nothing.
    look: Option<Instant>,
    /// When they are looked for because others wait.
    pressed: Option<Instant>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            budget: MEMORY_MAX,
            used: Sum::default(),
            hosts: Vec::new(),
            active: [0; 2],
            waiting: Vec::new(),
            look: None,
            pressed: None,
        }
    }
}

impl Memory {
    /// What there is for each kind: commands wait for hosts to read, data for hosts to send. Neither waits for the other.
    const fn most(&self) -> u64 {
        self.budget / 2
    }

    /// The share of a host in what there is of a kind, where `active` hosts have any of it. A host that came when there were
    /// fewer may still hold more than that: half is left for those who come, so that they need not wait for it.
    const fn share(&self, active: u64) -> u64 {
        self.most() / 2 / if active == 0 { 1 } else { active }
    }

    fn host(&self, association: AssociationKey) -> Sum {
        self.hosts.get(association.0 as usize).copied().unwrap_or_default()
    }

    fn change(&mut self, association: Option<AssociationKey>, before: Held, now: Held) {
        self.used.change(before, now);
        let Some(AssociationKey(index)) = association else { return };
        let index = index as usize;
        if self.hosts.len() <= index {
            self.hosts.resize(index + 1, Sum::default());
        }
        let host = &mut self.hosts[index];
        let was = *host;
        host.change(before, now);
        let is = *host;
        for (active, (was, is)) in
            self.active.iter_mut().zip([(was.to_host, is.to_host), (was.from_host, is.from_host)])
        {
            *active = *active + u64::from(is > 0) - u64::from(was > 0);
        }
    }

    fn permission(&self, association: AssociationKey, is_admin: bool, own: Held) -> Permission {
        let host = self.host(association);
        let may = |used: u64, host: u64, active: u64| {
            used < self.most() && (host == 0 || host < self.share(active))
        };
        Permission {
            commands: may(self.used.to_host, host.to_host, self.active[0])
                || (is_admin && own.to_host < ADMIN_FREE),
            data: may(self.used.from_host, host.from_host, self.active[1]),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look.into_iter().chain(self.pressed).min()
    }
}

impl Target {
    /// Has all that is held for hosts be at most `bytes` or so: one command more for each connection.
    pub const fn set_memory_max(&mut self, bytes: u64) {
        self.memory.budget = bytes;
    }

    /// What is held for hosts.
    pub const fn memory(&self) -> MemoryStatus {
        let Memory { budget, used, waiting, .. } = &self.memory;
        MemoryStatus { budget: *budget, used: used.all(), waiting: waiting.len() }
    }

    pub(super) fn memory_of(&self, association: AssociationKey) -> u64 {
        self.memory.host(association).all()
    }

    /// Says what a connection may do next.
    pub(super) fn permit(&mut self, id: ConnectionId) {
        let now = self.now;
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let Standing::Queue(queue) = &peer.standing else { return };
        let permission = memory.permission(queue.association, queue.queue.is_admin(), peer.counted);
        peer.connection.permit(permission);
        if permission != Permission::ALL && !core::mem::replace(&mut peer.is_waiting, true) {
            memory.waiting.push(id);
            memory.pressed.get_or_insert(now + UNREAD_MAX_UNDER_PRESSURE);
        }
    }

    /// Counts what a connection holds by now.
    pub(super) fn count(&mut self, id: ConnectionId) {
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let held = peer.connection.held();
        let before = core::mem::replace(&mut peer.counted, held);
        if held == before {
            return;
        }
        let association = peer.queue().map(|queue| queue.association);
        memory.change(association, before, held);
        if held.all() < before.all() {
            self.resume();
        }
    }

    /// A connection stands for nothing any more, or is about to: what it holds is nobody's.
    pub(super) fn uncount(&mut self, id: ConnectionId) {
        let Self { peers, memory, .. } = self;
        let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let before = core::mem::take(&mut peer.counted);
        memory.change(peer.queue().map(|queue| queue.association), before, Held::default());
        self.resume();
    }

    /// Goes on with connections that waited for memory which there is again.
    fn resume(&mut self) {
        if self.memory.waiting.is_empty() {
            return;
        }
        let mut waiting = core::mem::take(&mut self.memory.waiting);
        waiting.retain(|id| {
            let Self { peers, memory, outputs, touched, .. } = &mut *self;
            let Some(peer) = peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return false };
            let Standing::Queue(queue) = &peer.standing else { return false };
            let permission = memory.permission(queue.association, queue.queue.is_admin(), peer.counted);
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

    /// A connection has something to send, or was asked for data: it is to take it in time.
    pub(super) fn watch_for_reading(&mut self) {
        self.memory.look.get_or_insert(self.now + UNREAD_MAX);
    }

    /// Ends connections that take nothing: for too long, or while others wait.
    pub(super) fn end_unread(&mut self) {
        let now = self.now;
        if self.memory.look.is_some_and(|at| at <= now) {
            let since = |target: &Self, id| target.peer_takes_nothing_since(id);
            let all = self.owing();
            for (id, _) in &all {
                if since(self, *id).is_some_and(|since| since + UNREAD_MAX <= now) {
                    self.give_up(*id, &Close::Unread);
                }
            }
            let next = all.iter().filter_map(|(id, _)| since(self, *id)).min();
            self.memory.look = next.map(|since| since + UNREAD_MAX);
        }
        if self.memory.pressed.is_some_and(|at| at <= now) {
            self.relieve();
            let again = !self.memory.waiting.is_empty();
            self.memory.pressed = again.then(|| now + UNREAD_MAX_UNDER_PRESSURE);
        }
    }

    /// Makes room, where the budget is spent: a quarter of it, so that not each command needs another end. The greediest host
    /// comes first, and of its connections the greediest.
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
            queue.map_or(0, |queue| self.memory_of(queue.association))
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

    /// Connections that have something to read or to send, and how much is held for each.
    fn owing(&self) -> Vec<(ConnectionId, u64)> {
        let of = |(index, peer): (u32, &Option<Peer>)| {
            let id = ConnectionId(index);
            let held = peer.as_ref()?.counted.all();
            self.peer_takes_nothing_since(id).map(|_| (id, held))
        };
        (0..).zip(&self.peers).filter_map(of).collect()
    }

    /// Since when a connection has neither taken anything of what waits for it, nor sent anything of what it was asked for.
    fn peer_takes_nothing_since(&self, id: ConnectionId) -> Option<Instant> {
        let peer = self.peers.get(id.0 as usize)?.as_ref().filter(|peer| !peer.is_over())?;
        let owes = peer.is_sending || peer.connection.is_owed_data();
        owes.then(|| if peer.is_sending { peer.taken } else { peer.taken.max(peer.given) })
    }

    /// Ends a connection without sending what it has not taken.
    fn give_up(&mut self, id: ConnectionId, why: &Close) {
        if let Some(peer) = self.peer(id) {
            peer.connection.give_up();
            peer.is_sending = false;
        }
        self.retire(id, why);
    }
}
