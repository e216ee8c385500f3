//! What a host does to a disk while things go wrong, and what it expects of it afterwards.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use engine::{Instant, Nanos, Rng};

use crate::campaign::Outcome;
use crate::checker::{Checker, End, Kind, OperationId};

/// An operation to be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name, under which it is to be ended.
    pub id: OperationId,
    /// What it does.
    pub kind: Kind,
    /// To which blocks; empty for a flush.
    pub blocks: Range<u64>,
}

/// What the workload is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Operations at random; they may fail.
    Chaos,
    /// No new operations; those outstanding are to end.
    Drain,
    /// Reading every block, writing every block, reading every block again; nothing may fail.
    Verify,
    /// All was verified.
    Verified,
}

/// What a workload is like.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadConfig {
    /// Blocks of the disk that it uses, from the first on.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: usize,
    /// Operations outstanding at once.
    pub depth: usize,
    /// Blocks of an operation, at most.
    pub blocks_max: u64,
    /// In chaos, now and then the host has nothing to do for up to so long, so that a long bad day does not
    /// take millions of operations.
    pub pause_max: Nanos,
}

/// One operation in so many is followed by a pause.
const PAUSE_ONE_IN: u64 = 8;

/// Counts of what a workload has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that ended well.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Operations whose end the host did not live to see.
    pub abandoned: u64,
}

/// What a host does to a disk, whatever it is.
pub trait Work: fmt::Debug {
    /// When to poll again though nothing has ended.
    fn poll_timeout(&self, now: Instant) -> Option<Instant>;
    /// The next operation to issue, if another may be outstanding now.
    fn poll(&mut self, now: Instant) -> Option<Operation>;
    /// Bytes that an operation carries.
    fn length(&self, operation: &Operation) -> usize;
    /// Fills `bytes` with what a write writes.
    fn stamp(&self, operation: &Operation, bytes: &mut [u8]);
    /// An operation has ended.
    fn end(&mut self, id: OperationId, end: End<'_>);
    /// The host is gone, and will never know how its outstanding operations ended.
    fn abandon(&mut self);
    /// Goes on to another phase.
    fn enter(&mut self, phase: Phase);
    /// Whether it is not yet done with `phase`, once the world was healed.
    fn is_busy(&self, phase: Phase) -> bool;
    /// Adds what was done and what was found wrong.
    fn report(&mut self, outcome: &mut Outcome);
}

/// A seeded stream of operations, each checked when it ends.
#[derive(Debug)]
pub struct Workload {
    config: WorkloadConfig,
    /// The model of the disk, which the workloads of all its hosts share.
    checker: Rc<RefCell<Checker>>,
    /// The operations of this host that have not ended.
    outstanding: BTreeSet<OperationId>,
    /// Those whose end the host did not live to see. They may come to pass until the host is heard again.
    in_doubt: BTreeSet<OperationId>,
    rng: Rng,
    phase: Phase,
    /// In the verify phase: the pass (read, write, read) and the block it is at.
    pass: usize,
    cursor: u64,
    paused_until: Instant,
    counts: Counts,
}

/// Passes of a verification: what is there, writing it anew, and reading that.
const PASSES: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Read];

impl Workload {
    /// A workload on a disk of zeroes, in its chaos phase.
    pub fn new(config: WorkloadConfig, rng: Rng) -> Self {
        Self::on(config, Rc::new(RefCell::new(Checker::new(config.blocks, config.block_size))), rng)
    }

    /// Another host's workload on the same disk. What one host writes, the other must find.
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

    /// When to poll again though nothing has ended.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.phase == Phase::Chaos && self.paused_until > now).then_some(self.paused_until)
    }

    /// The next operation to issue, if another may be outstanding now.
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

    /// The host erases the disk, by whatever command: it ends as a write of zeroes would.
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
            // A pass begins when the one before has ended, so that what it must find is certain.
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

    /// Bytes that an operation carries.
    ///
    /// # Panics
    /// When it is longer than an address space.
    pub fn length(&self, operation: &Operation) -> usize {
        let blocks = usize::try_from(operation.blocks.end - operation.blocks.start).expect("few blocks");
        blocks * self.config.block_size
    }

    /// Fills `bytes` with what a write writes.
    pub fn stamp(&self, operation: &Operation, bytes: &mut [u8]) {
        self.checker.borrow().stamp(operation.id, operation.blocks.clone(), bytes);
    }

    /// An operation has ended.
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

    /// An operation has ended badly, and it was the host that gave it up: it may yet come to pass, until the disk answers
    /// the host again.
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

    /// The disk has answered the host again: what the host had under way in an earlier life has come to pass by now, or
    /// never does.
    fn settle(&mut self) {
        let mut checker = self.checker.borrow_mut();
        std::mem::take(&mut self.in_doubt).into_iter().for_each(|id| checker.end(id, End::Failed));
    }

    /// The host is gone, and will never know how its outstanding operations ended.
    pub fn abandon(&mut self) {
        self.counts.abandoned += self.outstanding.len() as u64;
        self.in_doubt.append(&mut self.outstanding);
    }

    /// Goes on to another phase.
    ///
    /// # Panics
    /// When a verification is to begin while operations are outstanding.
    pub fn enter(&mut self, phase: Phase) {
        let idle = self.outstanding.is_empty();
        assert!(phase != Phase::Verify || idle, "a verification begins with nothing outstanding");
        (self.phase, self.pass, self.cursor) = (phase, 0, 0);
    }

    /// Whether it is not yet done with `phase`, once the world was healed.
    pub fn is_busy(&self, phase: Phase) -> bool {
        match phase {
            Phase::Verify => self.phase != Phase::Verified,
            _ => !self.outstanding.is_empty(),
        }
    }

    /// Adds what was done and what was found wrong. Nothing may be outstanding any more.
    pub fn report(&mut self, outcome: &mut Outcome) {
        let mut checker = self.checker.borrow_mut();
        checker.expect_idle();
        outcome.counts.done += self.counts.done;
        outcome.counts.failed += self.counts.failed;
        outcome.counts.abandoned += self.counts.abandoned;
        outcome.failures.extend(checker.take_violations().iter().map(ToString::to_string));
    }

    /// What it is at.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// What it has done.
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
