//! The command core of an NVM subsystem and its controllers: admin commands and the NVM command set, whatever the transport.
//!
//! A transport owns registers, queues, PRPs or SGLs or capsules. It hands each command over with a token
//! of its choice, moves data when asked ([`Output::PullHostData`], [`Output::PushHostData`]) and posts the
//! completion ([`Output::Complete`]), after which the token is free again. It keeps to itself the commands
//! that are about its queues (Create and Delete I/O Queue), and reports their failures with
//! [`Subsystem::record_error`]. Media are asked by [`Output::Media`] and answer by [`Input::Media`].

mod admin;
mod ana;
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
mod instance;
mod io;
mod kept;
mod life;
mod log_page;
mod management;
mod namespace;
mod overlap;
mod protection;
mod reservation;
mod run_time;
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

pub use ana::{ANA_GROUPS_MAX, AnaState};
pub use config::{
    BlockSize, COMMANDS_MAX, Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity, PAGE_BYTES,
    POOL_NAMESPACES, PoolConfig, TRANSFER_BYTES_MAX,
};
pub use controller::{
    CONTROLLERS_MAX, ControllerConfig, ControllerKey, FabricsConfig, HostIdentity,
    KEEP_ALIVE_MAX_MILLISECONDS, Transport,
};
pub use errors::ERROR_LOG_ENTRIES;
pub use event_log::{EVENT_LOG_BYTES_MAX, PersistentEvent};
pub use events::AsynchronousEvent;
pub use features::{FeatureKey, SavedFeature};
pub use firmware::{FIRMWARE_BYTES_MAX, FIRMWARE_SLOTS, FirmwareConfig, FirmwareImage};
pub use instance::Instance;
pub use protection::WriteProtection;
pub use reservation::{REGISTRANTS_MAX, Registrant, ReservationRecord, ReservationType};
pub use run_time::NamespaceError;
pub use sanitize::{SanitizeRecord, SanitizeStatus};
pub use smart::Counters;
pub use types::{CommandToken, CompletionResult, Direction, Input, Notification, Output, Transfer};
pub use uncorrectable::UnreadableBlocks;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Deadlines, Engine, Instant, Pool};

use crate::media;
use crate::wire::{FusedOperation, Status, StatusCode, SubmissionQueueEntry, SubmissionQueueId, Text};
use controller::Controllers;
use errors::{Failure, Location};
use event_log::EventLog;
use exclusive::Care;
use features::SharedFeatures;
use firmware::Firmware;
use life::Shutdowns;
use namespace::Namespaces;
use overlap::Overlaps;
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
    controllers: Controllers,
    slots: Slots,
    namespaces: Namespaces,
    /// The pool as it is now.
    pool_config: Option<PoolConfig>,
    care: Care,
    overlaps: Overlaps,
    /// Feature values of namespaces.
    shared_features: SharedFeatures,
    /// Feature values that were saved, in earlier lives and this one.
    saved_features: Vec<SavedFeature>,
    /// No host has switched the volatile write cache off.
    write_cache: bool,
    /// Errors that all controllers logged.
    errors_recorded: u64,
    smart: Smart,
    sanitize: Sanitize,
    self_test: SelfTest,
    firmware: Firmware,
    event_log: EventLog,
    telemetry: Telemetry,
    shutdowns: Shutdowns,
    /// Whether the Persistent Event log has this power-on: it is the first controller's to tell.
    power_on_recorded: bool,
    /// When background work goes on.
    deadlines: Deadlines<Own>,
    pool: Pool,
    outputs: VecDeque<Output>,
    /// The time of the latest input.
    now: Instant,
    /// Requests that media have not ended, those of aborted commands included, those of background work not.
    media_outstanding: usize,
    /// What is being carried out has said something that must be durable before its command completes.
    unsaved: bool,
    /// Those of them that a reset has bereft of their commands.
    orphans: Vec<(media::IoId, ControllerKey)>,
}

impl Engine for Subsystem {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Command { controller, token, queue, entry } => {
                self.on_command(controller, token, queue, entry);
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
        let mut subsystem = Self {
            controllers: Controllers::default(),
            slots: Slots::new(config.commands_max),
            namespaces: Namespaces::new(&config.namespaces, config.namespace_id_max()),
            pool_config: config.pool,
            care: Care::default(),
            overlaps: Overlaps::default(),
            shared_features: SharedFeatures::new(&config),
            saved_features: config.saved_features.clone(),
            write_cache: true,
            errors_recorded: 0,
            smart: Smart::new(now, config.temperature, config.counters),
            sanitize: Sanitize::new(config.sanitize),
            self_test: SelfTest::new(&config.self_test_results),
            firmware: Firmware::new(&config.firmware_revision, &config.firmware),
            event_log: EventLog::new(&config.events),
            telemetry: Telemetry::default(),
            shutdowns: Shutdowns::default(),
            power_on_recorded: false,
            deadlines: Deadlines::new(),
            pool: Pool::new(POOL_RETAIN),
            outputs: VecDeque::with_capacity(OUTPUTS_EXPECTED),
            now,
            media_outstanding: 0,
            unsaved: false,
            orphans: Vec::new(),
            config,
        };
        subsystem.restore_unreadable_blocks();
        subsystem.restore_reservations();
        subsystem.resume_sanitize();
        if let Some(namespace) = subsystem.config.extended_self_test {
            subsystem.start_self_test(true, namespace, None);
        }
        subsystem.unsaved = false;
        subsystem
    }

    /// What the subsystem was built from; Format NVM and the like do not change it.
    pub const fn config(&self) -> &Config {
        &self.config
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
        self.slots.of_controller(controller).filter(|(_, slot)| slot.queue == queue).count()
    }

    /// Ends what commands of `queue` can be ended at once, as a deletion of the queue asks for. Returns how many
    /// remain in flight: writes that a medium has begun must be waited for.
    pub fn abort_queue(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: SubmissionQueueId,
    ) -> usize {
        self.now = now;
        let of_queue = self.slots.of_controller(controller).filter(|(_, slot)| slot.queue == queue);
        let tokens: Vec<_> = of_queue.map(|(token, _)| token).collect();
        for token in tokens {
            if self.slots.of(token).state.can_abort() {
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
        self.now = now;
        let failure = Failure { status, location: Location::UNSPECIFIED, lba: 0, dw0: 0 };
        self.record_failure(controller, queue, entry, &failure);
        status.with_more()
    }

    fn record_failure(
        &mut self,
        controller: ControllerKey,
        queue: SubmissionQueueId,
        entry: &SubmissionQueueEntry,
        failure: &Failure,
    ) {
        self.errors_recorded += 1;
        self.controllers.of_mut(controller).errors.record(queue, entry, failure);
    }

    /// Reports an asynchronous event to the host of a controller, if it enabled it and has asked for events.
    pub fn raise_event(&mut self, now: Instant, controller: ControllerKey, event: AsynchronousEvent) {
        self.now = now;
        self.raise_to(controller, event);
    }

    /// Sets the composite temperature, in kelvin; a threshold crossed is a critical warning and an event.
    pub fn set_temperature(&mut self, now: Instant, kelvin: u16) {
        self.now = now;
        self.smart.set_temperature(now, kelvin, &self.config);
        let mut next = self.controllers.from(0);
        while let Some(key) = next {
            self.check_temperature(key);
            next = self.controllers.from(key.0 + 1);
        }
    }

    /// The revision that runs.
    const fn firmware_revision(&self) -> Text<8> {
        self.firmware.revision()
    }

    /// What the health log counts, to be carried into the next start as [`Config::counters`].
    pub fn counters(&self) -> Counters {
        let mut counters = self.smart.counters(self.now);
        counters.error_entries += self.errors_recorded;
        counters
    }

    #[inline]
    fn on_command(
        &mut self,
        controller: ControllerKey,
        token: CommandToken,
        queue: SubmissionQueueId,
        entry: SubmissionQueueEntry,
    ) {
        self.slots.start(controller, token, queue, entry);
        if !queue.is_admin() {
            self.smart.begin_io(self.now);
        }
        let handled = if entry.fused() != FusedOperation::Normal {
            self.on_fused_command(token, queue, &entry)
        } else if queue.is_admin() {
            self.on_admin_command(token, &entry)
        } else if self.care.is_needed() {
            self.abandon_first(token, queue);
            self.on_io_command_with_care(token, &entry)
        } else {
            self.on_io_command(token, &entry)
        };
        self.finish(token, handled);
    }
}
