//! Format NVM.

use super::config::BlockSize;
use super::errors::{Failure, Location};
use super::slots::MediaFor;
use super::{CommandToken, Controller, Handled, Notification, Step};
use crate::media::{MediaError, Operation};
use crate::wire::{Bits, NamespaceId, StatusCode, SubmissionQueueEntry};

/// LBA Format, low bits (LBAFL), in CDW10.
const FORMAT_LOW: Bits = Bits::new(3, 0);
/// Metadata Settings (MSET), in CDW10.
const METADATA_SETTINGS: Bits = Bits::bit(4);
/// Protection Information (PI), in CDW10.
const PROTECTION: Bits = Bits::new(7, 5);
/// Secure Erase Settings (SES), in CDW10.
const SECURE_ERASE: Bits = Bits::new(11, 9);
/// LBA Format, high bits (LBAFU), in CDW10.
const FORMAT_HIGH: Bits = Bits::new(13, 12);
/// Secure Erase Settings: User Data Erase; above it is Cryptographic Erase, which needs keys.
const USER_DATA_ERASE: u32 = 0b001;

impl Controller {
    /// Forgets the contents whatever the Secure Erase Settings say: bytes of blocks of another size would mean
    /// nothing.
    pub(super) fn on_format(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let format = FORMAT_HIGH.of(entry.cdw10) << 4 | FORMAT_LOW.of(entry.cdw10);
        let invalid_format = Failure::field(StatusCode::InvalidFormat, Location::CDW10);
        let block = BlockSize::from_format(format).ok_or(invalid_format)?;
        if METADATA_SETTINGS.is_set(entry.cdw10) || PROTECTION.is_set(entry.cdw10) {
            return Err(invalid_format);
        }
        if SECURE_ERASE.of(entry.cdw10) > USER_DATA_ERASE {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(41, 1)));
        }
        let all = entry.namespace == NamespaceId::ALL;
        if !all && self.namespaces.find(entry.namespace).is_none() {
            return Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE));
        }
        let chosen = || self.namespaces.iter().filter(|one| all || one.id == entry.namespace);
        if chosen().any(|namespace| namespace.read_only) {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        if chosen().any(|namespace| namespace.formatting) {
            return Err(Failure::new(StatusCode::FormatInProgress));
        }
        self.set_formatting(entry, true);
        let previous = if all { NamespaceId::NONE } else { NamespaceId(entry.namespace.0 - 1) };
        self.format_after(token, previous, block)
    }

    /// Formats the first namespace after `previous`; when there is none, all are formatted.
    fn format_after(&mut self, token: CommandToken, previous: NamespaceId, block: BlockSize) -> Handled {
        let Some(namespace) = self.namespaces.after(previous) else {
            return Ok(Step::Done(0));
        };
        let (id, medium, length) = (namespace.id, namespace.medium, namespace.bytes);
        let operation = Operation::Deallocate { offset: 0, length };
        Ok(self.ask_medium(token, MediaFor::Format(id, block), medium, 0, operation))
    }

    pub(super) fn on_formatted(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        id: NamespaceId,
        block: BlockSize,
        result: Result<(), MediaError>,
    ) -> Handled {
        if let Err(error) = result {
            self.set_formatting(entry, false);
            return Err(self.media_failure(entry, MediaFor::Format(id, block), error));
        }
        if let Some(namespace) = self.namespaces.find_mut(id) {
            namespace.format(block);
            namespace.formatting = false;
        }
        self.notify(Notification::NamespaceFormatted { namespace: id, block });
        self.on_namespace_changed(id);
        if entry.namespace == NamespaceId::ALL {
            self.format_after(token, id, block)
        } else {
            Ok(Step::Done(0))
        }
    }

    /// Marks the namespaces that the command is for.
    fn set_formatting(&mut self, entry: &SubmissionQueueEntry, formatting: bool) {
        let all = entry.namespace == NamespaceId::ALL;
        for namespace in self.namespaces.iter_mut().filter(|one| all || one.id == entry.namespace) {
            namespace.formatting = formatting;
        }
    }
}
