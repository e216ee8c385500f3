//! Authentication Send and Authentication Receive, and what follows from a proof.

use alloc::string::ToString;

use core::net::SocketAddr;

use engine::Nanos;
use nvme::wire::{Status, StatusCode};
use nvme_fabrics::authentication::{Explanation, Failure, Product};
use nvme_fabrics::target::{AssociationKey, Progress, Received, WorkId};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{AuthenticationCommand, QueueId};

use super::peer::{Peer, Standing};
use super::reauthentication::Step;
use super::trail::Answer;
use super::{Close, ConnectionId, Event, Output, Target};
use crate::fabric::controller::Slot;

impl Target {
    pub(super) fn on_authentication_send(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        command: AuthenticationCommand,
    ) {
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        if queue.authenticating.is_some() {
            // A host waits for the end of each step before it takes the next one.
            return peer.complete(slot, StatusCode::CommandSequenceError.into(), 0, 0);
        }
        let length = self.fabrics.authentication_length(queue.association, command);
        let pulled = length.and_then(|length| peer.connection.pull(slot, length));
        match pulled {
            Ok(Some(data)) => self.on_authentication_data(id, slot, &data),
            Ok(None) => queue.authenticating = Some(slot),
            Err(status) => refuse(peer, slot, status),
        }
    }

    pub(super) fn on_authentication_data(&mut self, id: ConnectionId, slot: Slot, message: &[u8]) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        queue.authenticating = None;
        if queue.guest.is_some() {
            return self.on_guest_step(id, slot, Step::Send(message.to_vec()));
        }
        let (association, claim) = (queue.association, queue.claim);
        match self.fabrics.authentication_send(now, association, claim, message) {
            Ok(progress) => {
                peer.complete(slot, Status::SUCCESS, 0, 0);
                peer.remember_answer(|| Answer::Accepted);
                self.on_progress(id, progress);
            }
            Err(status) => refuse(peer, slot, status),
        }
    }

    pub(super) fn on_authentication_receive(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        command: AuthenticationCommand,
    ) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        if queue.receiving.is_some() {
            return peer.complete(slot, StatusCode::CommandSequenceError.into(), 0, 0);
        }
        let (association, claim) = (queue.association, queue.claim);
        match self.fabrics.authentication_receive(now, association, claim, command) {
            Ok(Received::Message(message, progress)) => {
                peer.remember_answer(|| Answer::Message(message.clone()));
                peer.give_message(slot, message);
                self.on_progress(id, progress);
            }
            Ok(Received::Waits) => queue.receiving = Some((slot, command)),
            Err(status) => refuse(peer, slot, status),
        }
    }

    fn on_progress(&mut self, id: ConnectionId, progress: Progress) {
        if let Some(peer) = self.peers[id.0 as usize].as_ref()
            && let Some(queue) = peer.queue()
        {
            let (address, association, number) = (peer.address, queue.association, queue.queue);
            self.report_progress(address, association, number, &progress);
        }
        if let Some(peer) = self.peer(id)
            && let Standing::Queue(queue) = &mut peer.standing
        {
            queue.is_admitted = progress.is_admitted;
        }
        let now = self.now;
        match progress.is_waiting {
            true => self.gate.pause(now, id),
            false => self.gate.resume(now, id),
        }
        if progress.is_new {
            self.on_proof(id);
        }
        if progress.is_over {
            self.retire(id, &reason(&progress));
        }
        self.offer_work();
    }

    /// Reports the result of an authentication, if there is one.
    pub(super) fn report_progress(
        &mut self,
        peer: SocketAddr,
        key: AssociationKey,
        queue: QueueId,
        progress: &Progress,
    ) {
        let Some(association) = self.fabrics.association(key) else { return };
        let (host, controller) = (association.host().clone(), association.controller());
        let event = match progress.news {
            None => return,
            Some(Ok(agreed)) => Event::Authenticated { peer, host, controller, queue, agreed },
            Some(Err(why)) => {
                let origin = association.secret_origin().unwrap_or_default().to_string();
                self.gate.count_refused("not_authenticated");
                Event::NotAuthenticated { peer, host, queue, why, origin }
            }
        };
        self.log(event);
    }

    /// The host of a queue has authenticated: the queue is the connection's now.
    fn on_proof(&mut self, id: ConnectionId) {
        let Some(queue) = self.peers[id.0 as usize].as_ref().and_then(|peer| peer.queue()) else { return };
        let (association, number) = (queue.association, queue.queue);
        let keep_alive = queue.keep_alive_milliseconds;
        if self.proven_queue_goes(id, association, number) {
            return;
        }
        let subsystem = self.fabrics.association(association).and_then(|one| one.subsystem());
        if let Some(subsystem) = subsystem {
            let Some(role) = self.join(id, subsystem, (association, number), keep_alive) else { return };
            let ceiling = self.ceiling_of(association);
            if let Some(peer) = self.peer(id)
                && let Standing::Queue(queue) = &mut peer.standing
            {
                queue.role = role;
                queue.ceiling = ceiling.filter(|_| !queue.queue.is_admin());
            }
        }
        self.admit(id, true);
        self.report_connected(id);
    }

    /// A connection's host is admitted. Connections of the same address are known from then on if
    /// the host has proved who it is.
    pub(super) fn admit(&mut self, id: ConnectionId, by_key: bool) {
        let now = self.now;
        if by_key && let Some(origin) = self.peer(id).map(|peer| peer.origin()) {
            self.gate.know(now, origin);
        }
        if self.gate.remove(id) {
            self.outputs.push_back(Output::Admitted(id));
        }
    }

    /// Gives out the next piece of work, if there is any.
    pub(super) fn offer_work(&mut self) {
        if let Some((id, work)) = self.fabrics.poll_work(self.now) {
            self.outputs.push_back(Output::Work { id, work });
        }
    }

    /// A piece of work is done: the authentications that waited for it go on.
    pub(super) fn on_worked(&mut self, work: WorkId, product: Product, spent: Nanos) {
        let now = self.now;
        for (key, claim, progress) in self.fabrics.on_worked(now, work, product, spent) {
            let Some(id) = self.connection_of(key, claim) else {
                self.on_away_worked(key, claim, &progress);
                continue;
            };
            self.on_progress(id, progress);
            let held = self.peer(id).and_then(|peer| match &mut peer.standing {
                Standing::Queue(queue) => queue.receiving.take(),
                _ => None,
            });
            if let Some((slot, command)) = held {
                self.on_authentication_receive(id, slot, command);
            }
            self.touch(id);
        }
        self.offer_work();
        self.work();
    }

    /// Closes the connections that claim I/O queues and have not authenticated in time.
    pub(super) fn end_unauthenticated(&mut self) {
        for (key, claim) in self.fabrics.overdue_queues(self.now) {
            if let Some(connection) = self.connection_of(key, claim) {
                self.retire(connection, &Close::Unauthenticated(Failure::TimedOut));
            }
        }
    }
}

/// Why a queue ends whose authentication is over.
pub(super) fn reason(progress: &Progress) -> Close {
    let why = progress.news.and_then(Result::err);
    match progress.is_crowded {
        true => Close::Crowded,
        false => Close::Unauthenticated(why.unwrap_or(Failure::Refused(Explanation::Failed))),
    }
}

/// Ends a command of an authentication with an error, after which the queue does not move.
fn refuse(peer: &mut Peer, slot: Slot, status: Status) {
    peer.trail = None;
    peer.complete(slot, status, 0, 0);
}
