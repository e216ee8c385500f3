//! The command core of an NVM subsystem and its controllers: admin commands and the NVM command set, whatever the transport.
//!
//! A transport owns registers, queues, PRPs or SGLs or capsules. It hands each command over with a token
//! of its choice, moves data when asked ([`Output::PullHostData`], [`Output::PushHostData`]) and posts the
//! completion ([`Output::Complete`]), after which the token is free again. It keeps to itself the commands
//! that are about its queues (Create and Delete I/O Queue), and reports their failures with
//! [`Subsystem::record_error`]. Media are asked by [`Output::Media`] and answer by [`Input::Media`].

mod admin;
mod config;
mod controller;
mod copy;
mod errors;
mod event_log;
mod events;
mod exclusive;
mod features;
mod firmware;
mod flow;
mod format;
mod fused;
mod identify;
mod io;
mod log_page;
mod management;
mod namespace;
mod sanitize;
mod save;
mod self_test;
mod slots;
mod smart;
mod telemetry;
#[cfg(test)]
mod tests;
mod types;
mod uncorrectable;

pub use config::{
    BlockSize, COMMANDS_MAX, Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity, PAGE_BYTES,
    POOL_NAMESPACES, PoolConfig, TRANSFER_BYTES_MAX,
};
pub use controller::{
    CONTROLLERS_MAX, ControllerConfig, ControllerKey, FabricsConfig, HostIdentity, Transport,
};
pub use errors::ERROR_LOG_ENTRIES;
pub use event_log::{EVENT_LOG_BYTES_MAX, PersistentEvent};
pub use events::AsynchronousEvent;
pub use features::{FeatureKey, SavedFeature};
pub use firmware::{FIRMWARE_BYTES_MAX, FIRMWARE_SLOTS, FirmwareConfig, FirmwareImage};
pub use sanitize::{SanitizeRecord, SanitizeStatus};
pub use smart::Counters;
pub use types::{CommandToken, CompletionResult, Direction, Input, Notification, Output, Transfer};
pub use uncorrectable::UnreadableBlocks;

use alloc::collections::VecDeque;

use engine::{Deadlines, Engine, Instant, Pool};

use crate::media;
use crate::wire::{
    FusedOperation, NamespaceId, Status, StatusCode, SubmissionQueueEntry, SubmissionQueueId, Text,
};
use controller::FIRST;
use errors::{ErrorLog, Failure, Location};
use event_log::EventLog;
use events::Events;
use exclusive::Care;
use features::Features;
use firmware::Firmware;
use namespace::Namespaces;
use sanitize::Sanitize;
use self_test::SelfTest;
use slots::{Own, Slots, State};
use smart::Smart;
use telemetry::Telemetry;

/// Outputs for which room is made at once, so that steady state allocates nothing.
const OUTPUTS_EXPECTED: usize = 256;
/// Bytes of buffers for admin data that are kept for use again, per size.
const POOL_RETAIN: usize = 64 << 10;

/// What a command's handler did: the command has ended with this result, or waits for something.
pub(crate) enum Step {
    /// Successful, with this DW0.
    Done(u32),
    /// To be continued.
    Waiting,
}

type Handled = Result<Step, Failure>;

/// The command core; see the module.
#[derive(Debug)]
pub struct Subsystem {
    config: Config,
    /// The controller, once it was added.
    controller: ControllerConfig,
    has_controller: bool,
    slots: Slots,
    namespaces: Namespaces,
    /// The pool as it is now.
    pool_config: Option<PoolConfig>,
    care: Care,
    features: Features,
    events: Events,
    errors: ErrorLog,
    smart: Smart,
    sanitize: Sanitize,
    self_test: SelfTest,
    firmware: Firmware,
    event_log: EventLog,
    telemetry: Telemetry,
    /// The latest controller level reset, or power-on.
    last_reset: Instant,
    /// When background work goes on.
    deadlines: Deadlines<Own>,
    pool: Pool,
    outputs: VecDeque<Output>,
    /// The time of the latest input.
    now: Instant,
    /// Requests that media have not ended, those of aborted commands included, those of background work not.
    media_outstanding: usize,
    /// Whether the transport has I/O queues, after which their number can't be set.
    io_queues_exist: bool,
    /// What is being carried out has said something that must be durable before its command completes.
    unsaved: bool,
}

impl Engine for Subsystem {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Command { controller, token, queue, entry } => {
                self.check_key(controller);
                self.on_command(token, queue, entry);
            }
            Input::HostData { token, data } => self.on_host_data(token, data),
            Input::HostDataFailed { token, status } => self.on_host_data_failed(token, status),
            Input::Media(media::Completion::Data { id, offset, data }) => {
                self.on_media_data(id, offset, data)
            }
            Input::Media(media::Completion::Done { id, result }) => self.on_media_done(id, result),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(own) = self.deadlines.expire(now) {
            match own {
                Own::Sanitize => self.step_sanitize(),
                Own::SelfTest => self.step_self_test(),
                Own::Shutdown => (),
            }
        }
        // Nobody waits for what was said without a command.
        self.unsaved = false;
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Commands wait for no time; background work does, between its steps.
    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}

impl Subsystem {
    /// A subsystem as it is after power-on at `now`, without controllers.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(now: Instant, config: Config) -> Self {
        config.check();
        let controller = ControllerConfig::pcie(1);
        let mut subsystem = Self {
            slots: Slots::new(config.commands_max),
            namespaces: Namespaces::new(&config.namespaces, config.namespace_id_max()),
            pool_config: config.pool,
            care: Care::default(),
            features: Features::new(now, &config, &controller),
            events: Events::new(controller.event_requests_max),
            errors: ErrorLog::default(),
            smart: Smart::new(now, config.temperature, config.counters),
            sanitize: Sanitize::new(config.sanitize),
            self_test: SelfTest::new(&config.self_test_results),
            firmware: Firmware::new(&config.firmware_revision, &config.firmware),
            event_log: EventLog::new(&config.events),
            telemetry: Telemetry::default(),
            last_reset: now,
            deadlines: Deadlines::new(),
            pool: Pool::new(POOL_RETAIN),
            outputs: VecDeque::with_capacity(OUTPUTS_EXPECTED),
            now,
            media_outstanding: 0,
            io_queues_exist: false,
            controller,
            has_controller: false,
            unsaved: false,
            config,
        };
        subsystem.record_reset(false);
        subsystem.record_health();
        subsystem.restore_unreadable_blocks();
        subsystem.resume_sanitize();
        if let Some(namespace) = subsystem.config.extended_self_test {
            subsystem.start_self_test(true, namespace);
        }
        subsystem.unsaved = false;
        subsystem
    }

    /// Adds a controller, as it is after a reset. For now, a subsystem has one.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or there is a controller already.
    pub fn add_controller(&mut self, now: Instant, config: ControllerConfig) -> ControllerKey {
        self.now = now;
        config.check();
        assert!(!core::mem::replace(&mut self.has_controller, true), "the subsystem has a controller");
        self.features = Features::new(now, &self.config, &config);
        self.events = Events::new(config.event_requests_max);
        self.controller = config;
        self.announce_saved_features();
        FIRST
    }

    /// Removes a controller: its commands in flight are gone without completions.
    pub fn remove_controller(&mut self, now: Instant, controller: ControllerKey) {
        self.reset(now, controller);
        self.has_controller = false;
    }

    fn check_key(&self, controller: ControllerKey) {
        assert!(self.has_controller && controller == FIRST, "there is no {controller:?}");
    }

    /// What the controller was built from; Format NVM and the like do not change it.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// A controller level reset: commands in flight are gone without completions, Asynchronous Event
    /// Requests too, outputs that were not polled are dropped, features return to their saved or default
    /// values. What media still answer to old requests is ignored; a transport that must not let them
    /// overtake the reset waits until [`Subsystem::media_outstanding`] is 0.
    pub fn reset(&mut self, now: Instant, controller: ControllerKey) {
        self.check_key(controller);
        self.now = now;
        for token in 0..=self.slots.own(Own::Shutdown).0 {
            self.slots.retire(CommandToken(token));
        }
        while let Some(id) = self.namespaces.being_created() {
            self.revoke_namespace(id);
        }
        self.namespaces.reset();
        self.care.reset();
        // Requests that no medium has seen will never be answered. What is said to the world stays said, and
        // background work goes on.
        let slots = &self.slots;
        let of_commands =
            |output: &Output| matches!(output, Output::Media(request) if !slots.is_background(request.id));
        self.media_outstanding -= self.outputs.iter().filter(|output| of_commands(output)).count();
        self.outputs
            .retain(|output| matches!(output, Output::Media(_) | Output::Notify(_)) && !of_commands(output));
        self.events.reset();
        self.smart.on_reset(now);
        self.io_queues_exist = false;
        self.event_log.reset();
        self.last_reset = now;
        let activated = self.firmware.reset();
        if let Some(slot) = activated {
            self.notify(Notification::FirmwareActivated { slot });
        }
        // Before the features, as long as the time is known.
        self.record_reset(activated.is_some());
        self.features.reset(now);
        self.reset_self_test();
        self.check_quiet();
        self.announce_saved_features();
        self.unsaved = false;
    }

    /// Requests to media that have not ended, those of commands that are long gone included; but not those of what
    /// goes on through resets, which no command comes into conflict with.
    pub const fn media_outstanding(&self) -> usize {
        self.media_outstanding
    }

    /// Begins a shutdown: makes everything durable that was written, and what was said to be worth remembering, then says
    /// [`Notification::ShutDown`].
    /// Commands in flight are not waited for.
    pub fn shut_down(&mut self, now: Instant, controller: ControllerKey) {
        self.check_key(controller);
        self.now = now;
        self.record_health();
        let own = self.slots.own(Own::Shutdown);
        self.slots.retire(own);
        let slot = self.slots.of(own);
        (slot.failure, slot.unsaved) = (None, self.config.state.is_some());
        let step = self.flush_after(own, NamespaceId::NONE);
        self.finish(own, Ok(step));
    }

    /// Tells whether the transport has I/O queues: once it has, Number of Queues can't be set.
    pub fn set_io_queues_exist(&mut self, controller: ControllerKey, exist: bool) {
        self.check_key(controller);
        self.io_queues_exist = exist;
    }

    /// What the command called `token` moves, from its arrival to its completion; none if it moves nothing.
    pub fn transfer(&self, token: CommandToken) -> Option<Transfer> {
        let slot = self.slots.peek(token).filter(|slot| slot.state != State::Free && slot.length > 0)?;
        let from_host = slot.entry.opcode & 0b01 != 0;
        let direction = if from_host { Direction::FromHost } else { Direction::ToHost };
        Some(Transfer { direction, length: slot.length })
    }

    /// Commands of `queue` that have not ended.
    pub fn in_flight(&self, controller: ControllerKey, queue: SubmissionQueueId) -> usize {
        self.check_key(controller);
        let of_queue = |token: &CommandToken| self.slots.peek(*token).is_some_and(|slot| slot.queue == queue);
        self.slots.tokens().filter(of_queue).count()
    }

    /// Ends what commands of `queue` can be ended at once, as a deletion of the queue asks for. Returns how many
    /// remain in flight: writes that a medium has begun must be waited for.
    pub fn abort_queue(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: SubmissionQueueId,
    ) -> usize {
        self.check_key(controller);
        self.now = now;
        for token in (0..self.config.commands_max).map(CommandToken) {
            let slot = self.slots.of(token);
            if slot.state == State::Free || slot.queue != queue {
                continue;
            }
            if slot.state.can_abort() {
                self.fail(token, Failure::new(StatusCode::AbortedSubmissionQueueDeletion));
            }
        }
        self.in_flight(controller, queue)
    }

    /// Logs a failure that the transport answered itself (queue commands, PRP errors found after the completion),
    /// and returns the status to post: with More (M), as the Error Information log now has an entry.
    pub fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: SubmissionQueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.check_key(controller);
        self.now = now;
        let failure = Failure { status, location: Location::UNSPECIFIED, lba: 0, dw0: 0 };
        self.errors.record(queue, entry, &failure);
        status.with_more()
    }

    /// Reports an asynchronous event, if the host enabled it and has asked for events.
    pub fn raise_event(&mut self, now: Instant, controller: ControllerKey, event: AsynchronousEvent) {
        self.check_key(controller);
        self.now = now;
        self.raise(event);
    }

    fn raise(&mut self, event: AsynchronousEvent) {
        if self.features.event_is_enabled(event) {
            self.events.raise(event);
            self.report_events();
        }
    }

    /// Sets the composite temperature, in kelvin; a threshold crossed is a critical warning and an event.
    pub fn set_temperature(&mut self, now: Instant, kelvin: u16) {
        self.now = now;
        self.smart.set_temperature(now, kelvin, &self.config);
        self.check_temperature();
    }

    /// Tells that the medium of `namespace` is now `bytes` long: the host hears of a changed namespace.
    pub fn resize_namespace(&mut self, now: Instant, namespace: NamespaceId, bytes: u64) {
        self.now = now;
        if let Some(found) = self.namespaces.find_mut(namespace) {
            found.resize(bytes);
            self.on_namespace_changed(namespace);
        }
    }

    /// Sets or lifts the write protection of `namespace`: the host hears of a changed namespace.
    pub fn set_read_only(&mut self, now: Instant, namespace: NamespaceId, read_only: bool) {
        self.now = now;
        if let Some(found) = self.namespaces.find_mut(namespace) {
            found.read_only = read_only;
            self.on_namespace_changed(namespace);
        }
    }

    /// The revision that runs.
    const fn firmware_revision(&self) -> Text<8> {
        self.firmware.revision()
    }

    /// What the health log counts, to be carried into the next start as [`Config::counters`].
    pub fn counters(&self) -> Counters {
        let mut counters = self.smart.counters(self.now);
        counters.error_entries += self.errors.count();
        counters
    }

    #[inline]
    fn on_command(&mut self, token: CommandToken, queue: SubmissionQueueId, entry: SubmissionQueueEntry) {
        self.slots.start(token, queue, entry);
        if !queue.is_admin() {
            self.smart.begin_io(self.now);
        }
        let handled = if entry.fused() != FusedOperation::Normal {
            self.on_fused_command(token, queue, &entry)
        } else if queue.is_admin() {
            self.on_admin_command(token, &entry)
        } else if self.care.is_needed() {
            self.abandon_first(queue);
            self.on_io_command_with_care(token, &entry)
        } else {
            self.on_io_command(token, &entry)
        };
        self.finish(token, handled);
    }
}
