//! Telemetry snapshots: their contents, and when they are taken.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Subsystem;
use super::errors::ERROR_LOG_ENTRIES;
use super::events::AsynchronousEvent;
use super::telemetry::{Snapshot, Telemetry};
use crate::wire::SubmissionQueueEntry;
use crate::wire::log::{ErrorEntry, SelfTestLog, SmartLog};

/// The most entries of Error Information logs in a snapshot: the whole logs of 64 controllers. The
/// logs of all controllers together can have more blocks than the header can count.
const ERRORS_MAX: usize = 64 * ERROR_LOG_ENTRIES;

impl Subsystem {
    /// The Telemetry Host-Initiated log, with a new snapshot if the command requests one.
    pub(super) fn host_telemetry(&mut self, entry: &SubmissionQueueEntry) -> Vec<u8> {
        if Telemetry::is_asked_for(entry) {
            let snapshot = self.snapshot("requested by the host");
            self.telemetry.set_host(snapshot);
        }
        self.telemetry.host_log(&self.config)
    }

    /// Keeps a snapshot after a fault and notifies the host, unless the host has not read the
    /// previous one.
    #[cold]
    pub(super) fn capture_telemetry(&mut self, reason: &str) {
        if self.telemetry.is_available() {
            return;
        }
        let snapshot = self.snapshot(reason);
        self.telemetry.set_controller(snapshot);
        self.controllers.raise(&mut self.flow, AsynchronousEvent::TelemetryLogChanged);
    }

    /// Takes a snapshot. Data Area 1 is readable text; 2 adds the health and self-test logs, 3 the
    /// Error Information log.
    fn snapshot(&mut self, reason: &str) -> Snapshot {
        let mut snapshot = Snapshot::new(reason);
        snapshot.push(0, self.telemetry_text().as_bytes());
        let mut health = [0; SmartLog::LENGTH];
        self.smart_log(None).emit(&mut health);
        snapshot.push(1, &health);
        let mut tests = [0; SelfTestLog::LENGTH];
        self.self_test.log().emit(&mut tests);
        snapshot.push(1, &tests);
        let mut errors = Vec::new();
        let entries = self.controllers.iter().flat_map(|(_, controller)| controller.errors.iter());
        for entry in entries.take(ERRORS_MAX) {
            let mut bytes = [0; ErrorEntry::LENGTH];
            entry.emit(&mut bytes);
            errors.extend_from_slice(&bytes);
        }
        snapshot.push(2, &errors);
        snapshot
    }

    /// The controller's internal values, one name and value per line.
    fn telemetry_text(&self) -> String {
        let counters = self.smart.counters(self.flow.now);
        let lines = [
            ("time since start in ns", self.flow.now.as_nanos()),
            ("commands in flight", self.flow.slots.tokens().count() as u64),
            ("requests to media in flight", self.flow.media_outstanding as u64),
            ("bytes read", counters.bytes_read),
            ("bytes written", counters.bytes_written),
            ("read commands", counters.host_reads),
            ("write commands", counters.host_writes),
            ("busy time in ns", counters.busy.get()),
            ("power-on time in ns", counters.power_on.get()),
            ("power cycles", counters.power_cycles),
            ("unsafe shutdowns", counters.unsafe_shutdowns),
            ("media errors", counters.media_errors),
            ("errors since power-on", self.errors_recorded),
            ("temperature in K", self.smart.temperature().into()),
            ("namespaces allocated", self.namespaces.iter().count() as u64),
            ("namespaces attached", self.namespaces.iter_attached().count() as u64),
        ];
        let mut text = format!(
            "{} {}, firmware {}\n",
            self.config.model_number,
            self.config.serial_number,
            self.firmware.revision()
        );
        for (name, value) in lines {
            text.push_str(&format!("{name}: {value}\n"));
        }
        for namespace in self.namespaces.iter() {
            let (id, blocks, bytes) = (namespace.id, namespace.blocks, namespace.block.bytes());
            let attached = if namespace.is_attached() { "" } else { ", detached" };
            text.push_str(&format!("namespace {id}: {blocks} blocks of {bytes} B{attached}\n"));
        }
        text
    }
}
