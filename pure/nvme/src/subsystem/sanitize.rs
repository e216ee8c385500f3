//! Sanitize: erases every medium completely in the background, and continues through resets and
//! power losses until it is done.

use alloc::vec::Vec;

use engine::{Buffer, Pool};
use serde::{Deserialize, Serialize};

use super::errors::{Failure, Location};
use super::flow::Flow;
use super::record::{SanitizeRecord, SanitizeStatus};
use super::slots::{MediaFor, Own};
use crate::media::{MediumId, Operation};
use crate::wire::log::{LogPage, SanitizeLog, sanitize_status};
use crate::wire::{AdminOpcode, Bits, StatusCode, SubmissionQueueEntry, low_u8, low_u16};

/// Sanitize Action (SANACT), in CDW10.
const ACTION: Bits = Bits::new(2, 0);
const EXIT_FAILURE_MODE: u32 = 0b001;
const BLOCK_ERASE: u32 = 0b010;
const OVERWRITE: u32 = 0b011;
/// Allow Unrestricted Sanitize Exit (AUSE), in CDW10.
const ALLOW_UNRESTRICTED_EXIT: Bits = Bits::bit(3);
/// Overwrite Pass Count (OWPASS), in CDW10; 0 means 16.
const PASS_COUNT: Bits = Bits::new(7, 4);
const PASSES_MAX: u32 = 16;
/// Overwrite Invert Pattern Between Passes (OIPBP), in CDW10.
const INVERT: Bits = Bits::bit(8);
/// No-Deallocate After Sanitize (NDAS), in CDW10.
const NO_DEALLOCATE: Bits = Bits::bit(9);

/// Sanitize Capabilities (SANICAP): Block Erase and Overwrite. Media are not modified after an
/// operation without deallocation (NODMMAS 01b).
pub(super) const CAPABILITIES: u32 = 1 << 1 | 1 << 2 | 0b01 << 30;

/// The most bytes that one step deallocates.
const DEALLOCATE_STEP: u64 = 64 << 20;
/// The most bytes that one step writes.
const WRITE_STEP: u64 = 1 << 20;
/// The assumed speed for estimated times, in bytes per second.
const BYTES_PER_SECOND: u64 = 1 << 30;
/// The value that means no estimate.
const NO_ESTIMATE: u32 = u32::MAX;

impl SanitizeRecord {
    /// The status with which most commands fail because of the operation, if they do.
    pub(super) const fn refusal(&self) -> Option<StatusCode> {
        match self.status {
            SanitizeStatus::InProgress => Some(StatusCode::SanitizeInProgress),
            SanitizeStatus::Failed => Some(StatusCode::SanitizeFailed),
            SanitizeStatus::Never | SanitizeStatus::Completed | SanitizeStatus::FailureExited => None,
        }
    }

    const fn overwrites(&self) -> bool {
        ACTION.of(self.cdw10) == OVERWRITE
    }

    const fn deallocates(&self) -> bool {
        !NO_DEALLOCATE.is_set(self.cdw10)
    }

    const fn passes_wanted(&self) -> u32 {
        match (self.overwrites(), PASS_COUNT.of(self.cdw10)) {
            (false, _) => 1,
            (true, 0) => PASSES_MAX,
            (true, passes) => passes,
        }
    }
}

/// One operation on every byte of every medium. Sweeps follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sweep {
    Zero,
    Deallocate,
    /// The overwrite pass with this number, from 0.
    Overwrite(u32),
    /// Makes the other sweeps durable, in one step per medium.
    Flush,
}

/// A sanitize operation in progress.
#[derive(Debug, Serialize, Deserialize)]
struct Running {
    media: Vec<(MediumId, u64, u64)>,
    sweep: Sweep,
    /// The index of the part of a medium, and the next byte within that part.
    medium: usize,
    offset: u64,
    /// Length in bytes of the step in progress.
    step: u64,
    done: u64,
    total: u64,
    pattern: Buffer,
}

/// The latest sanitize operation, and the work that is left of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Sanitize {
    record: SanitizeRecord,
    running: Option<Running>,
    /// Whether the operation waits for outstanding requests of commands.
    awaiting_quiet: bool,
}

impl Sanitize {
    pub(super) fn new(record: SanitizeRecord) -> Self {
        Self { record, ..Self::default() }
    }

    /// The status of the most recent operation, and the command that began it.
    pub(super) const fn record(&self) -> SanitizeRecord {
        self.record
    }

    pub(super) const fn set_record(&mut self, record: SanitizeRecord) {
        self.record = record;
    }

    /// The effect of the command: a new record, or `None` if there is nothing to do.
    pub(super) fn wanted(&self, entry: &SubmissionQueueEntry) -> Result<Option<SanitizeRecord>, Failure> {
        let before = self.record;
        let failed = before.status == SanitizeStatus::Failed;
        let restricted = failed && !ALLOW_UNRESTRICTED_EXIT.is_set(before.cdw10);
        match ACTION.of(entry.cdw10) {
            EXIT_FAILURE_MODE if restricted => return Err(Failure::new(StatusCode::SanitizeFailed)),
            EXIT_FAILURE_MODE => {
                let exited = SanitizeRecord { status: SanitizeStatus::FailureExited, ..before };
                return Ok(failed.then_some(exited));
            }
            BLOCK_ERASE | OVERWRITE => (),
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        }
        if restricted && ALLOW_UNRESTRICTED_EXIT.is_set(entry.cdw10) {
            return Err(Failure::new(StatusCode::SanitizeFailed));
        }
        Ok(Some(SanitizeRecord {
            status: SanitizeStatus::InProgress,
            cdw10: entry.cdw10,
            cdw11: entry.cdw11,
            passes: 0,
            data_erased: false,
        }))
    }

    /// Makes the operation wait for outstanding requests of commands.
    pub(super) const fn await_quiet(&mut self) {
        self.awaiting_quiet = true;
    }

    /// Whether the operation waited for media to be quiet, which they now are.
    pub(super) const fn is_next(&mut self) -> bool {
        core::mem::replace(&mut self.awaiting_quiet, false)
    }

    /// Whether the operation has begun.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts an operation that a power loss interrupted again, from its beginning.
    pub(super) fn resume(&mut self, flow: &mut Flow, media: Vec<(MediumId, u64, u64)>) {
        if self.record.status == SanitizeStatus::InProgress {
            self.record.passes = 0;
            self.begin(flow, media);
        }
    }

    /// Ends the operation in progress. Returns its record from now on.
    pub(super) fn end(&mut self, status: SanitizeStatus) -> SanitizeRecord {
        self.running = None;
        let data_erased = status == SanitizeStatus::Completed;
        SanitizeRecord { status, data_erased, ..self.record }
    }

    /// Begins the operation of the record, on these parts of media.
    pub(super) fn begin(&mut self, flow: &mut Flow, media: Vec<(MediumId, u64, u64)>) {
        let record = self.record;
        let bytes: u64 = media.iter().map(|(_, _, bytes)| bytes).sum();
        let sweeps = u64::from(record.passes_wanted());
        let sweeps = sweeps + u64::from(record.overwrites() && record.deallocates());
        let sweep = match (record.overwrites(), record.deallocates()) {
            (true, _) => Sweep::Overwrite(0),
            (false, true) => Sweep::Deallocate,
            (false, false) => Sweep::Zero,
        };
        self.running = Some(Running {
            media,
            sweep,
            medium: 0,
            offset: 0,
            step: 0,
            done: 0,
            total: bytes.saturating_mul(sweeps),
            pattern: Buffer::EMPTY,
        });
        self.prepare_pattern(&mut flow.pool);
        flow.continue_later(Own::Sanitize);
    }

    /// Prepares the buffer that every step of an overwrite pass writes.
    fn prepare_pattern(&mut self, pool: &mut Pool) {
        let record = self.record;
        let Some(running) = &mut self.running else { return };
        let Sweep::Overwrite(pass) = running.sweep else {
            running.pattern = Buffer::EMPTY;
            return;
        };
        let inverted = INVERT.is_set(record.cdw10) && pass % 2 == 1;
        let pattern = if inverted { !record.cdw11 } else { record.cdw11 };
        let mut buffer = pool.take(usize::try_from(WRITE_STEP).unwrap_or_default());
        for place in buffer.as_chunks_mut::<4>().0 {
            *place = pattern.to_le_bytes();
        }
        running.pattern = buffer.freeze();
    }

    /// Performs the operation's next step. Returns true if the operation has succeeded.
    pub(super) fn step(&mut self, flow: &mut Flow) -> bool {
        let Some(running) = &mut self.running else { return false };
        let Some((medium, start, bytes)) = running.media.get(running.medium).copied() else {
            return self.next_sweep(flow);
        };
        let left = bytes.saturating_sub(running.offset);
        let offset = start + running.offset;
        if left == 0 && running.sweep != Sweep::Flush {
            (running.medium, running.offset) = (running.medium + 1, 0);
            flow.continue_later(Own::Sanitize);
            return false;
        }
        let (step, operation) = match running.sweep {
            Sweep::Flush => (left, Operation::Flush),
            Sweep::Deallocate => {
                let length = left.min(DEALLOCATE_STEP);
                (length, Operation::Deallocate { offset, length })
            }
            Sweep::Zero => {
                let length = left.min(WRITE_STEP);
                let (deallocate, durable) = (false, false);
                (length, Operation::WriteZeroes { offset, length, deallocate, durable })
            }
            Sweep::Overwrite(_) => {
                let length = left.min(WRITE_STEP);
                let data = running.pattern.slice(0..usize::try_from(length).unwrap_or_default());
                (length, Operation::Write { offset, data, durable: false })
            }
        };
        running.step = step;
        flow.ask_medium_in_background(Own::Sanitize, MediaFor::Sanitize, medium, 0, operation);
        false
    }

    /// Continues after a step that succeeded.
    pub(super) fn on_step(&mut self, flow: &mut Flow) {
        let Some(running) = &mut self.running else { return };
        if running.sweep == Sweep::Flush {
            running.medium += 1;
        } else {
            running.offset += running.step;
            running.done += running.step;
        }
        flow.continue_later(Own::Sanitize);
    }

    /// Begins the next sweep after one has covered every medium. Returns true if none is left.
    fn next_sweep(&mut self, flow: &mut Flow) -> bool {
        let record = &mut self.record;
        let Some(running) = &mut self.running else { return false };
        (running.medium, running.offset) = (0, 0);
        running.sweep = match running.sweep {
            Sweep::Overwrite(pass) => {
                record.passes = low_u8(pass + 1);
                if pass + 1 < record.passes_wanted() {
                    Sweep::Overwrite(pass + 1)
                } else if record.deallocates() {
                    Sweep::Deallocate
                } else {
                    Sweep::Flush
                }
            }
            Sweep::Deallocate | Sweep::Zero => Sweep::Flush,
            Sweep::Flush => return true,
        };
        self.prepare_pattern(&mut flow.pool);
        flow.continue_later(Own::Sanitize);
        false
    }

    /// Fails admin commands that are not allowed while an operation is in progress or has failed.
    pub(super) fn check_admin(&self, entry: &SubmissionQueueEntry) -> Result<(), Failure> {
        let Some(code) = self.record.refusal() else { return Ok(()) };
        let allowed = match AdminOpcode::from(entry.opcode) {
            AdminOpcode::Abort
            | AdminOpcode::AsynchronousEventRequest
            | AdminOpcode::GetFeatures
            | AdminOpcode::SetFeatures
            | AdminOpcode::KeepAlive
            | AdminOpcode::Identify => true,
            AdminOpcode::Sanitize => code == StatusCode::SanitizeFailed,
            AdminOpcode::GetLogPage => matches!(
                LogPage::from(low_u8(entry.cdw10)),
                LogPage::SupportedLogPages
                    | LogPage::ErrorInformation
                    | LogPage::Smart
                    | LogPage::ChangedNamespaces
                    | LogPage::CommandEffects
                    | LogPage::SanitizeStatus
            ),
            _ => false,
        };
        if allowed { Ok(()) } else { Err(Failure::new(code)) }
    }

    /// The Sanitize Status log page. `media` are all parts of media.
    pub(super) fn log(&self, media: &[(MediumId, u64, u64)]) -> SanitizeLog {
        let record = self.record;
        let operation = match record.status {
            SanitizeStatus::Never => sanitize_status::NEVER,
            SanitizeStatus::InProgress => sanitize_status::IN_PROGRESS,
            SanitizeStatus::Completed => sanitize_status::COMPLETED,
            SanitizeStatus::Failed | SanitizeStatus::FailureExited => sanitize_status::FAILED,
        };
        let status = sanitize_status::OPERATION.put(operation)
            | sanitize_status::PASSES.put(record.passes.into())
            | sanitize_status::DATA_ERASED.put(record.data_erased.into());
        let progress = match (&self.running, record.status) {
            (Some(running), _) => {
                let parts = u128::from(running.done) << 16;
                u16::try_from(parts.checked_div(running.total.into()).unwrap_or(0)).unwrap_or(u16::MAX - 1)
            }
            (None, SanitizeStatus::InProgress) => 0,
            (None, _) => u16::MAX,
        };
        let bytes: u64 = media.iter().map(|(_, _, bytes)| bytes).sum();
        let seconds = |sweeps: u64| {
            u32::try_from(bytes.saturating_mul(sweeps).div_ceil(BYTES_PER_SECOND)).unwrap_or(NO_ESTIMATE)
        };
        SanitizeLog {
            progress,
            status: low_u16(status),
            command_dword_10: record.cdw10,
            overwrite_time: seconds(u64::from(PASSES_MAX) + 1),
            block_erase_time: seconds(1),
            crypto_erase_time: NO_ESTIMATE,
            overwrite_no_deallocate_time: NO_ESTIMATE,
            block_erase_no_deallocate_time: NO_ESTIMATE,
            crypto_erase_no_deallocate_time: NO_ESTIMATE,
        }
    }
}
