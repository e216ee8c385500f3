//! Asynchronous events: which are pending, which requests wait for them, and which types are masked
//! until a log page is read.

use alloc::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::errors::{Failure, Location};
use super::types::CommandToken;
use crate::wire::log::LogPage;
use crate::wire::{NamespaceId, StatusCode};

/// The asynchronous events that can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AsynchronousEvent {
    /// Error: the doorbell of a nonexistent queue was written.
    WriteToInvalidDoorbell,
    /// Error: an invalid value was written to a doorbell.
    InvalidDoorbellValue,
    /// Error: a persistent internal error.
    PersistentInternalError,
    /// Error: a transient internal error.
    TransientInternalError,
    /// SMART: reliability is degraded.
    ReliabilityDegraded,
    /// SMART: a temperature threshold was crossed.
    TemperatureThreshold,
    /// SMART: the available spare fell below its threshold.
    SpareBelowThreshold,
    /// Notice: attributes of a namespace that Identify reports have changed.
    NamespaceAttributeChanged,
    /// Notice: the Controller-Initiated Telemetry log has new data.
    TelemetryLogChanged,
    /// Notice: the state in which the controller reaches an ANA group has changed.
    AsymmetricAccessChanged,
    /// I/O command set status: a reservation or registration of the host has changed.
    ReservationNotice,
    /// I/O command set status: a sanitize operation has ended.
    SanitizeCompleted,
}

impl AsynchronousEvent {
    /// Asynchronous Event Type: 0 error status, 1 SMART / health status, 2 notice, 6 I/O command
    /// specific status.
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

    /// Asynchronous Event Information, a code within the event's type.
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

    /// The log page with details. Reading it clears the event.
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

    /// DW0 of the completion that reports the event.
    pub fn completion_dw0(self) -> u32 {
        u32::from_le_bytes([self.kind(), self.information(), self.log_page().into(), 0])
    }
}

/// Number of event types ([`AsynchronousEvent::kind`]), including those that never occur here.
const KINDS: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Events {
    /// Outstanding Asynchronous Event Requests, oldest first.
    requests: VecDeque<CommandToken>,
    requests_max: usize,
    /// Events that were not reported yet, each at most once.
    pending: VecDeque<AsynchronousEvent>,
    /// For each type, the log page of a reported event that is not cleared. The type is masked
    /// until the page is read.
    masked: [Option<LogPage>; KINDS],
    /// The Changed Namespace List, no longer than the number of valid identifiers.
    changed: BTreeSet<NamespaceId>,
    /// Whether the temperature was beyond a threshold at the latest check.
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

    /// Keeps an Asynchronous Event Request until there is an event for it. Fails if the host has
    /// its maximum number of requests outstanding.
    pub(super) fn ask(&mut self, token: CommandToken) -> Result<(), Failure> {
        if self.requests.len() >= self.requests_max {
            let code = StatusCode::AsynchronousEventRequestLimitExceeded;
            return Err(Failure::field(code, Location::OPCODE));
        }
        self.requests.push_back(token);
        Ok(())
    }

    /// Adds a namespace to the Changed Namespace List.
    pub(super) fn add_changed(&mut self, namespace: NamespaceId) {
        self.changed.insert(namespace);
    }

    /// Notes whether the temperature is beyond a threshold. Returns true if it newly is.
    pub(super) const fn set_too_warm_or_cold(&mut self, beyond: bool) -> bool {
        let crossed = beyond && !self.too_warm_or_cold;
        self.too_warm_or_cold = beyond;
        crossed
    }

    /// Forgets the request called `token`, which ends without an event.
    pub(super) fn withdraw(&mut self, token: CommandToken) {
        self.requests.retain(|request| *request != token);
    }

    pub(super) fn raise(&mut self, event: AsynchronousEvent) {
        if !self.pending.contains(&event) {
            self.pending.push_back(event);
        }
    }

    /// Clears the events of a log page that was read, and unmasks their type.
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

    /// The next event to report, with the request that it completes.
    pub(super) fn report(&mut self) -> Option<(CommandToken, AsynchronousEvent)> {
        let masked = self.masked;
        let index = self.pending.iter().position(|event| masked[usize::from(event.kind())].is_none())?;
        let token = self.requests.pop_front()?;
        let event = self.pending.remove(index)?;
        self.masked[usize::from(event.kind())] = Some(event.log_page());
        Some((token, event))
    }
}
