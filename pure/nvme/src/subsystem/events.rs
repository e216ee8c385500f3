//! Asynchronous events: what happened, who asked to be told, and what is masked until its log is read.

use alloc::collections::{BTreeSet, VecDeque};

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::slots::State;
use super::{CommandToken, CompletionResult, Handled, Output, Step, Subsystem};
use crate::wire::log::{LogPage, critical_warning};
use crate::wire::{NamespaceId, Status, StatusCode, SubmissionQueueEntry};

/// Asynchronous events that can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsynchronousEvent {
    /// Error: a doorbell of a queue that does not exist was written.
    WriteToInvalidDoorbell,
    /// Error: a doorbell was written with a value that cannot be.
    InvalidDoorbellValue,
    /// Error: an internal error that lasts.
    PersistentInternalError,
    /// Error: an internal error that has passed.
    TransientInternalError,
    /// SMART: reliability is degraded.
    ReliabilityDegraded,
    /// SMART: a temperature threshold was crossed.
    TemperatureThreshold,
    /// SMART: the available spare fell below its threshold.
    SpareBelowThreshold,
    /// Notice: what Identify says of a namespace has changed.
    NamespaceAttributeChanged,
    /// Notice: the Controller-Initiated Telemetry log has new data.
    TelemetryLogChanged,
    /// Notice: the controller reaches namespaces otherwise than before.
    AsymmetricAccessChanged,
    /// I/O command set status: something has happened to reservations or registrations of the host.
    ReservationNotice,
    /// I/O command set status: a sanitize operation has come to its end.
    SanitizeCompleted,
}

impl AsynchronousEvent {
    /// Asynchronous Event Type: 0 error status, 1 SMART / health status, 2 notice, 6 I/O command specific status.
    pub const fn kind(self) -> u8 {
        match self {
            Self::WriteToInvalidDoorbell
            | Self::InvalidDoorbellValue
            | Self::PersistentInternalError
            | Self::TransientInternalError => 0,
            Self::ReliabilityDegraded | Self::TemperatureThreshold | Self::SpareBelowThreshold => 1,
            Self::NamespaceAttributeChanged | Self::TelemetryLogChanged | Self::AsymmetricAccessChanged => 2,
            Self::SanitizeCompleted | Self::ReservationNotice => 6,
        }
    }

    /// Asynchronous Event Information, within its type.
    pub const fn information(self) -> u8 {
        match self {
            Self::WriteToInvalidDoorbell
            | Self::ReliabilityDegraded
            | Self::NamespaceAttributeChanged
            | Self::ReservationNotice => 0,
            Self::InvalidDoorbellValue | Self::TemperatureThreshold | Self::SanitizeCompleted => 1,
            Self::TelemetryLogChanged => 2,
            Self::SpareBelowThreshold => 2,
            Self::PersistentInternalError | Self::AsymmetricAccessChanged => 3,
            Self::TransientInternalError => 4,
        }
    }

    /// The log page to read about it, which clears the event.
    pub const fn log_page(self) -> LogPage {
        match (self.kind(), self) {
            (0, _) => LogPage::ErrorInformation,
            (1, _) => LogPage::Smart,
            (_, Self::TelemetryLogChanged) => LogPage::TelemetryController,
            (_, Self::AsymmetricAccessChanged) => LogPage::AsymmetricAccess,
            (_, Self::ReservationNotice) => LogPage::ReservationNotification,
            (_, Self::SanitizeCompleted) => LogPage::SanitizeStatus,
            _ => LogPage::ChangedNamespaces,
        }
    }

    /// DW0 of the completion that reports it.
    pub fn completion_dw0(self) -> u32 {
        u32::from_le_bytes([self.kind(), self.information(), self.log_page().into(), 0])
    }
}

/// Event types, also those of which nothing happens here; see [`AsynchronousEvent::kind`].
const KINDS: usize = 8;

#[derive(Debug)]
pub(super) struct Events {
    /// Outstanding Asynchronous Event Requests, oldest first.
    requests: VecDeque<CommandToken>,
    requests_max: usize,
    /// What happened and was not reported, each at most once.
    pending: VecDeque<AsynchronousEvent>,
    /// By type, the log page of the event that was reported and is not cleared yet: its type is masked until then.
    masked: [Option<LogPage>; KINDS],
    /// The Changed Namespace List; no longer than there are identifiers.
    changed: BTreeSet<NamespaceId>,
    /// The temperature was beyond a threshold when last looked at.
    too_warm_or_cold: bool,
}

impl Events {
    pub(super) fn new(requests_max: u8) -> Self {
        Self {
            requests: VecDeque::new(),
            requests_max: requests_max.into(),
            pending: VecDeque::new(),
            masked: [None; KINDS],
            changed: BTreeSet::new(),
            too_warm_or_cold: false,
        }
    }

    pub(super) fn reset(&mut self) {
        self.requests.clear();
        self.pending.clear();
        self.masked = [None; KINDS];
        self.changed.clear();
        self.too_warm_or_cold = false;
    }

    /// Forgets the request called `token`, which ends otherwise.
    pub(super) fn withdraw(&mut self, token: CommandToken) {
        self.requests.retain(|request| *request != token);
    }

    pub(super) fn raise(&mut self, event: AsynchronousEvent) {
        if !self.pending.contains(&event) {
            self.pending.push_back(event);
        }
    }

    /// The log page was read: its events are no longer news, and its type may be reported again.
    pub(super) fn clear(&mut self, page: LogPage) {
        self.pending.retain(|event| event.log_page() != page);
        for masked in &mut self.masked {
            masked.take_if(|masked| *masked == page);
        }
        if page == LogPage::ChangedNamespaces {
            self.changed.clear();
        }
    }

    pub(super) fn changed_namespaces(&self) -> impl Iterator<Item = &NamespaceId> {
        self.changed.iter()
    }

    /// An event that can be reported now, and the request that it completes.
    fn report(&mut self) -> Option<(CommandToken, AsynchronousEvent)> {
        let masked = self.masked;
        let index = self.pending.iter().position(|event| masked[usize::from(event.kind())].is_none())?;
        let token = self.requests.pop_front()?;
        let event = self.pending.remove(index)?;
        self.masked[usize::from(event.kind())] = Some(event.log_page());
        Some((token, event))
    }
}

impl Subsystem {
    pub(super) fn on_event_request(&mut self, token: CommandToken, _: &SubmissionQueueEntry) -> Handled {
        let controller = self.slots.of(token).controller;
        let events = &mut self.controllers.of_mut(controller).events;
        if events.requests.len() >= events.requests_max {
            let code = StatusCode::AsynchronousEventRequestLimitExceeded;
            return Err(Failure::field(code, Location::OPCODE));
        }
        events.requests.push_back(token);
        self.slots.of(token).state = State::AwaitingEvent;
        self.report_events(controller);
        Ok(Step::Waiting)
    }

    pub(super) fn report_events(&mut self, controller: ControllerKey) {
        while let Some((token, event)) = self.controllers.of_mut(controller).events.report() {
            self.slots.retire(token);
            let completion =
                CompletionResult { dw0: event.completion_dw0(), dw1: 0, status: Status::SUCCESS };
            self.outputs.push_back(Output::Complete { token, completion });
        }
    }

    /// Reports an event to one controller, if its host enabled it.
    pub(super) fn raise_to(&mut self, controller: ControllerKey, event: AsynchronousEvent) {
        let found = self.controllers.of_mut(controller);
        if found.features.event_is_enabled(event) {
            found.events.raise(event);
            self.report_events(controller);
        }
    }

    /// Reports an event to every controller whose host enabled it.
    pub(super) fn raise(&mut self, event: AsynchronousEvent) {
        let mut next = self.controllers.from(0);
        while let Some(key) = next {
            self.raise_to(key, event);
            next = self.controllers.from(key.0 + 1);
        }
    }

    /// Something of a namespace has changed: the controllers hear of it that have the namespace.
    pub(super) fn on_namespace_changed(&mut self, namespace: NamespaceId) {
        let mut next = self.controllers.from(0);
        while let Some(key) = next {
            if self.namespaces.find(namespace).is_some_and(|one| one.is_attached_to(key)) {
                self.on_namespace_changed_for(key, namespace);
            }
            next = self.controllers.from(key.0 + 1);
        }
    }

    /// Something of a namespace has changed that concerns one controller: that it has it, for one.
    pub(super) fn on_namespace_changed_for(&mut self, controller: ControllerKey, namespace: NamespaceId) {
        self.controllers.of_mut(controller).events.changed.insert(namespace);
        self.raise_to(controller, AsynchronousEvent::NamespaceAttributeChanged);
    }

    /// Critical Warning of the health log of one controller, now.
    pub(super) fn critical_warning(&self, controller: ControllerKey) -> u8 {
        let temperature = u32::from(self.smart.temperature());
        let (over, under) = self.controllers.of(controller).features.temperature_thresholds();
        if temperature >= over || temperature <= under { critical_warning::TEMPERATURE } else { 0 }
    }

    /// Raises the event when the temperature has come to be beyond a threshold.
    pub(super) fn check_temperature(&mut self, controller: ControllerKey) {
        let beyond = self.critical_warning(controller) & critical_warning::TEMPERATURE != 0;
        let events = &mut self.controllers.of_mut(controller).events;
        let crossed = beyond && !events.too_warm_or_cold;
        events.too_warm_or_cold = beyond;
        if crossed {
            self.raise_to(controller, AsynchronousEvent::TemperatureThreshold);
        }
    }

    /// Looks again at what the host has only now enabled.
    pub(super) fn recheck_conditions(&mut self, controller: ControllerKey) {
        self.controllers.of_mut(controller).events.too_warm_or_cold = false;
        self.check_temperature(controller);
    }
}
