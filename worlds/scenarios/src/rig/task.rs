//! What a host is to do, and what came of it.

use engine::{Instant, Nanos};
use pcie::root_complex::INTERRUPT_WINDOW;
use pcie::wire::{Kind as TlpKind, MemoryOperation, Packet};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable what was written.
    Flush,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Something to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads of a double word of the function's configuration space, one at a time.
    ConfigReads {
        /// How many.
        count: u64,
        /// From one's end to the next one's start: half of it to three halves, evenly.
        gap: Nanos,
    },
    /// NVMe commands.
    Commands {
        /// What they do.
        kind: Kind,
        /// How many.
        count: u64,
        /// Bytes of each.
        bytes: u32,
        /// How many at a time.
        depth: u32,
        /// As for configuration reads, at a depth of 1; else none.
        gap: Nanos,
        /// Anywhere on the namespace, or one behind the other.
        random: bool,
    },
}

impl Task {
    /// How many operations it is.
    pub const fn count(&self) -> u64 {
        match self {
            Self::ConfigReads { count, .. } | Self::Commands { count, .. } => *count,
        }
    }
}

/// What passed the root port's link, as an analyser there sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its first symbol.
    pub at: Instant,
    /// Away from the host.
    pub down: bool,
    /// What it was.
    pub what: What,
    /// Bytes of payload, or that it asks for.
    pub bytes: u32,
}

/// A kind of TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// CfgRd or CfgWr.
    Config,
    /// MRd.
    MemoryRead,
    /// MWr.
    MemoryWrite,
    /// MWr into the interrupt window (MSI-X).
    Interrupt,
    /// Cpl or CplD.
    Completion,
    /// Anything else.
    Other,
}

/// What a packet is, and how many bytes it has or asks for.
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

/// The outcome of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of a configuration read: from its start to its completion's start. Of a command at a depth of 1: from the
    /// start of its submission doorbell to the acknowledgement of its completion doorbell. Otherwise from submission to
    /// completion.
    pub times: Vec<Nanos>,
    /// Which operation each of them was, the first being 0.
    pub numbers: Vec<u64>,
    /// Operations that failed.
    pub failed: u64,
    /// When the first began.
    pub began: Instant,
    /// When the last ended.
    pub ended: Instant,
    /// Bytes that were moved.
    pub bytes: u64,
}

impl Outcome {
    /// Adds what came of the same elsewhere.
    pub fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failed += other.failed;
        self.began = self.began.min(other.began);
        self.ended = self.ended.max(other.ended);
        self.bytes += other.bytes;
    }
}
