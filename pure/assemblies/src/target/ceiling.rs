//! What hosts may do: their permits, and the ceilings on their rates.
//!
//! A host has one ceiling in a subsystem, for all controllers and queues that it uses. A host that
//! has reached its ceiling waits: no further command of its I/O queues is taken until what it has
//! done is paid for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use engine::Instant;
use nvme::rate::{Ceiling, Rate};
use nvme::subsystem::Permit;
use nvme_fabrics::target::{AssociationKey, SubsystemKey};
use nvme_fabrics::wire::Nqn;

use super::peer::{Role, Standing};
use super::{Close, ConnectionId, Output, Target};

/// Names a host's ceiling for as long as the target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CeilingIndex(usize);

/// The ceiling of a host in a subsystem.
#[derive(Debug)]
struct OfHost {
    rate: Rate,
    ceiling: Ceiling,
}

/// The ceilings of all hosts that the directory names, and who waits because of them.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    hosts: Vec<OfHost>,
    /// Where each host of a subsystem is among them.
    places: BTreeMap<(SubsystemKey, Nqn), usize>,
    /// Connections that have commands and may not begin them yet.
    waiting: Vec<ConnectionId>,
    /// When the first of them may go on.
    opens: Option<Instant>,
}

impl Ceilings {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.opens
    }

    /// The ceiling of a host, which from now on is that of `rate`.
    fn of(&mut self, subsystem: SubsystemKey, host: &Nqn, rate: Rate) -> CeilingIndex {
        let index = *self.places.entry((subsystem, host.clone())).or_insert_with(|| {
            self.hosts.push(OfHost { rate: Rate::default(), ceiling: Ceiling::default() });
            self.hosts.len() - 1
        });
        let one = &mut self.hosts[index];
        if one.rate != rate {
            (one.rate, one.ceiling) = (rate, Ceiling::new(rate));
        }
        CeilingIndex(index)
    }

    /// When the host may begin its next command; `None` if it may at `now`.
    #[inline]
    fn opens(&self, now: Instant, index: CeilingIndex) -> Option<Instant> {
        self.hosts[index.0].ceiling.opens(now)
    }

    fn wait(&mut self, id: ConnectionId, until: Instant) {
        self.waiting.push(id);
        self.opens = Some(self.opens.map_or(until, |opens| opens.min(until)));
    }

    #[inline]
    pub(super) fn charge_command(&mut self, now: Instant, index: Option<CeilingIndex>) {
        if let Some(CeilingIndex(index)) = index {
            self.hosts[index].ceiling.charge_operations(now, 1);
        }
    }

    #[inline]
    pub(super) fn charge_bytes(&mut self, now: Instant, index: Option<CeilingIndex>, bytes: usize) {
        if let Some(CeilingIndex(index)) = index {
            self.hosts[index].ceiling.charge_bytes(now, bytes as u64);
        }
    }
}

impl Target {
    /// What the host of an association may do.
    pub(super) fn permit_of(&self, key: AssociationKey) -> Permit {
        let association = self.fabrics.association(key);
        let terms = association.and_then(|one| self.fabrics.offered(one.subsystem()?)?.terms_of(one.host()));
        terms.map(|terms| terms.permit.clone()).unwrap_or_default()
    }

    /// The ceiling for the I/O queues of an association; `None` where nothing was ever said of its
    /// host.
    pub(super) fn ceiling_of(&mut self, key: AssociationKey) -> Option<CeilingIndex> {
        let association = self.fabrics.association(key)?;
        let subsystem = association.subsystem()?;
        let host = association.host().clone();
        let terms = self.fabrics.offered(subsystem)?.terms_of(&host)?;
        let rate = terms.permit.rate;
        Some(self.ceilings.of(subsystem, &host, rate))
    }

    /// Has every host, or those of subsystem `only`, do from now on what the directory says.
    pub(super) fn apply_permits(&mut self, only: Option<SubsystemKey>) {
        let now = self.now;
        for index in 0..self.members.len() {
            let of = self.members[index].as_ref().and_then(|member| Some(member.controller?.0));
            if only.is_some() && only != of {
                continue;
            }
            let key = AssociationKey(u32::try_from(index).expect("associations are fewer than 2^32"));
            let (permit, ceiling) = (self.permit_of(key), self.ceiling_of(key));
            let Some(member) = &self.members[index] else { continue };
            let Some((subsystem, controller)) = member.controller else { continue };
            for (_, id) in &member.queues {
                let peer = self.peers.get_mut(id.0 as usize).and_then(Option::as_mut);
                if let Some(Standing::Queue(queue)) = peer.map(|peer| &mut peer.standing) {
                    queue.ceiling = ceiling;
                }
            }
            // A host that gets a ceiling has all of its queues at home from now on.
            let away = match permit.rate.is_free() {
                true => Vec::new(),
                false => {
                    self.members[index].as_mut().map(|one| core::mem::take(&mut one.away)).unwrap_or_default()
                }
            };
            for one in away {
                self.close_away(subsystem, one, &Close::Limited);
                self.fabrics.close_queue(key, one.claim);
            }
            if let Some(home) = self.home_mut(subsystem) {
                home.set_permit(now, controller, permit);
            }
            self.drain_core(subsystem);
        }
        self.open_ceilings(true);
    }

    /// Whether a queue may take commands now. If not, its connection is looked at again in time.
    #[inline]
    pub(super) fn is_below_ceiling(&mut self, id: ConnectionId) -> bool {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return true };
        let Standing::Queue(queue) = &peer.standing else { return true };
        let opens = match (queue.ceiling, &queue.role) {
            (Some(index), _) => self.ceilings.opens(now, index),
            (None, Role::Discovery(discovery)) if self.gate.has(id) => discovery.opens(now),
            _ => return true,
        };
        let Some(until) = opens else { return true };
        if !core::mem::replace(&mut peer.is_slowed, true) {
            self.ceilings.wait(id, until);
        }
        false
    }

    /// Continues connections that waited for their hosts' ceilings, once the first of these has
    /// opened or, with `all`, in any case.
    pub(super) fn open_ceilings(&mut self, all: bool) {
        if !all && self.ceilings.opens.is_none_or(|at| at > self.now) {
            return;
        }
        self.ceilings.opens = None;
        for id in core::mem::take(&mut self.ceilings.waiting) {
            let Some(peer) = self.peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { continue };
            peer.is_slowed = false;
            self.outputs.push_back(Output::Listen(id));
            self.touch(id);
        }
    }
}
