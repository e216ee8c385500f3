//! Several associations with one subsystem, used as one: ANA, round robin or lowest latency,
//! failover.
//!
//! A command is remembered until it has ended, even if it loses its path. When a path is lost, its
//! commands take another path, or wait for one. A late answer to a command that was taken back is
//! dropped. Each command therefore ends exactly once, and a write is acknowledged only after a
//! controller has acknowledged it.

mod commands;
mod fence;
mod path;
#[cfg(test)]
mod tests;
mod types;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant};
use nvme::host::{self, Data, Origin};
use nvme::wire::{AnaState, CompletionQueueEntry, NamespaceId, Status, StatusCode};

pub use types::{
    Completed, Config, Dispatch, Output, PATHS_MAX, PathIndex, PathStatus, Policy, Request, Statistics,
    SubmitError,
};

use super::association::{self, Association, Loss};
use super::{Identity, TRANSFER_BYTES_MAX};
use crate::wire::QueueId;
use commands::{Command, Commands, Place};
use fence::{Fence, Fences, is_harmless};
use path::Path;

/// When paths are chosen by latency, one command out of this many takes the next path in turn, so
/// that slow paths are measured again.
const EXPLORE_EVERY: u64 = 64;

/// Several paths to one subsystem, and the commands that use them.
#[derive(Debug)]
pub struct Multipath {
    config: Config,
    paths: Vec<Path>,
    commands: Commands,
    /// Commands that wait for a path.
    waiting: VecDeque<u32>,
    fences: Fences,
    /// The path at which the next choice begins.
    turn: usize,
    outputs: VecDeque<Output>,
    statistics: Statistics,
}

impl Multipath {
    /// Paths that [`Multipath::start`] connects, one for each association.
    ///
    /// # Panics
    /// When there is no association, or there are more than [`PATHS_MAX`], or `config` exceeds a
    /// limit of one of its fields.
    pub fn new(config: Config, associations: impl IntoIterator<Item = Association>) -> Self {
        let paths: Vec<Path> = associations.into_iter().map(Path::new).collect();
        assert!((1..=PATHS_MAX).contains(&paths.len()), "1..={PATHS_MAX} paths");
        assert!((1..=1 << 16).contains(&config.commands_max), "1..=65536 commands");
        Self {
            config,
            paths,
            commands: Commands::new(config.commands_max),
            waiting: VecDeque::new(),
            fences: Fences::default(),
            turn: 0,
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Connects every path.
    pub fn start(&mut self, now: Instant) {
        for path in &mut self.paths {
            path.association.start(now);
        }
    }

    /// Shuts every path down; [`Output::PathEnded`] follows for each.
    pub fn shut_down(&mut self, now: Instant) {
        for path in &mut self.paths {
            path.association.shut_down(now);
        }
    }

    /// Authenticates the queues of every live path again whose controller demanded authentication.
    /// Returns whether this began on any path. [`Output::PathEnded`] follows where it fails.
    pub fn authenticate_again(&mut self, now: Instant) -> bool {
        let mut began = false;
        for path in &mut self.paths {
            began |= path.association.authenticate_again(now);
        }
        began
    }

    /// Whether any path is live.
    pub fn is_live(&self) -> bool {
        self.paths.iter().any(Path::is_live)
    }

    /// Whether every path has ended for good.
    pub fn is_over(&self) -> bool {
        self.paths.iter().all(|path| path.association.is_over())
    }

    /// The identity of a live path's controller, or else the latest one of any path's controller.
    pub fn identity(&self) -> Option<&nvme::host::Identity> {
        let live = self.paths.iter().find(|path| path.is_live());
        let any = || self.paths.iter().find(|path| path.association.identity().is_some());
        let identity = live.or_else(any).and_then(|path| path.association.identity());
        identity.map(|identity| &identity.reported)
    }

    /// The state of every path.
    pub fn paths(&self) -> impl Iterator<Item = PathStatus<'_>> {
        self.paths.iter().map(|path| PathStatus {
            live: path.is_live(),
            over: path.association.is_over(),
            outstanding: path.outstanding,
            latency: path.latency,
            identity: path.association.identity(),
        })
    }

    /// Commands that have not ended.
    pub fn outstanding(&self) -> usize {
        self.commands.live()
    }

    /// Counters since the beginning.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Accepts an I/O command. If a path has room for the command, returns the dispatch, which the
    /// caller must send at once. Otherwise the command waits for a path. The command ends with
    /// [`Output::Completed`], or with the return value of [`Multipath::on_completed`].
    ///
    /// # Errors
    /// When the command is rejected.
    #[inline]
    pub fn submit(&mut self, now: Instant, request: Request) -> Result<Option<Dispatch>, SubmitError> {
        let length = request.data.len() as u64;
        let limit = self.transfer_bytes_max();
        if length > u64::from(limit) {
            return Err(SubmitError::Length { length, limit });
        }
        if !self.commands.has_room() {
            return Err(SubmitError::Busy);
        }
        let (namespace, hint) = (request.entry.namespace, request.queue);
        let choice = if self.waiting.is_empty() { self.choose(namespace, hint) } else { None };
        if choice.is_none() && !self.may_wait(namespace) {
            return Err(SubmitError::NoPath);
        }
        let command = Command { request, submitted: now, sent: now, place: Place::Waiting, retries: 0 };
        let index = self.commands.issue(command).ok_or(SubmitError::Busy)?;
        self.statistics.submitted += 1;
        let Some((path, queue)) = choice else {
            self.waiting.push_back(index);
            return Ok(None);
        };
        Ok(self.dispatch(now, index, path, queue))
    }

    /// Sends an admin command by a live path; [`Output::AdminCompleted`] follows once. The command
    /// is never sent again.
    ///
    /// # Errors
    /// When the command is rejected.
    pub fn submit_admin(
        &mut self,
        now: Instant,
        command: host::Command,
    ) -> Result<(), association::SubmitError> {
        let path = self.paths.iter_mut().find(|path| path.is_live());
        let path = path.ok_or(association::SubmitError::NotReady)?;
        path.association.submit_admin(now, command)
    }

    /// Limits the connection of a queue to `commands` at a time. The transport calls this before
    /// [`Multipath::on_queue_open`].
    pub fn limit_queue(&mut self, path: PathIndex, queue: QueueId, commands: u16) {
        self.paths[path.usize()].association.limit_queue(queue, commands);
    }

    /// The transport has connected a queue.
    pub fn on_queue_open(&mut self, now: Instant, path: PathIndex, queue: QueueId) {
        self.paths[path.usize()].association.on_queue_open(now, queue);
    }

    /// Handles a connection of a queue that could not be established, or was lost.
    pub fn on_queue_lost(&mut self, now: Instant, path: PathIndex, queue: QueueId) {
        self.paths[path.usize()].association.on_queue_lost(now, queue);
    }

    /// A command that was sent has ended. Returns how it ended for its caller, unless it is sent
    /// again or is one of the association's.
    #[inline]
    pub fn on_completed(
        &mut self,
        now: Instant,
        path: PathIndex,
        token: u64,
        entry: CompletionQueueEntry,
        data: Buffer,
    ) -> Option<Completed> {
        let on = &mut self.paths[path.usize()];
        if Association::is_own(token) {
            on.association.on_completed(now, token, entry, data);
            return None;
        }
        on.association.on_traffic();
        let index = self.commands.find(token)?;
        let command = self.commands.get(index)?;
        if let Place::On { queue, .. } = command.place {
            on.on_ended(queue);
        }
        on.on_latency(now - command.sent);
        let code = entry.status().code();
        let may_retry = command.retries < self.config.retries_max && !entry.status().do_not_retry();
        if is_not_its_own(code) && (may_retry || is_of_path(code)) && command.retries < u8::MAX {
            return self.send_again(now, path, index, code);
        }
        let command = self.commands.retire(index)?;
        self.statistics.completed += 1;
        if !self.waiting.is_empty() {
            self.send_waiting(now);
        }
        Some(finish(command, entry, data))
    }

    /// Sends a command again that failed for a reason outside the command.
    #[cold]
    fn send_again(
        &mut self,
        now: Instant,
        path: PathIndex,
        index: u32,
        code: StatusCode,
    ) -> Option<Completed> {
        let command = self.commands.take_back(index)?;
        command.retries = command.retries.saturating_add(1);
        let namespace = command.request.entry.namespace;
        let spent = command.retries > self.config.retries_max;
        let state = match code {
            StatusCode::AsymmetricAccessPersistentLoss => Some(AnaState::PersistentLoss),
            StatusCode::AsymmetricAccessInaccessible => Some(AnaState::Inaccessible),
            StatusCode::AsymmetricAccessTransition => Some(AnaState::Change),
            _ => None,
        };
        if let Some(state) = state {
            let path = &mut self.paths[path.usize()];
            path.on_refused(namespace, state);
            path.association.refresh_ana(now);
        } else if spent {
            let command = self.commands.retire(index)?;
            self.statistics.completed += 1;
            // Others may have waited for the place of this one.
            self.send_waiting(now);
            let entry = CompletionQueueEntry::default().with_status(code.into(), false);
            return Some(finish(command, entry, Buffer::EMPTY));
        }
        self.statistics.retried += 1;
        self.waiting.push_front(index);
        self.send_waiting(now);
        None
    }

    fn transfer_bytes_max(&self) -> u32 {
        let limits = self.paths.iter().filter(|path| path.is_live());
        let limits = limits.filter_map(|path| path.association.identity());
        limits.map(|identity| identity.reported.transfer_bytes_max).min().unwrap_or(TRANSFER_BYTES_MAX)
    }

    /// Whether there may be a path to `namespace` later, so that a command may wait for it.
    fn may_wait(&self, namespace: NamespaceId) -> bool {
        self.paths.iter().any(|path| {
            let lost = path.state(namespace) == AnaState::PersistentLoss;
            let hopeless = path.association.is_over() || path.failed_fast || (path.is_live() && lost);
            !hopeless
        })
    }

    /// The path and queue for a command to `namespace`, if a path has room.
    #[inline]
    fn choose(&mut self, namespace: NamespaceId, hint: u16) -> Option<(PathIndex, QueueId)> {
        if self.fences.is_leaking() {
            return None;
        }
        let count = self.paths.len();
        if count == 1 {
            let path = &self.paths[0];
            let usable = path.is_live() && path.state(namespace).is_usable();
            return Some((PathIndex(0), path.queue(hint).filter(|_| usable)?));
        }
        let explore = self.statistics.submitted.is_multiple_of(EXPLORE_EVERY);
        let by_latency = self.config.policy == Policy::LowestLatency && !explore;
        let mut best: Option<((AnaState, u64), usize, QueueId)> = None;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let path = &self.paths[index];
            let state = path.state(namespace);
            if !path.is_live() || !state.is_usable() {
                continue;
            }
            let Some(queue) = path.queue(hint) else { continue };
            let cost = if by_latency { path.latency.get() * (u64::from(path.outstanding) + 1) } else { 0 };
            let rank = (state, cost);
            if best.as_ref().is_none_or(|(known, ..)| rank < *known) {
                best = Some((rank, index, queue));
            }
        }
        let (_, index, queue) = best?;
        self.turn = (index + 1) % count;
        Some((PathIndex(u16::try_from(index).ok()?), queue))
    }

    #[inline]
    fn dispatch(&mut self, now: Instant, index: u32, path: PathIndex, queue: QueueId) -> Option<Dispatch> {
        let token = self.commands.on_sent(index, now + self.config.io_timeout);
        let command = self.commands.get(index)?;
        (command.place, command.sent) = (Place::On { path, queue }, now);
        let Request { entry, ref data, .. } = command.request;
        let data = data.clone();
        self.paths[path.usize()].on_sent(queue);
        Some(Dispatch { path, queue, token, entry, data })
    }

    /// Sends waiting commands as far as paths have room, and ends commands that no path will take.
    fn send_waiting(&mut self, now: Instant) {
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { return };
            let Some(command) = self.commands.get(index) else { continue };
            let (namespace, hint) = (command.request.entry.namespace, command.request.queue);
            if let Some((path, queue)) = self.choose(namespace, hint) {
                let dispatch = self.dispatch(now, index, path, queue);
                self.outputs.extend(dispatch.map(Output::Dispatch));
            } else if self.may_wait(namespace) {
                self.waiting.push_back(index);
            } else {
                self.give_up(index);
            }
        }
        self.give_up_hopeless();
    }

    /// Ends commands behind a fence that will find no path when the fence is down.
    fn give_up_hopeless(&mut self) {
        let mut fences = core::mem::take(&mut self.fences);
        let hopeless = fences.take_hopeless(|index| {
            let namespace = self.commands.get(index).map(|command| command.request.entry.namespace);
            namespace.is_some_and(|namespace| !self.may_wait(namespace))
        });
        self.fences = fences;
        hopeless.into_iter().for_each(|index| self.give_up(index));
    }

    /// Asks live controllers to end lost ones.
    fn ask_to_end(&mut self, now: Instant) {
        while let Some((fence, impacted)) = self.fences.next() {
            let paths = (0..).map(PathIndex).zip(&mut self.paths);
            let mut live = paths.filter(|(_, path)| path.is_live());
            let asked = live.find_map(|(at, path)| path.association.reset_other(now, impacted).then_some(at));
            fence.asked = asked;
            if asked.is_none() {
                return;
            }
        }
    }

    /// Handles the end of a lost controller: its commands take another path.
    fn on_fence_down(&mut self, now: Instant, commands: Vec<u32>) {
        commands.into_iter().rev().for_each(|index| self.waiting.push_front(index));
        self.send_waiting(now);
    }

    /// Ends a command for which no path is left.
    fn give_up(&mut self, index: u32) {
        let Some(command) = self.commands.retire(index) else { return };
        self.statistics.completed += 1;
        let status = Status::from(StatusCode::HostPathingError);
        let entry = CompletionQueueEntry::default().with_status(status, false);
        let Command { request: Request { cookie, .. }, submitted, .. } = command;
        let completed = Completed { cookie, entry, data: Buffer::EMPTY, origin: Origin::Host, submitted };
        self.outputs.push_back(Output::Completed(completed));
    }

    /// Handles the loss of a path: its commands take another path, or wait.
    fn on_path_gone(&mut self, now: Instant, path: PathIndex) {
        self.paths[path.usize()].on_lost();
        // No further output goes to the path.
        self.outputs.retain(|output| !matches!(output, Output::Dispatch(dispatch) if dispatch.path == path));
        let stranded = self.commands.on(path);
        self.statistics.stranded += stranded.len() as u64;
        self.statistics.retried += stranded.len() as u64;
        self.fences.on_path_gone(path);
        let association = &self.paths[path.usize()].association;
        let quiesced = association.quiesce_time().map(|time| now + time);
        let impacted = association.identity().and_then(Identity::instance);
        let mut fenced = Vec::new();
        for index in stranded.into_iter().rev() {
            let Some(command) = self.commands.take_back(index) else { continue };
            if quiesced.is_some() && !is_harmless(&command.request.entry) {
                fenced.push(index);
            } else {
                self.waiting.push_front(index);
            }
        }
        fenced.reverse();
        if let Some(until) = quiesced.filter(|_| !fenced.is_empty()) {
            self.fences.raise(Fence { impacted, until, commands: fenced, asked: None, is_leaking: false });
        }
        self.ask_to_end(now);
        self.send_waiting(now);
    }

    /// Handles an output of an association, and passes on the part for the transport or the user.
    fn on_association(&mut self, now: Instant, path: PathIndex, output: association::Output) {
        use association::Output as From;
        let output = match output {
            From::OpenQueue { queue, controller, size, capsule_data_max } => {
                Output::OpenQueue { path, queue, controller, size, capsule_data_max }
            }
            From::Submit { queue, token, entry, data } => {
                Output::Dispatch(Dispatch { path, queue, token, entry, data })
            }
            From::CloseQueues { abort } => Output::CloseQueues { path, abort },
            From::Ready => {
                self.paths[path.usize()].on_up();
                self.outputs.push_back(Output::PathUp(path));
                self.ask_to_end(now);
                return self.send_waiting(now);
            }
            From::Lost(why) => {
                self.outputs.push_back(Output::PathLost(path, why));
                return self.on_path_gone(now, path);
            }
            From::FastIoFail => {
                self.paths[path.usize()].failed_fast = true;
                return self.send_waiting(now);
            }
            From::Ended(why) => {
                self.outputs.push_back(Output::PathEnded(path, why));
                return self.on_path_gone(now, path);
            }
            From::AdminCompleted(completed) => Output::AdminCompleted(completed),
            From::ControllerReset { impacted, done } => {
                let commands = self.fences.on_reset(impacted, done);
                return self.on_fence_down(now, commands);
            }
            From::Event(dw0) => Output::Event(path, dw0),
            From::IdentityChanged => {
                self.paths[path.usize()].on_identity();
                self.outputs.push_back(Output::IdentityChanged(path));
                return self.send_waiting(now);
            }
        };
        self.outputs.push_back(output);
    }

    /// Handles the outputs of the associations. The caller does this before it polls outputs.
    pub fn settle(&mut self, now: Instant) {
        for index in 0..self.paths.len() {
            let path = PathIndex(u16::try_from(index).expect("paths are few"));
            while let Some(output) = self.paths[index].association.poll_output() {
                self.on_association(now, path, output);
            }
        }
    }
}

/// Whether a command failed for a reason that the command did not cause, so that it is sent again.
fn is_not_its_own(code: StatusCode) -> bool {
    is_of_path(code)
        || matches!(
            code,
            StatusCode::TransientTransportError
                | StatusCode::CommandInterrupted
                | StatusCode::NamespaceNotReady
                | StatusCode::AbortedSubmissionQueueDeletion
        )
}

/// Whether a command failed because of its path (Status Code Type 3).
fn is_of_path(code: StatusCode) -> bool {
    code.kind() == 3
}

/// How a command ends for its caller.
fn finish(command: Command, entry: CompletionQueueEntry, data: Buffer) -> Completed {
    let Command { request, submitted, .. } = command;
    let whole = !matches!(request.data, Data::Read(length) if (length as usize) > data.len());
    let (entry, origin) = if entry.status().is_success() && !whole {
        // A success without all of its data is a failure.
        (entry.with_status(StatusCode::DataTransferError.into(), false), Origin::Host)
    } else {
        (entry, Origin::Controller)
    };
    Completed { cookie: request.cookie, entry, data, origin, submitted }
}

impl Engine for Multipath {
    /// Inputs are methods: [`Multipath::on_queue_open`], [`Multipath::on_queue_lost`],
    /// [`Multipath::on_completed`].
    type Input<'a> = core::convert::Infallible;
    type Output = Output;

    fn handle_input(&mut self, _now: Instant, input: Self::Input<'_>) {
        match input {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        for path in &mut self.paths {
            if path.association.poll_timeout().is_some_and(|at| at <= now) {
                path.association.handle_timeout(now);
            }
        }
        while let Some(index) = self.commands.expire(now) {
            if let Some(Place::On { path, .. }) = self.commands.get(index).map(|command| command.place) {
                self.paths[path.usize()].association.reset(now, Loss::IoTimeout);
            }
        }
        while let Some(commands) = self.fences.expire(now) {
            self.on_fence_down(now, commands);
        }
        self.settle(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let paths = self.paths.iter().filter_map(|path| path.association.poll_timeout());
        paths.chain(self.commands.earliest()).chain(self.fences.earliest()).min()
    }
}
