//! A model of what a disk may hold, against which every read is compared.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::stamp::{self, Bad, Value};

#[cfg(test)]
mod tests;

/// Names an operation: unique in a run, and the [`Value`] that a write writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub u64);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read blocks.
    Read,
    /// Write the operation's stamp.
    Write,
    /// Write zeroes.
    WriteZeroes,
    /// Make everything durable.
    Flush,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// Well; a read with its bytes, others with none.
    Done(&'a [u8]),
    /// With an error: a write was done, in any part, or was not.
    Failed,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A read gave bytes that nobody wrote there.
    Corrupt {
        /// The read.
        read: OperationId,
        /// The block.
        block: u64,
        /// What is wrong with the bytes.
        bad: Bad,
    },
    /// A read gave a block's bytes of a write that cannot be there now.
    Stale {
        /// The read.
        read: OperationId,
        /// The block.
        block: u64,
        /// What was there.
        found: Value,
        /// What may have been there.
        allowed: Vec<Value>,
    },
    /// A read that ended well gave another number of bytes than it was to.
    Length {
        /// The read.
        read: OperationId,
        /// Bytes it gave.
        found: usize,
        /// Bytes it was to give.
        expected: usize,
    },
    /// An operation ended that was not outstanding: ended twice, or never issued.
    NotOutstanding(OperationId),
    /// Operations that never ended.
    NeverEnded(Vec<OperationId>),
    /// An operation failed where nothing was wrong any more.
    FailedInHealth(OperationId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { read, block, bad } => write!(f, "read {} of block {block} is {bad}", read.0),
            Self::Stale { read, block, found, allowed } => {
                let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
                write!(
                    f,
                    "read {} of block {block} gave {found}; it may hold {}",
                    read.0,
                    allowed.join(" or ")
                )
            }
            Self::Length { read, found, expected } => {
                write!(f, "read {} gave {found} B, not {expected}", read.0)
            }
            Self::NotOutstanding(id) => write!(f, "operation {} ended without being outstanding", id.0),
            Self::NeverEnded(ids) => {
                write!(f, "{} operations never ended, the first is {}", ids.len(), ids[0].0)
            }
            Self::FailedInHealth(id) => write!(f, "operation {} failed though all faults were healed", id.0),
        }
    }
}

impl std::error::Error for Violation {}

/// A write whose bytes a block may hold. Times are of the checker's own count of beginnings and ends.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: Value,
    ended: Option<u64>,
    /// From here on something else is known to be in its place.
    superseded: Option<u64>,
}

#[derive(Clone, Debug)]
struct Outstanding {
    kind: Kind,
    blocks: Range<u64>,
    began: u64,
}

/// The model; see the module.
///
/// A block may hold the last write that ended well, or any write that is outstanding or failed since.
/// Once a read has shown which one it is, it stays that one: a write that failed must not come to pass later.
#[derive(Debug)]
pub struct Checker {
    block_size: usize,
    blocks: Vec<Vec<Candidate>>,
    outstanding: BTreeMap<OperationId, Outstanding>,
    time: u64,
    issued: u64,
    violations: Vec<Violation>,
}

/// Violations that are kept; the first ones tell the most.
const VIOLATIONS_MAX: usize = 32;

impl Checker {
    /// A disk of `blocks` blocks of `block_size` bytes, all zeroes.
    pub fn new(blocks: u64, block_size: usize) -> Self {
        let zeroes = Candidate { value: Value::ZEROES, ended: Some(0), superseded: None };
        Self {
            block_size,
            blocks: (0..blocks).map(|_| vec![zeroes]).collect(),
            outstanding: BTreeMap::new(),
            time: 0,
            issued: 0,
            violations: Vec::new(),
        }
    }

    /// How many blocks there are.
    pub const fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Bytes of a block.
    pub const fn block_size(&self) -> usize {
        self.block_size
    }

    /// Notes that an operation is issued, and names it.
    ///
    /// # Panics
    /// When `blocks` are beyond the disk.
    pub fn begin(&mut self, kind: Kind, blocks: Range<u64>) -> OperationId {
        self.issued += 1;
        let (id, began) = (OperationId(self.issued), self.tick());
        let value = match kind {
            Kind::Write => Some(Value(id.0)),
            Kind::WriteZeroes => Some(Value::ZEROES),
            Kind::Read | Kind::Flush => None,
        };
        for block in blocks.clone() {
            let candidates = &mut self.blocks[index(block)];
            candidates.extend(value.map(|value| Candidate { value, ended: None, superseded: None }));
        }
        self.outstanding.insert(id, Outstanding { kind, blocks, began });
        id
    }

    /// Fills `bytes` with what the write `id` of `blocks` writes.
    pub fn stamp(&self, id: OperationId, blocks: Range<u64>, bytes: &mut [u8]) {
        for (block, bytes) in blocks.zip(bytes.chunks_exact_mut(self.block_size)) {
            stamp::fill(Value(id.0), block, bytes);
        }
    }

    /// Notes how an operation ended, and compares a read with the model.
    pub fn end(&mut self, id: OperationId, end: End<'_>) {
        let now = self.tick();
        let Some(operation) = self.outstanding.remove(&id) else {
            return self.violated(Violation::NotOutstanding(id));
        };
        match (operation.kind, end) {
            (Kind::Read, End::Done(bytes)) => self.end_read(id, &operation, bytes, now),
            (Kind::Write, end) => self.end_write(Value(id.0), &operation, end != End::Failed, now),
            (Kind::WriteZeroes, end) => self.end_write(Value::ZEROES, &operation, end != End::Failed, now),
            (Kind::Read | Kind::Flush, _) => {}
        }
        self.forget(operation.blocks);
    }

    fn end_write(&mut self, value: Value, operation: &Outstanding, done: bool, now: u64) {
        for block in operation.blocks.clone() {
            let candidates = &mut self.blocks[index(block)];
            if done {
                let before = |candidate: &&mut Candidate| {
                    candidate.superseded.is_none()
                        && candidate.ended.is_some_and(|ended| ended < operation.began)
                };
                candidates.iter_mut().filter(before).for_each(|candidate| candidate.superseded = Some(now));
            }
            // Of several outstanding writes of zeroes it does not matter which one ends.
            let own = candidates.iter_mut().find(|own| own.value == value && own.ended.is_none());
            own.expect("an outstanding write is a candidate").ended = Some(now);
        }
    }

    fn end_read(&mut self, read: OperationId, operation: &Outstanding, bytes: &[u8], now: u64) {
        let Outstanding { blocks, began, .. } = operation.clone();
        let expected = index(blocks.end - blocks.start) * self.block_size;
        if bytes.len() != expected {
            return self.violated(Violation::Length { read, found: bytes.len(), expected });
        }
        for (block, bytes) in blocks.zip(bytes.chunks_exact(self.block_size)) {
            match stamp::recognise(bytes, block) {
                Err(bad) => self.violated(Violation::Corrupt { read, block, bad }),
                Ok(found) => self.observe(read, block, found, began, now),
            }
        }
    }

    /// A read that began at `began` has found `found` in `block`.
    fn observe(&mut self, read: OperationId, block: u64, found: Value, began: u64, now: u64) {
        let candidates = &mut self.blocks[index(block)];
        let possible = |candidate: &Candidate| candidate.superseded.is_none_or(|at| at > began);
        if !candidates.iter().any(|candidate| candidate.value == found && possible(candidate)) {
            let allowed = candidates.iter().filter(|one| possible(one)).map(|one| one.value).collect();
            return self.violated(Violation::Stale { read, block, found, allowed });
        }
        // What had ended before the read and is not what it found lies underneath, or was never done.
        for candidate in candidates.iter_mut() {
            let over = candidate.value != found && candidate.ended.is_some_and(|ended| ended < began);
            if over && candidate.superseded.is_none() {
                candidate.superseded = Some(now);
            }
        }
    }

    /// Forgets candidates that no outstanding or later read may find.
    fn forget(&mut self, blocks: Range<u64>) {
        let oldest = self.outstanding.values().map(|operation| operation.began).min().unwrap_or(self.time);
        for block in blocks {
            self.blocks[index(block)].retain(|candidate| candidate.superseded.is_none_or(|at| at > oldest));
        }
    }

    /// Notes an operation that failed where it had no reason to.
    pub fn failed_in_health(&mut self, id: OperationId) {
        self.violated(Violation::FailedInHealth(id));
    }

    /// Notes that nothing may be outstanding any more.
    pub fn expect_idle(&mut self) {
        let ids: Vec<_> = self.outstanding.keys().copied().collect();
        if !ids.is_empty() {
            self.violated(Violation::NeverEnded(ids));
        }
    }

    /// Operations that have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Every broken promise, up to a limit.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes the broken promises out, so that of several hosts of a disk one reports them.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    fn violated(&mut self, violation: Violation) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }

    const fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a block number of a disk in memory")
}
