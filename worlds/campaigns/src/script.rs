//! A list of operations that is carried out to its end despite failures.
//!
//! A failed operation is repeated, and operations on the same blocks keep their order. The results
//! of all reads and the final contents of the disk are therefore a function of the list alone: two
//! worlds with equal lists must give equal bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{Instant, Nanos, Rng};
use sim::Digest;

use crate::campaign::Outcome;
use crate::checker::{End, Kind, OperationId};
use crate::stamp::{self, Value};
use crate::workload::{Counts, Operation, Phase, Work, WorkloadConfig};

/// How far an issued operation may be ahead of the first one that is not done.
const WINDOW: usize = 64;
/// The pause after a failure. Without it, a disk that fails at once would be asked for ever at the
/// same virtual time.
const RETRY: Nanos = Nanos::from_millis(2);
/// One operation in this many is preceded by a pause.
const PAUSE_ONE_IN: u64 = 8;
/// Number of failures that are kept; the first ones are the most useful.
const FAILURES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Issued,
    Done,
}

#[derive(Debug)]
struct Step {
    kind: Kind,
    blocks: Range<u64>,
    /// The value that a read must find in each block.
    expected: Vec<Value>,
    pause: Nanos,
    state: State,
    /// The digest of the bytes that a read has given.
    contents: u64,
}

impl Step {
    const fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::WriteZeroes)
    }
    fn collides(&self, other: &Self) -> bool {
        (self.writes() || other.writes())
            && self.blocks.start < other.blocks.end
            && other.blocks.start < self.blocks.end
    }
}

/// A list of operations for one disk, and how far it has been carried out.
#[derive(Debug)]
pub struct Script {
    config: WorkloadConfig,
    steps: Vec<Step>,
    /// Index of the first step that is not done.
    first: usize,
    issued: BTreeMap<OperationId, usize>,
    serial: u64,
    phase: Phase,
    paused_until: Instant,
    now: Instant,
    counts: Counts,
    failures: Vec<String>,
}

impl Script {
    /// Draws `count` operations from `rng` for a disk of zeroes, and adds a read of every block.
    pub fn new(config: WorkloadConfig, count: usize, mut rng: Rng) -> Self {
        let mut disk = vec![Value::ZEROES; usize::try_from(config.blocks).expect("few blocks")];
        let mut steps: Vec<Step> = Vec::new();
        let mut add = |steps: &mut Vec<Step>, kind, blocks: Range<u64>, pause| {
            let place = as_index(blocks.start)..as_index(blocks.end);
            let mut expected = Vec::new();
            match kind {
                Kind::Read => expected.extend_from_slice(&disk[place]),
                Kind::Write => disk[place].fill(value(steps.len())),
                Kind::WriteZeroes => disk[place].fill(Value::ZEROES),
                Kind::Flush => {}
            }
            steps.push(Step { kind, blocks, expected, pause, state: State::Waiting, contents: 0 });
        };
        for _ in 0..count {
            let kind = match rng.below(16) {
                0..6 => Kind::Read,
                6..14 => Kind::Write,
                14 => Kind::WriteZeroes,
                _ => Kind::Flush,
            };
            let length = 1 + rng.below(config.blocks_max);
            let first = rng.below(config.blocks - length + 1);
            let blocks = if kind == Kind::Flush { 0..0 } else { first..first + length };
            let pause = if rng.one_in(PAUSE_ONE_IN) { rng.below(config.pause_max.get() + 1) } else { 0 };
            add(&mut steps, kind, blocks, Nanos::new(pause));
        }
        add(&mut steps, Kind::Flush, 0..0, Nanos::ZERO);
        for first in (0..config.blocks).step_by(as_index(config.blocks_max)) {
            let end = config.blocks.min(first + config.blocks_max);
            add(&mut steps, Kind::Read, first..end, Nanos::ZERO);
        }
        Self {
            config,
            steps,
            first: 0,
            issued: BTreeMap::new(),
            serial: 0,
            phase: Phase::Chaos,
            paused_until: Instant::ZERO,
            now: Instant::ZERO,
            counts: Counts::default(),
            failures: Vec::new(),
        }
    }

    /// The first step that may be issued now.
    fn next(&self) -> Option<usize> {
        let window = self.first..self.steps.len().min(self.first + WINDOW);
        window.into_iter().find(|&index| {
            let step = &self.steps[index];
            let free = |before: &Step| before.state == State::Done || !before.collides(step);
            step.state == State::Waiting && self.steps[self.first..index].iter().all(free)
        })
    }

    fn compare(&mut self, index: usize, bytes: &[u8]) {
        let step = &mut self.steps[index];
        let mut digest = Digest::default();
        digest.bytes(bytes);
        step.contents = digest.value();
        let size = self.config.block_size;
        let step = &self.steps[index];
        let mut wrong = Vec::new();
        if bytes.len() != step.expected.len() * size {
            wrong.push(format!("gave {} B", bytes.len()));
        }
        for ((block, expected), bytes) in step.blocks.clone().zip(&step.expected).zip(bytes.chunks(size)) {
            match stamp::recognise(bytes, block) {
                Ok(found) if found == *expected => {}
                Ok(found) => wrong.push(format!("found {found} in block {block}, not {expected}")),
                Err(bad) => wrong.push(format!("of block {block} is {bad}, not {expected}")),
            }
        }
        wrong.into_iter().for_each(|what| self.fail(format!("read {index} {what}")));
    }

    fn fail(&mut self, what: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(what);
        }
    }
}

impl Work for Script {
    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.paused_until > now).then_some(self.paused_until)
    }

    fn poll(&mut self, now: Instant) -> Option<Operation> {
        self.now = now;
        if self.issued.len() >= self.config.depth || self.paused_until > now {
            return None;
        }
        let index = self.next()?;
        let step = &mut self.steps[index];
        let pause = std::mem::take(&mut step.pause);
        if self.phase == Phase::Chaos && pause > Nanos::ZERO {
            self.paused_until = now + pause;
            return None;
        }
        step.state = State::Issued;
        self.serial += 1;
        let id = OperationId(self.serial);
        self.issued.insert(id, index);
        Some(Operation { id, kind: step.kind, blocks: step.blocks.clone() })
    }

    fn length(&self, operation: &Operation) -> usize {
        as_index(operation.blocks.end - operation.blocks.start) * self.config.block_size
    }

    fn stamp(&self, operation: &Operation, bytes: &mut [u8]) {
        let index = self.issued[&operation.id];
        for (block, bytes) in operation.blocks.clone().zip(bytes.chunks_exact_mut(self.config.block_size)) {
            stamp::fill(value(index), block, bytes);
        }
    }

    fn end(&mut self, id: OperationId, end: End<'_>) {
        let Some(index) = self.issued.remove(&id) else {
            return self.fail(format!("operation {} ended without being outstanding", id.0));
        };
        match end {
            End::Failed => {
                self.counts.failed += 1;
                self.steps[index].state = State::Waiting;
                self.paused_until = self.now + RETRY;
            }
            End::Done(bytes) => {
                self.counts.done += 1;
                self.steps[index].state = State::Done;
                if self.steps[index].kind == Kind::Read {
                    self.compare(index, bytes);
                }
                while self.steps.get(self.first).is_some_and(|step| step.state == State::Done) {
                    self.first += 1;
                }
            }
        }
    }

    fn abandon(&mut self) {
        self.counts.abandoned += self.issued.len() as u64;
        for index in std::mem::take(&mut self.issued).into_values() {
            self.steps[index].state = State::Waiting;
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    fn is_busy(&self, _: Phase) -> bool {
        self.first < self.steps.len()
    }

    fn report(&mut self, outcome: &mut Outcome) {
        if self.first < self.steps.len() {
            let Step { kind, blocks, state, .. } = &self.steps[self.first];
            self.failures.push(format!("{kind:?} of {blocks:?}, operation {}, is {state:?}", self.first));
        }
        outcome.counts.done += self.counts.done;
        outcome.counts.failed += self.counts.failed;
        outcome.counts.abandoned += self.counts.abandoned;
        outcome.failures.append(&mut self.failures);
        let mut digest = Digest::default();
        digest.word(outcome.contents);
        self.steps.iter().for_each(|step| digest.word(step.contents));
        outcome.contents = digest.value();
    }
}

/// The value that the write at `index` of the list writes.
fn value(index: usize) -> Value {
    Value(index as u64 + 1)
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).expect("a block number of a disk in memory")
}
