//! Telemetry: a snapshot of the controller's internal state, for the analysis of faults.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::Subsystem;
use super::errors::{Failure, Location};
use super::events::AsynchronousEvent;
use crate::wire::log::{ErrorEntry, LogPage, SelfTestLog, SmartLog, TELEMETRY_BLOCK, TelemetryHeader};
use crate::wire::{Bits, StatusCode, SubmissionQueueEntry, Text};

/// Create Telemetry Host-Initiated Data, in the Log Specific Parameter (LSP) of CDW10.
const CREATE: Bits = Bits::bit(8);
/// Scope of a controller-initiated log: this controller.
const CONTROLLER_SCOPE: u8 = 1;

/// The latest snapshot that a host asked for, and the one that a fault of the controller caused.
#[derive(Debug, Default)]
pub(super) struct Telemetry {
    /// The host's snapshot: data blocks without the header, and the last block of each area.
    host: Snapshot,
    host_generation: u8,
    controller: Snapshot,
    controller_generation: u8,
    /// Whether the controller's snapshot has not been read yet, or was read and retained.
    available: bool,
}

#[derive(Clone, Debug)]
struct Snapshot {
    reason: Text<128>,
    blocks: Vec<u8>,
    last_blocks: [u16; 3],
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { reason: Text::padded_with_nuls(""), blocks: Vec::new(), last_blocks: [0; 3] }
    }
}

impl Snapshot {
    /// Appends whole blocks of a data area, and sets the area's last block.
    fn push(&mut self, area: usize, data: &[u8]) {
        self.blocks.extend_from_slice(data);
        self.blocks.resize(self.blocks.len().next_multiple_of(TELEMETRY_BLOCK), 0);
        let last = u16::try_from(self.blocks.len() / TELEMETRY_BLOCK).expect("snapshots are short");
        self.last_blocks[area..].fill(last);
    }
}

impl Subsystem {
    /// The Telemetry Host-Initiated log, with a new snapshot if the command asks for one.
    pub(super) fn host_telemetry(&mut self, entry: &SubmissionQueueEntry) -> Vec<u8> {
        if CREATE.is_set(entry.cdw10) {
            self.telemetry.host = self.snapshot("asked for by the host");
            self.telemetry.host_generation = self.telemetry.host_generation.wrapping_add(1);
        }
        let generation = self.telemetry.host_generation;
        self.telemetry_log(LogPage::TelemetryHost, &self.telemetry.host, generation)
    }

    pub(super) fn controller_telemetry(&self) -> Vec<u8> {
        self.telemetry_log(LogPage::TelemetryController, &self.telemetry.controller, CONTROLLER_SCOPE)
    }

    /// Fails if a telemetry log is not read in whole blocks.
    pub(super) fn check_telemetry_blocks(offset: u64, length: u32) -> Result<(), Failure> {
        let block = TELEMETRY_BLOCK as u64;
        if !offset.is_multiple_of(block) {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW12));
        }
        if !u64::from(length).is_multiple_of(block) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(42, 0)));
        }
        Ok(())
    }

    /// Keeps a snapshot after a fault and tells the host, unless the host has not read the previous
    /// one.
    #[cold]
    pub(super) fn capture_telemetry(&mut self, reason: &str) {
        if self.telemetry.available {
            return;
        }
        self.telemetry.controller = self.snapshot(reason);
        self.telemetry.controller_generation = self.telemetry.controller_generation.wrapping_add(1);
        self.telemetry.available = true;
        self.controllers.raise(&mut self.flow, AsynchronousEvent::TelemetryLogChanged);
    }

    /// Releases the controller's snapshot, which was read without Retain Asynchronous Event.
    pub(super) const fn release_telemetry(&mut self) {
        self.telemetry.available = false;
    }

    fn telemetry_log(&self, page: LogPage, snapshot: &Snapshot, byte_381: u8) -> Vec<u8> {
        let header = TelemetryHeader {
            log_page: page.into(),
            ieee_oui: self.config.ieee_oui,
            last_blocks: snapshot.last_blocks,
            last_block_4: 0,
            host_generation: byte_381,
            controller_available: self.telemetry.available.into(),
            controller_generation: self.telemetry.controller_generation,
            reason: snapshot.reason,
        };
        let mut log = vec![0; TELEMETRY_BLOCK];
        header.emit(log.first_chunk_mut().expect("as long as the header"));
        log.extend_from_slice(&snapshot.blocks);
        log
    }

    /// Takes a snapshot. Data Area 1 is text for people; 2 adds the health and self-test logs, 3
    /// the Error Information log.
    fn snapshot(&mut self, reason: &str) -> Snapshot {
        let mut snapshot = Snapshot { reason: Text::padded_with_nuls(reason), ..Snapshot::default() };
        snapshot.push(0, self.telemetry_text().as_bytes());
        let mut health = [0; SmartLog::LENGTH];
        self.smart_log(None).emit(&mut health);
        snapshot.push(1, &health);
        let mut tests = [0; SelfTestLog::LENGTH];
        self.self_test.log().emit(&mut tests);
        snapshot.push(1, &tests);
        let mut errors = Vec::new();
        for entry in self.controllers.iter().flat_map(|(_, controller)| controller.errors.iter()) {
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
