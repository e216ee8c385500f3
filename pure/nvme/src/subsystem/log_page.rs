//! The Get Log Page command.

use alloc::vec;
use alloc::vec::Vec;

use super::admin::Effects;
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::event_log::read_context;
use super::events::AsynchronousEvent;
use super::features::capabilities;
use super::flow::{Handled, Step};
use super::telemetry::check_blocks;
use super::types::CommandToken;
use super::{Subsystem, ana};
use crate::wire::feature::FeatureId;
use crate::wire::log::{
    CHANGED_NAMESPACES_MAX, ErrorEntry, FirmwareSlotLog, LogPage, SanitizeLog, SelfTestLog, SmartLog,
};
use crate::wire::{Bits, NamespaceId, StatusCode, SubmissionQueueEntry, join_u64, low_u8};

/// Log Page Identifier (LID), in CDW10.
const LID: Bits = Bits::new(7, 0);
/// Retain Asynchronous Event (RAE), in CDW10.
const RETAIN_EVENT: Bits = Bits::bit(15);
/// Number of Dwords, low (NUMDL), in CDW10.
const DWORDS_LOW: Bits = Bits::new(31, 16);
/// Number of Dwords, high (NUMDU), in CDW11.
const DWORDS_HIGH: Bits = Bits::new(15, 0);
/// Offset Type (OT), in CDW14: whether the offset is an index of entries.
const OFFSET_IS_INDEX: Bits = Bits::bit(23);
/// Command Set Identifier (CSI), in CDW14.
const COMMAND_SET: Bits = Bits::new(31, 24);
/// Bytes of the Commands Supported and Effects log for admin commands.
const ADMIN_EFFECTS: usize = 256 * 4;
/// LID Supported (LSUPP) in the Supported Log Pages log, and Feature Supported (FSUPP) in the
/// features' log.
const SUPPORTED: u32 = 1;
/// LID Specific Parameter of the Persistent Event log: one command can establish a reporting
/// context and read the header.
const HEADER_ALONE: u32 = 1 << 16;
/// Length in bytes of the Cross-Controller Reset log before its entries.
const CROSS_CONTROLLER_RESET_HEADER: usize = 16;

impl Subsystem {
    pub(super) fn on_get_log_page(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let page = LogPage::from(low_u8(LID.of(entry.cdw10)));
        if let LogPage::Other(_) = page {
            return Err(Failure::field(StatusCode::InvalidLogPage, Location::CDW10));
        }
        let dwords = u64::from(DWORDS_HIGH.of(entry.cdw11)) << 16 | u64::from(DWORDS_LOW.of(entry.cdw10));
        let length =
            u32::try_from((dwords + 1) * 4).ok().filter(|bytes| *bytes <= self.config.transfer_bytes_max);
        let length = length.ok_or(Failure::field(StatusCode::InvalidField, Location::at(42, 0)))?;
        let offset = join_u64(entry.cdw12, entry.cdw13);
        if !offset.is_multiple_of(4) {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW12));
        }
        if OFFSET_IS_INDEX.is_set(entry.cdw14) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(58, 7)));
        }
        if matches!(page, LogPage::TelemetryHost | LogPage::TelemetryController) {
            check_blocks(offset, length)?;
        }
        let counted = matches!(page, LogPage::Smart | LogPage::ErrorInformation | LogPage::TelemetryHost);
        if counted && self.needs_counts(token) {
            return self.await_lanes(token, None);
        }
        let controller = self.flow.slots.of(token).controller;
        let contents = self.log_page(controller, page, entry)?;
        let start = usize::try_from(offset).ok().filter(|start| *start <= contents.len());
        let start = start.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW12))?;
        self.flow.push_padded(token, &contents[start..], length);
        if !RETAIN_EVENT.is_set(entry.cdw10) {
            if page == LogPage::TelemetryController {
                self.telemetry.release();
            }
            self.controllers.of_mut(controller).events.clear(page);
            let notice = AsynchronousEvent::ReservationNotice;
            if page == LogPage::ReservationNotification && self.controllers.of_mut(controller).notices.pop() {
                self.controllers.raise_to(&mut self.flow, controller, notice);
            }
            self.controllers.report_events(&mut self.flow, controller);
        }
        Ok(Step::Done(0))
    }

    fn log_page(
        &mut self,
        controller: ControllerKey,
        page: LogPage,
        entry: &SubmissionQueueEntry,
    ) -> Result<Vec<u8>, Failure> {
        Ok(match page {
            LogPage::SupportedLogPages => dwords(256, |set| {
                let absent = |page: &LogPage| match page {
                    LogPage::AsymmetricAccess => !self.controllers.has_ana(controller, &self.config),
                    LogPage::ReservationNotification => !self.controllers.has_reservations(controller),
                    LogPage::CrossControllerReset => self.controllers.of(controller).instance.is_none(),
                    _ => false,
                };
                for page in LogPage::ALL.into_iter().filter(|page| !absent(page)) {
                    let specific = if page == LogPage::PersistentEvent { HEADER_ALONE } else { 0 };
                    set(usize::from(u8::from(page)), SUPPORTED | specific);
                }
            }),
            LogPage::ErrorInformation => self.error_log(controller),
            LogPage::Smart => self.smart_log_page(controller, entry)?,
            LogPage::TelemetryHost => self.host_telemetry(entry),
            LogPage::TelemetryController => self.telemetry.controller_log(&self.config),
            LogPage::AsymmetricAccess if !self.controllers.has_ana(controller, &self.config) => {
                return Err(Failure::field(StatusCode::InvalidLogPage, Location::CDW10));
            }
            LogPage::AsymmetricAccess => {
                let attached =
                    self.namespaces.iter().filter(|one| self.namespaces.is_active(controller, one));
                ana::log(self.namespaces.access(controller), attached, entry)
            }
            LogPage::ReservationNotification => self.controllers.of(controller).notices.log(),
            // No reset is ever in progress, so the log is a header without entries.
            LogPage::CrossControllerReset if self.controllers.of(controller).instance.is_some() => {
                vec![0; CROSS_CONTROLLER_RESET_HEADER]
            }
            LogPage::CrossControllerReset => {
                return Err(Failure::field(StatusCode::InvalidLogPage, Location::CDW10));
            }
            LogPage::PersistentEvent => self.persistent_event_log(controller, entry)?,
            LogPage::FirmwareSlot => self.firmware_slot_log(),
            LogPage::ChangedNamespaces => self.changed_namespaces_log(controller),
            LogPage::CommandEffects => {
                // 256 admin commands, 256 I/O commands, 2 KiB reserved. nvme-cli also requests the
                // logs of other command sets, none of whose I/O commands is supported.
                let mut log = dwords(1024, |set| self.command_effects(controller, set));
                if COMMAND_SET.is_set(entry.cdw14) {
                    log[ADMIN_EFFECTS..].fill(0);
                }
                log
            }
            LogPage::DeviceSelfTest => {
                let mut bytes = [0; SelfTestLog::LENGTH];
                self.self_test.log().emit(&mut bytes);
                bytes.to_vec()
            }
            LogPage::SanitizeStatus => {
                let mut bytes = [0; SanitizeLog::LENGTH];
                self.sanitize.log(&self.namespaces.media()).emit(&mut bytes);
                bytes.to_vec()
            }
            LogPage::FeatureEffects => dwords(256, |set| self.feature_effects(controller, set)),
            LogPage::ManagementEffects => dwords(1024, |_| ()),
            LogPage::Other(_) => return Err(Failure::field(StatusCode::InvalidLogPage, Location::CDW10)),
        })
    }

    fn error_log(&self, controller: ControllerKey) -> Vec<u8> {
        let mut log = vec![0; super::ERROR_LOG_ENTRIES * ErrorEntry::LENGTH];
        let (places, _) = log.as_chunks_mut::<{ ErrorEntry::LENGTH }>();
        for (place, entry) in places.iter_mut().zip(self.controllers.of(controller).errors.iter()) {
            entry.emit(place);
        }
        log
    }

    /// The SMART / Health log page of the controller. Namespaces have none, as Log Page Attributes
    /// report.
    fn smart_log_page(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
    ) -> Result<Vec<u8>, Failure> {
        if entry.namespace != NamespaceId::NONE && entry.namespace != NamespaceId::ALL {
            return Err(Failure::field(StatusCode::InvalidField, Location::NAMESPACE));
        }
        let mut bytes = [0; SmartLog::LENGTH];
        self.smart_log(Some(controller)).emit(&mut bytes);
        Ok(bytes.to_vec())
    }

    /// The health log for one controller, or for the whole subsystem.
    pub(super) fn smart_log(&mut self, controller: Option<ControllerKey>) -> SmartLog {
        let warning = controller.map_or_else(
            || self.controllers.critical_warnings(self.smart.temperature()),
            |key| self.controllers.critical_warning(key, self.smart.temperature()),
        );
        self.smart.log(self.flow.now, &self.config, warning, self.errors_recorded)
    }

    /// The Persistent Event log, after the action that the command names.
    fn persistent_event_log(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
    ) -> Result<Vec<u8>, Failure> {
        let now = self.flow.now;
        let timestamp = self.controllers.timestamp(now, controller);
        let context = &mut self.controllers.of_mut(controller).event_context;
        read_context(context, entry, || {
            let power_cycles = self.smart.counters(now).power_cycles;
            self.event_log.snapshot(timestamp, self.smart.power_on_hours(now), power_cycles, &self.config)
        })
    }

    fn firmware_slot_log(&self) -> Vec<u8> {
        let mut bytes = [0; FirmwareSlotLog::LENGTH];
        self.firmware.log().emit(&mut bytes);
        bytes.to_vec()
    }

    fn changed_namespaces_log(&self, controller: ControllerKey) -> Vec<u8> {
        dwords(CHANGED_NAMESPACES_MAX, |set| {
            for (index, id) in self.controllers.of(controller).events.changed_namespaces().enumerate() {
                set(index, id.0);
            }
        })
    }

    fn feature_effects(&self, controller: ControllerKey, set: &mut dyn FnMut(usize, u32)) {
        let config = &self.controllers.of(controller).config;
        for id in FeatureId::ALL {
            if capabilities(&self.config, config, id) != 0 {
                let of_namespace = id.is_namespace_specific();
                let scope = if of_namespace { Effects::NAMESPACE_SCOPE } else { Effects::CONTROLLER_SCOPE };
                set(usize::from(u8::from(id)), SUPPORTED | scope.word());
            }
        }
    }
}

/// `count` double words, which are zero unless `fill` sets them.
fn dwords(count: usize, fill: impl FnOnce(&mut dyn FnMut(usize, u32))) -> Vec<u8> {
    let mut bytes = vec![0; count * 4];
    fill(&mut |index, word| bytes[index * 4..][..4].copy_from_slice(&word.to_le_bytes()));
    bytes
}
