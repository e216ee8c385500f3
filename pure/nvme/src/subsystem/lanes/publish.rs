//! The subsystem's side of its lanes: what it publishes, and what waits for them.

use alloc::boxed::Box;

use engine::Instant;

use super::super::Subsystem;
use super::super::controller::ControllerKey;
use super::super::flow::{Handled, Step};
use super::super::slots::State;
use super::super::types::{CommandToken, Output};
use super::care::boxed;
use super::message::{Ending, LaneId, LaneViews, Order, Publication};
use super::registry::Lanes;
use crate::media::IoId;

impl Subsystem {
    /// Attaches a lane: I/O queues that a [`Lane`](super::Lane) executes, perhaps on another
    /// thread. Returns its name and the views with which it begins.
    ///
    /// From the first lane on, the order between controllers belongs to the media: every request
    /// passes one [`media::Ranges`](crate::media::Ranges) of its medium, those of the subsystem
    /// included. Attach the first lane before commands arrive.
    pub fn attach_lane(&mut self, now: Instant) -> (LaneId, LaneViews) {
        self.flow.now = now;
        let (version, commands_max) = (self.namespaces.views().version(), self.config.commands_max);
        self.lanes.get_or_insert_with(|| Box::new(Lanes::new(version, commands_max)));
        self.flow.overlaps.leave_to_media();
        self.flow.slots.open();
        // The views may have to say that lanes are held.
        self.publish();
        let views = self.namespaces.views().clone();
        let lanes = self.lanes.as_mut().expect("made above");
        (lanes.attach(views.version()), LaneViews { views, commands_max })
    }

    /// Makes a lane end: its commands end without completions, and the lane reports its counts and
    /// then its end. The subsystem waits for the lane until it is quiet, and may execute commands
    /// that the lane has handed over as long as the lane is one of [`Subsystem::lanes`].
    pub fn detach_lane(&mut self, now: Instant, lane: LaneId) {
        self.flow.now = now;
        if self.lanes.as_ref().is_some_and(|lanes| lanes.has(lane)) {
            self.flow.outputs.push_back(Output::ToLane(lane, boxed(Order::End)));
        }
    }

    /// Leaves the order between controllers to the media from now on, as they must keep it when the
    /// first lane is attached. Call this before commands arrive.
    pub fn expect_lanes(&mut self) {
        self.flow.overlaps.leave_to_media();
    }

    /// The lanes that are attached and have not ended.
    pub fn lanes(&self) -> impl Iterator<Item = LaneId> {
        self.lanes.iter().flat_map(|lanes| lanes.ids())
    }

    /// The version of the views: the number of changes so far.
    pub const fn version(&self) -> u64 {
        self.namespaces.views().version()
    }

    /// Whether every lane has seen a version of the views. A transport that adds a controller lets
    /// its host in once lanes have seen the version after that: they have ended what an earlier
    /// controller of the host has sent.
    pub fn lanes_have_seen(&self, version: u64) -> bool {
        self.lanes.as_ref().is_none_or(|lanes| lanes.seen() >= version)
    }

    /// The controller of a request to a medium that was just polled; `None` for background work.
    pub fn requester(&self, request: IoId) -> Option<ControllerKey> {
        let is_background = self.flow.slots.is_background(request);
        self.flow.slots.peek(request.token()).filter(|_| !is_background).map(|slot| slot.controller)
    }

    /// Whether a command has the media to itself, for simulations that check this.
    #[doc(hidden)]
    pub fn is_alone(&self) -> bool {
        let owner = self.restrictions.owner.and_then(|token| self.flow.slots.peek(token));
        owner.is_some_and(|slot| !matches!(slot.state, State::AwaitingQuiet(_)))
    }

    /// Sends lanes what has changed.
    pub(in super::super) fn publish(&mut self) {
        let Some(lanes) = &mut self.lanes else { return };
        let views = self.namespaces.views_mut();
        let owned = self.restrictions.is_owned();
        if owned != lanes.held_at.is_some() {
            views.publish_held(owned);
            lanes.held_at = owned.then_some(views.version());
        }
        if lanes.have_news() && views.version() == lanes.published {
            views.publish_news();
        }
        if views.version() == lanes.published {
            return;
        }
        let publication = Publication {
            changes: views.since(lanes.published),
            endings: core::mem::take(&mut lanes.endings),
            wants_counts: core::mem::take(&mut lanes.wants_counts),
        };
        lanes.publish(views.version());
        for lane in lanes.ids() {
            let message = boxed(Order::Publish(publication.clone()));
            self.flow.outputs.push_back(Output::ToLane(lane, message));
        }
        if !self.has_lanes() {
            self.on_acknowledged(); // The last lane has ended since a command began to wait.
        }
    }

    /// The next output of a subsystem with lanes.
    #[cold]
    pub(in super::super) fn poll_with_lanes(&mut self) -> Option<Output> {
        self.publish();
        while let Some(output) = self.flow.outputs.pop_front() {
            let passed = self.pass(output);
            if passed.is_some() {
                return passed;
            }
        }
        let output = self.lanes.as_mut()?.ungate()?;
        Some(self.for_lane(output))
    }

    /// Passes an output on, unless it is a completion that waits until lanes have seen what was
    /// published.
    fn pass(&mut self, output: Output) -> Option<Output> {
        let lanes = self.lanes.as_mut()?;
        let output = match output {
            Output::Complete { .. } => lanes.gate(output)?,
            output => output,
        };
        Some(self.for_lane(output))
    }

    /// Turns the output of a command that a lane has handed over into a message to the lane.
    fn for_lane(&mut self, output: Output) -> Output {
        let Some(lanes) = &mut self.lanes else { return output };
        let (Output::PullHostData { token, .. }
        | Output::PushHostData { token, .. }
        | Output::Complete { token, .. }) = &output
        else {
            return output;
        };
        let token = *token;
        let Some((lane, hand)) = lanes.hand_of(token) else { return output };
        let order = match output {
            Output::PullHostData { length, .. } => Order::Pull { hand, length },
            Output::PushHostData { offset, length, data, .. } => {
                Order::Push { hand, offset, length, data: Box::from(&data[..]) }
            }
            Output::Complete { completion, .. } => {
                lanes.free(token);
                Order::Complete { hand, completion }
            }
            output => return output,
        };
        Output::ToLane(lane, boxed(order))
    }

    /// Makes a command wait until lanes have acted upon a publication.
    pub(in super::super) fn await_lanes(&mut self, token: CommandToken, ending: Option<Ending>) -> Handled {
        let Some(lanes) = &mut self.lanes else { return Ok(Step::Done(0)) };
        self.flow.slots.of(token).state = State::AwaitingLanes;
        lanes.wants_counts |= ending.is_none();
        lanes.endings.extend(ending);
        lanes.await_seen(token);
        Ok(Step::Waiting)
    }

    /// Whether there are lanes that have not ended.
    pub(in super::super) fn has_lanes(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| !lanes.is_empty())
    }
}
