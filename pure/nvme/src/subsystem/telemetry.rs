//! Telemetry: a snapshot of the controller's internal state, for the analysis of faults.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::errors::{Failure, Location};
use crate::wire::log::{LogPage, TELEMETRY_BLOCK, TelemetryHeader};
use crate::wire::{Bits, StatusCode, SubmissionQueueEntry, Text};

/// Create Telemetry Host-Initiated Data, in the Log Specific Parameter (LSP) of CDW10.
const CREATE: Bits = Bits::bit(8);
/// Scope of a controller-initiated log: this controller.
const CONTROLLER_SCOPE: u8 = 1;

/// The latest snapshot that a host requested, and the one that a fault of the controller caused.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Telemetry {
    host: Snapshot,
    host_generation: u8,
    controller: Snapshot,
    controller_generation: u8,
    /// Whether the controller's snapshot has not been read yet, or was read and retained.
    available: bool,
}

/// A snapshot: data blocks without the header, and the last block of each area.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Snapshot {
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
    pub(super) fn new(reason: &str) -> Self {
        Self { reason: Text::padded_with_nuls(reason), ..Self::default() }
    }

    /// Appends whole blocks of a data area, and sets the area's last block.
    pub(super) fn push(&mut self, area: usize, data: &[u8]) {
        self.blocks.extend_from_slice(data);
        self.blocks.resize(self.blocks.len().next_multiple_of(TELEMETRY_BLOCK), 0);
        let last = u16::try_from(self.blocks.len() / TELEMETRY_BLOCK).expect("snapshots are short");
        self.last_blocks[area..].fill(last);
    }
}

impl Telemetry {
    /// Whether the command requests a new snapshot.
    pub(super) const fn is_asked_for(entry: &SubmissionQueueEntry) -> bool {
        CREATE.is_set(entry.cdw10)
    }

    /// Keeps a snapshot that the host requested.
    pub(super) fn set_host(&mut self, snapshot: Snapshot) {
        self.host = snapshot;
        self.host_generation = self.host_generation.wrapping_add(1);
    }

    /// Keeps a snapshot after a fault.
    pub(super) fn set_controller(&mut self, snapshot: Snapshot) {
        self.controller = snapshot;
        self.controller_generation = self.controller_generation.wrapping_add(1);
        self.available = true;
    }

    /// Whether the host has not read the snapshot of the latest fault.
    pub(super) const fn is_available(&self) -> bool {
        self.available
    }

    /// Releases the controller's snapshot, which was read without Retain Asynchronous Event.
    pub(super) const fn release(&mut self) {
        self.available = false;
    }

    /// The Telemetry Host-Initiated log.
    pub(super) fn host_log(&self, config: &Config) -> Vec<u8> {
        self.log(config, LogPage::TelemetryHost, &self.host, self.host_generation)
    }

    /// The Telemetry Controller-Initiated log.
    pub(super) fn controller_log(&self, config: &Config) -> Vec<u8> {
        self.log(config, LogPage::TelemetryController, &self.controller, CONTROLLER_SCOPE)
    }

    fn log(&self, config: &Config, page: LogPage, snapshot: &Snapshot, byte_381: u8) -> Vec<u8> {
        let header = TelemetryHeader {
            log_page: page.into(),
            ieee_oui: config.ieee_oui,
            last_blocks: snapshot.last_blocks,
            last_block_4: 0,
            host_generation: byte_381,
            controller_available: self.available.into(),
            controller_generation: self.controller_generation,
            reason: snapshot.reason,
        };
        let mut log = vec![0; TELEMETRY_BLOCK];
        header.emit(log.first_chunk_mut().expect("as long as the header"));
        log.extend_from_slice(&snapshot.blocks);
        log
    }
}

/// Fails if a telemetry log is not read in whole blocks.
pub(super) fn check_blocks(offset: u64, length: u32) -> Result<(), Failure> {
    let block = TELEMETRY_BLOCK as u64;
    if !offset.is_multiple_of(block) {
        return Err(Failure::field(StatusCode::InvalidField, Location::CDW12));
    }
    if !u64::from(length).is_multiple_of(block) {
        return Err(Failure::field(StatusCode::InvalidField, Location::at(42, 0)));
    }
    Ok(())
}
