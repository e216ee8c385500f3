//! A namespace as a host knows it.

use crate::wire::NamespaceId;
use crate::wire::identify::{IDENTIFY_LENGTH, IdentifyNamespace};

/// How many active namespaces of a controller a host looks at.
pub const NAMESPACES_MAX: usize = 256;

/// What a host keeps of Identify Namespace (CNS 00h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The namespace identifier (NSID).
    pub id: NamespaceId,
    /// Namespace Size (NSZE) in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block, without metadata.
    pub block_bytes: u32,
    /// Bytes of metadata beside each logical block.
    pub metadata_bytes: u16,
    /// Deallocate Logical Block Features (DLFEAT).
    pub deallocate_features: u8,
}

impl Namespace {
    /// Reads Identify Namespace; none where its formatted block size is not a size that a host can use.
    pub fn parse(id: NamespaceId, page: &[u8; IDENTIFY_LENGTH]) -> Option<Self> {
        let namespace = IdentifyNamespace::parse(page);
        Some(Self {
            id,
            blocks: namespace.size,
            block_bytes: namespace.block_bytes()?,
            metadata_bytes: namespace.formatted().metadata_size,
            deallocate_features: namespace.deallocate_features,
        })
    }
}
