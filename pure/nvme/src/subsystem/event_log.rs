//! The Persistent Event log: events over the device's whole life.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::controller::ControllerKey;
use super::controllers::Controllers;
use super::errors::{Failure, Location};
use super::flow::Flow;
use super::namespace::Namespace;
use super::record::{Counters, HEADER_LENGTH, PersistentEvent};
use super::types::{CommandToken, Notification};
use crate::wire::log::{LogPage, PersistentEventHeader, PersistentEventLogHeader, SanitizeLog, SmartLog};
use crate::wire::{Bits, NamespaceId, Status, StatusCode, SubmissionQueueEntry, Text};

/// The most bytes of the log, including its header: Persistent Event Log Size (PELS) is 1, in units
/// of 64 KiB.
pub const EVENT_LOG_BYTES_MAX: usize = 64 << 10;
/// Action, in the Log Specific Parameter (LSP) of CDW10.
const ACTION: Bits = Bits::new(9, 8);
const READ: u32 = 0;
const ESTABLISH: u32 = 1;
const RELEASE: u32 = 2;
/// Log Revision of the log and Event Type Revision of its events, as in NVMe Base 2.0.
const LOG_REVISION: u8 = 2;
const EVENT_REVISION: u8 = 1;
/// Event Header Additional Info: the event is not associated with a port.
const NO_PORT: u8 = 0b11;
/// Reporting Context Information: a reporting context exists.
const CONTEXT_EXISTS: u32 = 1 << 18;

/// Format NVM Attributes (FNA): formats and erasures apply to one namespace, and there is no
/// cryptographic erase.
pub(super) const FORMAT_ATTRIBUTES: u8 = 0;
/// Controller Identifier of an event without a controller.
const NO_CONTROLLER: u16 = 0xffff;

/// Event Type values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    SmartSnapshot = 0x01,
    FirmwareCommit = 0x02,
    TimestampChange = 0x03,
    PowerOnOrReset = 0x04,
    ChangeNamespace = 0x06,
    FormatStart = 0x07,
    FormatCompletion = 0x08,
    SanitizeStart = 0x09,
    SanitizeCompletion = 0x0a,
}

/// Event types that the log records, for the Supported Events Bitmap.
const SUPPORTED: [EventType; 9] = [
    EventType::SmartSnapshot,
    EventType::FirmwareCommit,
    EventType::TimestampChange,
    EventType::PowerOnOrReset,
    EventType::ChangeNamespace,
    EventType::FormatStart,
    EventType::FormatCompletion,
    EventType::SanitizeStart,
    EventType::SanitizeCompletion,
];

/// The Persistent Event log.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct EventLog {
    /// The events, newest first.
    events: VecDeque<PersistentEvent>,
    /// Length of all events in bytes.
    bytes: usize,
    generation: u16,
}

impl EventLog {
    /// The log with the events of earlier lives, given newest first.
    pub(super) fn new(events: &[PersistentEvent]) -> Self {
        let mut log = Self::default();
        events.iter().rev().for_each(|event| log.push(event.clone()));
        log
    }

    fn push(&mut self, event: PersistentEvent) {
        self.bytes += event.bytes().len();
        self.events.push_front(event);
        while self.bytes > EVENT_LOG_BYTES_MAX - PersistentEventLogHeader::LENGTH {
            let Some(oldest) = self.events.pop_back() else { return };
            self.bytes -= oldest.bytes().len();
        }
    }
}

/// A change to a namespace, for the log.
pub(super) struct NamespaceChange {
    pub(super) cdw10: u32,
    pub(super) namespace: NamespaceId,
    pub(super) blocks: u64,
    pub(super) format: u8,
}

impl NamespaceChange {
    /// The effect of a command with this Command Dword 10 on `namespace`.
    pub(super) const fn of(cdw10: u32, namespace: &Namespace) -> Self {
        let (blocks, format) = (namespace.blocks, namespace.block.format());
        Self { cdw10, namespace: namespace.id, blocks, format }
    }
}

/// A Firmware Commit, for the log: the revisions before and after, the action and the slot.
pub(super) struct FirmwareChange {
    pub(super) before: Text<8>,
    pub(super) after: Text<8>,
    pub(super) action: u8,
    pub(super) slot: u8,
}

impl EventLog {
    /// Records an event. An event of the subsystem itself has no controller, and names the first
    /// one.
    fn record(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: Option<ControllerKey>,
        kind: EventType,
        data: &[u8],
    ) {
        let key = key.or_else(|| controllers.from(0));
        let header = PersistentEventHeader {
            kind: kind as u8,
            revision: EVENT_REVISION,
            header_length: HEADER_LENGTH,
            additional: NO_PORT,
            controller: key.map_or(NO_CONTROLLER, |key| controllers.of(key).config.controller_id),
            timestamp: key.map_or(0, |key| controllers.timestamp(flow.now, key)),
            port: 0,
            vendor_length: 0,
            length: u16::try_from(data.len()).expect("events are short"),
        };
        let event = PersistentEvent::new(&header, data);
        flow.notify(Notification::EventRecorded(event.clone()));
        self.push(event);
    }

    /// Records a power-on or a controller level reset. `activated` says whether the reset activated
    /// firmware.
    pub(super) fn record_reset(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        running: Text<8>,
        activated: bool,
        counters: &Counters,
    ) {
        let mut data = [0; 44];
        data[..8].copy_from_slice(running.bytes());
        let id = controllers.of(key).config.controller_id;
        data[8..10].copy_from_slice(&id.to_le_bytes());
        data[10] = u8::from(activated);
        let cycles = u32::try_from(counters.power_cycles).unwrap_or(u32::MAX);
        data[24..28].copy_from_slice(&cycles.to_le_bytes());
        let milliseconds = counters.power_on.get() / 1_000_000;
        data[28..36].copy_from_slice(&milliseconds.to_le_bytes());
        data[36..44].copy_from_slice(&controllers.timestamp(flow.now, key).to_le_bytes());
        self.record(flow, controllers, Some(key), EventType::PowerOnOrReset, &data);
    }

    /// Records a snapshot of the health log.
    pub(super) fn record_health(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        health: &SmartLog,
    ) {
        let mut data = [0; SmartLog::LENGTH];
        health.emit(&mut data);
        self.record(flow, controllers, Some(key), EventType::SmartSnapshot, &data);
    }

    /// Records that the host set the time, which was `previous` before.
    pub(super) fn record_timestamp(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        previous: u64,
    ) {
        let since = (flow.now - controllers.of(key).last_reset).get() / 1_000_000;
        let data = [previous.to_le_bytes(), since.to_le_bytes()];
        self.record(flow, controllers, Some(key), EventType::TimestampChange, data.as_flattened());
    }

    pub(super) fn record_namespace(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        token: CommandToken,
        change: &NamespaceChange,
    ) {
        let key = flow.slots.of(token).controller;
        let mut data = [0; 48];
        data[0..4].copy_from_slice(&change.cdw10.to_le_bytes());
        data[8..16].copy_from_slice(&change.blocks.to_le_bytes());
        data[24..32].copy_from_slice(&change.blocks.to_le_bytes());
        data[32] = change.format;
        data[44..48].copy_from_slice(&change.namespace.0.to_le_bytes());
        self.record(flow, controllers, Some(key), EventType::ChangeNamespace, &data);
    }

    pub(super) fn record_format_start(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
    ) {
        let words = [entry.namespace.0, FORMAT_ATTRIBUTES.into(), entry.cdw10];
        self.record(
            flow,
            controllers,
            Some(key),
            EventType::FormatStart,
            words.map(u32::to_le_bytes).as_flattened(),
        );
    }

    pub(super) fn record_format_end(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) {
        // Format NVM Status is 0 if the Status Field gives the whole reason.
        let words = [entry.namespace.0, 0, status.raw().into()];
        self.record(
            flow,
            controllers,
            Some(key),
            EventType::FormatCompletion,
            words.map(u32::to_le_bytes).as_flattened(),
        );
    }

    pub(super) fn record_sanitize_start(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        cdw10: u32,
        cdw11: u32,
    ) {
        let words = [super::sanitize::CAPABILITIES, cdw10, cdw11];
        self.record(
            flow,
            controllers,
            Some(key),
            EventType::SanitizeStart,
            words.map(u32::to_le_bytes).as_flattened(),
        );
    }

    pub(super) fn record_sanitize_end(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        log: &SanitizeLog,
    ) {
        let halves = [log.progress, log.status, 0, 0];
        self.record(
            flow,
            controllers,
            None,
            EventType::SanitizeCompletion,
            halves.map(u16::to_le_bytes).as_flattened(),
        );
    }

    /// Records a Firmware Commit that succeeded.
    pub(super) fn record_firmware(
        &mut self,
        flow: &mut Flow,
        controllers: &Controllers,
        key: ControllerKey,
        commit: &FirmwareChange,
    ) {
        let mut data = [0; 22];
        data[0..8].copy_from_slice(commit.before.bytes());
        data[8..16].copy_from_slice(commit.after.bytes());
        data[16..18].copy_from_slice(&[commit.action, commit.slot]);
        self.record(flow, controllers, Some(key), EventType::FirmwareCommit, &data);
    }

    /// A snapshot of the log for a new reporting context.
    pub(super) fn snapshot(
        &mut self,
        timestamp: u64,
        hours: u64,
        power_cycles: u64,
        config: &Config,
    ) -> Vec<u8> {
        self.generation = self.generation.wrapping_add(1);
        let mut supported = [0; 32];
        for kind in SUPPORTED {
            supported[usize::from(kind as u8 / 8)] |= 1 << (kind as u8 % 8);
        }
        // Hosts read whole double words.
        let length = (PersistentEventLogHeader::LENGTH + self.bytes).next_multiple_of(4);
        let header = PersistentEventLogHeader {
            log_page: LogPage::PersistentEvent.into(),
            events: u32::try_from(self.events.len()).expect("EVENT_LOG_BYTES_MAX bounds them"),
            length: length as u64,
            revision: LOG_REVISION,
            header_length: 492,
            timestamp,
            power_on_hours: hours.into(),
            power_cycles,
            vendor: config.vendor,
            subsystem_vendor: config.subsystem_vendor,
            serial_number: Text::padded_with_spaces(&config.serial_number),
            model_number: Text::padded_with_spaces(&config.model_number),
            subsystem_name: Text::padded_with_nuls(&config.subsystem_name),
            generation: self.generation,
            context: CONTEXT_EXISTS,
            supported,
        };
        let mut page = vec![0; PersistentEventLogHeader::LENGTH];
        header.emit(page.first_chunk_mut().expect("as long as the header"));
        self.events.iter().for_each(|event| page.extend_from_slice(event.bytes()));
        page.resize(length, 0);
        page
    }
}

/// Performs the command's action on a controller's reporting context, which `establish` creates.
/// Returns the log page.
pub(super) fn read_context(
    context: &mut Option<Vec<u8>>,
    entry: &SubmissionQueueEntry,
    establish: impl FnOnce() -> Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let sequence_error = Err(Failure::field(StatusCode::CommandSequenceError, Location::at(41, 0)));
    match (ACTION.of(entry.cdw10), &*context) {
        (READ, None) | (ESTABLISH, Some(_)) => sequence_error,
        (READ, Some(context)) => Ok(context.clone()),
        (ESTABLISH, None) => Ok(context.insert(establish()).clone()),
        (RELEASE, _) => {
            *context = None;
            Ok(Vec::new())
        }
        // The remaining action establishes a context if there is none, and reads the header.
        _ => Ok(context.get_or_insert_with(establish)[..PersistentEventLogHeader::LENGTH].to_vec()),
    }
}
