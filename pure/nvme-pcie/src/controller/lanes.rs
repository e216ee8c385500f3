//! Lanes, from the point of view of the controller: which queues they have, and what waits for
//! them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Instant;
use nvme::subsystem::{Input as CoreInput, LaneId};
use nvme::wire::{QueueId, Status, StatusCode};
use serde::{Deserialize, Serialize};

use super::Output;
use super::home::Controller;
use super::letters::{Change, LaneStart, Limits, Order, Report, Settings, ToHome, ToLane};
use super::queues::Executed;
use super::rings::CompletionQueueId;
use super::shared::Core;
use super::slots::Ending;

/// A lane, and what it owes the controller.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Member {
    id: LaneId,
    /// The life of the controller that the lane has begun.
    life: u64,
    /// Number of completion queues.
    queues: usize,
    /// How many settings the lane has not acknowledged.
    unset: usize,
    /// Whether the lane has commands in progress that a shutdown waits for.
    draining: bool,
    /// Whether the lane ends once it has no queues.
    leaving: bool,
    /// Whether the subsystem has detached the lane.
    ending: bool,
}

/// A queue that a lane has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Completing {
    lane: LaneId,
    /// Number of submission queues that complete to the queue.
    submission_queues: u16,
}

/// A submission queue that a lane has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Submitting {
    lane: LaneId,
    completes_to: CompletionQueueId,
    deleting: bool,
}

/// The lanes of a controller.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lanes {
    members: Vec<Member>,
    /// The number of resets so far.
    life: u64,
    /// Whether the host sees the controller ready until all lanes have acknowledged a reset.
    shows_ready: bool,
    /// By identifier.
    completing: Vec<Option<Completing>>,
    submitting: Vec<Option<Submitting>>,
    /// Commands that complete when a lane has made a change.
    waiting: Vec<(LaneId, Change, u16)>,
    /// Doorbell Buffer Config commands, which complete when all lanes know the buffers.
    configuring: Vec<u16>,
    /// Whether a shutdown waits for commands of lanes.
    draining: bool,
    settings: Settings,
}

impl Lanes {
    fn new(io_queues: u16) -> Self {
        let queues = usize::from(io_queues) + 1;
        Self {
            members: Vec::new(),
            life: 0,
            shows_ready: false,
            completing: (0..queues).map(|_| None).collect(),
            submitting: (0..queues).map(|_| None).collect(),
            waiting: Vec::new(),
            configuring: Vec::new(),
            draining: false,
            settings: Settings::default(),
        }
    }

    /// Whether lanes have not acknowledged a reset.
    pub(super) fn is_resetting(&self) -> bool {
        self.members.iter().any(|lane| lane.life < self.life)
    }

    /// Whether the host still sees the controller ready, because lanes have not acknowledged a
    /// reset.
    pub(super) const fn show_ready(&self) -> bool {
        self.shows_ready
    }

    fn member(&mut self, id: LaneId) -> Option<&mut Member> {
        self.members.iter_mut().find(|lane| lane.id == id)
    }

    fn ids(&self) -> Vec<LaneId> {
        self.members.iter().map(|lane| lane.id).collect()
    }

    /// Takes the command that waits for a change of a lane.
    fn take_waiting(&mut self, lane: LaneId, change: Change) -> Option<u16> {
        let found = self.waiting.iter().position(|(one, what, _)| (*one, *what) == (lane, change))?;
        Some(self.waiting.swap_remove(found).2)
    }

    /// Begins another life: all queues are gone.
    fn begin_life(&mut self) {
        self.life += 1;
        self.completing.fill(None);
        self.submitting.fill(None);
        self.waiting.clear();
        self.configuring.clear();
        self.draining = false;
        self.settings = Settings::default();
        for lane in &mut self.members {
            (lane.queues, lane.unset, lane.draining) = (0, 0, false);
        }
    }
}

impl Controller {
    /// Attaches a lane: a [`QueueLane`](super::QueueLane), perhaps on another thread, that may get
    /// I/O queues from now on. Returns its name, and what it begins with.
    pub fn attach_lane(&mut self, now: Instant) -> (LaneId, LaneStart) {
        assert!(matches!(self.side.core, Core::Own(_)), "no lane serves controllers that share a subsystem");
        self.now = now;
        let (id, views) = self.side.core.subsystem_mut().attach_lane(now);
        let limits = Limits::of(&self.side.config);
        let lanes = self.side.lanes.get_or_insert_with(|| Box::new(Lanes::new(limits.io_queues)));
        let life = lanes.life;
        lanes.members.push(Member {
            id,
            life,
            queues: 0,
            unset: 0,
            draining: false,
            leaving: false,
            ending: false,
        });
        let settings = lanes.settings.clone();
        self.drain_core();
        (id, LaneStart { views, key: self.key, life, limits, settings })
    }

    /// Makes a lane end. It gets no further queues, and ends when the host has deleted those that
    /// it has, or has reset the controller. Its last message says so ([`ToHome::is_last`]).
    pub fn detach_lane(&mut self, now: Instant, id: LaneId) {
        self.now = now;
        if let Some(lane) = self.side.lanes.as_mut().and_then(|lanes| lanes.member(id)) {
            lane.leaving = true;
        }
        self.end_leaving_lanes();
    }

    /// Declares a lane ended whose thread is gone. If it had queues, the controller fails
    /// (CSTS.CFS) until the host resets it. The caller has what
    /// [`Subsystem::lane_gone`](nvme::subsystem::Subsystem::lane_gone) requires.
    pub fn lane_gone(&mut self, now: Instant, id: LaneId) {
        self.now = now;
        self.side.core.subsystem_mut().lane_gone(now, id);
        let Some(lanes) = &mut self.side.lanes else { return };
        let Some(index) = lanes.members.iter().position(|lane| lane.id == id) else { return };
        let lane = lanes.members.remove(index);
        let is_awaited = lanes.waiting.iter().any(|(one, ..)| *one == id);
        if lane.queues > 0 || is_awaited {
            self.fail();
        }
        self.drain_core();
        self.on_answer();
    }

    /// The lanes that are attached and have not ended, each with its number of completion queues.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneId, usize)> {
        self.side.lanes.iter().flat_map(|lanes| lanes.members.iter().map(|lane| (lane.id, lane.queues)))
    }

    /// Whether lanes have not acknowledged a reset: they may still access the host's memory. A
    /// world that resets the function on its own lets the host in again when they have.
    pub fn is_resetting(&self) -> bool {
        self.side.lanes.as_ref().is_some_and(|lanes| lanes.is_resetting())
    }

    /// The lane of the host's I/O completion queue `id`; `None` if there is no such queue, or if
    /// no lane has it.
    pub(super) fn completion_queue_in_lane(&self, id: usize) -> Option<LaneId> {
        Some((*self.side.lanes.as_ref()?.completing.get(id)?)?.lane)
    }

    /// The lane of the host's I/O submission queue `id`; `None` if there is no such queue, or if no
    /// lane has it.
    pub(super) fn submission_queue_in_lane(&self, id: u16) -> Option<LaneId> {
        Some((*self.side.lanes.as_ref()?.submitting.get(usize::from(id))?)?.lane)
    }

    /// Sends an order to a lane.
    pub(super) fn send(&mut self, lane: LaneId, order: Order) {
        self.outputs.push_back(Output::ToLane(lane, Box::new(ToLane(order))));
    }

    /// The lane with the fewest queues, for a new completion queue; `None` if the queue stays here,
    /// because there are fewer here, or because all queues of the controller must be together.
    pub(super) fn lane_for_queue(&self) -> Option<LaneId> {
        let lanes = self.side.lanes.as_ref()?;
        if self.classes.is_some() || self.memory.is_present() || !self.ceiling.is_free() {
            return None;
        }
        let own = self.completion_queues.iter().skip(1).flatten().count();
        let open = lanes.members.iter().filter(|lane| !lane.leaving);
        let (queues, id) = open.map(|lane| (lane.queues, lane.id)).min()?;
        (queues <= own).then_some(id)
    }

    /// Makes `lane` create a completion queue, for the command in slot `command`.
    pub(super) fn create_completion_queue_in(
        &mut self,
        lane: LaneId,
        command: u16,
        id: u16,
        (base, entries, vector): (u64, u32, Option<u16>),
    ) {
        let page_size = self.page_size;
        let Some(lanes) = &mut self.side.lanes else { return };
        lanes.completing[usize::from(id)] = Some(Completing { lane, submission_queues: 0 });
        lanes.waiting.push((lane, Change::CompletionQueueCreated(id), command));
        if let Some(member) = lanes.member(lane) {
            member.queues += 1;
        }
        self.send(lane, Order::CreateCompletionQueue { id, base, entries, vector, page_size });
    }

    /// Makes the lane of a completion queue create a submission queue, for the command in slot
    /// `command`.
    pub(super) fn create_submission_queue_in(
        &mut self,
        lane: LaneId,
        command: u16,
        id: u16,
        (base, entries): (u64, u32),
        completes_to: CompletionQueueId,
    ) {
        let Some(lanes) = &mut self.side.lanes else { return };
        if let Some(queue) = &mut lanes.completing[usize::from(completes_to.0)] {
            queue.submission_queues += 1;
        }
        lanes.submitting[usize::from(id)] = Some(Submitting { lane, completes_to, deleting: false });
        lanes.waiting.push((lane, Change::SubmissionQueueCreated(id), command));
        self.send(lane, Order::CreateSubmissionQueue { id, base, entries, completes_to });
    }

    /// Deletes a completion queue of a lane, for the command in slot `command`.
    pub(super) fn delete_completion_queue_in_lane(
        &mut self,
        command: u16,
        id: usize,
    ) -> Result<Executed, StatusCode> {
        let Some(lanes) = &mut self.side.lanes else { return Err(StatusCode::InvalidQueueIdentifier) };
        let queue = lanes.completing[id].ok_or(StatusCode::InvalidQueueIdentifier)?;
        if queue.submission_queues > 0 {
            return Err(StatusCode::InvalidQueueDeletion);
        }
        let id = u16::try_from(id).map_err(|_| StatusCode::InvalidQueueIdentifier)?;
        lanes.completing[usize::from(id)] = None;
        lanes.waiting.push((queue.lane, Change::CompletionQueueDeleted(id), command));
        self.send(queue.lane, Order::DeleteCompletionQueue(id));
        Ok(Executed::Waits)
    }

    /// Deletes a submission queue of a lane, for the command in slot `command`.
    pub(super) fn delete_submission_queue_in_lane(
        &mut self,
        command: u16,
        id: u16,
    ) -> Result<Executed, StatusCode> {
        let Some(lanes) = &mut self.side.lanes else { return Err(StatusCode::InvalidQueueIdentifier) };
        let queue = lanes.submitting[usize::from(id)].as_mut().filter(|queue| !queue.deleting);
        let queue = queue.ok_or(StatusCode::InvalidQueueIdentifier)?;
        queue.deleting = true;
        let lane = queue.lane;
        lanes.waiting.push((lane, Change::SubmissionQueueDeleted(id), command));
        self.send(lane, Order::DeleteSubmissionQueue(id));
        Ok(Executed::Waits)
    }

    /// Passes a doorbell on to the lane that has the queue. Returns whether a lane has it.
    #[inline(never)]
    pub(super) fn ring_in_lane(&mut self, queue: u16, is_tail: bool, value: u32) -> bool {
        let lane = match is_tail {
            true => self.submission_queue_in_lane(queue),
            false => self.completion_queue_in_lane(queue.into()),
        };
        let Some(lane) = lane else { return false };
        self.send(lane, Order::Doorbell { queue, is_tail, value });
        true
    }

    /// Begins another life of the controller in all lanes. With `shows`, the host sees a ready
    /// controller as ready until all of them have acknowledged that.
    pub(super) fn reset_lanes(&mut self, shows: bool) {
        let was_ready = self.side.properties.shows_ready();
        let Some(lanes) = &mut self.side.lanes else { return };
        lanes.begin_life();
        let life = lanes.life;
        lanes.shows_ready |= shows && was_ready;
        for lane in lanes.ids() {
            self.send(lane, Order::Reset { life });
        }
        self.on_answer();
    }

    /// Makes lanes end the commands that are in progress. Returns whether there are lanes to wait
    /// for.
    pub(super) fn drain_lanes(&mut self) -> bool {
        let Some(lanes) = &mut self.side.lanes else { return false };
        let with_queues = lanes.members.iter_mut().filter(|lane| lane.queues > 0);
        let with_queues = with_queues.map(|lane| {
            lane.draining = true;
            lane.id
        });
        let ids: Vec<_> = with_queues.collect();
        lanes.draining = !ids.is_empty();
        let waits = lanes.draining;
        for lane in ids {
            self.send(lane, Order::Drain);
        }
        waits
    }

    /// Lets lanes fetch commands again: the host has withdrawn a shutdown.
    pub(super) fn end_drain(&mut self) {
        let Some(lanes) = &mut self.side.lanes else { return };
        lanes.draining = false;
        lanes.members.iter_mut().for_each(|lane| lane.draining = false);
        for lane in lanes.ids() {
            self.send(lane, Order::GoOn);
        }
    }

    /// Changes what the host has set, in all lanes.
    pub(super) fn set_in_lanes(&mut self, change: impl FnOnce(&mut Settings)) {
        let Some(lanes) = &mut self.side.lanes else { return };
        change(&mut lanes.settings);
        let settings = lanes.settings.clone();
        lanes.members.iter_mut().for_each(|lane| lane.unset += 1);
        for lane in lanes.ids() {
            self.send(lane, Order::Settings(settings.clone()));
        }
    }

    /// Lets lanes know the shadow doorbells, which the command in slot `command` has configured.
    pub(super) fn share_shadow(&mut self, command: u16, buffers: [u64; 2]) -> Executed {
        self.set_in_lanes(|settings| settings.shadow = Some(buffers));
        let Some(lanes) = &mut self.side.lanes else { return Executed::Done };
        if lanes.members.is_empty() {
            return Executed::Done;
        }
        lanes.configuring.push(command);
        Executed::Waits
    }

    /// Lets lanes know whether the function may access the host's memory.
    pub(crate) fn set_bus_master(&mut self, is_on: bool) {
        let Some(lanes) = &self.side.lanes else { return };
        for lane in lanes.ids() {
            self.send(lane, Order::BusMaster(is_on));
        }
    }

    /// Handles a message of a lane.
    #[cold]
    pub(super) fn on_letter(&mut self, id: LaneId, ToHome { life, report }: ToHome) {
        let Some(lanes) = &mut self.side.lanes else { return };
        let (now, current) = (lanes.life, life == lanes.life);
        let Some(lane) = lanes.member(id) else { return };
        match report {
            Report::Engine(message) => {
                self.pass_to_core(CoreInput::FromLane(id, message));
                self.forget_ended_lanes();
            }
            Report::Reset => lane.life = lane.life.max(life.min(now)),
            // What a lane says of an earlier life is void.
            _ if !current => return,
            Report::Done(change) => self.on_change(id, change),
            Report::Stopped(queue) => {
                // The subsystem may have commands of the queue that the lane has handed over.
                self.side.core.subsystem_mut().abort_queue(self.now, self.key, QueueId(queue));
                self.drain_core();
            }
            Report::Drained => lane.draining = false,
            Report::Set => lane.unset = lane.unset.saturating_sub(1),
            Report::DoorbellFault(fault) => self.report_doorbell(fault),
            Report::Failed => self.fail(),
        }
        self.on_answer();
    }

    /// Completes the command that waited for a change of a lane.
    fn on_change(&mut self, id: LaneId, change: Change) {
        let Some(lanes) = &mut self.side.lanes else { return };
        let Some(command) = lanes.take_waiting(id, change) else { return };
        match change {
            Change::CompletionQueueDeleted(_) => {
                if let Some(lane) = lanes.member(id) {
                    lane.queues -= 1;
                }
            }
            Change::SubmissionQueueDeleted(queue) => {
                let queue = lanes.submitting[usize::from(queue)].take();
                let completes_to = queue.map_or(0, |queue| usize::from(queue.completes_to.0));
                if let Some(queue) = &mut lanes.completing[completes_to] {
                    queue.submission_queues -= 1;
                }
            }
            Change::CompletionQueueCreated(_) | Change::SubmissionQueueCreated(_) => (),
        }
        self.end(command, Ending { dw0: 0, dw1: 0, status: Status::SUCCESS });
    }

    /// Goes on with what waited for lanes.
    fn on_answer(&mut self) {
        let Some(lanes) = &mut self.side.lanes else { return };
        if lanes.members.iter().all(|lane| lane.unset == 0) {
            for command in core::mem::take(&mut lanes.configuring) {
                self.end(command, Ending { dw0: 0, dw1: 0, status: Status::SUCCESS });
            }
        }
        let Some(lanes) = &mut self.side.lanes else { return };
        if !lanes.is_resetting() {
            lanes.shows_ready = false;
        }
        if lanes.draining && lanes.members.iter().all(|lane| !lane.draining) {
            lanes.draining = false;
            self.shut_down();
        }
        if self.side.enabling {
            self.enable();
        }
        self.end_leaving_lanes();
    }

    /// Ends lanes that are to end and have no queues.
    fn end_leaving_lanes(&mut self) {
        let now = self.now;
        let Some(lanes) = &mut self.side.lanes else { return };
        for lane in &mut lanes.members {
            if lane.leaving && !lane.ending && lane.queues == 0 {
                lane.ending = true;
                self.side.core.subsystem_mut().detach_lane(now, lane.id);
            }
        }
        self.drain_core();
    }

    /// Forgets the lanes that have ended.
    fn forget_ended_lanes(&mut self) {
        let core = self.side.core.subsystem();
        if let Some(lanes) = &mut self.side.lanes {
            lanes.members.retain(|lane| core.lanes().any(|one| one == lane.id));
        }
    }
}
