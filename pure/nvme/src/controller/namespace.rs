//! Namespaces as the controller keeps them.

use alloc::vec::Vec;

use super::config::{BlockSize, NamespaceConfig, NamespaceIdentity};
use crate::media::MediumId;
use crate::wire::NamespaceId;

/// A namespace that is attached to the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace {
    pub(super) id: NamespaceId,
    pub(super) medium: MediumId,
    /// The medium's length.
    pub(super) bytes: u64,
    pub(super) block: BlockSize,
    /// Namespace Size (NSZE).
    pub(super) blocks: u64,
    pub(super) read_only: bool,
    /// A Format NVM command is under way.
    pub(super) formatting: bool,
    pub(super) identity: NamespaceIdentity,
}

impl Namespace {
    fn new(config: &NamespaceConfig) -> Self {
        Self {
            id: config.id,
            medium: config.medium,
            bytes: config.bytes,
            block: config.block,
            blocks: config.bytes >> config.block.shift(),
            read_only: config.read_only,
            formatting: false,
            identity: config.identity,
        }
    }

    /// Sets the block size, and with it the number of blocks.
    pub(super) const fn format(&mut self, block: BlockSize) {
        self.block = block;
        self.blocks = self.bytes >> block.shift();
    }

    /// Sets the medium's length, and with it the number of blocks.
    pub(super) const fn resize(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.blocks = bytes >> self.block.shift();
    }
}

/// The namespaces by identifier: index n holds namespace n + 1.
#[derive(Clone, Debug)]
pub(super) struct Namespaces(Vec<Option<Namespace>>);

impl Namespaces {
    pub(super) fn new(configs: &[NamespaceConfig]) -> Self {
        let highest = configs.iter().map(|config| config.id.0).max().unwrap_or(0);
        let find = |id: u32| configs.iter().find(|config| config.id.0 == id).map(Namespace::new);
        Self((1..=highest).map(find).collect())
    }

    /// The highest identifier (NN).
    pub(super) fn highest(&self) -> u32 {
        u32::try_from(self.0.len()).expect("identifiers are checked against NAMESPACE_ID_MAX")
    }

    /// The namespace called `id`, if it is active.
    #[inline]
    pub(super) fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.0.get(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.as_ref()
    }

    /// The namespace called `id`, if it is active, to change it.
    pub(super) fn find_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.0.get_mut(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.as_mut()
    }

    /// The active namespaces in the order of their identifiers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.0.iter().flatten()
    }

    /// The first active namespace after `id`.
    pub(super) fn after(&self, id: NamespaceId) -> Option<&Namespace> {
        self.0.iter().skip(usize::try_from(id.0).ok()?).flatten().next()
    }

    /// The active namespaces, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Namespace> {
        self.0.iter_mut().flatten()
    }
}
