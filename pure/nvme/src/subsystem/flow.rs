//! The flow of commands: their slots, their data, their requests to media, and the core's outputs
//! to the transport and the world.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use engine::{Buffer, Deadlines, Instant, Nanos, Pool};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::controller::ControllerKey;
use super::departed::Departed;
use super::errors::Failure;
use super::overlap::Overlaps;
use super::slots::{HostDataFor, MediaFor, Own, Slot, Slots, State};
use super::types::{CommandToken, CompletionResult, Direction, Notification, Output, Transfer};
use crate::media;
use crate::media::{IoId, Operation, Request};

/// The outcome of a command's handler: the command ended with a result, or it waits.
pub(super) enum Step {
    /// The command succeeded, with this DW0.
    Done(u32),
    /// The command waits and will be continued.
    Waiting,
}

/// The result of a command's handler.
pub(super) type Handled = Result<Step, Failure>;

/// Outputs that the queue has room for from the start, so that steady state allocates nothing.
const OUTPUTS_EXPECTED: usize = 256;
/// Bytes of buffers for admin data that are kept for reuse, per buffer size.
const POOL_RETAIN: usize = 64 << 10;

/// Pause between two steps of background work, which lets commands through.
const PAUSE: Nanos = Nanos::from_micros(100);

/// The commands in flight, their requests to the transport and to media, and when background work
/// continues.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    pub(super) slots: Slots,
    pub(super) overlaps: Overlaps,
    /// When background work continues.
    pub(super) deadlines: Deadlines<Own>,
    pub(super) pool: Pool,
    pub(super) outputs: VecDeque<Output>,
    /// The time of the latest input.
    pub(super) now: Instant,
    /// Number of requests that media have not answered, including requests of aborted commands,
    /// excluding background work.
    pub(super) media_outstanding: usize,
    /// Unanswered requests whose commands a reset has ended.
    pub(super) orphans: Vec<(IoId, ControllerKey)>,
    /// Hosts whose controllers are gone, with unanswered requests of theirs.
    pub(super) departed: Departed,
    /// Whether the operation in progress has sent a notification that must be durable before its
    /// command completes.
    pub(super) unsaved: bool,
    /// The controllers that can't transfer metadata, because they are reached over fabrics.
    pub(super) without_metadata: BTreeSet<ControllerKey>,
    /// Whether a medium keeps the state that notifications report.
    keeps_state: bool,
}

impl Flow {
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        Self { keeps_state: config.state.is_some(), ..Self::of_lane(now, config.commands_max) }
    }

    /// The flow of a lane, which has commands called 0..`commands_max`.
    pub(super) fn of_lane(now: Instant, commands_max: u32) -> Self {
        Self {
            slots: Slots::new(commands_max),
            overlaps: Overlaps::default(),
            deadlines: Deadlines::new(),
            pool: Pool::new(POOL_RETAIN),
            outputs: VecDeque::with_capacity(OUTPUTS_EXPECTED),
            now,
            media_outstanding: 0,
            orphans: Vec::new(),
            departed: Departed::default(),
            unsaved: false,
            without_metadata: BTreeSet::new(),
            keeps_state: false,
        }
    }

    /// Whether the controller can't transfer metadata beside the data.
    pub(super) fn lacks_metadata(&self, controller: ControllerKey) -> bool {
        self.without_metadata.contains(&controller)
    }

    /// Pulls `length` bytes from the host for the command.
    #[inline]
    pub(super) fn pull(&mut self, token: CommandToken, length: u32, purpose: HostDataFor) -> Step {
        let slot = self.slots.of(token);
        slot.length = length;
        slot.spent.begin(self.now);
        slot.state = State::AwaitingHostData(purpose);
        self.outputs.push_back(Output::PullHostData { token, length });
        Step::Waiting
    }

    /// Pushes `data` as the whole transfer of the command.
    pub(super) fn push_all(&mut self, token: CommandToken, data: Buffer) {
        let length = u32::try_from(data.len()).expect("at most TRANSFER_BYTES_MAX");
        self.slots.of(token).length = length;
        if length > 0 {
            self.outputs.push_back(Output::PushHostData { token, offset: 0, length, data });
        }
    }

    /// Pushes `length` bytes: the beginning of `contents`, padded with zeroes.
    pub(super) fn push_padded(&mut self, token: CommandToken, contents: &[u8], length: u32) {
        let length = usize::try_from(length).expect("at most TRANSFER_BYTES_MAX");
        let mut buffer = self.pool.take(length);
        let count = contents.len().min(length);
        buffer[..count].copy_from_slice(&contents[..count]);
        buffer[count..].fill(0);
        let data = self.pool.seal(buffer);
        self.push_all(token, data);
    }

    /// Sends a request to `medium` for the command. The medium must return `expected` bytes.
    #[inline]
    pub(super) fn ask_medium(
        &mut self,
        token: CommandToken,
        purpose: MediaFor,
        medium: media::MediumId,
        expected: u32,
        operation: Operation,
    ) -> Step {
        let id = self.slots.issue(token, purpose, expected);
        self.media_outstanding += 1;
        let slot = self.slots.of(token);
        slot.spent.begin(self.now);
        slot.asked = Some(medium);
        let controller = slot.controller;
        let request = self.overlaps.begin(controller, Request { id, medium, operation });
        self.outputs.extend(request.map(Output::Media));
        Step::Waiting
    }

    /// Lets background work continue after a pause.
    pub(super) fn continue_later(&mut self, own: Own) {
        self.deadlines.arm(own, self.now + PAUSE);
    }

    /// Sends the requests that waited for changes of the same blocks, now that these have ended.
    #[inline]
    pub(super) fn ask_those_behind(&mut self) {
        while let Some(request) = self.overlaps.next() {
            self.outputs.push_back(Output::Media(request));
        }
    }

    /// Sends a request to a medium for background work, which continues through resets.
    pub(super) fn ask_medium_in_background(
        &mut self,
        own: Own,
        purpose: MediaFor,
        medium: media::MediumId,
        expected: u32,
        operation: Operation,
    ) {
        let id = self.slots.issue(self.slots.own(own), purpose, expected);
        self.outputs.push_back(Output::Media(Request { id, medium, operation }));
    }

    pub(super) fn notify(&mut self, notification: Notification) {
        self.unsaved |= self.keeps_state && notification.must_last();
        self.outputs.push_back(Output::Notify(notification));
    }

    /// The completion of a command that has succeeded, if it was not polled yet.
    pub(super) fn success_of(&mut self, token: CommandToken) -> Option<&mut CompletionResult> {
        self.outputs.iter_mut().find_map(|output| success_in(output, token))
    }

    /// The transfer of the command called `token`; `None` if the command moves no data.
    #[inline]
    pub(super) fn transfer(&self, token: CommandToken) -> Option<Transfer> {
        let slot = self.slots.peek(token).filter(|slot| slot.state != State::Free && slot.length > 0)?;
        let from_host = slot.entry.opcode & 0b01 != 0;
        let direction = if from_host { Direction::FromHost } else { Direction::ToHost };
        Some(Transfer { direction, length: slot.length, metadata: slot.metadata })
    }

    /// Forgets a request that has ended after its command.
    #[cold]
    pub(super) fn forget_orphan(&mut self, id: IoId) {
        self.slots.strays.end(id);
        if !self.departed.is_empty() {
            self.departed.end(id);
        }
        self.orphans.retain(|(orphan, _)| *orphan != id);
    }

    /// Moves a piece of a read to where its command needs it.
    #[inline]
    pub(super) fn on_media_data(&mut self, id: IoId, offset: u32, data: Buffer) {
        let Some((token, purpose)) = self.slots.awaiting(id) else { return };
        let slot = self.slots.of(token);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let fits = offset.checked_add(length).is_some_and(|end| end <= slot.expected);
        assert!(fits, "a medium answers {} B read with data at {offset}..+{length}", slot.expected);
        slot.received += length;
        match purpose {
            MediaFor::Read => {
                let length = slot.length;
                self.outputs.push_back(Output::PushHostData { token, offset, length, data });
            }
            MediaFor::Compare { equal } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let equal = equal && slot.data[start..start + data.len()] == *data;
                slot.state = State::AwaitingMedia(MediaFor::Compare { equal });
            }
            MediaFor::CopyRead(_) | MediaFor::ReadStored => {
                if let Some(gathered) = &mut slot.gathered {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    gathered[start..start + data.len()].copy_from_slice(&data);
                }
            }
            _ => (), // Verify only checks whether the bytes can be read.
        }
    }

    /// Ends the commands that `is_gone` selects, and drops their outputs that were not polled.
    /// Their requests that media have seen become orphans. Returns the commands, and their requests
    /// that no medium has seen.
    pub(super) fn end_commands(
        &mut self,
        is_gone: impl Fn(CommandToken, &Slot) -> bool,
    ) -> (Vec<Gone>, Vec<IoId>) {
        let slots = &self.slots;
        let is_its = |token: CommandToken| {
            slots.is_command(token) && slots.peek(token).is_some_and(|slot| is_gone(token, slot))
        };
        // No medium has seen these requests, so none will answer them.
        let dropped = |output: &Output| match output {
            Output::Media(request) => is_its(request.id.token()),
            Output::PullHostData { token, .. }
            | Output::PushHostData { token, .. }
            | Output::Complete { token, .. } => is_its(*token),
            Output::Notify(_) | Output::ToLane(..) | Output::ToSubsystem(_) | Output::Disowned(_) => false,
        };
        let mut unseen = Vec::new();
        self.outputs.retain(|output| {
            let dropped = dropped(output);
            if let (true, Output::Media(request)) = (dropped, output) {
                unseen.push(request.id);
            }
            !dropped
        });
        let gone = self.slots.in_flight().filter(|(token, slot)| is_gone(*token, slot));
        let gone: Vec<_> =
            gone.map(|(token, slot)| (Gone::of(token, slot), slot.request(token), slot.controller)).collect();
        let requests: Vec<_> = gone.iter().filter_map(|(_, request, _)| *request).collect();
        self.overlaps.disown(&requests, &mut unseen);
        self.ask_those_behind();
        self.media_outstanding -= unseen.len();
        for (command, request, controller) in &gone {
            let request = request.filter(|request| !unseen.contains(request));
            self.orphans.extend(request.map(|request| (request, *controller)));
            self.slots.retire(command.token);
        }
        unseen.iter().for_each(|request| self.slots.strays.end(*request));
        if self.overlaps.are_left_to_media() {
            let orphans = gone.iter().filter_map(|(_, request, _)| *request);
            let orphans = orphans.filter(|request| !unseen.contains(request));
            self.outputs.extend(orphans.map(Output::Disowned));
        }
        (gone.into_iter().map(|(command, ..)| command).collect(), unseen)
    }
}

/// The completion in `output`, if it is a success of the command.
pub(super) fn success_in(output: &mut Output, token: CommandToken) -> Option<&mut CompletionResult> {
    match output {
        Output::Complete { token: one, completion } if *one == token && completion.status.is_success() => {
            Some(completion)
        }
        _ => None,
    }
}

/// A command that ended without a completion.
pub(super) struct Gone {
    pub(super) token: CommandToken,
    pub(super) is_admin: bool,
    /// The state in which the command was.
    pub(super) state: State,
}

impl Gone {
    const fn of(token: CommandToken, slot: &Slot) -> Self {
        Self { token, is_admin: slot.queue.is_admin(), state: slot.state }
    }
}
