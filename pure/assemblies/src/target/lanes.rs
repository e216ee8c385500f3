//! Lanes of other reactors, from the point of view of a subsystem's home.
//!
//! The home answers each Connect. An I/O queue that is admitted may then move to another reactor,
//! with a [`Ticket`] that says what the queue is. A lane of the subsystem executes the commands of
//! such queues there; [`super::guests`] has that side. The association stays at its home, which has
//! a lane close the queues of an association that ends.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use engine::{Instant, Nanos};
use nvme::subsystem::{ControllerKey, Input as CoreInput, LaneId, LaneViews};
use nvme::wire::QueueId;
use nvme_fabrics::target::{AssociationKey, Claim, Connected, SubsystemKey};
use nvme_fabrics::wire::{AuthenticationCommand, ControllerId};

use super::event::Handover;
use super::reauthentication::{Step, StepAnswer};
use super::trail::Answer;
use super::{Close, ConnectionId, Event, Output, QueueDescription, Target};
use crate::fabric::controller::Slot;

/// Names a reactor: a loop with a target of its own, on a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReactorId(pub u32);

/// Names a queue that has moved to a lane. A home gives each number once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketNumber(pub(super) u64);

/// How often a lane reports that a host is alive.
pub(super) const HEARD_EVERY: Nanos = Nanos::from_millis(50);

/// What a lane must know of a queue that comes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) number: TicketNumber,
    pub(super) subsystem: SubsystemKey,
    /// Names the association among all that its home ever had.
    pub(super) life: u64,
    pub(super) controller: ControllerKey,
    pub(super) controller_id: ControllerId,
    pub(super) connected: Connected,
    /// The answers to the commands that have authenticated the host.
    pub(super) answers: VecDeque<Answer>,
}

/// A message of a subsystem's home to a reactor that has one of its lanes. Messages arrive in their
/// order, and in order with the connections that the home hands over.
#[derive(Debug)]
pub enum ToLane {
    /// Begin a lane with these views. The world adds the subsystem's media.
    Begin(LaneViews),
    /// A message for the lane.
    Engine(Box<nvme::subsystem::ToLane>),
    /// The answer to a step of an authentication.
    Answer(TicketNumber, StepAnswer),
    /// Close the connection of a queue.
    Close(TicketNumber, Close),
}

/// A message of a lane's reactor to the home of the subsystem. Messages arrive in their order.
#[derive(Debug)]
pub enum ToHome {
    /// A message of the lane.
    Engine(Box<nvme::subsystem::ToSubsystem>),
    /// The host of a queue has sent commands lately.
    Heard(TicketNumber),
    /// The host of a queue authenticates again.
    Step(TicketNumber, Step),
    /// The connection of a queue is gone.
    Gone(TicketNumber, Close),
    /// The reactor cannot serve the lane: it has ended, or never began.
    Failed,
}

impl ToHome {
    /// Whether the lane has ended with this message.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Engine(message) => message.is_last(),
            Self::Failed => true,
            Self::Heard(_) | Self::Step(..) | Self::Gone(..) => false,
        }
    }
}

const fn assert_send<T: Send>() {}
const _: () = {
    assert_send::<Ticket>();
    assert_send::<ToLane>();
    assert_send::<ToHome>();
};

/// A queue that has moved to a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    pub(super) number: TicketNumber,
    pub(super) claim: Claim,
    pub(super) reactor: ReactorId,
    /// Address of the host.
    pub(super) peer: SocketAddr,
}

/// An I/O queue whose Connect waits until all lanes have seen that its controller was added.
#[derive(Debug)]
struct Joining {
    connection: ConnectionId,
    slot: Slot,
    keep_alive_milliseconds: u32,
    connected: Connected,
}

/// The queues that have moved away, and those that wait for lanes.
#[derive(Debug, Default)]
pub(super) struct LaneTraffic {
    /// Where the world wants the next I/O queue; `None` for this reactor.
    next: Option<ReactorId>,
    /// Number of I/O queues of subsystems whose home is here that this reactor serves.
    pub(super) own_queues: usize,
    tickets: u64,
    pub(super) away: BTreeMap<TicketNumber, AssociationKey>,
    /// The Authentication Receives of queues at lanes that wait for work.
    pub(super) receiving: BTreeMap<TicketNumber, AuthenticationCommand>,
    joining: Vec<Joining>,
}

impl LaneTraffic {
    /// A number that was never given before.
    pub(super) const fn number(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

impl Target {
    /// Lets other reactors have lanes of a subsystem whose home is here: the media of the subsystem
    /// can be used from there.
    pub fn allow_lanes(&mut self, key: SubsystemKey) {
        if let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) {
            (served.may_have_lanes, served.leaves_order_to_media) = (true, true);
            if let Some(home) = served.core.home_mut() {
                home.expect_lanes();
            }
        }
    }

    /// Sets the reactor to which the next I/O queue goes; `None` if it stays here.
    pub const fn set_next_lane(&mut self, reactor: Option<ReactorId>) {
        self.lanes.next = reactor;
    }

    /// Number of I/O queues that this reactor serves of the subsystems whose home is here.
    pub const fn own_queues(&self) -> usize {
        self.lanes.own_queues
    }

    /// The reactors that have lanes of a subsystem whose home is here.
    pub fn lanes_of(&self, key: SubsystemKey) -> impl Iterator<Item = ReactorId> {
        let served = self.subsystems.get(key.0 as usize).and_then(Option::as_ref);
        served.into_iter().flat_map(|served| served.lanes.iter().map(|(reactor, _)| *reactor))
    }

    /// Whether no lane is left: none of another reactor's subsystems here, and none of the
    /// subsystems whose home is here elsewhere.
    pub fn is_without_lanes(&self) -> bool {
        self.subsystems.iter().flatten().all(|served| served.is_home() && served.lanes.is_empty())
    }

    /// Whether an I/O queue must wait: lanes may still execute what an earlier controller of the
    /// host was sent.
    pub(super) fn must_wait_for_lanes(
        &mut self,
        connection: ConnectionId,
        slot: Slot,
        connected: &Connected,
        keep_alive_milliseconds: u32,
    ) -> bool {
        let Some(subsystem) = connected.subsystem.filter(|_| !connected.queue.is_admin()) else {
            return false;
        };
        let served = self.subsystems.get(subsystem.0 as usize).and_then(Option::as_ref);
        let Some(home) = served.and_then(|served| served.core.home()) else { return false };
        let member = self.members.get(connected.association.0 as usize).and_then(Option::as_ref);
        if member.is_none_or(|member| home.lanes_have_seen(member.version)) {
            return false;
        }
        let connected = *connected;
        self.lanes.joining.push(Joining { connection, slot, keep_alive_milliseconds, connected });
        true
    }

    /// Continues the Connects that have waited for lanes long enough.
    fn join_waiting(&mut self) {
        for one in core::mem::take(&mut self.lanes.joining) {
            let Joining { connection, slot, keep_alive_milliseconds, connected } = one;
            if !self.must_wait_for_lanes(connection, slot, &connected, keep_alive_milliseconds) {
                self.on_connected(connection, slot, connected, keep_alive_milliseconds);
                self.touch(connection);
            }
        }
    }

    /// Forgets the Connect of a connection that waits for lanes, with its claim.
    pub(super) fn forget_joining(&mut self, id: ConnectionId) {
        let found = self.lanes.joining.iter().position(|one| one.connection == id);
        if let Some(index) = found {
            let connected = self.lanes.joining.swap_remove(index).connected;
            self.fabrics.close_queue(connected.association, connected.claim);
        }
    }

    /// The connections of an association whose Connects wait for lanes.
    pub(super) fn joining(&self, key: AssociationKey) -> Vec<ConnectionId> {
        let of = self.lanes.joining.iter().filter(|one| one.connected.association == key);
        of.map(|one| one.connection).collect()
    }

    /// Whether other reactors may have lanes of a subsystem whose home is here.
    pub(super) fn may_have_lanes(&self, subsystem: Option<SubsystemKey>) -> bool {
        let served = subsystem.and_then(|key| self.subsystems.get(key.0 as usize)?.as_ref());
        served.is_some_and(|served| served.may_have_lanes && served.is_home())
    }

    /// The reactor to which an admitted queue goes, if it leaves.
    pub(super) fn lane_for(&self, id: ConnectionId, connected: &Connected) -> Option<ReactorId> {
        self.may_go(id, connected, self.lanes.next?)
    }

    /// The reactor, if the admitted queue of a connection may go there.
    fn may_go(&self, id: ConnectionId, connected: &Connected, reactor: ReactorId) -> Option<ReactorId> {
        let subsystem = connected.subsystem?;
        let served = self.subsystems.get(subsystem.0 as usize)?.as_ref()?;
        let peer = self.peers.get(id.0 as usize)?.as_ref()?;
        // A host with a ceiling has one for all of its queues. Lanes that lent each other what is
        // left of it would leave a host whose commands all come by one queue below its ceiling.
        let is_free = self.permit_of(connected.association).rate.is_free();
        let may_go = served.may_have_lanes && served.is_home() && !served.is_barred(self.now, reactor);
        let goes = is_free && may_go && connected.is_admitted && !connected.queue.is_admin();
        (goes && peer.trail.is_some()).then_some(reactor)
    }

    /// Hands the queue of a host that has just authenticated over to a lane, if it goes to one.
    /// Returns whether the connection is none of this reactor any more.
    pub(super) fn proven_queue_goes(
        &mut self,
        id: ConnectionId,
        key: AssociationKey,
        queue: QueueId,
    ) -> bool {
        let claimed = self.peer(id).and_then(|peer| peer.trail.as_ref()?.claimed);
        let connected = claimed.map(|claimed| Connected { is_admitted: true, ..claimed });
        let member = self.members.get_mut(key.0 as usize).and_then(Option::as_mut);
        let Some(member) = member.filter(|_| !queue.is_admin()) else { return false };
        let before = member.away.iter().position(|one| one.claim.queue == queue);
        let former = before.map(|index| member.away[index]);
        // Only at the lane that has had the queue do its new commands come after its former ones.
        let next = former.map_or(self.lanes.next, |away| Some(away.reactor));
        let lane = connected.zip(next).and_then(|(connected, next)| self.may_go(id, &connected, next));
        let subsystem = self.fabrics.association(key).and_then(|one| one.subsystem());
        let Some(member) = self.members.get_mut(key.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        if lane.is_some() || former.is_some() {
            member.claimants.retain(|one| *one != id);
        }
        match (lane, connected, former.zip(subsystem)) {
            (Some(reactor), Some(connected), former) => {
                if let Some((away, subsystem)) = former {
                    member.away.retain(|one| one.number != away.number);
                    self.close_away(subsystem, away, &Close::Replaced);
                    self.fabrics.close_queue(key, away.claim);
                    self.report_queue_gone(key, queue, &Close::Replaced);
                }
                self.send_away(id, connected, reactor);
                true
            }
            (_, _, Some((away, subsystem))) => {
                // The host connects the queue again once its lane has closed it.
                let message = ToLane::Close(away.number, Close::Replaced);
                self.outputs.push_back(Output::ToLane { subsystem, reactor: away.reactor, message });
                self.retire(id, &Close::Replaced);
                true
            }
            _ => false,
        }
    }

    /// Hands an admitted I/O queue over to a lane.
    pub(super) fn send_away(&mut self, id: ConnectionId, connected: Connected, reactor: ReactorId) {
        let (key, claim) = (connected.association, connected.claim);
        let Some(subsystem) = connected.subsystem else { return };
        let Some(controller_id) = self.fabrics.association(key).map(|one| one.controller()) else { return };
        let number = TicketNumber(self.lanes.number());
        if !self.take_queue(key, connected.queue) {
            return self.retire(id, &Close::Association);
        }
        let Some(member) = self.members.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        let Some((_, controller)) = member.controller else { return };
        let Some(peer) = self.peers[id.0 as usize].as_ref().map(|peer| peer.address) else { return };
        member.away.push(Away { number, claim, reactor, peer });
        let life = member.life;
        self.lanes.away.insert(number, key);
        self.begin_lane(subsystem, reactor);
        if let Some(home) = self.home_mut(subsystem) {
            home.set_io_queues_exist(controller, true);
        }
        self.report_moved(id, &connected);
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let is_by_key =
            peer.proved.is_some() || peer.trail.as_ref().is_some_and(|trail| trail.claimed.is_some());
        let by_key = is_by_key.then(|| peer.origin());
        let sent = usize::try_from(peer.sent).expect("little was said so far");
        let (received, answers) = peer.trail.take().unwrap_or_default().into_parts();
        let ticket = Ticket { number, subsystem, life, controller, controller_id, connected, answers };
        let handover = Handover { received, sent, ticket: Some(ticket) };
        if let Some(origin) = by_key {
            self.gate.know(self.now, origin);
        }
        self.uncount(id);
        self.forget_peer(id);
        let lane = Some(reactor);
        self.outputs.push_back(Output::HandOver { connection: id, subsystem, lane, handover });
    }

    /// Begins a lane of a subsystem, unless it is there.
    fn begin_lane(&mut self, key: SubsystemKey, reactor: ReactorId) {
        let now = self.now;
        let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        if served.lanes.iter().any(|(one, _)| *one == reactor) {
            return;
        }
        let Some(home) = served.core.home_mut() else { return };
        let (lane, views) = home.attach_lane(now);
        served.lanes.push((reactor, lane));
        // What was published before is for the lanes that were there before.
        let message = ToLane::Begin(views);
        self.outputs.push_back(Output::ToLane { subsystem: key, reactor, message });
        self.drain_core(key);
    }

    fn report_moved(&mut self, id: ConnectionId, connected: &Connected) {
        let Some(peer) = self.peers[id.0 as usize].as_ref() else { return };
        let Some(association) = self.fabrics.association(connected.association) else { return };
        let description = QueueDescription {
            peer: peer.address,
            host: association.host().clone(),
            subsystem: association.subsystem().and_then(|key| self.name_of(key)),
            controller: association.controller(),
            queue: connected.queue,
            entries: connected.entries,
            parameters: peer.parameters,
            without_flow_control: connected.without_flow_control,
            keep_alive: association.keep_alive(),
        };
        self.log(Event::Connected(description));
    }

    /// Passes on a message for a lane.
    pub(super) fn send_to_lane(
        &mut self,
        key: SubsystemKey,
        lane: LaneId,
        message: Box<nvme::subsystem::ToLane>,
    ) {
        let Some(served) = self.subsystems[key.0 as usize].as_ref() else { return };
        let found = served.lanes.iter().find(|(_, one)| *one == lane);
        if let Some((reactor, _)) = found.copied() {
            let message = ToLane::Engine(message);
            self.outputs.push_back(Output::ToLane { subsystem: key, reactor, message });
        }
    }

    /// Has a lane close a queue, which this target forgets.
    pub(super) fn close_away(&mut self, subsystem: SubsystemKey, away: Away, why: &Close) {
        self.forget_away(away.number);
        let message = ToLane::Close(away.number, why.clone());
        self.outputs.push_back(Output::ToLane { subsystem, reactor: away.reactor, message });
    }

    /// Handles a message of a lane.
    pub(super) fn on_lane_message(&mut self, key: SubsystemKey, reactor: ReactorId, message: ToHome) {
        let now = self.now;
        match message {
            ToHome::Engine(message) => {
                let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else {
                    return;
                };
                let found = served.lanes.iter().find(|(one, _)| *one == reactor);
                let Some((_, lane)) = found.copied() else { return };
                served.core.handle_input(now, CoreInput::FromLane(lane, message));
                if let Some(home) = served.core.home() {
                    let is_there = |(_, lane): &(ReactorId, LaneId)| home.lanes().any(|one| one == *lane);
                    served.lanes.retain(is_there);
                }
                self.drain_core(key);
                self.join_waiting();
            }
            ToHome::Heard(number) => {
                if let Some(association) = self.lanes.away.get(&number) {
                    // The host may have been heard again since the report.
                    self.fabrics.touch(now + HEARD_EVERY, *association);
                }
            }
            ToHome::Step(number, step) => self.on_away_step(key, number, step),
            ToHome::Gone(number, why) => self.on_away_gone(number, &why),
            ToHome::Failed => self.on_lane_failed(key, reactor),
        }
        self.work();
    }

    fn forget_away(&mut self, number: TicketNumber) -> Option<AssociationKey> {
        self.lanes.receiving.remove(&number);
        self.lanes.away.remove(&number)
    }

    /// The connection of a queue at a lane is gone.
    pub(super) fn on_away_gone(&mut self, number: TicketNumber, why: &Close) {
        let Some(key) = self.forget_away(number) else { return };
        let Some(member) = self.members.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        let Some(index) = member.away.iter().position(|one| one.number == number) else { return };
        let claim = member.away.swap_remove(index).claim;
        let is_last = member.queues.is_empty() && member.away.is_empty();
        if let Some((subsystem, controller)) = member.controller.filter(|_| is_last)
            && let Some(home) = self.home_mut(subsystem)
        {
            home.set_io_queues_exist(controller, false);
        }
        self.fabrics.close_queue(key, claim);
        self.report_queue_gone(key, claim.queue, why);
    }

    pub(super) fn report_queue_gone(&mut self, key: AssociationKey, queue: QueueId, why: &Close) {
        if let Some(controller) = self.fabrics.association(key).map(|one| one.controller()) {
            self.log(Event::QueueGone { controller, queue, why: why.clone() });
        }
    }

    /// A reactor can't serve its lane of a subsystem: its queues are gone, and no more go there.
    fn on_lane_failed(&mut self, key: SubsystemKey, reactor: ReactorId) {
        let now = self.now;
        let of_reactor = |member: &super::association::Member| {
            let of = member.away.iter().filter(|one| one.reactor == reactor);
            let is_meant = member.controller.is_some_and(|(subsystem, _)| subsystem == key);
            of.filter(|_| is_meant).map(|one| one.number).collect::<Vec<_>>()
        };
        let lost: Vec<_> = self.members.iter().flatten().flat_map(of_reactor).collect();
        for number in lost {
            self.on_away_gone(number, &Close::LaneFailed);
        }
        let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        if served.core.home().is_none() {
            return;
        }
        served.bar(now, reactor);
        let Some(index) = served.lanes.iter().position(|(one, _)| *one == reactor) else { return };
        let (_, lane) = served.lanes.swap_remove(index);
        if let Some(home) = served.core.home_mut() {
            home.lane_gone(now, lane);
        }
        self.drain_core(key);
        self.join_waiting();
    }

    /// A reactor is gone: its thread has failed. Its lanes are over, and no queue goes there again.
    pub fn reactor_gone(&mut self, now: Instant, reactor: ReactorId) {
        self.now = now;
        for key in self.keys() {
            self.on_lane_failed(key, reactor);
        }
        self.work();
    }

    /// A reactor that was gone works again: it may have lanes at once.
    pub fn reactor_is_back(&mut self, reactor: ReactorId) {
        for served in self.subsystems.iter_mut().flatten() {
            served.barred.retain(|one| one.reactor != reactor);
        }
    }

    /// Ends the lanes on reactors that are to serve no lanes any more.
    pub fn keep_lanes(&mut self, now: Instant, keeps: impl Fn(ReactorId) -> bool) {
        self.now = now;
        for key in self.keys() {
            self.end_lanes_of(key, |reactor| !keeps(reactor));
        }
        self.work();
    }

    fn keys(&self) -> impl Iterator<Item = SubsystemKey> + use<> {
        let count = u32::try_from(self.subsystems.len()).expect("keys have 32 bits");
        (0..count).map(SubsystemKey)
    }

    /// Takes a queue of an association away from the connection that has it here. Returns whether
    /// the association exists.
    pub(super) fn take_queue(&mut self, key: AssociationKey, queue: QueueId) -> bool {
        let member = self.members.get(key.0 as usize).and_then(Option::as_ref);
        let has_it = |(one, _): &&(QueueId, ConnectionId)| *one == queue;
        let before = member.and_then(|member| member.queues.iter().find(has_it)).map(|(_, id)| *id);
        if let Some(before) = before {
            self.retire(before, &Close::Replaced);
        }
        self.members.get(key.0 as usize).is_some_and(Option::is_some)
    }

    /// Makes all lanes of the subsystems end whose home is here.
    pub(super) fn end_lanes(&mut self) {
        for key in self.keys() {
            self.end_all_lanes_of(key);
        }
    }

    /// Makes the lanes of a subsystem end, which gets no further ones.
    pub(super) fn end_all_lanes_of(&mut self, key: SubsystemKey) {
        if let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) {
            served.may_have_lanes = false;
        }
        self.end_lanes_of(key, |_| true);
    }

    /// Makes those lanes of a subsystem end that are on the reactors that `ends` names.
    fn end_lanes_of(&mut self, key: SubsystemKey, ends: impl Fn(ReactorId) -> bool) {
        let now = self.now;
        let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        let lanes = served.lanes.iter().filter(|(reactor, _)| ends(*reactor));
        let lanes: Vec<_> = lanes.map(|(_, lane)| *lane).collect();
        let Some(home) = served.core.home_mut() else { return };
        for lane in lanes {
            home.detach_lane(now, lane);
        }
        self.drain_core(key);
    }
}
