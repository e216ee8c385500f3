//! Associations as the cores and the connections know them, and how they end.

use alloc::vec::Vec;

use nvme::subsystem::{ControllerKey, Instance};
use nvme::wire::{QueueId, StatusCode};
use nvme_fabrics::authentication::Failure;
use nvme_fabrics::target::{AssociationKey, Claim, SubsystemKey};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::Nqn;

use super::lanes::Away;
use super::peer::{Role, Standing};
use super::{Close, ConnectionId, Event, Output, Target};

/// The controller and the connections of an association.
#[derive(Debug)]
pub(super) struct Member {
    /// The subsystem and the controller in it; `None` for a discovery controller.
    pub(super) controller: Option<(SubsystemKey, ControllerKey)>,
    /// The subsystem's name, which is known after the subsystem has gone, too; `None` for the
    /// discovery service.
    name: Option<Nqn>,
    pub(super) admin: ConnectionId,
    /// The I/O queues and their connections.
    pub(super) queues: Vec<(QueueId, ConnectionId)>,
    /// The I/O queues that lanes of other reactors have.
    pub(super) away: Vec<Away>,
    /// Connections that claim I/O queues and have yet to authenticate.
    pub(super) claimants: Vec<ConnectionId>,
    /// Distinguishes the association from every other of this target.
    pub(super) life: u64,
    /// The version of the subsystem's views that has the controller.
    pub(super) version: u64,
}

impl Member {
    pub(super) const fn new(
        controller: Option<(SubsystemKey, ControllerKey)>,
        admin: ConnectionId,
        life: u64,
    ) -> Self {
        Self {
            controller,
            name: None,
            admin,
            queues: Vec::new(),
            away: Vec::new(),
            claimants: Vec::new(),
            life,
            version: 0,
        }
    }

    /// All connections, that of the Admin Queue last.
    fn connections(&self) -> Vec<ConnectionId> {
        let queues = self.queues.iter().map(|(_, connection)| *connection);
        queues.chain(self.claimants.iter().copied()).chain([self.admin]).collect()
    }
}

impl Target {
    pub(super) fn add_member(&mut self, key: AssociationKey, mut member: Member) {
        let subsystem = self.fabrics.association(key).and_then(|association| association.subsystem());
        member.name = subsystem.and_then(|key| self.name_of(key));
        let index = key.0 as usize;
        if self.members.len() <= index {
            self.members.resize_with(index + 1, || None);
        }
        self.members[index] = Some(member);
    }

    pub(super) fn name_of(&self, subsystem: SubsystemKey) -> Option<Nqn> {
        Some(self.fabrics.offered(subsystem)?.name.clone())
    }

    /// Ends a connection: it stands for nothing any more, and is closed once its last bytes are
    /// sent.
    pub(super) fn retire(&mut self, id: ConnectionId, why: &Close) {
        self.release(id, why);
        self.say_goodbye(id);
    }

    fn say_goodbye(&mut self, id: ConnectionId) {
        self.gate.on_over(id);
        if let Some(peer) = self.peer(id) {
            peer.standing = Standing::Over;
            self.announce(id);
            self.outputs.push_back(Output::Close(id));
        }
    }

    /// Ends a connection at once, without a last word: others need its place.
    pub(super) fn drop_connection(&mut self, id: ConnectionId, why: &Close) {
        self.release(id, why);
        if let Some(peer) = self.peer(id) {
            peer.connection.give_up();
            (peer.standing, peer.is_sending) = (Standing::Over, false);
            self.outputs.push_back(Output::Drop(id));
        }
    }

    /// The connection of an association that has a claim.
    pub(super) fn connection_of(&self, key: AssociationKey, claim: Claim) -> Option<ConnectionId> {
        let member = self.members.get(key.0 as usize)?.as_ref()?;
        let has_claim = |id: &ConnectionId| {
            let peer = self.peers.get(id.0 as usize).and_then(Option::as_ref);
            peer.and_then(|peer| peer.queue()).is_some_and(|queue| queue.claim == claim)
        };
        member.connections().into_iter().find(has_claim)
    }

    /// Takes away what a connection stands for. The caller frees the connection's place.
    pub(super) fn release(&mut self, id: ConnectionId, why: &Close) {
        self.uncount(id);
        let Some(peer) = self.peer(id) else { return };
        let (association, claim, is_admitted) = match &peer.standing {
            Standing::Over => return,
            Standing::AwaitingConnect(_) => {
                let address = peer.address;
                peer.standing = Standing::Over;
                self.forget_joining(id);
                // Port scanners and health checks close without a word; they are not worth an
                // event. Connections dropped for others are counted.
                if !matches!(why, Close::Lost | Close::Crowded) {
                    self.log(Event::Turned { peer: address, why: why.clone() });
                }
                return;
            }
            Standing::Queue(queue) if queue.guest.is_some() => return self.release_guest(id, why),
            Standing::Queue(queue) => (queue.association, queue.claim, queue.is_admitted),
        };
        let number = claim.queue;
        if number.is_admin() {
            return self.end_association_but(association, why, Some(id));
        }
        if !is_admitted {
            let address = peer.address;
            peer.standing = Standing::Over;
            if *why == Close::Unauthenticated(Failure::TimedOut) {
                self.log(Event::Turned { peer: address, why: why.clone() });
            }
            if let Some(member) = self.members.get_mut(association.0 as usize).and_then(Option::as_mut) {
                member.claimants.retain(|one| *one != id);
            }
            return self.fabrics.close_queue(association, claim);
        }
        self.release_queue(id);
        self.fabrics.close_queue(association, claim);
        if let Some(controller) = self.fabrics.association(association).map(|one| one.controller()) {
            self.log(Event::QueueGone { controller, queue: number, why: why.clone() });
        }
    }

    /// Gives up the commands of an I/O queue.
    fn release_queue(&mut self, id: ConnectionId) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let tokens = peer.take_tokens();
        let standing = core::mem::replace(&mut peer.standing, Standing::Over);
        let Standing::Queue(queue) = standing else { return };
        let Role::Nvm(subsystem, controller) = queue.role else { return };
        let Some(member) = self.members[queue.association.0 as usize].as_mut() else { return };
        let before = member.queues.len();
        member.queues.retain(|(_, connection)| *connection != id);
        self.lanes.own_queues -= before - member.queues.len();
        let is_last = member.queues.is_empty() && member.away.is_empty();
        let Some(served) = self.subsystems[subsystem.0 as usize].as_mut() else { return };
        served.core.drop_queue(now, controller, queue.queue);
        for token in tokens {
            served.retire(token);
        }
        if let Some(home) = served.core.home_mut().filter(|_| is_last) {
            home.set_io_queues_exist(controller, false);
        }
        self.drain_core(subsystem);
    }

    /// Ends an association: closes its connections and removes its controller.
    pub(super) fn end_association(&mut self, key: AssociationKey, why: &Close) {
        self.end_association_but(key, why, None);
    }

    /// As [`Target::end_association`], but the world need not close the connection `spared`.
    fn end_association_but(&mut self, key: AssociationKey, why: &Close, spared: Option<ConnectionId>) {
        let now = self.now;
        let Some(member) = self.members.get_mut(key.0 as usize).and_then(Option::take) else { return };
        let admin = self.peers[member.admin.0 as usize].as_ref().map(|peer| peer.address);
        self.lanes.own_queues -= member.queues.len();
        if let Some((subsystem, controller)) = member.controller
            && let Some(served) = self.subsystems[subsystem.0 as usize].as_mut()
        {
            served.leave(now, controller);
            served.forget(key, |_, _| ());
            served.set_association(controller, None);
        }
        if let Some((subsystem, _)) = member.controller {
            for away in &member.away {
                self.close_away(subsystem, *away, why);
            }
        }
        for connection in self.joining(key) {
            self.retire(connection, why);
        }
        for connection in member.connections() {
            self.uncount(connection);
            if let Some(peer) = self.peer(connection) {
                peer.standing = Standing::Over;
                drop(peer.take_tokens());
            }
            if spared != Some(connection) {
                self.say_goodbye(connection);
            }
        }
        let Some(ended) = self.fabrics.end(key) else { return };
        let (host, controller) = (ended.host().clone(), ended.controller());
        let is_worth_a_word = ended.is_proven() || !matches!(why, Close::Lost | Close::Crowded);
        if is_worth_a_word {
            let subsystem = member.name;
            self.log(Event::Ended { host, peer: admin, subsystem, controller, why: why.clone() });
        }
        if let Some((subsystem, _)) = member.controller {
            self.drain_core(subsystem);
        }
    }

    /// A Controller Level Reset: the I/O queues and the commands under way go, the association
    /// stays.
    pub(super) fn reset(&mut self, key: AssociationKey) {
        let now = self.now;
        let Some(member) = self.members.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        let (admin, queues) = (member.admin, core::mem::take(&mut member.queues));
        let claimants = core::mem::take(&mut member.claimants);
        let away = core::mem::take(&mut member.away);
        self.lanes.own_queues -= queues.len();
        let controller = member.controller;
        for connection in queues.into_iter().map(|(_, connection)| connection).chain(claimants) {
            self.uncount(connection);
            if let Some(peer) = self.peer(connection) {
                drop(peer.take_tokens());
            }
            self.say_goodbye(connection);
        }
        for connection in self.joining(key) {
            self.retire(connection, &Close::Reset);
        }
        let Some((subsystem, controller)) = controller else {
            self.fabrics.reset_discovery(key);
            return self.abort_held(admin);
        };
        for away in away {
            self.close_away(subsystem, away, &Close::Reset);
        }
        let Some(served) = self.subsystems[subsystem.0 as usize].as_mut() else { return };
        let Some(home) = served.core.home_mut() else { return };
        home.reset(now, controller);
        let mut forgotten = Vec::new();
        served.forget(key, |connection, slot| forgotten.push((connection, slot)));
        // The host may reuse the command identifiers on a queue that lasts.
        for (connection, slot) in forgotten {
            if let Some(peer) = self.peer(connection)
                && !peer.is_over()
            {
                peer.set_token(slot, None);
                peer.complete(slot, StatusCode::CommandAbortRequested.into(), 0, 0);
            }
        }
        self.touch(admin);
        self.drain_core(subsystem);
    }

    /// Ends the Asynchronous Event Requests that a discovery controller held.
    fn abort_held(&mut self, id: ConnectionId) {
        let Some(peer) = self.peer(id) else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let Role::Discovery(discovery) = &mut queue.role else { return };
        for (_, slot) in core::mem::take(&mut discovery.held) {
            peer.complete(slot, StatusCode::CommandAbortRequested.into(), 0, 0);
        }
        self.touch(id);
    }

    /// CC.EN goes from 0 to 1: another life of the controller begins.
    pub(super) fn enable(&mut self, key: AssociationKey) {
        let Some(member) = self.members.get(key.0 as usize).and_then(Option::as_ref) else { return };
        if let Some((subsystem, controller)) = member.controller
            && let Some(home) =
                self.subsystems[subsystem.0 as usize].as_mut().and_then(|one| one.core.home_mut())
        {
            let uniquifier = u8::try_from(1 + self.rng.below(255)).expect("at most 255");
            home.set_instance(controller, Instance { uniquifier, random: self.rng.next_u64() });
        }
        self.fabrics.set_ready(key);
    }

    pub(super) fn begin_shutdown(&mut self, key: AssociationKey) {
        let now = self.now;
        let Some(member) = self.members.get(key.0 as usize).and_then(Option::as_ref) else { return };
        match member.controller {
            None => self.fabrics.set_shut_down(now, key),
            Some((subsystem, controller)) => {
                if let Some(home) = self.home_mut(subsystem) {
                    home.shut_down(now, controller);
                    self.drain_core(subsystem);
                }
            }
        }
    }

    /// An NVM Subsystem Reset: resets every controller. The Admin Queues stay, and report that the
    /// reset has occurred.
    pub(super) fn reset_subsystem(&mut self, subsystem: SubsystemKey) {
        let of = |(key, member): (u32, &Option<Member>)| {
            let (found, _) = member.as_ref()?.controller?;
            (found == subsystem).then_some(AssociationKey(key))
        };
        let keys: Vec<_> = (0..).zip(&self.members).filter_map(of).collect();
        for key in keys {
            self.reset(key);
        }
        self.fabrics.set_subsystem_reset(self.now, subsystem);
    }

    /// Sends the event that a discovery controller has, if any.
    pub(super) fn report_event(&mut self, key: AssociationKey) {
        let Some(member) = self.members.get(key.0 as usize).and_then(Option::as_ref) else { return };
        let admin = member.admin;
        let Some((command, dw0)) = self.fabrics.take_event(key) else { return };
        let Some(peer) = self.peer(admin) else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let Role::Discovery(discovery) = &mut queue.role else { return };
        let held = &mut discovery.held;
        if let Some(index) = held.iter().position(|(one, _)| *one == command) {
            let (_, slot) = held.remove(index);
            peer.complete(slot, nvme::wire::Status::SUCCESS, dw0, 0);
            self.touch(admin);
        }
    }
}
