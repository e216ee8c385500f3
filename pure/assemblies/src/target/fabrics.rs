//! Fabrics commands: Connect, properties, Disconnect.

use nvme::subsystem::{ControllerConfig, HostIdentity, Transport};
use nvme::wire::{QueueId, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::target::{
    Arrival, AssociationKey, Change, Connected, ControllerModel, Outcome, Refusal, SubsystemKey,
};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{
    ConnectCommand, ConnectData, ConnectResponse, FabricsCommand, FabricsStatus, PropertySet,
};

use super::association::Member;
use super::event::Handover;
use super::peer::{Discovery, Queue, Role, Standing};
use super::{CAPSULE_DATA_MAX, Close, ConnectionId, Event, Output, QueueDescription, Target};
use crate::fabric::controller::{self, ADMIN_CAPSULE_DATA_MAX, Slot};

/// Bytes of a Submission Queue Entry.
const ENTRY_BYTES: u32 = 64;

impl Target {
    pub(super) fn on_fabrics_command(&mut self, id: ConnectionId, slot: Slot, entry: &SubmissionQueueEntry) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let command = FabricsCommand::parse(entry);
        let Standing::Queue(queue) = &peer.standing else {
            return match command {
                Ok(FabricsCommand::Connect(connect)) => self.on_connect(id, slot, connect),
                _ => peer.complete(slot, StatusCode::CommandSequenceError.into(), 0, 0),
            };
        };
        if queue.guest.is_some() {
            return self.on_guest_fabrics_command(id, slot, entry);
        }
        let is_step = matches!(
            command,
            Ok(FabricsCommand::AuthenticationSend(_) | FabricsCommand::AuthenticationReceive(_))
        );
        let (association, number, is_admitted) = (queue.association, queue.queue, queue.is_admitted);
        if !is_step || queue.is_in_step() {
            // Another reactor could not give the same answers.
            peer.trail = None;
        }
        match command {
            Ok(FabricsCommand::AuthenticationSend(command)) => {
                return self.on_authentication_send(id, slot, command);
            }
            Ok(FabricsCommand::AuthenticationReceive(command)) => {
                return self.on_authentication_receive(id, slot, command);
            }
            _ => {}
        }
        if !is_admitted {
            return peer.complete(slot, FabricsStatus::AuthenticationRequired.into(), 0, 0);
        }
        self.fabrics.touch(now, association);
        let result = match command {
            Ok(FabricsCommand::PropertyGet(get)) => self.fabrics.property_get(association, number, get),
            Ok(FabricsCommand::PropertySet(set)) => {
                return self.on_property_set(id, slot, association, set);
            }
            // A queue is connected once.
            Ok(FabricsCommand::Connect(_)) => Err(StatusCode::CommandSequenceError.into()),
            Ok(FabricsCommand::Disconnect { .. }) if number.is_admin() => {
                Err(FabricsStatus::InvalidQueueType.into())
            }
            Ok(FabricsCommand::Disconnect { record_format: 0 }) => {
                peer.complete(slot, Status::SUCCESS, 0, 0);
                return self.retire(id, &Close::Disconnect);
            }
            Ok(FabricsCommand::Disconnect { .. }) => Err(FabricsStatus::IncompatibleFormat.into()),
            Ok(
                FabricsCommand::Other(_)
                | FabricsCommand::AuthenticationSend(_)
                | FabricsCommand::AuthenticationReceive(_),
            ) => Err(StatusCode::InvalidCommandOpcode.into()),
            Err(_) => Err(StatusCode::InvalidField.into()),
        };
        match result {
            Ok(value) => {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                let (dw0, dw1) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                peer.complete(slot, Status::SUCCESS, dw0, dw1);
            }
            Err(status) => peer.complete(slot, status, 0, 0),
        }
    }

    fn on_connect(&mut self, id: ConnectionId, slot: Slot, command: ConnectCommand) {
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::AwaitingConnect(awaiting) = &mut peer.standing else { return };
        awaiting.command = Some((slot, command));
        let length = u32::try_from(ConnectData::LENGTH).expect("1 KiB");
        match peer.connection.pull(slot, length) {
            Ok(Some(data)) => self.on_connect_data(id, slot, &data),
            Ok(None) => {}
            Err(status) => peer.complete(slot, status, 0, 0),
        }
    }

    pub(super) fn on_connect_data(&mut self, id: ConnectionId, slot: Slot, data: &[u8]) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let origin = peer.origin();
        let Standing::AwaitingConnect(awaiting) = &mut peer.standing else { return };
        let Some((_, command)) = awaiting.command.take() else { return };
        if let Some(ticket) = awaiting.ticket.take() {
            return self.join_as_guest(id, slot, ticket);
        }
        let (local, proved) = (Some(&peer.local), peer.proved.as_ref());
        let is_known = proved.is_some() || self.gate.knows(origin);
        let arrival = Arrival { port: peer.port, local, proved, origin, is_known };
        match self.fabrics.connect(now, arrival, &command, data) {
            Ok(Outcome::Connected(connected)) => {
                let keep_alive = command.keep_alive_timeout;
                if !self.must_wait_for_lanes(id, slot, &connected, keep_alive) {
                    self.on_connected(id, slot, connected, keep_alive);
                }
            }
            Ok(Outcome::Elsewhere(subsystem)) => {
                let Some(trail) = peer.trail.take() else {
                    return self.retire(id, &Close::Unmovable);
                };
                let (received, _) = trail.into_parts();
                let sent = usize::try_from(peer.sent).expect("little was said so far");
                let handover = Handover { received, sent, ticket: None };
                self.uncount(id);
                self.gate.remove(id);
                self.forget_peer(id);
                let lane = None;
                self.outputs.push_back(Output::HandOver { connection: id, subsystem, lane, handover });
            }
            Err(Refusal { status, dw0, why }) => {
                peer.complete(slot, status, dw0, 0);
                let peer = peer.address;
                self.gate.count_refused(why.word());
                self.log(Event::Refused { peer, why });
            }
        }
    }

    pub(super) fn on_connected(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        connected: Connected,
        keep_alive: u32,
    ) {
        if let Some(reactor) = self.lane_for(id, &connected) {
            return self.send_away(id, connected, reactor);
        }
        let association = connected.association;
        let role = match connected.subsystem {
            None => Role::Discovery(Discovery::default()),
            Some(subsystem) if connected.is_admitted => {
                let place = (association, connected.queue);
                let Some(role) = self.join(id, subsystem, place, keep_alive) else { return };
                role
            }
            Some(subsystem) => Role::Unproven(subsystem),
        };
        let has_controller = connected.subsystem.is_some() && connected.is_admitted;
        if connected.queue.is_admin() && !has_controller {
            let life = self.lanes.number();
            self.add_member(association, Member::new(None, id, life));
        } else if !connected.is_admitted
            && let Some(member) = self.members.get_mut(association.0 as usize).and_then(Option::as_mut)
        {
            member.claimants.push(id);
        }
        let may_move =
            !connected.is_admitted && !connected.queue.is_admin() && self.may_have_lanes(connected.subsystem);
        // Memory that counted for no host counts for this host from now on.
        self.uncount(id);
        let ceiling = match connected.queue.is_admin() {
            true => None,
            false => self.ceiling_of(association),
        };
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let capsule_data_max =
            if connected.queue.is_admin() { ADMIN_CAPSULE_DATA_MAX } else { CAPSULE_DATA_MAX };
        peer.connection.set_queue(controller::Queue {
            size: connected.entries,
            capsule_data_max,
            success_flag: connected.without_flow_control,
        });
        let head = if connected.without_flow_control { ConnectResponse::WITHOUT_FLOW_CONTROL } else { 0 };
        peer.complete_connect(slot, connected.response.dw0(), head);
        peer.trail = peer.trail.take().filter(|_| may_move);
        if let Some(trail) = &mut peer.trail {
            trail.claimed = Some(connected);
        }
        peer.standing = Standing::Queue(Queue::new(&connected, keep_alive, ceiling, role));
        let by_key = peer.proved.is_some();
        if !connected.is_admitted {
            self.gate.on_claim(id);
        } else if connected.subsystem.is_some() || by_key {
            self.admit(id, by_key);
            self.report_connected(id);
        } else {
            self.report_connected(id);
            self.on_discovery_heard(id);
        }
    }

    /// A host that has proved nothing asks the discovery service something.
    pub(super) fn on_discovery_heard(&mut self, id: ConnectionId) {
        if let Some(victim) = self.gate.on_discovery(self.now, id) {
            self.drop_connection(victim, &Close::Crowded);
            self.report_crowded(victim);
        }
    }

    /// Adds a queue to its association in the subsystem. An Admin Queue brings a new controller. An
    /// I/O queue is taken from the connection that had it before.
    pub(super) fn join(
        &mut self,
        id: ConnectionId,
        subsystem: SubsystemKey,
        (key, queue): (AssociationKey, QueueId),
        keep_alive_milliseconds: u32,
    ) -> Option<Role> {
        if queue.is_admin() {
            return self.add_controller(id, subsystem, key, keep_alive_milliseconds);
        }
        let member = self.members.get_mut(key.0 as usize)?.as_mut()?;
        let (_, controller) = member.controller?;
        member.claimants.retain(|one| *one != id);
        self.take_queue(key, queue);
        let member = self.members.get_mut(key.0 as usize)?.as_mut()?;
        member.queues.push((queue, id));
        self.lanes.own_queues += 1;
        self.home_mut(subsystem)?.set_io_queues_exist(controller, true);
        Some(Role::Nvm(subsystem, controller))
    }

    /// Brings the controller of an association whose host is admitted.
    fn add_controller(
        &mut self,
        id: ConnectionId,
        subsystem: SubsystemKey,
        key: AssociationKey,
        keep_alive_milliseconds: u32,
    ) -> Option<Role> {
        let permit = self.permit_of(key);
        let served = self.subsystems.get_mut(subsystem.0 as usize)?.as_mut()?;
        let association = self.fabrics.association(key)?;
        let host =
            HostIdentity { name: association.host().as_str().into(), identifier: association.host_id().0 };
        let mut config = ControllerConfig::fabrics(association.controller().0, host);
        let peer = self.peers[id.0 as usize].as_ref()?;
        config.sgl_support = peer.connection.sgl_support();
        let model = self.fabrics.offered(subsystem).map(|one| &one.model);
        if let Transport::Fabrics(fabrics) = &mut config.transport {
            fabrics.dynamic = !matches!(model, Some(ControllerModel::Static(_)));
            fabrics.command_capsule_bytes = ENTRY_BYTES + CAPSULE_DATA_MAX;
            fabrics.keep_alive_milliseconds = keep_alive_milliseconds;
            if let Some(ControllerModel::Dynamic(ids) | ControllerModel::Static(ids)) = model {
                fabrics.controller_ids = ids.clone();
            }
        }
        let controller = served.add_controller(self.now, config)?;
        let home = served.core.home_mut()?;
        home.set_permit(self.now, controller, permit);
        let port = peer.port;
        for access in served.access.iter().filter(|access| access.port == port) {
            home.set_ana_state(self.now, controller, access.group, access.state);
        }
        served.set_association(controller, Some(key));
        let life = self.lanes.number();
        let mut member = Member::new(Some((subsystem, controller)), id, life);
        self.drain_core(subsystem);
        member.version = self.home_mut(subsystem)?.version();
        self.add_member(key, member);
        Some(Role::Nvm(subsystem, controller))
    }

    pub(super) fn report_connected(&mut self, id: ConnectionId) {
        let Some(peer) = self.peers[id.0 as usize].as_ref() else { return };
        let Some(queue) = peer.queue() else { return };
        let Some(association) = self.fabrics.association(queue.association) else { return };
        let description = QueueDescription {
            peer: peer.address,
            host: association.host().clone(),
            subsystem: association.subsystem().and_then(|key| self.name_of(key)),
            controller: association.controller(),
            queue: queue.queue,
            entries: queue.entries,
            parameters: peer.parameters,
            without_flow_control: queue.without_flow_control,
            keep_alive: association.keep_alive(),
        };
        self.log(Event::Connected(description));
    }

    fn on_property_set(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        association: AssociationKey,
        set: PropertySet,
    ) {
        let now = self.now;
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Some(queue) = peer.queue() else { return };
        let change = self.fabrics.property_set(now, association, queue.queue, set);
        let status = change.err().unwrap_or(Status::SUCCESS);
        peer.complete(slot, status, 0, 0);
        match change.unwrap_or(Change::Nothing) {
            Change::Nothing => {}
            Change::Enable => self.enable(association),
            Change::Reset => self.reset(association),
            Change::ShutDown => self.begin_shutdown(association),
            Change::ResetSubsystem => {
                if let Some(subsystem) = self.fabrics.association(association).and_then(|one| one.subsystem())
                {
                    self.reset_subsystem(subsystem);
                }
            }
        }
    }
}
