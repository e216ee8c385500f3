//! Write Uncorrectable, and the writes that make blocks readable again.

use super::Subsystem;
use super::errors::Failure;
use super::flow::{Handled, Step};
use super::record::UnreadableBlocks;
use super::types::{CommandToken, Notification};
use super::view::blocks_of;
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry};

impl Subsystem {
    pub(super) fn on_write_uncorrectable(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let (namespace, lba, blocks) = (entry.namespace, entry.starting_lba(), blocks_of(entry));
        self.executor().check_writable(token, entry)?;
        let blocks = UnreadableBlocks { namespace, lba, blocks };
        if !self.unreadable.add(&blocks) {
            return Err(Failure::at_lba(StatusCode::WriteFault, lba));
        }
        self.namespaces.set_marked(namespace, true);
        self.flow.notify(Notification::BlocksUnreadable(blocks));
        Ok(Step::Done(0))
    }

    pub(super) fn restore_unreadable_blocks(&mut self) {
        for run in &self.config.unreadable_blocks {
            if let Some(namespace) = self.namespaces.find(run.namespace) {
                let end = run.lba.saturating_add(run.blocks).min(namespace.blocks);
                self.unreadable.add(&UnreadableBlocks { blocks: end.saturating_sub(run.lba), ..*run });
                self.namespaces.set_marked(run.namespace, self.unreadable.has(run.namespace));
            }
        }
    }

    /// Removes the marks from blocks that were written, which makes them readable again.
    #[cold]
    pub(super) fn unmark(&mut self, namespace: NamespaceId, lba: u64, blocks: u64) {
        let blocks = UnreadableBlocks { namespace, lba, blocks };
        if self.unreadable.remove(&blocks) {
            self.namespaces.set_marked(namespace, self.unreadable.has(namespace));
            self.flow.notify(Notification::BlocksReadable(blocks));
        }
    }
}
