//! A host's use of one controller: connects the queues, brings the controller up, keeps it alive,
//! and brings it up again when it is lost.
//!
//! Outputs open queues and send commands, so that the fabric does not matter. The association knows
//! the I/O queues but not the I/O commands (see [`crate::host::Multipath`]).

mod admin;
mod authentication;
mod script;
mod types;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use engine::{Buffer, Deadlines, Engine, Instant, Nanos, Script, Step};
use nvme::wire::{AdminOpcode, Bits, CompletionQueueEntry, StatusCode, SubmissionQueueEntry};

pub use types::{Authentication, Config, Failure, Loss, Output, SubmitError};

use super::{Identity, ImpactedController};
use crate::wire::QueueId;
use admin::{Admin, Owner};
use nvme::host::{AsynchronousEvent, Command, Completed, Data, command};
use script::{Answer, Outcome, Question, Refresh};

/// Asynchronous Event Type: Notice.
const NOTICE: u8 = 2;
/// Notice: Namespace Attribute Changed.
const NAMESPACE_CHANGED: u8 = 0;
/// Notice: Asymmetric Namespace Access Change.
const ANA_CHANGED: u8 = 3;
/// Notice: Discovery Log Page Change.
const DISCOVERY_CHANGED: u8 = 0xf0;

/// DW0 of a Cross-Controller Reset: Immediate Reset Successful (IRS).
const IMMEDIATE_RESET: Bits = Bits::bit(0);
/// How long a controller without a requested Keep Alive Timer is assumed to wait for a silent host.
const KEEP_ALIVE_BELIEVED: Nanos = Nanos::from_secs(5);

/// The association's named deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The script sleeps.
    Sleep,
    /// An attempt to connect takes too long.
    Attempt,
    /// A Keep Alive is due.
    KeepAlive,
    /// A Keep Alive was not answered.
    KeepAliveReply,
    /// Try to connect again.
    Reconnect,
    /// The controller was away for too long.
    ControllerLoss,
    /// Commands have waited for too long.
    FastIoFail,
}

/// The state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Live,
    /// Waiting until [`Timer::Reconnect`].
    Waiting,
    ShuttingDown,
    Over,
}

/// The event that a script waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    Nothing,
    Queue(QueueId),
    Command,
    Sleep,
}

type Running = Script<Question, Answer, Result<Outcome, Failure>>;

/// A host's use of one controller, from the first attempt to connect until it ends for good.
#[derive(Debug)]
pub struct Association {
    config: Config,
    state: State,
    script: Option<Box<Running>>,
    awaiting: Awaiting,
    identity: Option<Box<Identity>>,
    admin: Admin,
    timers: Deadlines<Timer>,
    /// Attempts since the controller was last up.
    attempts: u32,
    /// A command has ended since the Keep Alive timer was last armed.
    traffic: bool,
    refresh: Refresh,
    /// Maximum number of commands that every I/O queue's connection of this attempt accepts at a
    /// time.
    queue_limit: u16,
    /// Maximum number of commands that the Admin Queue's connection of this attempt accepts at a
    /// time.
    admin_limit: u16,
    outputs: VecDeque<Output>,
}

impl Association {
    /// An association that [`Association::start`] connects.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(config: Config) -> Self {
        config.check();
        Self {
            config,
            state: State::Idle,
            script: None,
            awaiting: Awaiting::Nothing,
            identity: None,
            admin: Admin::default(),
            timers: Deadlines::new(),
            attempts: 0,
            traffic: false,
            refresh: Refresh::default(),
            queue_limit: u16::MAX,
            admin_limit: u16::MAX,
            outputs: VecDeque::new(),
        }
    }

    /// Connects; [`Output::Ready`] or [`Output::Ended`] follows.
    pub fn start(&mut self, now: Instant) {
        if self.state == State::Idle {
            self.on_away(now);
            self.connect(now);
        }
    }

    /// Whether I/O commands can be sent.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether the association has ended for good.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The latest identity of the controller; `None` before it was up.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// The settings of the association.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Gives up the present connections and connects again, if the association is connecting or
    /// live.
    pub fn reset(&mut self, now: Instant, why: Loss) {
        if matches!(self.state, State::Connecting | State::Live) {
            self.lose(now, why);
        }
    }

    /// Ends the association, and shuts the controller down if it is up. [`Output::Ended`] follows.
    pub fn shut_down(&mut self, now: Instant) {
        match self.state {
            State::Live => {
                self.state = State::ShuttingDown;
                self.timers.disarm(Timer::KeepAlive);
                // The answer to a Keep Alive no longer counts: the shutdown has its own limit.
                self.timers.disarm(Timer::KeepAliveReply);
                let limit = self.config.connect_timeout;
                self.timers.arm(Timer::Attempt, now + limit);
                self.end_admin_commands();
                self.run(now, script::shut_down);
            }
            State::Idle | State::Connecting | State::Waiting => self.end(None),
            State::ShuttingDown | State::Over => {}
        }
    }

    /// Sends an admin command of the caller; [`Output::AdminCompleted`] follows.
    ///
    /// # Errors
    /// When the command is rejected.
    pub fn submit_admin(&mut self, now: Instant, command: Command) -> Result<(), SubmitError> {
        if self.state != State::Live {
            return Err(SubmitError::NotReady);
        }
        let Command { cookie, entry, data } = command;
        let limit = self.identity.as_ref().map_or(0, |identity| identity.reported.transfer_bytes_max);
        if data.len() as u64 > u64::from(limit) {
            return Err(SubmitError::Length(alloc::format!("{} B, {limit} B at most", data.len())));
        }
        if !self.admin.has_room_for_caller(self.config.admin_queue_size.min(self.admin_limit)) {
            return Err(SubmitError::Busy);
        }
        self.send(now, QueueId::ADMIN, Owner::Caller(cookie), entry, data).ok_or(SubmitError::Busy)
    }

    /// Asks this controller to end the life of another controller of its subsystem
    /// (Cross-Controller Reset). [`Output::ControllerReset`] follows, unless this controller is
    /// lost too. Returns whether the command was sent.
    pub fn reset_other(&mut self, now: Instant, impacted: ImpactedController) -> bool {
        let entry = impacted.reset();
        self.state == State::Live
            && self.send(now, QueueId::ADMIN, Owner::Reset(impacted), entry, Data::None).is_some()
    }

    /// How long after a loss the controller may continue with its commands; `None` if the
    /// controller reports no CQT. The controller gives the host up within two Keep Alive Timeouts
    /// (three where any command counts as a sign of life) and ends its commands within CQT (NVM
    /// Express Base Specification, Communication Loss Handling).
    pub fn quiesce_time(&self) -> Option<Nanos> {
        let identity = &self.identity.as_ref()?.reported;
        let quiesce = identity.quiesce_time()?;
        let wanted = self.config.keep_alive;
        let keep_alive = if wanted > Nanos::ZERO { wanted } else { KEEP_ALIVE_BELIEVED };
        Some(keep_alive * if identity.counts_traffic() { 3 } else { 2 } + quiesce)
    }

    /// Limits the connection of a queue to `commands` at a time. The transport calls this before
    /// [`Association::on_queue_open`].
    pub fn limit_queue(&mut self, queue: QueueId, commands: u16) {
        let limit = if queue.is_admin() { &mut self.admin_limit } else { &mut self.queue_limit };
        *limit = commands.min(*limit);
    }

    /// The transport has connected a queue.
    pub fn on_queue_open(&mut self, now: Instant, queue: QueueId) {
        if self.awaiting == Awaiting::Queue(queue) {
            self.answer(now, Answer::Open);
        }
    }

    /// Handles a connection of a queue that could not be established, or was lost.
    pub fn on_queue_lost(&mut self, now: Instant, queue: QueueId) {
        match self.state {
            State::Connecting | State::Live => self.lose(now, Loss::Connection(queue)),
            State::ShuttingDown => self.end(None),
            State::Idle | State::Waiting | State::Over => {}
        }
    }

    /// A command of the association has ended. Tokens that the association did not issue
    /// are ignored.
    pub fn on_completed(&mut self, now: Instant, token: u64, entry: CompletionQueueEntry, data: Buffer) {
        self.traffic = true;
        match self.admin.retire(token) {
            Some(Owner::Script) if self.awaiting == Awaiting::Command => {
                self.answer(now, Answer::Completed(entry, data));
            }
            Some(Owner::Event) if entry.status().is_success() => self.on_event(now, entry.dw0),
            Some(Owner::Caller(cookie)) => {
                self.outputs.push_back(Output::AdminCompleted(Completed { cookie, entry, data }));
            }
            Some(Owner::Reset(impacted)) => {
                let done = entry.status().is_success() && IMMEDIATE_RESET.is_set(entry.dw0);
                self.outputs.push_back(Output::ControllerReset { impacted, done });
            }
            // A refused Keep Alive was answered, too.
            Some(Owner::KeepAlive) => self.timers.disarm(Timer::KeepAliveReply),
            // A refused event request is not repeated.
            Some(Owner::Script | Owner::Event) | None => {}
        }
    }

    /// Whether a token names a command of the association rather than an I/O command.
    pub const fn is_own(token: u64) -> bool {
        Admin::is_own(token)
    }

    /// An I/O command has ended, which is a sign of life.
    pub const fn on_traffic(&mut self) {
        self.traffic = true;
    }

    fn send(
        &mut self,
        now: Instant,
        queue: QueueId,
        owner: Owner,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Option<()> {
        let deadline = (owner != Owner::Event).then(|| now + self.config.admin_timeout);
        let token = self.admin.issue(owner, deadline)?;
        self.outputs.push_back(Output::Submit { queue, token, entry, data });
        Some(())
    }

    fn connect(&mut self, now: Instant) {
        self.state = State::Connecting;
        self.attempts = self.attempts.saturating_add(1);
        (self.queue_limit, self.admin_limit) = (u16::MAX, u16::MAX);
        self.timers.arm(Timer::Attempt, now + self.config.connect_timeout);
        let config = self.config_of_a_script();
        self.run(now, |ask| script::bring_up(ask, config));
    }

    /// The settings, with a source of randomness that no other script has.
    fn config_of_a_script(&mut self) -> Config {
        let mut config = self.config.clone();
        if let (Some(own), Some(with)) = (&mut self.config.authentication, &mut config.authentication) {
            with.entropy = own.entropy.split();
        }
        config
    }

    /// Authenticates every queue again, if the controller demanded authentication and nothing else
    /// is in progress. Returns whether this began. [`Output::Ended`] follows if it fails.
    pub fn authenticate_again(&mut self, now: Instant) -> bool {
        let authenticated = self.identity.as_ref().is_some_and(|one| one.authenticated.is_some());
        let Some(identity) = self.identity.clone().filter(|_| authenticated) else { return false };
        if self.state != State::Live || self.script.is_some() {
            return false;
        }
        let config = self.config_of_a_script();
        self.run(now, |ask| authentication::authenticate_again(ask, config, identity));
        true
    }

    fn run<F>(&mut self, now: Instant, body: impl FnOnce(engine::Asker<Question, Answer>) -> F)
    where
        F: Future<Output = Result<Outcome, Failure>> + 'static,
    {
        let (script, step) = Script::start(body);
        self.script = Some(Box::new(script));
        self.on_step(now, step);
    }

    fn answer(&mut self, now: Instant, answer: Answer) {
        self.awaiting = Awaiting::Nothing;
        self.timers.disarm(Timer::Sleep);
        if let Some(script) = &mut self.script {
            let step = script.answer(answer);
            self.on_step(now, step);
        }
    }

    fn on_step(&mut self, now: Instant, step: Step<Question, Result<Outcome, Failure>>) {
        match step {
            Step::Ask(Question::Open { queue, controller, size, capsule_data_max }) => {
                self.awaiting = Awaiting::Queue(queue);
                self.outputs.push_back(Output::OpenQueue { queue, controller, size, capsule_data_max });
            }
            Step::Ask(Question::Command { queue, entry, data }) => {
                self.awaiting = Awaiting::Command;
                if self.send(now, queue, Owner::Script, entry, data).is_none() {
                    // Callers hold every place. The association begins again, which ends
                    // their commands.
                    self.lose(now, Loss::AdminTimeout);
                }
            }
            Step::Ask(Question::Sleep(length)) => {
                self.awaiting = Awaiting::Sleep;
                self.timers.arm(Timer::Sleep, now + length);
            }
            Step::Done(result) => {
                self.script = None;
                self.awaiting = Awaiting::Nothing;
                self.on_done(now, result);
            }
        }
    }

    fn on_done(&mut self, now: Instant, result: Result<Outcome, Failure>) {
        match result {
            Ok(Outcome::Up(identity)) => self.on_up(now, identity),
            Ok(Outcome::Refreshed(identity)) => {
                self.identity = Some(identity);
                self.outputs.push_back(Output::IdentityChanged);
                self.refresh_if_needed(now);
            }
            Ok(Outcome::Down) => self.end(None),
            Err(_) if self.state == State::ShuttingDown => self.end(None),
            // A controller that fails to authenticate again is no longer trusted, for any reason.
            Ok(Outcome::Untrusted(failure)) | Err(failure @ Failure::Authentication { .. }) => {
                self.end(Some(failure));
            }
            // Also when a live controller does not report its ANA states again.
            Err(failure) if self.state == State::Live || failure.may_retry() => {
                self.lose(now, Loss::Refused(failure));
            }
            Err(failure) => self.end(Some(failure)),
        }
    }

    fn on_up(&mut self, now: Instant, mut identity: Box<Identity>) {
        identity.queue_size = identity.queue_size.min(self.queue_limit);
        self.state = State::Live;
        self.attempts = 0;
        for timer in [Timer::Attempt, Timer::ControllerLoss, Timer::FastIoFail] {
            self.timers.disarm(timer);
        }
        self.identity = Some(identity);
        self.refresh = Refresh::default();
        self.arm_keep_alive(now);
        self.request_event(now);
        self.outputs.push_back(Output::Ready);
    }

    fn request_event(&mut self, now: Instant) {
        // The controller keeps the request. In the only place of the Admin Queue it would be in the
        // way of every other command.
        if self.config.admin_queue_size.min(self.admin_limit) < 2 {
            return;
        }
        let entry = command::asynchronous_event_request();
        // Without room there are no events, as with a controller that does not support them.
        let _ = self.send(now, QueueId::ADMIN, Owner::Event, entry, Data::None);
    }

    fn on_event(&mut self, now: Instant, dw0: u32) {
        if self.state != State::Live {
            return;
        }
        self.request_event(now);
        self.outputs.push_back(Output::Event(dw0));
        let AsynchronousEvent { kind, information, log_page } = AsynchronousEvent::from_dw0(dw0);
        match (kind, information) {
            (NOTICE, NAMESPACE_CHANGED) => self.refresh.namespaces = true,
            (NOTICE, ANA_CHANGED) => self.refresh.ana = true,
            // Users that are interested in the log read it.
            (NOTICE, DISCOVERY_CHANGED) => {}
            _ => self.refresh.log_page = Some(log_page),
        }
        self.refresh_if_needed(now);
    }

    /// Reads the controller's ANA states again, because a command's status contradicted the
    /// known states.
    pub fn refresh_ana(&mut self, now: Instant) {
        if self.state == State::Live {
            self.refresh.ana = true;
            self.refresh_if_needed(now);
        }
    }

    fn refresh_if_needed(&mut self, now: Instant) {
        if self.state != State::Live || self.script.is_some() || !self.refresh.is_needed() {
            return;
        }
        let Some(identity) = self.identity.clone() else { return };
        let what = core::mem::take(&mut self.refresh);
        self.run(now, |ask| script::refresh(ask, identity, what));
    }

    fn arm_keep_alive(&mut self, now: Instant) {
        let wanted = self.config.keep_alive > Nanos::ZERO;
        let identity = self.identity.as_ref().filter(|identity| wanted && identity.reported.keeps_alive());
        let Some(identity) = identity else { return };
        // Where commands count, the one that spares a Keep Alive may have been sent before the
        // timer was armed: nearly two of these times can pass before a Keep Alive follows it.
        let parts = if identity.reported.counts_traffic() { 4 } else { 2 };
        self.traffic = false;
        self.timers.arm(Timer::KeepAlive, now + self.config.keep_alive / parts);
    }

    fn on_keep_alive_due(&mut self, now: Instant) {
        let counts = self.identity.as_ref().is_some_and(|identity| identity.reported.counts_traffic());
        let spared = counts && self.traffic;
        self.arm_keep_alive(now);
        if spared {
            return;
        }
        let entry =
            SubmissionQueueEntry { opcode: AdminOpcode::KeepAlive.into(), ..SubmissionQueueEntry::default() };
        if self.timers.is_armed(Timer::KeepAliveReply) {
            return;
        }
        self.timers.arm(Timer::KeepAliveReply, now + self.config.keep_alive);
        if self.send(now, QueueId::ADMIN, Owner::KeepAlive, entry, Data::None).is_none() {
            self.lose(now, Loss::KeepAlive);
        }
    }

    /// Ends the callers' admin commands without their answers, and forgets the association's own.
    fn end_admin_commands(&mut self) {
        let entry = CompletionQueueEntry::default();
        let entry = entry.with_status(StatusCode::CommandAbortedByHost.into(), false);
        for cookie in self.admin.forget_all() {
            let completed = Completed { cookie, entry, data: Buffer::EMPTY };
            self.outputs.push_back(Output::AdminCompleted(completed));
        }
    }

    /// Arms the time-outs of a controller that has become unreachable.
    fn on_away(&mut self, now: Instant) {
        if let Some(limit) = self.config.controller_loss_timeout
            && !self.timers.is_armed(Timer::ControllerLoss)
        {
            self.timers.arm(Timer::ControllerLoss, now + limit);
            if let Some(limit) = self.config.fast_io_fail_timeout {
                self.timers.arm(Timer::FastIoFail, now + limit);
            }
        } else if let Some(limit) = self.config.fast_io_fail_timeout
            && self.state == State::Live
        {
            self.timers.arm(Timer::FastIoFail, now + limit);
        }
    }

    fn lose(&mut self, now: Instant, why: Loss) {
        self.on_away(now);
        self.stop(true);
        self.state = State::Waiting;
        self.outputs.push_back(Output::Lost(why));
        let (first, longest) = self.config.reconnect;
        let doublings = self.attempts.saturating_sub(1).min(16);
        let delay = (first * (1 << doublings)).min(longest);
        self.timers.arm(Timer::Reconnect, now + delay);
    }

    /// Drops queues, commands and scripts.
    fn stop(&mut self, abort: bool) {
        self.script = None;
        self.awaiting = Awaiting::Nothing;
        use Timer::{Attempt, KeepAlive, KeepAliveReply, Reconnect, Sleep};
        for timer in [Sleep, Attempt, KeepAlive, KeepAliveReply, Reconnect] {
            self.timers.disarm(timer);
        }
        self.end_admin_commands();
        // Commands for queues that are closed must not be sent.
        self.outputs.retain(|output| !matches!(output, Output::Submit { .. } | Output::OpenQueue { .. }));
        self.outputs.push_back(Output::CloseQueues { abort });
    }

    fn end(&mut self, why: Option<Failure>) {
        self.stop(self.state != State::ShuttingDown);
        self.timers.disarm(Timer::ControllerLoss);
        self.timers.disarm(Timer::FastIoFail);
        self.state = State::Over;
        self.outputs.push_back(Output::Ended(why));
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Sleep if self.awaiting == Awaiting::Sleep => self.answer(now, Answer::Woke),
            Timer::Sleep => {}
            Timer::Attempt if self.state == State::ShuttingDown => self.end(None),
            Timer::Attempt => self.lose(now, Loss::Connecting),
            Timer::KeepAlive => self.on_keep_alive_due(now),
            Timer::KeepAliveReply => self.lose(now, Loss::KeepAlive),
            Timer::Reconnect => self.connect(now),
            Timer::ControllerLoss => self.end(Some(Failure::ControllerLoss)),
            Timer::FastIoFail => self.outputs.push_back(Output::FastIoFail),
        }
    }
}

impl Engine for Association {
    /// Inputs are methods: [`Association::on_queue_open`], [`Association::on_queue_lost`]
    /// and [`Association::on_completed`].
    type Input<'a> = core::convert::Infallible;
    type Output = Output;

    fn handle_input(&mut self, _now: Instant, input: Self::Input<'_>) {
        match input {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.expire(now) {
            self.on_timer(now, timer);
        }
        while self.admin.expire(now) {
            match self.state {
                State::ShuttingDown => self.end(None),
                _ => self.lose(now, Loss::AdminTimeout),
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.earliest(), self.admin.earliest()].into_iter().flatten().min()
    }
}
