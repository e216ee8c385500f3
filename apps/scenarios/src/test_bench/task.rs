//! Tasks of a host, and their results.

use engine::{Instant, Nanos};
use pcie::root_complex::INTERRUPT_WINDOW;
use pcie::wire::{Kind as TlpKind, MemoryOperation, Packet};

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes written data durable.
    Flush,
}

impl Kind {
    /// All kinds, in a fixed order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];

    /// The name of the kind, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// A series of operations to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads of a double word of the function's configuration space, one at a time.
    ConfigReads {
        /// Number of reads.
        count: u64,
        /// The mean time from the end of a read to the start of the next one. The times are spread
        /// evenly from half of it to three halves.
        gap: Nanos,
    },
    /// NVMe commands, one or several at a time.
    Commands {
        /// The kind of the commands.
        kind: Kind,
        /// Number of commands.
        count: u64,
        /// Length of each command's data in bytes.
        bytes: u32,
        /// Number of commands outstanding at a time.
        depth: u32,
        /// At a depth of 1, the mean time from the end of a command to the start of the next one,
        /// spread evenly from half of it to three halves; unused at other depths.
        gap: Nanos,
        /// Whether commands are at random places of the namespace, or one behind another.
        random: bool,
    },
}

impl Task {
    /// Number of operations of the task.
    pub const fn count(&self) -> u64 {
        match self {
            Self::ConfigReads { count, .. } | Self::Commands { count, .. } => *count,
        }
    }
}

/// A packet on the root port's link, as an analyser sees it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The time of the packet's first symbol.
    pub at: Instant,
    /// Whether the packet goes away from the host.
    pub down: bool,
    /// The kind of the packet.
    pub what: What,
    /// Length of the payload in bytes, or the number of bytes that the packet asks for.
    pub bytes: u32,
}

/// A kind of TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A configuration request (CfgRd or CfgWr).
    Config,
    /// A memory read (MRd).
    MemoryRead,
    /// A memory write (MWr) outside the interrupt window.
    MemoryWrite,
    /// A memory write (MWr) into the interrupt window: an MSI-X interrupt.
    Interrupt,
    /// A completion without or with data (Cpl or CplD).
    Completion,
    /// Any other TLP.
    Other,
}

/// The kind of a packet, and the number of bytes that it carries or asks for.
pub(super) fn classify(packet: &Packet) -> (What, u32) {
    let (what, bytes) = match &packet.header.kind {
        TlpKind::Config(_) => (What::Config, 4),
        TlpKind::Completion(_) => (What::Completion, 0),
        TlpKind::Memory(request) if request.operation == MemoryOperation::Read => {
            (What::MemoryRead, usize::from(packet.header.length) * 4)
        }
        TlpKind::Memory(request) if INTERRUPT_WINDOW.contains(&request.address) => (What::Interrupt, 0),
        TlpKind::Memory(_) => (What::MemoryWrite, 0),
        _ => (What::Other, 0),
    };
    (what, u32::try_from(bytes.max(packet.payload.len())).expect("a TLP is short"))
}

/// The result of a task, or of one kind of a job's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The latency of each measured operation. A configuration read takes from its start to its
    /// completion's start. A command at a depth of 1 takes from the start of its submission
    /// doorbell to the acknowledgement of its completion doorbell, and any other command from
    /// submission to completion.
    pub times: Vec<Nanos>,
    /// The number in its task, from 0, of each operation in `times`.
    pub numbers: Vec<u64>,
    /// When each operation in `times` ended, and the bytes that it moved; empty for a load of an
    /// SSD alone.
    pub ends: Vec<(Instant, u32)>,
    /// Number of operations that failed.
    pub failed: u64,
    /// When the first operation began.
    pub began: Instant,
    /// When the last operation ended.
    pub ended: Instant,
    /// Number of bytes that were transferred.
    pub bytes: u64,
}

impl Outcome {
    /// Adds the result of another job of the same kind.
    pub fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.ends.extend(other.ends);
        self.failed += other.failed;
        self.began = self.began.min(other.began);
        self.ended = self.ended.max(other.ended);
        self.bytes += other.bytes;
    }
}
