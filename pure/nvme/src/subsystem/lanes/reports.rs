//! The subsystem's answers to the reports of its lanes.

use engine::{Buffer, Instant};

use super::super::Subsystem;
use super::super::admin::NOT_ABORTED;
use super::super::controller::ControllerKey;
use super::super::flow::{Handled, Step};
use super::super::slots::State;
use super::super::types::{CommandToken, CompletionResult, Output};
use super::care::boxed;
use super::counts::{Counts, Logged};
use super::message::{Ending, HandedOver, LaneId, Order, Report};
use crate::wire::{AdminOpcode, Status, StatusCode};

impl Subsystem {
    /// Handles a message of a lane.
    #[cold]
    pub(in super::super) fn on_report(&mut self, lane: LaneId, report: Report) {
        let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.has(lane)) else { return };
        match report {
            Report::Command(command) => self.on_handed(lane, command),
            Report::HostData { hand, data } => {
                if let Some(token) = lanes.token_of(lane, hand) {
                    self.on_host_data(token, Buffer::from(data));
                }
            }
            Report::HostDataFailed { hand, status } => {
                if let Some(token) = lanes.token_of(lane, hand) {
                    self.on_host_data_failed(token, status);
                }
            }
            Report::Dropped(hand) => {
                if let Some(token) = lanes.token_of(lane, hand) {
                    self.drop_handed(token);
                }
            }
            Report::Acknowledged { seen, quiet } => {
                lanes.acknowledge(lane, seen, quiet);
                self.on_acknowledged();
            }
            Report::Aborted { by } => {
                if let Some(slot) = self.flow.slots.waiting_for_lanes(by) {
                    slot.cursor = ABORTED;
                }
            }
            Report::Counts(counts) => self.on_counts(&counts),
            Report::Ended => self.forget_lane(lane),
        }
    }

    /// Declares a lane ended whose thread is gone. The commands that the lane has handed over end,
    /// no version waits for the lane any longer, and what the lane has counted since its last
    /// report is lost ([`Subsystem::lanes_lost`]). Messages that the lane has sent and that arrive
    /// later are ignored.
    ///
    /// The caller has closed the lane's queues. All media must have answered the lane's requests:
    /// once the lane is declared ended, a format or a sanitize operation may begin. Requests of the
    /// lane that wait in [`media::Ranges`](crate::media::Ranges) are dropped from there
    /// ([`Ranges::disown_where`](crate::media::Ranges::disown_where)).
    pub fn lane_gone(&mut self, now: Instant, lane: LaneId) {
        self.flow.now = now;
        if let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.has(lane)) {
            lanes.lost += 1;
            self.forget_lane(lane);
        }
    }

    /// Number of lanes that were declared ended by [`Subsystem::lane_gone`]. Logs and tallies lack
    /// what each has counted since its last report, at most a second of commands.
    pub fn lanes_lost(&self) -> u64 {
        self.lanes.as_ref().map_or(0, |lanes| lanes.lost)
    }

    fn forget_lane(&mut self, lane: LaneId) {
        let Some(lanes) = &mut self.lanes else { return };
        for token in lanes.forget(lane) {
            self.drop_handed(token);
        }
        self.on_acknowledged();
    }

    /// Executes a command that a lane hands over.
    fn on_handed(&mut self, lane: LaneId, command: HandedOver) {
        let HandedOver { hand, version, controller, queue, entry } = command;
        if !self.is_life(controller, version) {
            return; // The controller was removed, which ends its commands in lanes too.
        }
        let Some(lanes) = &mut self.lanes else { return };
        if lanes.ended_at.get(&controller).is_some_and(|ended| version < *ended) {
            return; // So does a reset.
        }
        let Some(token) = lanes.begin(lane, hand) else {
            let status = Status::from(StatusCode::NamespaceNotReady);
            let completion = CompletionResult { dw0: 0, dw1: 0, status };
            let message = boxed(Order::Complete { hand, completion });
            return self.flow.outputs.push_back(Output::ToLane(lane, message));
        };
        self.on_command(controller, token, queue, entry);
    }

    /// Ends a command that a lane has handed over, and whose queue the lane has lost. The other
    /// half of a fused pair ends with it.
    fn drop_handed(&mut self, token: CommandToken) {
        let second = self.flow.slots.peek(token).and_then(|slot| slot.partner);
        self.end_commands(|one, slot| one == token || Some(one) == second || slot.partner == Some(token));
        self.flow.unsaved = false;
        if let Some(lanes) = &mut self.lanes {
            lanes.free(token);
        }
        self.check_quiet();
    }

    /// Lanes have seen more, or are quiet since later.
    pub(super) fn on_acknowledged(&mut self) {
        while let Some(token) = self.lanes.as_mut().and_then(|lanes| lanes.take_seen()) {
            self.on_seen(token);
        }
        if let Some(lanes) = self.lanes.as_ref().filter(|_| !self.flow.departed.is_empty()) {
            let quiet = lanes.quiet();
            self.flow.departed.settle(quiet);
        }
        self.check_quiet();
    }

    /// Continues a command after lanes have acted upon a publication.
    fn on_seen(&mut self, token: CommandToken) {
        let Some(slot) = self.flow.slots.waiting_for_lanes(token) else { return };
        slot.state = State::Started;
        let entry = slot.entry;
        if AdminOpcode::from(entry.opcode) != AdminOpcode::Abort && slot.cursor == 0 {
            slot.cursor = COUNTED;
        }
        let handled = self.on_admin_command(token, &entry);
        self.finish(token, handled);
    }

    /// Adds what a lane has counted.
    fn on_counts(&mut self, counts: &Counts) {
        self.smart.add(&counts.counters);
        (0..counts.counters.space_errors).for_each(|_| self.on_space_error());
        self.tallies.add(&counts.namespaces);
        for (key, tally) in (0..).map(ControllerKey).zip(&counts.hosts) {
            if self.is_life(key, counts.version) {
                self.controllers.of_mut(key).tally.add(tally);
            }
        }
        for Logged { controller, queue, entry, failure } in &counts.failures {
            if self.is_life(*controller, counts.version) {
                self.record_failure(*controller, *queue, entry, failure);
            } else {
                self.errors_recorded += 1;
            }
        }
        if counts.medium_has_failed {
            self.capture_telemetry("a medium has failed");
        }
    }

    /// Whether a controller is the one that had this key when a lane had seen `version`.
    fn is_life(&self, key: ControllerKey, version: u64) -> bool {
        let added = self.lanes.as_ref().and_then(|lanes| lanes.added.get(&key));
        self.controllers.find(key).is_some() && added.is_none_or(|added| *added <= version)
    }

    /// Ends a command for the Abort command `token` in the lanes. The result is known once they
    /// have seen the publication.
    pub(in super::super) fn abort_in_lanes(&mut self, token: CommandToken, ending: Ending) -> Handled {
        let has_lanes = self.has_lanes();
        match self.flow.slots.of(token).cursor {
            0 if has_lanes => {
                self.flow.slots.of(token).cursor = ASKED;
                self.await_lanes(token, Some(ending))
            }
            ABORTED => Ok(Step::Done(0)),
            _ => Ok(Step::Done(NOT_ABORTED)),
        }
    }

    /// Whether a log page needs what lanes have counted, and has not got it yet.
    pub(in super::super) fn needs_counts(&mut self, token: CommandToken) -> bool {
        self.has_lanes() && self.flow.slots.of(token).cursor == 0
    }
}

/// The cursor of a command that waits for lanes: lanes were asked, have counted, or have aborted.
const ASKED: u64 = 1;
const COUNTED: u64 = 2;
const ABORTED: u64 = 3;
