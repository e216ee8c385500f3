//! What a load does, and for how long.

use engine::Nanos;
use nvme::host::Namespace;

use super::Sizes;
use crate::args::Workload;
use crate::protected::Protected;

/// What a load does, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) namespace: Namespace,
    /// Who protects the namespace's blocks.
    pub(crate) protected: Protected,
    pub(crate) workload: Workload,
    /// Percent of reads in a load that reads and writes.
    pub(crate) reads: u8,
    /// Lengths of the data of operations. What is longer than the controller's largest transfer
    /// takes several commands.
    pub(crate) sizes: Sizes,
    /// Operations of each job under way at once.
    pub(crate) depth: u32,
    /// Jobs that do the same at the same time, each with offsets of its own.
    pub(crate) jobs: u32,
    /// Commands under way at once, as many as the host was made for.
    pub(crate) commands: u32,
    /// Commands to begin per second; none to begin a command whenever there is room.
    pub(crate) rate: Option<u32>,
    pub(crate) runtime: Nanos,
    /// After how many bytes each job ends; none if only its time ends it. Random offsets then come
    /// in an order that has each of them once.
    pub(crate) bytes: Option<u64>,
    /// Length in bytes of the part of the namespace that the load uses, which begins at its
    /// first block.
    pub(crate) range: u64,
    pub(crate) verify: bool,
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
            sizes: Sizes::one(bytes),
            depth,
            jobs: 1,
            commands: depth,
            rate: None,
            runtime,
            bytes: None,
            range: namespace.blocks * u64::from(namespace.block_bytes),
            verify: false,
            seed: 1,
        }
    }
}
