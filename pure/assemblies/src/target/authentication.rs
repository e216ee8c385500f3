//! Authentication Send and Authentication Receive.

use alloc::string::ToString;

use engine::Buffer;
use nvme::wire::{Status, StatusCode};
use nvme_fabrics::authentication::Failure;
use nvme_fabrics::target::Progress;
use nvme_fabrics::wire::AuthenticationCommand;

use super::peer::Standing;
use super::{Close, ConnectionId, Event, Target};
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
            Err(status) => peer.complete(slot, status, 0, 0),
        }
    }

    pub(super) fn on_authentication_data(&mut self, id: ConnectionId, slot: Slot, message: &[u8]) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        queue.authenticating = None;
        let (association, number) = (queue.association, queue.queue);
        match self.fabrics.authentication_send(now, association, number, message) {
            Ok(progress) => {
                peer.complete(slot, Status::SUCCESS, 0, 0);
                self.on_progress(id, progress);
            }
            Err(status) => peer.complete(slot, status, 0, 0),
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
        let Some(queue) = peer.queue() else { return };
        let (association, number) = (queue.association, queue.queue);
        match self.fabrics.authentication_receive(now, association, number, command) {
            Ok((message, progress)) => {
                let total = u32::try_from(message.len()).expect("a message is short");
                let pushed = peer.connection.push(slot, 0, total, Buffer::from(message));
                peer.complete(slot, pushed.err().unwrap_or(Status::SUCCESS), 0, 0);
                self.on_progress(id, progress);
            }
            Err(status) => peer.complete(slot, status, 0, 0),
        }
    }

    fn on_progress(&mut self, id: ConnectionId, progress: Progress) {
        let told = self.peers[id.0 as usize].as_ref().and_then(|peer| {
            let queue = peer.queue()?;
            let association = self.fabrics.association(queue.association)?;
            let (host, controller) = (association.host().clone(), association.controller());
            let (peer, queue) = (peer.address, queue.queue);
            Some(match progress.news? {
                Ok(agreed) => Event::Authenticated { peer, host, controller, queue, agreed },
                Err(why) => {
                    let origin = association.secret_origin().unwrap_or_default().to_string();
                    Event::NotAuthenticated { peer, host, queue, why, origin }
                }
            })
        });
        let why = progress.news.and_then(Result::err);
        if let Some(event) = told {
            self.log(event);
        }
        if progress.is_over {
            let why = why.unwrap_or(Failure::Refused(nvme_fabrics::authentication::Explanation::Failed));
            self.retire(id, &Close::Unauthenticated(why));
        }
    }

    /// Closes the I/O queues whose hosts have not authenticated them in time.
    pub(super) fn end_unauthenticated(&mut self) {
        for (key, queue) in self.fabrics.overdue_queues(self.now) {
            let member = self.members.get(key.0 as usize).and_then(Option::as_ref);
            let found = member.and_then(|member| member.queues.iter().find(|(one, _)| *one == queue));
            if let Some((_, connection)) = found.copied() {
                self.retire(connection, &Close::Unauthenticated(Failure::TimedOut));
            }
        }
    }
}
