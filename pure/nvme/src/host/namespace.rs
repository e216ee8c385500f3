//! A namespace as its host knows it.

use crate::wire::NamespaceId;
use crate::wire::identify::{IDENTIFY_LENGTH, IdentifyNamespace};

/// The most active namespaces of a controller that a host uses.
pub const NAMESPACES_MAX: usize = 256;

/// The fields of Identify Namespace (CNS 00h) that a host keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The namespace identifier (NSID).
    pub id: NamespaceId,
    /// Namespace Size (NSZE) in logical blocks.
    pub blocks: u64,
    /// Length of a logical block in bytes, without metadata.
    pub block_bytes: u32,
    /// Length in bytes of the metadata of each logical block.
    pub metadata_bytes: u16,
    /// Deallocate Logical Block Features (DLFEAT).
    pub deallocate_features: u8,
}

impl Namespace {
    /// Reads an Identify Namespace structure; `None` if a host can't use the formatted block size.
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
