//! Queues of subsystems whose home is another reactor: a lane here executes their commands.
//!
//! The home has answered for everything that concerns the association. What a lane's reactor must
//! know of a queue is in its [`Ticket`]; the home says when to close it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use engine::Instant;
use nvme::subsystem::{Input as CoreInput, ToSubsystem};
use nvme::wire::{Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{ConnectResponse, ControllerId, FabricsCommand, FabricsStatus};

use super::lanes::{HEARD_EVERY, Ticket, TicketNumber, ToHome, ToLane};
use super::peer::{Queue, Role, Standing};
use super::reauthentication::Step;
use super::status::ConnectionStatus;
use super::subsystem::Served;
use super::trail::Answer;
use super::{CAPSULE_DATA_MAX, Close, ConnectionId, Output, Target};
use crate::fabric::controller::{self, Slot};

/// Names an association of another reactor for as long as it has queues here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuestIndex(pub(super) usize);

/// What this target knows of an association of another reactor.
#[derive(Debug)]
struct Guest {
    subsystem: SubsystemKey,
    life: u64,
    controller: ControllerId,
    /// The connections of its queues here.
    connections: Vec<ConnectionId>,
    /// When the home last had a report that the host is alive.
    reported: Instant,
}

/// The guest that a queue belongs to.
#[derive(Debug)]
pub(super) struct OfGuest {
    pub(super) index: GuestIndex,
    pub(super) number: TicketNumber,
    /// Whether the host has authenticated, and may do so again.
    pub(super) authenticates: bool,
    /// The answers to the commands of the authentication that the home has seen.
    pub(super) answers: VecDeque<Answer>,
    /// The command of a further authentication whose answer the home gives.
    pub(super) asked: Option<Slot>,
}

/// All guests.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// Indexed by guest.
    places: Vec<Option<Guest>>,
    /// The connection of each ticket; each home numbers its own.
    tickets: BTreeMap<(SubsystemKey, TicketNumber), ConnectionId>,
}

impl Guests {
    /// Adds a queue of the association that a ticket names.
    fn join(&mut self, now: Instant, id: ConnectionId, ticket: &Ticket) -> GuestIndex {
        let is_same = |guest: &Guest| (guest.subsystem, guest.life) == (ticket.subsystem, ticket.life);
        let found = self.places.iter().position(|guest| guest.as_ref().is_some_and(is_same));
        let free = || self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let index = found.unwrap_or_else(free);
        if index == self.places.len() {
            self.places.push(None);
        }
        let guest = self.places[index].get_or_insert_with(|| Guest {
            subsystem: ticket.subsystem,
            life: ticket.life,
            controller: ticket.controller_id,
            connections: Vec::new(),
            reported: now,
        });
        guest.connections.push(id);
        self.tickets.insert((ticket.subsystem, ticket.number), id);
        GuestIndex(index)
    }

    fn leave(&mut self, id: ConnectionId, of: &OfGuest) {
        let GuestIndex(index) = of.index;
        if let Some(guest) = &mut self.places[index] {
            self.tickets.remove(&(guest.subsystem, of.number));
            guest.connections.retain(|one| *one != id);
            if guest.connections.is_empty() {
                self.places[index] = None;
            }
        }
    }

    /// Number of queues of all guests.
    pub(super) fn queues(&self) -> usize {
        self.tickets.len()
    }

    /// Notes a command. Returns whether a report that the host is alive is due.
    #[inline]
    pub(super) fn heard(&mut self, now: Instant, GuestIndex(index): GuestIndex) -> bool {
        let Some(guest) = &mut self.places[index] else { return false };
        let is_due = now - guest.reported >= HEARD_EVERY;
        if is_due {
            guest.reported = now;
        }
        is_due
    }
}

/// The queues that a controller of another reactor's subsystem has here.
#[derive(Clone, Debug)]
pub struct GuestStatus {
    /// Key of the subsystem.
    pub subsystem: SubsystemKey,
    /// Identifier of the controller.
    pub controller: ControllerId,
    /// Bytes held for the host here.
    pub memory: u64,
    /// The connections of the controller.
    pub connections: Vec<ConnectionStatus>,
}

impl Target {
    /// The controllers of other reactors' subsystems that have queues here: at most `most`, after
    /// the first `from` places. Returns the place at which to go on with them, if there are more.
    pub fn guests_from(&self, from: usize, most: usize) -> (Vec<GuestStatus>, Option<usize>) {
        let status = |(index, guest): (usize, &Option<Guest>)| {
            let Guest { subsystem, controller, connections, .. } = guest.as_ref()?;
            let connections = connections.iter().filter_map(|id| self.connection_status(*id)).collect();
            let memory = self.memory.of_guest(GuestIndex(index));
            Some(GuestStatus { subsystem: *subsystem, controller: *controller, memory, connections })
        };
        let places = self.guests.places.iter().enumerate().skip(from).take(most);
        let next = from.saturating_add(most);
        (places.filter_map(status).collect(), (next < self.guests.places.len()).then_some(next))
    }

    /// Number of I/O queues that are served here.
    pub fn io_queues(&self) -> usize {
        self.own_queues() + self.guests.queues()
    }

    /// Handles a message of a subsystem's home.
    pub(super) fn on_home_message(&mut self, key: SubsystemKey, message: ToLane) {
        let now = self.now;
        match message {
            ToLane::Begin(views) => {
                let index = key.0 as usize;
                self.subsystems.make_room(index);
                self.subsystems[index] = Some(Served::lane(now, views));
            }
            ToLane::Engine(message) => {
                if message.is_end() {
                    self.close_guests(key);
                }
                let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else {
                    return;
                };
                served.is_ending |= message.is_end();
                served.core.handle_input(now, CoreInput::FromSubsystem(message));
                self.drain_core(key);
            }
            ToLane::Answer(number, answer) => {
                if let Some(id) = self.guests.tickets.get(&(key, number)) {
                    self.on_step_answer(*id, answer);
                }
            }
            ToLane::Close(number, why) => {
                if let Some(id) = self.guests.tickets.get(&(key, number)) {
                    self.retire(*id, &why);
                }
            }
        }
        self.work();
    }

    /// Closes the connections of a lane that ends.
    fn close_guests(&mut self, key: SubsystemKey) {
        let of = |guest: &Guest| (guest.subsystem == key).then(|| guest.connections.clone());
        let all: Vec<_> = self.guests.places.iter().flatten().filter_map(of).flatten().collect();
        for id in all {
            self.retire(id, &Close::LaneEnded);
        }
    }

    /// Returns the ticket of a connection that the world can't go on with.
    pub fn return_ticket(&mut self, now: Instant, Ticket { number, subsystem, .. }: Ticket) {
        self.now = now;
        let message = ToHome::Gone(number, Close::Lost);
        self.outputs.push_back(Output::ToHome { subsystem, message });
    }

    /// Gives up a lane that the world can't serve, with its connections.
    pub fn give_up_lane(&mut self, now: Instant, key: SubsystemKey) {
        self.now = now;
        self.close_guests(key);
        if let Some(served) = self.subsystems.get_mut(key.0 as usize) {
            *served = None;
        }
        self.outputs.push_back(Output::ToHome { subsystem: key, message: ToHome::Failed });
        self.work();
    }

    /// Passes on a message of a lane. The last one of a lane that ends makes this target forget it.
    pub(super) fn send_home(&mut self, key: SubsystemKey, message: Box<ToSubsystem>) {
        let is_last = message.is_last();
        self.outputs.push_back(Output::ToHome { subsystem: key, message: ToHome::Engine(message) });
        if is_last {
            self.subsystems[key.0 as usize] = None;
        }
    }

    /// Makes the connection that brought a ticket the queue that the ticket names. The Connect is
    /// answered as the home would have answered it.
    pub(super) fn join_as_guest(&mut self, id: ConnectionId, slot: Slot, mut ticket: Ticket) {
        let now = self.now;
        let answers = core::mem::take(&mut ticket.answers);
        let Ticket { number, subsystem, controller, ref connected, .. } = ticket;
        let served = self.subsystems.get(subsystem.0 as usize).and_then(Option::as_ref);
        if served.is_none_or(|served| served.is_home() || served.is_ending) {
            let message = ToHome::Gone(number, Close::NotOffered);
            self.outputs.push_back(Output::ToHome { subsystem, message });
            return self.retire(id, &Close::NotOffered);
        }
        let index = self.guests.join(now, id, &ticket);
        self.uncount(id);
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        peer.connection.set_queue(controller::Queue {
            size: connected.entries,
            capsule_data_max: CAPSULE_DATA_MAX,
            success_flag: connected.without_flow_control,
        });
        let head = if connected.without_flow_control { ConnectResponse::WITHOUT_FLOW_CONTROL } else { 0 };
        peer.complete_connect(slot, connected.response.dw0(), head);
        let mut queue = Queue::new(connected, 0, None, Role::Nvm(subsystem, controller));
        let authenticates = !answers.is_empty();
        queue.guest = Some(OfGuest { index, number, authenticates, answers, asked: None });
        peer.trail = None;
        peer.standing = Standing::Queue(queue);
        self.outputs.push_back(Output::Admitted(id));
    }

    /// Takes away the queue of a guest. The home gets a report, which it ignores
    /// if it has closed the queue itself.
    pub(super) fn release_guest(&mut self, id: ConnectionId, why: &Close) {
        let now = self.now;
        let Some(peer) = self.peer(id) else { return };
        let tokens = peer.take_tokens();
        let Standing::Queue(queue) = core::mem::replace(&mut peer.standing, Standing::Over) else { return };
        let (Role::Nvm(key, controller), Some(guest)) = (queue.role, queue.guest) else { return };
        self.guests.leave(id, &guest);
        if let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) {
            served.core.drop_queue(now, controller, queue.queue);
            for token in tokens {
                served.retire(token);
            }
            self.drain_core(key);
        }
        let message = ToHome::Gone(guest.number, why.clone());
        self.outputs.push_back(Output::ToHome { subsystem: key, message });
    }

    /// Executes a fabrics command on a queue of a guest: only Disconnect has a meaning there.
    pub(super) fn on_guest_fabrics_command(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        entry: &SubmissionQueueEntry,
    ) {
        let Some(peer) = self.peer(id) else { return };
        let status: Status = match FabricsCommand::parse(entry) {
            Ok(FabricsCommand::Disconnect { record_format: 0 }) => {
                peer.complete(slot, Status::SUCCESS, 0, 0);
                return self.retire(id, &Close::Disconnect);
            }
            Ok(FabricsCommand::Disconnect { .. }) => FabricsStatus::IncompatibleFormat.into(),
            Ok(FabricsCommand::PropertyGet(_) | FabricsCommand::PropertySet(_)) => {
                FabricsStatus::InvalidQueueType.into()
            }
            Ok(FabricsCommand::AuthenticationSend(command)) => {
                return self.on_guest_authentication_send(id, slot, command);
            }
            Ok(FabricsCommand::AuthenticationReceive(command)) => {
                return self.on_guest_step(id, slot, Step::Receive(command));
            }
            // A queue is connected once.
            Ok(FabricsCommand::Connect(_)) => StatusCode::CommandSequenceError.into(),
            Ok(_) => StatusCode::InvalidCommandOpcode.into(),
            Err(_) => StatusCode::InvalidField.into(),
        };
        peer.complete(slot, status, 0, 0);
    }
}
