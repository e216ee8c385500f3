//! Knowledge of a controller before its first packet: a capture may begin in the middle.

use alloc::vec::Vec;

use pcie::wire::Bdf;

/// A queue in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The queue's identifier (SQID or CQID).
    pub id: u16,
    /// Address of the first entry.
    pub base: u64,
    /// Size of the queue in entries.
    pub entries: u32,
}

/// External knowledge of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// The controller's function.
    pub function: Bdf,
    /// The address of BAR0.
    pub bar: u64,
    /// Bytes from a doorbell to the next.
    pub stride: u32,
    /// The submission queues, the Admin Queue with the identifier 0.
    pub submissions: Vec<Ring>,
    /// The completion queues.
    pub completions: Vec<Ring>,
    /// Identifiers of namespaces (NSID), and the bytes of a block of each.
    pub blocks: Vec<(u32, u32)>,
}
