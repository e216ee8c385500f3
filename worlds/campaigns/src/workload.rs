//! The operations of a host on a disk during faults, and the contents that the host expects
//! afterwards.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use engine::{Instant, Nanos, Rng};

use crate::campaign::Outcome;
use crate::checker::{Checker, End, Kind, OperationId};

/// An operation that a host is to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation's name, under which its end is reported.
    pub id: OperationId,
    /// The kind of the operation.
    pub kind: Kind,
    /// The blocks that the operation is on; empty for a flush.
    pub blocks: Range<u64>,
}

/// The phase of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Random operations, which may fail.
    Chaos,
    /// No new operations; the outstanding ones must end.
    Drain,
    /// Reading, writing and again reading every block; no operation may fail.
    Verify,
    /// Everything was verified.
    Verified,
}

/// The operations that a workload issues.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadConfig {
    /// Number of blocks of the disk that the workload uses, from the first on.
    pub blocks: u64,
    /// Length of a block in bytes.
    pub block_size: usize,
    /// The largest number of outstanding operations.
    pub depth: usize,
    /// The largest number of blocks of an operation.
    pub blocks_max: u64,
    /// The longest pause between operations in the chaos phase. Pauses keep a long bad day from
    /// taking millions of operations.
    pub pause_max: Nanos,
    /// Whether media lie until the world is healed: see [`Checker::forgive`].
    pub media_lie: bool,
}

/// One operation in this many is followed by a pause.
const PAUSE_ONE_IN: u64 = 8;

/// Counts of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Operations whose end the host did not live to see.
    pub abandoned: u64,
}

/// The work of a host on a disk, behind any transport.
pub trait Work: fmt::Debug {
    /// When [`Work::poll`] must be called again even if no operation has ended.
    fn poll_timeout(&self, now: Instant) -> Option<Instant>;
    /// The next operation to issue, if another one may be outstanding now.
    fn poll(&mut self, now: Instant) -> Option<Operation>;
    /// Length of the data of `operation` in bytes.
    fn length(&self, operation: &Operation) -> usize;
    /// Fills `bytes` with the data of the write `operation`.
    fn stamp(&self, operation: &Operation, bytes: &mut [u8]);
    /// Notes that an operation has ended.
    fn end(&mut self, id: OperationId, end: End<'_>);
    /// The host was killed, and will never know how its outstanding operations ended.
    fn abandon(&mut self);
    /// Enters another phase.
    fn enter(&mut self, phase: Phase);
    /// Whether work is left in `phase`, once the world is healed.
    fn is_busy(&self, phase: Phase) -> bool;
    /// Adds the counts, and the errors that were found, to `outcome`.
    fn report(&mut self, outcome: &mut Outcome);
}

/// A seeded stream of operations, each checked when it ends.
#[derive(Debug)]
pub struct Workload {
    config: WorkloadConfig,
    /// The model of the disk, shared by the workloads of all its hosts.
    checker: Rc<RefCell<Checker>>,
    /// The outstanding operations of this host.
    outstanding: BTreeSet<OperationId>,
    /// Operations whose end the host did not live to see. They may still take effect until the disk
    /// answers the host again.
    in_doubt: BTreeSet<OperationId>,
    rng: Rng,
    phase: Phase,
    /// In the verify phase, the current pass (read, write, read); `cursor` is its next block.
    pass: usize,
    cursor: u64,
    paused_until: Instant,
    counts: Counts,
}

/// The passes of a verification: reading the blocks, writing them anew, and reading the written
/// data.
const PASSES: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Read];

impl Workload {
    /// A workload on a disk of zeroes, in its chaos phase.
    pub fn new(config: WorkloadConfig, rng: Rng) -> Self {
        let mut checker = Checker::new(config.blocks, config.block_size);
        if config.media_lie {
            checker.forgive();
        }
        Self::on(config, Rc::new(RefCell::new(checker)), rng)
    }

    /// Another host's workload on the disk of this one. Each host must find the other's writes.
    #[must_use]
    pub fn sharing(&self, rng: Rng) -> Self {
        Self::on(self.config, Rc::clone(&self.checker), rng)
    }

    fn on(config: WorkloadConfig, checker: Rc<RefCell<Checker>>, rng: Rng) -> Self {
        Self {
            config,
            checker,
            outstanding: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            rng,
            phase: Phase::Chaos,
            pass: 0,
            cursor: 0,
            paused_until: Instant::ZERO,
            counts: Counts::default(),
        }
    }

    /// When [`Self::poll`] must be called again even if no operation has ended.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.phase == Phase::Chaos && self.paused_until > now).then_some(self.paused_until)
    }

    /// The next operation to issue, if another one may be outstanding now.
    pub fn poll(&mut self, now: Instant) -> Option<Operation> {
        if self.outstanding.len() >= self.config.depth {
            return None;
        }
        match self.phase {
            Phase::Chaos if self.paused_until > now => None,
            Phase::Chaos => {
                if self.rng.one_in(PAUSE_ONE_IN) {
                    self.paused_until = now + Nanos::new(self.rng.below(self.config.pause_max.get() + 1));
                }
                Some(self.random())
            }
            Phase::Verify => self.verify(),
            Phase::Drain | Phase::Verified => None,
        }
    }

    /// An operation that erases the disk, by any command; it ends like a write of zeroes.
    pub fn erase(&mut self) -> Operation {
        self.issue(Kind::WriteZeroes, 0..self.config.blocks)
    }

    fn random(&mut self) -> Operation {
        let kind = match self.rng.below(16) {
            0..7 => Kind::Read,
            7..14 => Kind::Write,
            14 => Kind::WriteZeroes,
            _ => Kind::Flush,
        };
        let blocks = match kind {
            Kind::Flush => 0..0,
            _ => {
                let count = 1 + self.rng.below(self.config.blocks_max.min(self.config.blocks));
                let first = self.rng.below(self.config.blocks - count + 1);
                first..first + count
            }
        };
        self.issue(kind, blocks)
    }

    fn verify(&mut self) -> Option<Operation> {
        if self.cursor == self.config.blocks {
            // A pass begins when the pass before it has ended, so that the expected contents are
            // certain.
            if !self.outstanding.is_empty() {
                return None;
            }
            (self.pass, self.cursor) = (self.pass + 1, 0);
        }
        let Some(&kind) = PASSES.get(self.pass) else {
            self.phase = Phase::Verified;
            return None;
        };
        let count = self.config.blocks_max.min(self.config.blocks - self.cursor);
        let blocks = self.cursor..self.cursor + count;
        self.cursor = blocks.end;
        Some(self.issue(kind, blocks))
    }

    fn issue(&mut self, kind: Kind, blocks: Range<u64>) -> Operation {
        let id = self.checker.borrow_mut().begin(kind, blocks.clone());
        self.outstanding.insert(id);
        Operation { id, kind, blocks }
    }

    /// Length of the data of `operation` in bytes.
    ///
    /// # Panics
    /// When the length exceeds the address space.
    pub fn length(&self, operation: &Operation) -> usize {
        let blocks = usize::try_from(operation.blocks.end - operation.blocks.start).expect("few blocks");
        blocks * self.config.block_size
    }

    /// Fills `bytes` with the data of the write `operation`.
    pub fn stamp(&self, operation: &Operation, bytes: &mut [u8]) {
        self.checker.borrow().stamp(operation.id, operation.blocks.clone(), bytes);
    }

    /// Notes that an operation has ended.
    pub fn end(&mut self, id: OperationId, end: End<'_>) {
        if end == End::Failed {
            self.counts.failed += 1;
            if self.phase == Phase::Verify {
                self.checker.borrow_mut().failed_in_health(id);
            }
        } else {
            self.counts.done += 1;
            self.settle();
        }
        self.outstanding.remove(&id);
        self.checker.borrow_mut().end(id, end);
    }

    /// Notes that the host gave up an operation. The operation may still take effect until the disk
    /// answers the host again.
    pub fn doubt(&mut self, id: OperationId) {
        if !self.outstanding.remove(&id) {
            return self.end(id, End::Failed);
        }
        self.in_doubt.insert(id);
        self.counts.failed += 1;
        if self.phase == Phase::Verify {
            self.checker.borrow_mut().failed_in_health(id);
        }
    }

    /// The disk has answered the host again. Operations of the host's earlier life have taken
    /// effect by now, or never will.
    fn settle(&mut self) {
        let mut checker = self.checker.borrow_mut();
        std::mem::take(&mut self.in_doubt).into_iter().for_each(|id| checker.end(id, End::Failed));
    }

    /// The host was killed, and will never know how its outstanding operations ended.
    pub fn abandon(&mut self) {
        self.counts.abandoned += self.outstanding.len() as u64;
        self.in_doubt.append(&mut self.outstanding);
    }

    /// Enters another phase.
    ///
    /// # Panics
    /// When `phase` is the verification and operations are outstanding.
    pub fn enter(&mut self, phase: Phase) {
        let idle = self.outstanding.is_empty();
        assert!(phase != Phase::Verify || idle, "a verification begins with nothing outstanding");
        (self.phase, self.pass, self.cursor) = (phase, 0, 0);
        if self.config.media_lie && phase == Phase::Verify {
            // Present data may be rotten. Data written from now on must come back.
            self.checker.borrow_mut().forgive_no_more();
            self.pass = 1;
        }
    }

    /// Whether work is left in `phase`, once the world is healed.
    pub fn is_busy(&self, phase: Phase) -> bool {
        match phase {
            Phase::Verify => self.phase != Phase::Verified,
            _ => !self.outstanding.is_empty(),
        }
    }

    /// Adds the counts, and the errors that were found, to `outcome`. Operations that are still
    /// outstanding count as errors.
    pub fn report(&mut self, outcome: &mut Outcome) {
        let mut checker = self.checker.borrow_mut();
        checker.expect_idle();
        outcome.counts.done += self.counts.done;
        outcome.counts.failed += self.counts.failed;
        outcome.counts.abandoned += self.counts.abandoned;
        outcome.failures.extend(checker.take_violations().iter().map(ToString::to_string));
    }

    /// The current phase.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The counts of the workload so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

impl Work for Workload {
    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        Self::poll_timeout(self, now)
    }
    fn poll(&mut self, now: Instant) -> Option<Operation> {
        Self::poll(self, now)
    }
    fn length(&self, operation: &Operation) -> usize {
        Self::length(self, operation)
    }
    fn stamp(&self, operation: &Operation, bytes: &mut [u8]) {
        Self::stamp(self, operation, bytes);
    }
    fn end(&mut self, id: OperationId, end: End<'_>) {
        Self::end(self, id, end);
    }
    fn abandon(&mut self) {
        Self::abandon(self);
    }
    fn enter(&mut self, phase: Phase) {
        Self::enter(self, phase);
    }
    fn is_busy(&self, phase: Phase) -> bool {
        Self::is_busy(self, phase)
    }
    fn report(&mut self, outcome: &mut Outcome) {
        Self::report(self, outcome);
    }
}
