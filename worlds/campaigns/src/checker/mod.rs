//! A model of a disk's permitted contents, with which every read is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use crate::stamp::{self, Bad, Value};

#[cfg(test)]
mod tests;

/// Names an operation uniquely in a run; also the [`Value`] that a write writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub u64);

/// The effect of an operation on its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the operation's blocks.
    Read,
    /// Writes the operation's stamp.
    Write,
    /// Writes zeroes to the operation's blocks.
    WriteZeroes,
    /// Makes everything durable.
    Flush,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// The operation succeeded; a read has its bytes, other operations have none.
    Done(&'a [u8]),
    /// The operation failed. A failed write may have been done entirely, in part or not at all.
    Failed,
}

/// A promise that a disk has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A read gave bytes that no write has put there.
    Corrupt {
        /// The read that found the bytes.
        read: OperationId,
        /// The block that was read.
        block: u64,
        /// The fault of the bytes.
        bad: Bad,
    },
    /// A read gave the bytes of a write that the block cannot hold now.
    Stale {
        /// The read that found the bytes.
        read: OperationId,
        /// The block that was read.
        block: u64,
        /// The value that the read gave.
        found: Value,
        /// The values that the block may have held.
        allowed: Vec<Value>,
    },
    /// A successful read gave a wrong number of bytes.
    Length {
        /// The read that gave a wrong number of bytes.
        read: OperationId,
        /// Number of bytes that the read gave.
        found: usize,
        /// Number of bytes that the read should have given.
        expected: usize,
    },
    /// An operation ended that was not outstanding: it ended twice, or was never issued.
    NotOutstanding(OperationId),
    /// These operations never ended.
    NeverEnded(Vec<OperationId>),
    /// An operation failed after all faults were healed.
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

/// A write whose bytes a block may hold. Times count the beginnings and ends of operations.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: Value,
    ended: Option<u64>,
    /// The time from which on the block is known to hold another value.
    superseded: Option<u64>,
}

#[derive(Clone, Debug)]
struct Outstanding {
    kind: Kind,
    blocks: Range<u64>,
    began: u64,
}

/// The model of a disk, with which every read is compared.
///
/// A block may hold the last write that succeeded, or any later write that failed or is
/// outstanding. Once a read has shown which of these writes the block holds, the answer must not
/// change: a failed write must not take effect later.
#[derive(Debug)]
pub struct Checker {
    block_size: usize,
    blocks: Vec<Vec<Candidate>>,
    outstanding: BTreeMap<OperationId, Outstanding>,
    time: u64,
    issued: u64,
    /// While media lie: the values that each block was ever to hold.
    ever: Option<Vec<BTreeSet<Value>>>,
    violations: Vec<Violation>,
}

/// Number of violations that are kept; the first ones are the most useful.
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
            ever: None,
            violations: Vec::new(),
        }
    }

    /// Allows reads to find any value that their block was ever to hold: media lose writes. Bytes
    /// of several writes, of another block or of no write stay forbidden.
    pub fn forgive(&mut self) {
        self.ever = Some(self.blocks.iter().map(|_| BTreeSet::from([Value::ZEROES])).collect());
    }

    /// Allows nothing more than a good disk may do.
    pub fn forgive_no_more(&mut self) {
        self.ever = None;
    }

    /// Number of blocks of the disk.
    pub const fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Length of a block in bytes.
    pub const fn block_size(&self) -> usize {
        self.block_size
    }

    /// Notes that an operation is issued, and names the operation.
    ///
    /// # Panics
    /// When `blocks` exceeds the disk.
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
            if let (Some(ever), Some(value)) = (&mut self.ever, value) {
                ever[index(block)].insert(value);
            }
        }
        self.outstanding.insert(id, Outstanding { kind, blocks, began });
        id
    }

    /// Fills `bytes` with the data that the write `id` of `blocks` writes.
    pub fn stamp(&self, id: OperationId, blocks: Range<u64>, bytes: &mut [u8]) {
        for (block, bytes) in blocks.zip(bytes.chunks_exact_mut(self.block_size)) {
            stamp::fill(Value(id.0), block, bytes);
        }
    }

    /// Notes how an operation ended, and compares a read's bytes with the model.
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
            // When several writes of zeroes are outstanding, it does not matter which of them ends.
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

    /// Compares the value that a read found in `block` with the model; the read began at `began`.
    fn observe(&mut self, read: OperationId, block: u64, found: Value, began: u64, now: u64) {
        if self.ever.as_ref().is_some_and(|ever| ever[index(block)].contains(&found)) {
            return;
        }
        let candidates = &mut self.blocks[index(block)];
        let possible = |candidate: &Candidate| candidate.superseded.is_none_or(|at| at > began);
        if !candidates.iter().any(|candidate| candidate.value == found && possible(candidate)) {
            let allowed = candidates.iter().filter(|one| possible(one)).map(|one| one.value).collect();
            return self.violated(Violation::Stale { read, block, found, allowed });
        }
        // Any other write that had ended before the read began was overwritten, or was never done.
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

    /// Notes that an operation failed although it had no reason to.
    pub fn failed_in_health(&mut self, id: OperationId) {
        self.violated(Violation::FailedInHealth(id));
    }

    /// Notes that all operations should have ended by now.
    pub fn expect_idle(&mut self) {
        let ids: Vec<_> = self.outstanding.keys().copied().collect();
        if !ids.is_empty() {
            self.violated(Violation::NeverEnded(ids));
        }
    }

    /// Number of operations that have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The broken promises, up to a limit.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes the broken promises out, so that only one of a disk's hosts reports them.
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
