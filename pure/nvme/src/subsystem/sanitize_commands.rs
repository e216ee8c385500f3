//! The Sanitize command, and the actions at the beginning and end of an operation.

use alloc::vec::Vec;

use super::Subsystem;
use super::errors::Failure;
use super::events::AsynchronousEvent;
use super::flow::{Handled, Step};
use super::record::{SanitizeRecord, SanitizeStatus};
use super::self_test::Outcome;
use super::types::{CommandToken, Notification};
use super::unreadable::Unreadable;
use super::view::Touch;
use crate::media::MediaError;
use crate::wire::log::LogPage;
use crate::wire::{StatusCode, SubmissionQueueEntry};

impl Subsystem {
    pub(super) fn on_sanitize(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let Some(wanted) = self.sanitize.wanted(entry)? else { return Ok(Step::Done(0)) };
        if wanted.status != SanitizeStatus::InProgress {
            self.set_sanitize(wanted);
            return Ok(Step::Done(0));
        }
        if self.firmware.is_activation_pending() {
            return Err(Failure::new(StatusCode::FirmwareActivationRequiresControllerLevelReset));
        }
        let controller = self.flow.slots.of(token).controller;
        for namespace in self.namespaces.iter() {
            self.namespaces.check_reservation(controller, namespace, Touch::Writes)?;
        }
        if self.namespaces.iter().any(|namespace| namespace.is_write_protected()) {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        if self.restrictions.is_owned() {
            return self.defer(token);
        }
        self.self_test.end(&mut self.flow, &self.smart, Outcome::AbortedBySanitize);
        for (_, controller) in self.controllers.iter_mut() {
            controller.events.clear(LogPage::SanitizeStatus);
        }
        self.set_sanitize(wanted);
        let (flow, controllers) = (&mut self.flow, &self.controllers);
        self.event_log.record_sanitize_start(flow, controllers, controller, entry.cdw10, entry.cdw11);
        if let Some(lanes) = &mut self.lanes {
            lanes.set_sanitize_at(self.namespaces.views().version());
        }
        self.end_io_for_sanitize();
        self.sanitize.await_quiet();
        self.sanitize_when_quiet();
        Ok(Step::Done(0))
    }

    /// Starts an operation that a power loss interrupted again.
    pub(super) fn resume_sanitize(&mut self) {
        self.publish_sanitize(&self.sanitize.record());
        self.sanitize.resume(&mut self.flow, self.namespaces.media());
    }

    /// Ends the I/O commands that can be aborted, and waits for writes in progress.
    fn end_io_for_sanitize(&mut self) {
        let tokens: Vec<_> = self.flow.slots.tokens().collect();
        for token in tokens {
            let slot = self.flow.slots.of(token);
            if slot.state.can_abort() && !slot.queue.is_admin() {
                self.fail(token, Failure::new(StatusCode::SanitizeInProgress));
            }
        }
    }

    /// Begins an operation that waits for media to be quiet, once they are.
    pub(super) fn sanitize_when_quiet(&mut self) {
        let lanes_are_quiet = self.lanes.as_ref().is_none_or(|lanes| lanes.are_quiet_for_sanitize());
        if self.flow.media_outstanding == 0 && lanes_are_quiet && self.sanitize.is_next() {
            self.sanitize.begin(&mut self.flow, self.namespaces.media());
        }
    }

    /// Performs the next step of the operation in progress.
    pub(super) fn step_sanitize(&mut self) {
        if self.sanitize.step(&mut self.flow) {
            self.end_sanitize(SanitizeStatus::Completed);
        }
    }

    /// Continues after a step of the operation in progress.
    pub(super) fn on_sanitized(&mut self, result: Result<(), MediaError>) {
        if !self.sanitize.is_running() {
            return;
        }
        if result.is_ok() {
            self.sanitize.on_step(&mut self.flow);
        } else {
            self.smart.count_media_error();
            self.end_sanitize(SanitizeStatus::Failed);
        }
    }

    fn end_sanitize(&mut self, status: SanitizeStatus) {
        let record = self.sanitize.end(status);
        if record.data_erased {
            self.unreadable = Unreadable::default();
            self.namespaces.change_each(|one| one.marked, |one| one.marked = false);
        }
        self.set_sanitize(record);
        let log = self.sanitize.log(&self.namespaces.media());
        self.event_log.record_sanitize_end(&mut self.flow, &self.controllers, &log);
        if status == SanitizeStatus::Failed {
            self.capture_telemetry("a sanitize operation has failed");
        }
        self.controllers.raise(&mut self.flow, AsynchronousEvent::SanitizeCompleted);
    }

    fn set_sanitize(&mut self, record: SanitizeRecord) {
        self.sanitize.set_record(record);
        self.publish_sanitize(&record);
        self.flow.notify(Notification::SanitizeChanged(record));
    }

    /// Publishes to I/O commands whether the operation refuses them, and whether a change ends
    /// Global Data Erased.
    fn publish_sanitize(&mut self, record: &SanitizeRecord) {
        self.namespaces.set_sanitize(record.refusal(), record.data_erased);
        self.restrictions.set_restricted(record.refusal().is_some() || record.data_erased);
    }

    /// Notes the first write since the media were sanitized.
    pub(super) fn on_first_change(&mut self) {
        self.set_sanitize(SanitizeRecord { data_erased: false, ..self.sanitize.record() });
    }
}
