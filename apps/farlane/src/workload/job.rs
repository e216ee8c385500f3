//! The operations of a load, and its duration.

use std::sync::Arc;

use engine::Nanos;
use nvme::host::Namespace;

use super::Contents;
use super::steady::Steady;
use crate::args::{RandomDistribution, Sizes, Workload};
use crate::protected::Protected;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Deallocates blocks: Dataset Management.
    Trim,
    Flush,
}

/// How a job chooses places.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) distribution: RandomDistribution,
    /// Percent of random operations in a random load; the others go on where the last one ended.
    pub(crate) random: [u8; 3],
    /// Bytes between the end of a sequential operation and the next one; below 0 to go backwards.
    pub(crate) step: i64,
    /// Operations with one random place.
    pub(crate) repeats: u32,
    /// Whether those operations have the same place, and don't follow each other.
    pub(crate) is_identical: bool,
    /// Random places are multiples of this; none for the shortest length.
    pub(crate) align: Option<u64>,
    /// A part of the range in which the load stays for some time.
    pub(crate) zones: Option<Zones>,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            distribution: RandomDistribution::Uniform { is_mapped: false },
            random: [100; 3],
            step: 0,
            repeats: 1,
            is_identical: false,
            align: None,
            zones: None,
        }
    }
}

/// Zones that a load passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    /// Bytes of a zone that the load covers.
    pub(crate) range: u64,
    /// Bytes that are transferred in a zone.
    pub(crate) bytes: u64,
    /// Bytes between zones.
    pub(crate) skip: u64,
}

/// How fast operations begin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes a second of reads, writes and trims; none for as many as there is room for.
    pub(crate) bytes: [Option<u64>; 3],
    /// Operations a second.
    pub(crate) operations: [Option<u64>; 3],
    /// Whether the times between operations are drawn, as in a Poisson process.
    pub(crate) is_poisson: bool,
    /// For how long the job pauses, and after how many operations.
    pub(crate) pause: Option<(Nanos, u32)>,
    /// The group of jobs whose operations are as many as their weights say, and the weight.
    pub(crate) flow: Option<(u32, u32)>,
}

/// When a job begins and ends.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) runtime: Nanos,
    /// Time since the start of the run before the job begins.
    pub(crate) delay: Nanos,
    /// Time at the job's beginning that no figure includes.
    pub(crate) ramp: Nanos,
    /// After how many bytes each job ends; none if only its time ends it.
    pub(crate) bytes: Option<u64>,
    /// After how many operations each job ends.
    pub(crate) operations: Option<u64>,
    /// When the job ends because its figures are steady.
    pub(crate) steady: Option<Steady>,
    /// How many times the job does the same.
    pub(crate) loops: u32,
    /// The jobs of the same phase, by number, that end before this one begins.
    pub(crate) after: Vec<usize>,
    /// The jobs that end when this one does.
    pub(crate) ends: Option<Scope>,
    /// The group of jobs that may end together.
    pub(crate) group: usize,
}

/// The jobs that end with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of its group.
    Group,
    /// The jobs that run at the same time.
    Phase,
    /// All jobs, also jobs that have not begun.
    All,
}

/// When writes become durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Durable {
    /// A Flush follows this many writes; 0 for none.
    pub(crate) every: u32,
    /// A Flush follows the last write.
    pub(crate) at_end: bool,
    /// Reads and writes that reach the medium before they end (FUA).
    pub(crate) forced: [bool; 2],
}

/// How a load checks its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Whether everything is read back when the job has ended.
    pub(crate) at_end: bool,
    /// After how many writes how many of them are read back while the job runs.
    pub(crate) backlog: Option<(u32, u32)>,
    /// Whether the job ends with the first difference.
    pub(crate) is_fatal: bool,
}

/// The operations of a load, and its duration.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) namespace: Namespace,
    /// The component that protects the namespace's blocks.
    pub(crate) protected: Protected,
    pub(crate) workload: Workload,
    /// Percent of reads in a load that reads and writes.
    pub(crate) reads: u8,
    /// Lengths of the data of reads, writes and trims. Data that is longer than the controller's
    /// largest transfer takes several commands.
    pub(crate) sizes: [Sizes; 3],
    /// Operations of each job under way at once.
    pub(crate) depth: u32,
    /// Jobs that do the same at the same time, each with offsets of its own.
    pub(crate) jobs: u32,
    /// Commands under way at once, as many as the host was made for.
    pub(crate) commands: u32,
    pub(crate) pace: Pace,
    pub(crate) limits: Limits,
    pub(crate) choice: Choice,
    /// Where the part of the namespace that the load uses begins, in bytes.
    pub(crate) offset: u64,
    /// How much later the part of each further one of `jobs` begins.
    pub(crate) increment: u64,
    /// Length in bytes of that part; none for all that follows.
    pub(crate) range: Option<u64>,
    /// Ranges of a trim.
    pub(crate) ranges: u32,
    pub(crate) contents: Arc<Contents>,
    pub(crate) durable: Durable,
    pub(crate) check: Option<Check>,
    /// How many operations end before the next ones begin.
    pub(crate) refill: u32,
    pub(crate) seed: u64,
}

impl Job {
    /// A load on all of `namespace`, whose blocks have no protection, with `bytes` in each command.
    pub(crate) fn plain(
        namespace: Namespace,
        workload: Workload,
        bytes: u32,
        depth: u32,
        runtime: Nanos,
    ) -> Self {
        Self {
            namespace,
            protected: Protected::No,
            workload,
            reads: 50,
            sizes: [Sizes::one(bytes); 3],
            depth,
            jobs: 1,
            commands: depth,
            pace: Pace::default(),
            limits: Limits {
                runtime,
                delay: Nanos::ZERO,
                ramp: Nanos::ZERO,
                bytes: None,
                operations: None,
                steady: None,
                loops: 1,
                after: Vec::new(),
                ends: None,
                group: 0,
            },
            choice: Choice::default(),
            offset: 0,
            increment: 0,
            range: None,
            ranges: 1,
            contents: Arc::new(Contents::Noise),
            durable: Durable::default(),
            check: None,
            refill: 1,
            seed: 1,
        }
    }

    /// Where the part of the job's copy with this number begins, and how long it is.
    pub(crate) fn region(&self, number: u32) -> (u64, u64) {
        let size = self.namespace.blocks * u64::from(self.namespace.block_bytes);
        let offset = self.offset.saturating_add(self.increment.saturating_mul(number.into()));
        (offset, self.range.unwrap_or(size.saturating_sub(offset)))
    }

    /// The part of the namespace that all jobs that do the same cover.
    pub(crate) fn area(&self) -> (u64, u64) {
        let (last, length) = self.region(self.jobs - 1);
        (self.offset, if self.range.is_none() { self.region(0).1 } else { last + length - self.offset })
    }

    /// The kinds of operation that the load has.
    pub(crate) fn kinds(&self) -> &'static [Kind] {
        match self.workload {
            Workload::Read | Workload::RandRead => &[Kind::Read],
            Workload::Write | Workload::RandWrite => &[Kind::Write],
            Workload::Rw | Workload::RandRw => &[Kind::Read, Kind::Write],
            Workload::Trim | Workload::RandTrim => &[Kind::Trim],
            Workload::TrimWrite | Workload::RandTrimWrite => &[Kind::Trim, Kind::Write],
        }
    }

    /// Whether the load changes the content of the namespace.
    pub(crate) fn has_writes(&self) -> bool {
        self.kinds().iter().any(|kind| *kind != Kind::Read)
    }

    /// The longest data of an operation, which is its place in memory.
    pub(crate) fn longest(&self) -> u32 {
        let one = |kind: &Kind| match kind {
            Kind::Trim | Kind::Flush => 16 * self.ranges,
            Kind::Read | Kind::Write => self.sizes[*kind as usize].longest(),
        };
        self.kinds().iter().map(one).max().unwrap_or_default()
    }

    /// The length of a chunk of a load whose operations are checked: they have one length.
    pub(crate) fn chunk(&self) -> u32 {
        let kind = self.kinds().iter().find(|kind| **kind != Kind::Trim).copied();
        self.sizes[kind.unwrap_or(Kind::Trim) as usize].longest()
    }
}
