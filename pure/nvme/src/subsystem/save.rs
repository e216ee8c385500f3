//! Lasting state is durable before the command that changed it completes.

use alloc::boxed::Box;

use super::Subsystem;
use super::slots::MediaFor;
use super::types::{CommandToken, Notification};
use crate::media::{MediaError, Operation};
use crate::wire::{QueueId, Status, SubmissionQueueEntry};

impl Notification {
    /// Whether a command that caused this notification must not complete before the notification is
    /// durable. Events, and changes that end with this start, are saved without haste.
    pub(super) const fn must_last(&self) -> bool {
        match self {
            Self::NumberOfQueues { .. }
            | Self::Arbitration { .. }
            | Self::InterruptCoalescing { .. }
            | Self::InterruptVector { .. }
            | Self::KeepAliveTimeout { .. }
            | Self::CrossControllerReset { .. }
            | Self::EventRecorded(_)
            | Self::FirmwareActivated { .. }
            | Self::ReadyForPowerLoss(_)
            | Self::ShutDown { .. } => false,
            Self::SelfTestStarted { extended, .. } => *extended,
            Self::NamespaceFormatted { .. }
            | Self::NamespaceCreated { .. }
            | Self::NamespaceDeleted(_)
            | Self::NamespaceAttached { .. }
            | Self::NamespaceProtected { .. }
            | Self::BlocksUnreadable(_)
            | Self::BlocksReadable(_)
            | Self::ReservationsChanged(_)
            | Self::SanitizeChanged(_)
            | Self::SelfTestEnded(_)
            | Self::FirmwareStored { .. }
            | Self::FirmwareSelected { .. }
            | Self::FeatureSaved(_) => true,
        }
    }
}

impl Subsystem {
    /// Notes that the latest notification belongs to the command called `token`.
    #[cold]
    pub(super) fn remember_to_save(&mut self, token: CommandToken) {
        self.flow.unsaved = false;
        self.flow.slots.of(token).unsaved = true;
    }

    /// Makes all notifications so far durable, for a command that has otherwise succeeded.
    #[cold]
    pub(super) fn save(&mut self, token: CommandToken, dw0: u32) {
        self.flow.slots.of(token).unsaved = false;
        match self.config.state {
            Some(state) => {
                if !self.flow.slots.is_command(token) {
                    let counters = Box::new(self.counters());
                    self.flow.notify(Notification::ReadyForPowerLoss(counters));
                }
                self.flow.ask_medium(token, MediaFor::Save(dw0), state, 0, Operation::Flush);
            }
            None => self.complete(token, dw0, Status::SUCCESS),
        }
    }

    /// Ends a command once its change is durable or could not be saved. If saving failed, the
    /// command fails, although the change is in effect until this process ends or the change can be
    /// saved. A namespace that was being created is withdrawn.
    #[cold]
    pub(super) fn on_saved(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        dw0: u32,
        result: Result<(), MediaError>,
    ) {
        let slot_is_command = self.flow.slots.is_command(token);
        if slot_is_command
            && self.flow.slots.of(token).queue == QueueId::ADMIN
            && self.creates_namespace(entry)
        {
            self.on_namespace_saved(crate::wire::NamespaceId(dw0), result);
        }
        // No command waits until the withdrawal is durable.
        self.flow.unsaved = false;
        match result {
            Ok(()) => self.complete(token, dw0, Status::SUCCESS),
            Err(error) => {
                let failure = self.media_failure(entry, MediaFor::Save(dw0), error);
                self.fail(token, failure);
            }
        }
    }
}
