//! The erasure of a namespace's contents: by a format, before the namespace exists, and before its
//! removal ends.

use super::Subsystem;
use super::flow::Handled;
use super::slots::{Erasure, MediaFor};
use super::types::CommandToken;
use crate::media::{MediaError, Operation};
use crate::wire::SubmissionQueueEntry;

impl Subsystem {
    /// Flushes the medium whose bytes a command has erased. Without the flush, a power loss could
    /// restore the old contents.
    pub(super) fn flush_erased(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        erasure: Erasure,
    ) -> Handled {
        let (Erasure::Format(id, _) | Erasure::Creation(id) | Erasure::Deletion(id)) = erasure;
        let Some(medium) = self.namespaces.find(id).map(|namespace| namespace.medium) else {
            return self.on_erased(token, entry, erasure, Ok(()));
        };
        Ok(self.flow.ask_medium(token, MediaFor::FlushErased(erasure), medium, 0, Operation::Flush))
    }

    /// Continues a command whose erasure is durable or has failed.
    pub(super) fn on_erased(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        erasure: Erasure,
        result: Result<(), MediaError>,
    ) -> Handled {
        match erasure {
            Erasure::Format(id, block) => self.on_formatted(token, entry, id, block, result),
            Erasure::Creation(id) => self.on_namespace_created(token, id, result),
            Erasure::Deletion(id) => self.on_namespace_deleted(token, entry, id, result),
        }
    }
}
