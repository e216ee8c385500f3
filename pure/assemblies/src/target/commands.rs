//! Commands from connections to cores, and their data and completions back.

use engine::Buffer;
use nvme::subsystem::{
    CommandToken, CompletionResult, ControllerKey, Input as CoreInput, Notification, Output as CoreOutput,
};
use nvme::wire::{Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::target::{Reply, SubsystemKey};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{FABRICS_OPCODE, FabricsStatus};

use super::lanes::ToHome;
use super::peer::{Role, Standing};
use super::subsystem::Owner;
use super::{Close, ConnectionId, Output, Target};
use crate::fabric::controller::{Output as ConnectionOutput, Slot};

impl Target {
    /// Handles what a connection has to say.
    pub(super) fn poll_connection(&mut self, id: ConnectionId) {
        loop {
            self.permit(id);
            let Some(output) = self.peer(id).and_then(|peer| peer.connection.poll_output()) else { return };
            match output {
                ConnectionOutput::Command { slot, entry } => {
                    if self.watch.is_on() {
                        self.show_command(id, &entry);
                    }
                    self.on_command(id, slot, entry);
                }
                ConnectionOutput::HostData { slot, data } => self.on_host_data(id, slot, data),
                ConnectionOutput::HostDataFailed { slot, status } => {
                    self.on_host_data_failed(id, slot, status);
                }
                ConnectionOutput::Initialized(parameters) => {
                    if let Some(peer) = self.peer(id) {
                        peer.parameters = Some(parameters);
                    }
                }
                ConnectionOutput::Closed(why) => {
                    self.retire(id, &Close::Protocol(why));
                    return;
                }
            }
            self.count(id);
        }
    }

    #[inline]
    fn on_command(&mut self, id: ConnectionId, slot: Slot, entry: SubmissionQueueEntry) {
        if entry.opcode == FABRICS_OPCODE {
            return self.on_fabrics_command(id, slot, &entry);
        }
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else {
            return peer.complete(slot, StatusCode::CommandSequenceError.into(), 0, 0);
        };
        let association = queue.association;
        if let Some(guest) = &queue.guest {
            if self.guests.heard(now, guest.index)
                && let Role::Nvm(subsystem, _) = queue.role
            {
                let message = ToHome::Heard(guest.number);
                self.outputs.push_back(Output::ToHome { subsystem, message });
            }
        } else {
            if !queue.is_admitted {
                peer.trail = None;
                return peer.complete(slot, FabricsStatus::AuthenticationRequired.into(), 0, 0);
            }
            self.fabrics.touch(now, association);
            if !self.fabrics.association(association).is_some_and(|one| one.is_ready()) {
                return peer.complete(slot, StatusCode::CommandSequenceError.into(), 0, 0);
            }
        }
        let Role::Nvm(subsystem, controller) = queue.role else {
            return self.on_discovery_command(id, slot, &entry);
        };
        let submission_queue = queue.queue;
        self.commands += 1;
        self.ceilings.charge_command(now, queue.ceiling);
        let Some(served) = self.subsystems[subsystem.0 as usize].as_mut() else { return };
        let Some(token) = served.issue(Owner { association, connection: id, slot }) else {
            // More commands than hosts were promised at a time; the host tries again.
            return peer.complete(slot, StatusCode::CommandInterrupted.into(), 0, 0);
        };
        peer.set_token(slot, Some(token));
        served
            .core
            .handle_input(now, CoreInput::Command { controller, token, queue: submission_queue, entry });
    }

    fn on_discovery_command(&mut self, id: ConnectionId, slot: Slot, entry: &SubmissionQueueEntry) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let association = queue.association;
        let mut bytes = 0;
        match self.fabrics.discover(now, association, entry) {
            Reply::Done(dw0) => peer.complete(slot, Status::SUCCESS, dw0, 0),
            Reply::Failed(status) => peer.complete(slot, status, 0, 0),
            Reply::Held => {
                if let Role::Discovery(discovery) = &mut queue.role {
                    discovery.held.push((entry.command_id, slot));
                }
            }
            Reply::Data(data) => {
                bytes = data.len();
                let total = u32::try_from(data.len()).expect("a log page of at most 1 MiB");
                match peer.connection.push(slot, 0, total, Buffer::from(data)) {
                    Ok(()) => peer.complete(slot, Status::SUCCESS, 0, 0),
                    Err(status) => peer.complete(slot, status, 0, 0),
                }
            }
        }
        self.charge_discovery(id, bytes);
        self.on_discovery_heard(id);
        self.report_event(association);
    }

    /// A host has had an answer of the discovery service of that many bytes.
    fn charge_discovery(&mut self, id: ConnectionId, bytes: usize) {
        let now = self.now;
        if let Some(peer) = self.peer(id)
            && let Standing::Queue(queue) = &mut peer.standing
            && let Role::Discovery(discovery) = &mut queue.role
        {
            discovery.charge(now, bytes);
        }
    }

    fn on_host_data(&mut self, id: ConnectionId, slot: Slot, data: Buffer) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        if peer.is_awaiting() {
            return self.on_connect_data(id, slot, &data);
        }
        if peer.queue().is_some_and(|queue| queue.authenticating == Some(slot)) {
            return self.on_authentication_data(id, slot, &data);
        }
        let (Some(token), Some(subsystem)) = (peer.token(slot), peer.subsystem()) else { return };
        self.ceilings.charge_bytes(now, peer.ceiling(), data.len());
        if let Some(served) = self.subsystems[subsystem.0 as usize].as_mut() {
            served.core.handle_input(now, CoreInput::HostData { token, data });
        }
    }

    fn on_host_data_failed(&mut self, id: ConnectionId, slot: Slot, status: Status) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        match (peer.token(slot), peer.subsystem()) {
            (Some(token), Some(subsystem)) => {
                if let Some(served) = self.subsystems[subsystem.0 as usize].as_mut() {
                    served.core.handle_input(now, CoreInput::HostDataFailed { token, status });
                }
            }
            // The data were those of a Connect or an Authentication Send.
            _ => {
                if let Standing::Queue(queue) = &mut peer.standing {
                    queue.authenticating = None;
                }
                peer.trail = None;
                peer.complete(slot, status, 0, 0);
            }
        }
    }

    /// Handles what a subsystem's core has to say.
    pub(super) fn drain_core(&mut self, key: SubsystemKey) {
        loop {
            let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else {
                return;
            };
            let Some(output) = served.core.poll_output() else { return };
            match output {
                CoreOutput::Media(request) => {
                    let owner = served.requester(request.id);
                    self.outputs.push_back(Output::Media { subsystem: key, owner, request });
                }
                CoreOutput::PushHostData { token, offset, length, data } => {
                    self.push(key, token, (offset, length), data);
                }
                CoreOutput::Complete { token, completion } => self.complete(key, token, completion),
                CoreOutput::PullHostData { token, length } => self.pull(key, token, length),
                CoreOutput::Notify(notification) => self.on_notification(key, notification),
                CoreOutput::ToLane(lane, message) => self.send_to_lane(key, lane, message),
                CoreOutput::ToSubsystem(message) => self.send_home(key, message),
                CoreOutput::Disowned(request) => {
                    self.outputs.push_back(Output::Disowned { subsystem: key, request });
                }
            }
        }
    }

    #[inline]
    fn complete(&mut self, key: SubsystemKey, token: CommandToken, completion: CompletionResult) {
        let Some(served) = self.subsystems[key.0 as usize].as_mut() else { return };
        let Some(Owner { connection: id, slot, .. }) = served.retire(token) else { return };
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        peer.set_token(slot, None);
        peer.complete(slot, completion.status, completion.dw0, completion.dw1);
        self.touch(id);
    }

    #[inline]
    fn push(&mut self, key: SubsystemKey, token: CommandToken, (offset, total): (u32, u32), data: Buffer) {
        let now = self.now;
        let Some(served) = self.subsystems[key.0 as usize].as_mut() else { return };
        let Some(Owner { connection: id, slot, .. }) = served.owner(token) else { return };
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        self.ceilings.charge_bytes(now, peer.ceiling(), data.len());
        if let Err(status) = peer.connection.push(slot, offset, total, data) {
            served.core.handle_input(now, CoreInput::HostDataFailed { token, status });
        }
    }

    fn pull(&mut self, key: SubsystemKey, token: CommandToken, length: u32) {
        let now = self.now;
        let Some(served) = self.subsystems[key.0 as usize].as_mut() else { return };
        let pulled = match served.owner(token) {
            Some(Owner { connection: id, slot, .. }) => {
                let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
                let pulled = peer.connection.pull(slot, length);
                if let Ok(Some(data)) = &pulled {
                    self.ceilings.charge_bytes(now, peer.ceiling(), data.len());
                }
                pulled
            }
            _ => Err(StatusCode::TransientTransportError.into()),
        };
        match pulled {
            Ok(None) => {}
            Ok(Some(data)) => served.core.handle_input(now, CoreInput::HostData { token, data }),
            Err(status) => served.core.handle_input(now, CoreInput::HostDataFailed { token, status }),
        }
    }

    fn on_notification(&mut self, key: SubsystemKey, notification: Notification) {
        let association = |controller: ControllerKey| {
            self.subsystems[key.0 as usize].as_ref().and_then(|served| served.association(controller))
        };
        match notification {
            Notification::NumberOfQueues { controller, submission, completion } => {
                if let Some(association) = association(controller) {
                    self.fabrics.set_io_queues(association, submission.min(completion));
                }
            }
            Notification::KeepAliveTimeout { controller, milliseconds } => {
                if let Some(association) = association(controller) {
                    self.fabrics.set_keep_alive(self.now, association, milliseconds);
                }
            }
            Notification::ShutDown { controller, .. } => {
                if let Some(association) = association(controller) {
                    self.fabrics.set_shut_down(self.now, association);
                }
            }
            Notification::CrossControllerReset { controller } => {
                if let Some(association) = association(controller) {
                    self.end_association(association, &Close::CrossControllerReset);
                }
            }
            notification => self.outputs.push_back(Output::Notify { subsystem: key, notification }),
        }
    }
}
