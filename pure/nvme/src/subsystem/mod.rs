//! The command core of an NVM subsystem and its controllers: admin commands and the NVM command
//! set, independent of the transport.
//!
//! A transport owns the registers, the queues, and the PRPs, SGLs or capsules. The transport passes
//! each command with a token of its choice, moves data on request ([`Output::PullHostData`],
//! [`Output::PushHostData`]) and posts the completion ([`Output::Complete`]), after which the token
//! is free again. Commands about queues (Create and Delete I/O Queue) stay with the transport,
//! which reports their failures with [`Subsystem::record_error`]. The core sends requests to media
//! with [`Output::Media`], and media answer with [`Input::Media`].

mod admin;
mod ana;
mod config;
mod controller;
mod controllers;
mod copy;
mod departed;
mod erase;
mod errors;
mod event_log;
mod events;
mod exclusive;
mod executor;
mod feature_commands;
mod features;
mod firmware;
mod firmware_image;
mod flow;
mod format;
mod fused;
mod identify;
mod instance;
mod integrity;
mod io;
mod kept;

mod lanes;
mod life;
mod log_page;
mod management;
mod namespace;
mod namespaces;
mod overlap;
mod permit;
mod progress;
mod protection;
mod record;
mod reservation;
mod reservation_commands;
mod restrictions;
mod run_time;
mod sanitize;
mod sanitize_commands;
mod save;
mod self_test;
mod shutdown;
mod slots;
mod smart;
mod snapshot;
mod strays;
mod tagged;
mod tally;
mod telemetry;
#[cfg(test)]
mod tests;
mod types;
mod uncorrectable;
mod unreadable;
mod view;

pub use config::{
    ANA_GROUPS_MAX, BlockSize, COMMANDS_MAX, Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity,
    PAGE_BYTES, POOL_NAMESPACES, PoolConfig, TRANSFER_BYTES_MAX,
};
pub use controller::{
    CONTROLLERS_MAX, ControllerConfig, ControllerKey, FabricsConfig, HostIdentity, Instance,
    KEEP_ALIVE_MAX_MILLISECONDS, Transport,
};
pub use departed::OTHERS;
pub use errors::ERROR_LOG_ENTRIES;
pub use event_log::EVENT_LOG_BYTES_MAX;
pub use events::AsynchronousEvent;
pub use firmware_image::{FIRMWARE_BYTES_MAX, FIRMWARE_SLOTS, FirmwareConfig, FirmwareImage};
pub use lanes::{Lane, LaneId, LaneViews, ToLane, ToSubsystem};
pub use namespace::NamespaceError;
pub use permit::Permit;
pub use record::{
    Counters, FeatureKey, PersistentEvent, Registrant, ReservationRecord, ReservationType, SanitizeRecord,
    SanitizeStatus, SavedFeature, UnreadableBlocks, WriteProtection,
};
pub use reservation::REGISTRANTS_MAX;
pub use tally::{HostTally, Kind, KindTally, LATENCY_BOUNDS, Latencies, NamespaceTally, Phase};
pub use types::{CommandToken, CompletionResult, Direction, Input, Notification, Output, Transfer};

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Engine, Instant};
use serde::{Deserialize, Serialize};

use crate::media;
use crate::wire::{FusedOperation, NamespaceId, QueueId, Status, StatusCode, SubmissionQueueEntry};
use controllers::{Controllers, Shutdowns};
use errors::{Failure, Location};
use event_log::EventLog;
use features::SharedFeatures;
use firmware::Firmware;
use flow::Flow;
use lanes::Lanes;
use namespaces::Namespaces;
use restrictions::Restrictions;
use sanitize::Sanitize;
use self_test::SelfTest;
use slots::Own;
use smart::Smart;
use tally::Tallies;
use telemetry::Telemetry;
use unreadable::Unreadable;

/// The command core of an NVM subsystem: executes commands for all its controllers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Subsystem {
    config: Config,
    controllers: Controllers,
    flow: Flow,
    namespaces: Namespaces,
    unreadable: Unreadable,
    restrictions: Restrictions,
    /// Feature values that belong to namespaces.
    shared_features: SharedFeatures,
    /// Feature values that were saved, in this life and earlier ones.
    saved_features: Vec<SavedFeature>,
    /// Number of errors that all controllers together have logged.
    errors_recorded: u64,
    smart: Smart,
    tallies: Tallies,
    sanitize: Sanitize,
    self_test: SelfTest,
    firmware: Firmware,
    event_log: EventLog,
    telemetry: Telemetry,
    shutdowns: Shutdowns,
    /// Whether the Persistent Event log has recorded this power-on, which the first
    /// controller does.
    power_on_recorded: bool,
    /// The lanes, once one was attached.
    lanes: Option<Box<Lanes>>,
}

impl Engine for Subsystem {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.flow.now = now;
        match input {
            Input::Command { controller, token, queue, entry } => {
                self.on_command(controller, token, queue, entry);
            }
            Input::HostData { token, data } => self.on_host_data(token, data),
            Input::HostDataFailed { token, status } => self.on_host_data_failed(token, status),
            Input::Media(media::Completion::Data { id, offset, data }) => {
                self.flow.on_media_data(id, offset, data);
            }
            Input::Media(media::Completion::Done { id, result }) => self.on_media_done(id, result),
            Input::FromLane(lane, message) => self.on_report(lane, message.0),
            Input::FromSubsystem(_) => unreachable!("messages of the subsystem are for lanes"),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.flow.now = now;
        while let Some(own) = self.flow.deadlines.expire(now) {
            match own {
                Own::Sanitize => self.step_sanitize(),
                Own::SelfTest => {
                    let warnings = self.controllers.critical_warnings(self.smart.temperature());
                    let (flow, namespaces) = (&mut self.flow, &self.namespaces);
                    if !self.self_test.step(flow, namespaces, &self.smart, warnings) {
                        self.capture_telemetry("a self-test has failed");
                    }
                }
                Own::Shutdown => (),
            }
        }
        // No command waits for notifications that no command caused.
        self.flow.unsaved = false;
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        if self.lanes.is_some() {
            return self.poll_with_lanes();
        }
        engine::pop(&mut self.flow.outputs)
    }

    /// The earliest time at which background work continues. Commands never wait for a time.
    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.flow.deadlines.earliest()
    }
}

impl Subsystem {
    /// A subsystem without controllers, in its state after power-on at `now`.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(now: Instant, config: Config) -> Self {
        config.check();
        let mut subsystem = Self {
            controllers: Controllers::default(),
            flow: Flow::new(now, &config),
            namespaces: Namespaces::new(&config),
            unreadable: Unreadable::default(),
            restrictions: Restrictions::default(),
            shared_features: SharedFeatures::new(&config),
            saved_features: config.saved_features.clone(),
            errors_recorded: 0,
            smart: Smart::new(now, config.temperature, config.counters),
            tallies: Tallies::default(),
            sanitize: Sanitize::new(config.sanitize),
            self_test: SelfTest::new(&config.self_test_results),
            firmware: Firmware::new(&config.firmware_revision, &config.firmware),
            event_log: EventLog::new(&config.events),
            telemetry: Telemetry::default(),
            shutdowns: Shutdowns::default(),
            power_on_recorded: false,
            lanes: None,
            config,
        };
        subsystem.restore_unreadable_blocks();
        subsystem.namespaces.restore_reservations(&subsystem.config.reservations);
        subsystem.resume_sanitize();
        if let Some(scope) = subsystem.config.extended_self_test {
            let (flow, namespaces) = (&mut subsystem.flow, &subsystem.namespaces);
            subsystem.self_test.start(flow, namespaces, true, scope, None);
        }
        subsystem.flow.unsaved = false;
        subsystem
    }

    /// The configuration that the subsystem was built from. Format NVM and similar commands do not
    /// change it.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The transfer of the command called `token`, from arrival to completion; `None` if the
    /// command moves no data.
    pub fn transfer(&self, token: CommandToken) -> Option<Transfer> {
        self.flow.transfer(token)
    }

    /// Number of commands of `queue` that have not ended.
    pub fn in_flight(&self, controller: ControllerKey, queue: QueueId) -> usize {
        self.flow.slots.of_controller(controller).filter(|(_, slot)| slot.queue == queue).count()
    }

    /// Ends those commands of `queue` that can end at once, for the deletion of the queue. Returns
    /// how many commands remain in flight: a write that a medium has begun must be waited for.
    pub fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) -> usize {
        self.flow.now = now;
        let of_queue = self.flow.slots.of_controller(controller).filter(|(_, slot)| slot.queue == queue);
        let tokens: Vec<_> = of_queue.map(|(token, _)| token).collect();
        for token in tokens {
            if self.flow.slots.of(token).state.can_abort() {
                self.fail(token, Failure::new(StatusCode::AbortedSubmissionQueueDeletion));
            }
        }
        self.in_flight(controller, queue)
    }

    /// Logs a failure that the transport answered itself: of a queue command, or a PRP error found
    /// after the completion. Returns the status to post, with More (M) set because the Error
    /// Information log now has an entry.
    pub fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.flow.now = now;
        let failure = Failure { status, location: Location::UNSPECIFIED, lba: 0, dw0: 0 };
        self.record_failure(controller, queue, entry, &failure);
        status.with_more()
    }

    /// Counts of the I/O commands to each namespace that they have named, since the subsystem
    /// began.
    pub fn tallies(&self) -> impl Iterator<Item = (NamespaceId, &NamespaceTally)> {
        self.tallies.iter()
    }

    /// Counts of the I/O commands of a controller; `None` if there is no such controller.
    pub fn host_tally(&self, controller: ControllerKey) -> Option<&HostTally> {
        Some(&self.controllers.find(controller)?.tally)
    }

    fn record_failure(
        &mut self,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        failure: &Failure,
    ) {
        self.errors_recorded += 1;
        self.controllers.of_mut(controller).errors.record(queue, entry, failure);
    }

    /// Reports an asynchronous event to the host of a controller, if the host enabled the event and
    /// has a request for events outstanding.
    pub fn raise_event(&mut self, now: Instant, controller: ControllerKey, event: AsynchronousEvent) {
        self.flow.now = now;
        self.controllers.raise_to(&mut self.flow, controller, event);
    }

    /// Sets the composite temperature, in kelvin. Crossing a threshold raises a critical warning
    /// and an event.
    pub fn set_temperature(&mut self, now: Instant, kelvin: u16) {
        self.flow.now = now;
        self.smart.set_temperature(now, kelvin, &self.config);
        let mut next = self.controllers.from(0);
        while let Some(key) = next {
            self.controllers.check_temperature(&mut self.flow, key, self.smart.temperature());
            next = self.controllers.from(key.0 + 1);
        }
    }

    /// The counters of the health log, which the next start receives as [`Config::counters`].
    pub fn counters(&self) -> Counters {
        let mut counters = self.smart.counters(self.flow.now);
        counters.error_entries += self.errors_recorded;
        counters
    }

    #[inline]
    fn on_command(
        &mut self,
        controller: ControllerKey,
        token: CommandToken,
        queue: QueueId,
        entry: SubmissionQueueEntry,
    ) {
        self.flow.slots.start(self.flow.now, controller, token, queue, entry);
        if !queue.is_admin() {
            self.smart.begin_io(self.flow.now);
        }
        let handled = if entry.fused() != FusedOperation::Normal {
            self.on_fused_command(token, queue, &entry)
        } else if queue.is_admin() {
            self.on_admin_command(token, &entry)
        } else if self.restrictions.exist() {
            self.abandon_first(token, queue);
            self.check_room(entry.namespace).and_then(|()| self.on_io_command_with_care(token, &entry))
        } else {
            self.check_room(entry.namespace).and_then(|()| self.on_io_command(token, &entry))
        };
        self.finish(token, handled);
    }

    /// Whether media owe few enough answers for one more command.
    #[inline]
    fn check_room(&mut self, namespace: NamespaceId) -> Result<(), Failure> {
        let commands_max = self.config.commands_max;
        self.executor().check_room(namespace, commands_max)
    }
}
