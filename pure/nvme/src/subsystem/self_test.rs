//! Device Self-test: tests the controller's memory, its health, and whether its media can be read.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use engine::Pool;
use serde::{Deserialize, Serialize};

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::flow::{Flow, Handled, Step};
use super::namespaces::Namespaces;
use super::slots::{MediaFor, Own};
use super::smart::Smart;
use super::types::{CommandToken, Notification};
use crate::media::{MediaError, MediumId, Operation};
use crate::wire::log::{SELF_TEST_RESULTS, SelfTestLog, SelfTestResult, critical_warning};
use crate::wire::{Bits, NamespaceId, StatusCode, SubmissionQueueEntry, low_u8};

/// Self-test Code (STC), in CDW10.
const CODE: Bits = Bits::new(3, 0);
const SHORT: u32 = 0x1;
const EXTENDED: u32 = 0x2;
const ABORT: u32 = 0xf;

/// The most bytes that one step reads.
const STEP_BYTES: u32 = 256 << 10;
/// Number of places in each namespace that a short self-test reads.
const SHORT_SAMPLES: u64 = 16;
/// The most bytes that a short self-test reads at each place.
const SAMPLE_BYTES: u32 = 64 << 10;
/// Patterns that the controller's memory must give back.
const MEMORY_PATTERNS: [u8; 4] = [0x00, 0xff, 0x55, 0xaa];
const MEMORY_BYTES: usize = 64 << 10;
/// Critical warnings that are failures rather than conditions of the environment.
const FAILURES: u8 = critical_warning::SPARE | critical_warning::RELIABILITY | critical_warning::BACKUP;

/// Result of a self-test, bits 3:0 of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed = 0x0,
    AbortedByCommand = 0x1,
    AbortedByReset = 0x2,
    NamespaceRemoved = 0x3,
    AbortedByFormat = 0x4,
    SegmentFailed = 0x7,
    AbortedBySanitize = 0x9,
}

/// Segments of a self-test in order. The value is the Segment Number that a failure reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Segment {
    Memory = 1,
    Health = 2,
    Media = 3,
}

/// A self-test in progress.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Running {
    extended: bool,
    /// The controller whose host requested the self-test; `None` for one that a power loss
    /// interrupted.
    controller: Option<ControllerKey>,
    /// The NSID of the command: no namespace, one, or all active ones.
    scope: NamespaceId,
    segment: Segment,
    /// The namespace being read, and the next byte to read in it.
    namespace: NamespaceId,
    offset: u64,
    /// Bytes read so far, and bytes to read in all.
    done: u64,
    total: u64,
}

/// The self-test in progress, and the results of earlier ones.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SelfTest {
    running: Option<Running>,
    /// The results, newest first, at most [`SELF_TEST_RESULTS`].
    results: VecDeque<SelfTestResult>,
}

impl SelfTest {
    pub(super) fn new(results: &[SelfTestResult]) -> Self {
        Self { running: None, results: results.iter().copied().take(SELF_TEST_RESULTS).collect() }
    }

    /// The Device Self-test log page.
    pub(super) fn log(&self) -> SelfTestLog {
        let mut log = SelfTestLog::default();
        for result in &mut log.results {
            result.status = SelfTestResult::UNUSED;
        }
        for (place, result) in log.results.iter_mut().zip(&self.results) {
            *place = *result;
        }
        if let Some(running) = &self.running {
            log.current_operation = low_u8(if running.extended { EXTENDED } else { SHORT });
            let percent = running.done.saturating_mul(100).checked_div(running.total).unwrap_or(0);
            log.current_completion = u8::try_from(percent.min(99)).unwrap_or(99);
        }
        log
    }
}

impl SelfTest {
    pub(super) fn on_command(
        &mut self,
        flow: &mut Flow,
        namespaces: &Namespaces,
        smart: &Smart,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let code = CODE.of(entry.cdw10);
        match code {
            SHORT | EXTENDED => (),
            ABORT => {
                self.end(flow, smart, Outcome::AbortedByCommand);
                return Ok(Step::Done(0));
            }
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        }
        let scope = entry.namespace;
        let any = scope == NamespaceId::NONE || scope == NamespaceId::ALL;
        let controller = flow.slots.of(token).controller;
        if !any {
            namespaces.active_for(controller, scope)?;
        }
        if self.running.is_some() {
            return Err(Failure::new(StatusCode::DeviceSelfTestInProgress));
        }
        self.start(flow, namespaces, code == EXTENDED, scope, Some(controller));
        Ok(Step::Done(0))
    }

    pub(super) fn start(
        &mut self,
        flow: &mut Flow,
        namespaces: &Namespaces,
        extended: bool,
        scope: NamespaceId,
        controller: Option<ControllerKey>,
    ) {
        let mut running = Running {
            extended,
            controller,
            scope,
            segment: Segment::Memory,
            namespace: NamespaceId::NONE,
            offset: 0,
            done: 0,
            total: 0,
        };
        let of_each = |bytes: u64| {
            if extended { bytes } else { bytes.min(SHORT_SAMPLES * u64::from(SAMPLE_BYTES)) }
        };
        running.total = namespaces
            .iter_attached()
            .filter(|one| running.covers(one.id))
            .map(|one| of_each(one.bytes))
            .sum();
        self.running = Some(running);
        flow.notify(Notification::SelfTestStarted { extended, namespace: scope });
        flow.continue_later(Own::SelfTest);
    }

    /// Performs the next step: tests memory or health at once, or reads from a medium. `warnings`
    /// are the critical warnings of all controllers. Returns false if a segment failed.
    pub(super) fn step(
        &mut self,
        flow: &mut Flow,
        namespaces: &Namespaces,
        smart: &Smart,
        warnings: u8,
    ) -> bool {
        let Some(running) = self.running else { return true };
        match running.segment {
            Segment::Memory if !memory_holds(&mut flow.pool) => {
                return self.fail(flow, smart, Segment::Memory, None);
            }
            Segment::Memory => self.next_segment(flow, Segment::Health),
            Segment::Health if warnings & FAILURES != 0 => {
                return self.fail(flow, smart, Segment::Health, None);
            }
            Segment::Health => self.next_segment(flow, Segment::Media),
            Segment::Media => self.read_next(flow, namespaces, smart, running),
        }
        true
    }

    fn next_segment(&mut self, flow: &mut Flow, segment: Segment) {
        if let Some(running) = &mut self.running {
            running.segment = segment;
        }
        flow.continue_later(Own::SelfTest);
    }

    fn read_next(&mut self, flow: &mut Flow, namespaces: &Namespaces, smart: &Smart, mut running: Running) {
        let Some((medium, offset, length)) = running.next_piece(namespaces) else {
            self.end(flow, smart, Outcome::Passed);
            return;
        };
        self.running = Some(running);
        let operation = Operation::Read { offset, length };
        flow.ask_medium_in_background(Own::SelfTest, MediaFor::SelfTest, medium, length, operation);
    }

    /// Continues after a read of a medium. Returns false if the self-test failed.
    pub(super) fn on_read(
        &mut self,
        flow: &mut Flow,
        namespaces: &Namespaces,
        smart: &Smart,
        result: Result<(), MediaError>,
    ) -> bool {
        let slot = flow.slots.of(flow.slots.own(Own::SelfTest));
        let read = u64::from(slot.expected);
        let Some(mut running) = self.running else { return true };
        let namespace = namespaces.allocated(running.namespace).filter(|one| one.is_attached());
        let (bytes, shift) = namespace.map_or((0, 0), |one| (one.bytes, one.block.shift()));
        if result.is_err() {
            return self.fail(
                flow,
                smart,
                Segment::Media,
                Some((running.namespace, running.offset >> shift)),
            );
        }
        running.done += read;
        // Samples are spread evenly over the namespace, each at the start of a block.
        let spread = (bytes / SHORT_SAMPLES) >> shift << shift;
        running.offset += if running.extended { read } else { read.max(spread) };
        self.running = Some(running);
        flow.continue_later(Own::SelfTest);
        true
    }

    /// Ends the self-test in progress, if any.
    pub(super) fn end(&mut self, flow: &mut Flow, smart: &Smart, outcome: Outcome) {
        self.conclude(flow, smart, outcome, SelfTestResult::default());
    }

    /// Ends the self-test in progress if it reads the namespace.
    pub(super) fn end_of(
        &mut self,
        flow: &mut Flow,
        smart: &Smart,
        namespace: NamespaceId,
        outcome: Outcome,
    ) {
        if self.running.is_some_and(|running| running.covers(namespace)) {
            self.end(flow, smart, outcome);
        }
    }

    /// Handles a controller level reset: a short self-test of that controller ends, an extended one
    /// continues.
    pub(super) fn reset(&mut self, flow: &mut Flow, smart: &Smart, controller: ControllerKey) {
        if self.running.is_some_and(|one| !one.extended && one.controller == Some(controller)) {
            self.end(flow, smart, Outcome::AbortedByReset);
        }
    }

    /// Ends the self-test with the failure of a segment. Returns false.
    fn fail(
        &mut self,
        flow: &mut Flow,
        smart: &Smart,
        segment: Segment,
        block: Option<(NamespaceId, u64)>,
    ) -> bool {
        let mut result = SelfTestResult { segment: low_u8(segment as u32), ..SelfTestResult::default() };
        if let Some((namespace, lba)) = block {
            let code = StatusCode::UnrecoveredReadError;
            result.valid = SelfTestResult::ALL_VALID;
            (result.namespace, result.failing_lba) = (namespace.0, lba);
            (result.status_code_type, result.status_code) = (code.kind(), code.code());
        }
        self.conclude(flow, smart, Outcome::SegmentFailed, result);
        false
    }

    fn conclude(&mut self, flow: &mut Flow, smart: &Smart, outcome: Outcome, mut result: SelfTestResult) {
        let Some(running) = self.running.take() else { return };
        flow.deadlines.disarm(Own::SelfTest);
        flow.slots.retire(flow.slots.own(Own::SelfTest));
        let code = if running.extended { EXTENDED } else { SHORT };
        result.status = low_u8(code << 4 | outcome as u32);
        result.power_on_hours = smart.power_on_hours(flow.now);
        self.results.truncate(SELF_TEST_RESULTS - 1);
        self.results.push_front(result);
        flow.notify(Notification::SelfTestEnded(Box::new(result)));
    }
}

impl Running {
    /// Whether the self-test reads the namespace.
    fn covers(&self, namespace: NamespaceId) -> bool {
        self.scope == NamespaceId::ALL || self.scope == namespace
    }

    /// The next place to read: the medium, the offset and the length.
    fn next_piece(&mut self, namespaces: &Namespaces) -> Option<(MediumId, u64, u32)> {
        loop {
            let present = namespaces.allocated(self.namespace).filter(|one| one.is_attached());
            if let Some(namespace) = present.filter(|one| self.offset < one.bytes) {
                let left = namespace.blocks << namespace.block.shift();
                let left = left.saturating_sub(self.offset);
                let most = if self.extended { STEP_BYTES } else { SAMPLE_BYTES };
                let length = u32::try_from(left).unwrap_or(u32::MAX).min(most);
                if length > 0 {
                    return Some((namespace.medium, namespace.offset + self.offset, length));
                }
            }
            let next = namespaces
                .iter_attached()
                .find(|one| one.id > self.namespace && self.covers(one.id) && one.busy.is_none())?;
            (self.namespace, self.offset) = (next.id, 0);
        }
    }
}

/// Whether a buffer of the pool that carries command data gives back the patterns written to it.
fn memory_holds(pool: &mut Pool) -> bool {
    MEMORY_PATTERNS.into_iter().all(|pattern| {
        let mut buffer = pool.take(MEMORY_BYTES);
        buffer.fill(pattern);
        let held = pool.seal(buffer);
        held.iter().all(|byte| *byte == pattern)
    })
}
