//! SSDs, namespaces, and what their commands did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The report of an SSD or a subsystem about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ssd {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    /// Namespace identifier (NSID).
    pub nsid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of data in a block.
    pub block: u32,
    /// Whether the namespace rejects writes.
    #[serde(default)]
    pub readonly: bool,
    /// Writes that found no space on the medium.
    pub space_errors: u64,
}

/// Counts of the commands of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Namespace identifier (NSID).
    pub nsid: u32,
    /// Read commands.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Commands of other kinds.
    pub others: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands by their time: at most 2, 5, 10, 20 us and so on to 10 s, and longer.
    pub took: Vec<u64>,
    /// The same counts by the kind of command, with the times of each; null if requests of another
    /// kind than NVMe commands are counted.
    pub kinds: Option<CommandKinds>,
    /// Writes that found no space on the medium.
    #[serde(default)]
    pub space_errors: u64,
    /// Commands that failed, by their status.
    #[serde(default)]
    pub statuses: Vec<StatusCount>,
}

/// Counts of the commands of a namespace, by their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandKinds {
    /// Commands that read blocks.
    pub read: TimedCounts,
    /// Commands that write blocks.
    pub write: TimedCounts,
    /// All other I/O commands.
    pub other: TimedCounts,
}

/// Counts of commands of one kind, and their times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimedCounts {
    /// How many there were.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time for which they waited for the host's data.
    pub link: Latencies,
    /// Time for which they waited for the medium.
    pub medium: Latencies,
    /// The rest of their time, in which they waited for other commands.
    pub wait: Latencies,
    /// Their time from arrival to completion.
    pub whole: Latencies,
}

/// Counts of commands or requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Those that succeeded.
    pub operations: u64,
    /// Bytes that these transferred.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// All times added.
    pub sum_ns: u64,
    /// How many times each class has: at most 2, 5, 10, 20 us and so on to 10 s, and longer. The
    /// classes behind the last that has any are left out.
    pub counts: Vec<u64>,
}

impl Latencies {
    /// The upper bounds of the classes, in nanoseconds. Longer times have a class of their own.
    pub const BOUNDS_NS: [u64; 21] = {
        let mut bounds = [0; 21];
        let (mut index, mut decade) = (0, 1_000);
        while index < bounds.len() {
            // 2, 5 and 10 of each decade.
            let factor = [2, 5, 10][index % 3];
            bounds[index] = decade * factor;
            if factor == 10 {
                decade *= 10;
            }
            index += 1;
        }
        bounds
    };

    /// The distribution of times with this sum and these counts of all classes.
    pub fn new(sum_ns: u64, counts: &[u64]) -> Self {
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        Self { sum_ns, counts: counts[..used].to_vec() }
    }
}

/// Commands that failed with one status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusCount {
    /// The status; `other` stands for all statuses that are not counted by themselves.
    pub status: String,
    /// How many commands failed with it.
    pub count: u64,
}

/// The health of an SSD or a subsystem, which its SMART log has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Reads and writes that the medium failed.
    pub media_errors: u64,
    /// Writes that found no space on the medium.
    pub space_errors: u64,
    /// Entries that the Error Information log had.
    pub error_entries: u64,
    /// Time in which I/O commands were under way.
    pub busy_ns: u64,
    /// Time under power.
    pub power_on_ns: u64,
}

/// Counts of an NVMe controller behind registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerCounts {
    /// Commands that the controller took, of all queues.
    pub commands: u64,
    /// Reads of submission queue entries in memory.
    pub fetches: u64,
    /// Commands taken from the controller memory buffer.
    pub pushed: u64,
    /// Interrupts that the controller raised.
    pub interrupts: u64,
}

impl ControllerCounts {
    /// The sum of those of several controllers.
    #[must_use]
    pub fn together(counts: impl Iterator<Item = Self>) -> Self {
        let none = Self { commands: 0, fetches: 0, pushed: 0, interrupts: 0 };
        counts.fold(none, |sum, one| Self {
            commands: sum.commands + one.commands,
            fetches: sum.fetches + one.fetches,
            pushed: sum.pushed + one.pushed,
            interrupts: sum.interrupts + one.interrupts,
        })
    }
}

/// Counts of the commands of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostActivity {
    /// Read commands.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Commands of other kinds.
    pub others: u64,
    /// Commands that failed.
    pub errors: u64,
    /// The same counts by the kind of command.
    pub kinds: Option<HostKinds>,
}

/// Counts of the commands of a host, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostKinds {
    /// Commands that read blocks.
    pub read: Counts,
    /// Commands that write blocks.
    pub write: Counts,
    /// All other I/O commands.
    pub other: Counts,
}
