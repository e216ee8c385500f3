//! The progress of commands: data from the host, answers of media, and completions.

use engine::Buffer;

use super::Subsystem;
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::slots::{Alone, HostDataFor, MediaFor, Own, State};
use super::types::{CommandToken, CompletionResult, Output};
use super::view::blocks_of;
use crate::media;
use crate::media::MediaError;
use crate::wire::{Status, StatusCode};

impl Subsystem {
    #[inline]
    pub(super) fn finish(&mut self, token: CommandToken, handled: Handled) {
        if self.flow.unsaved {
            self.remember_to_save(token);
        }
        match handled {
            Ok(Step::Waiting) => (),
            Ok(Step::Done(dw0)) if self.flow.slots.of(token).unsaved => self.save(token, dw0),
            Ok(Step::Done(dw0)) => self.complete(token, dw0, Status::SUCCESS),
            Err(failure) => self.fail(token, failure),
        }
    }

    pub(super) fn on_host_data(&mut self, token: CommandToken, data: Buffer) {
        let slot = self.flow.slots.of(token);
        let State::AwaitingHostData(purpose) = slot.state else {
            return; // The command was aborted or reset in the meantime.
        };
        let wanted = usize::try_from(slot.length).unwrap_or(usize::MAX);
        assert!(data.len() == wanted, "{token:?} pulled {wanted} B and was given {} B", data.len());
        slot.spent.end_link(self.flow.now);
        if self.restrictions.exist()
            && self.restrictions.is_owned()
            && !slot.queue.is_admin()
            && !self.restrictions.is_owner(token)
        {
            self.defer_data(token, purpose, data);
            return;
        }
        self.on_pulled(token, purpose, data);
    }

    /// Continues a command with the data that it pulled.
    #[inline]
    pub(super) fn on_pulled(&mut self, token: CommandToken, purpose: HostDataFor, data: Buffer) {
        let slot = self.flow.slots.of(token);
        let (controller, entry) = (slot.controller, slot.entry);
        let handled = match purpose {
            HostDataFor::Write => self.executor().on_write_data(token, &entry, data),
            HostDataFor::Compare => self.executor().on_compare_data(token, &entry, data),
            HostDataFor::DatasetManagement => self.executor().on_dataset_ranges(token, &entry, data),
            HostDataFor::SetFeatures => self.on_feature_data(controller, &entry, &data),
            HostDataFor::Copy => self.executor().on_copy_ranges(token, &entry, data),
            HostDataFor::CreateNamespace => self.on_create_namespace(token, &data),
            HostDataFor::Reservation => self.on_reservation_keys(token, &entry, &data),
            HostDataFor::FirmwareImage => self.firmware.on_piece(controller, &entry, &data),
            HostDataFor::NamespaceAttachment => self.on_controller_list(controller, &entry, &data),
        };
        self.finish(token, handled);
    }

    pub(super) fn on_host_data_failed(&mut self, token: CommandToken, status: Status) {
        let failure = Failure { status, location: Location::DATA_POINTER, lba: 0, dw0: 0 };
        match self.flow.slots.of(token).state {
            State::Free => self.revoke_success(token, &failure),
            _ => self.fail(token, failure),
        }
    }

    /// Turns a queued success into a failure, because the transport could not move the command's
    /// last data. The token is not reused before its completion is polled, so that the slot still
    /// has the command.
    #[cold]
    fn revoke_success(&mut self, token: CommandToken, failure: &Failure) {
        let gated = self.lanes.as_mut().and_then(|lanes| lanes.success_of(token));
        let Some(completion) = gated.or_else(|| self.flow.success_of(token)) else { return };
        *completion = CompletionResult { dw0: failure.dw0, dw1: 0, status: failure.status.with_more() };
        let slot = self.flow.slots.of(token);
        let (controller, queue, entry) = (slot.controller, slot.queue, slot.entry);
        self.record_failure(controller, queue, &entry, failure);
    }

    #[inline]
    pub(super) fn on_media_done(&mut self, id: media::IoId, result: Result<(), MediaError>) {
        let background = self.flow.slots.is_background(id);
        if !background {
            self.flow.media_outstanding = self.flow.media_outstanding.saturating_sub(1);
            self.flow.overlaps.end(id);
            self.flow.ask_those_behind();
        }
        match self.flow.slots.awaiting(id) {
            Some((token, purpose)) => self.on_awaited_media(token, purpose, result),
            None => self.flow.forget_orphan(id),
        }
        if background {
            // No command waits for notifications that no command caused.
            self.flow.unsaved = false;
        }
        if self.restrictions.exist() {
            self.check_quiet();
        }
    }

    #[inline]
    pub(super) fn on_awaited_media(
        &mut self,
        token: CommandToken,
        purpose: MediaFor,
        result: Result<(), MediaError>,
    ) {
        let slot = self.flow.slots.of(token);
        slot.spent.end_medium(self.flow.now);
        slot.asked = None;
        let short = result.is_ok() && slot.received != slot.expected;
        let entry = slot.entry;
        let result = if short && purpose == MediaFor::SelfTest { Err(MediaError::Read) } else { result };
        let handled = match (purpose, result) {
            _ if short && purpose != MediaFor::SelfTest => Err(Failure::new(StatusCode::InternalError)),
            (MediaFor::FlushAll(namespace), _) => self.on_flushed(token, namespace, result),
            (MediaFor::Erase(erasure), Ok(())) => self.flush_erased(token, &entry, erasure),
            (MediaFor::Erase(erasure) | MediaFor::FlushErased(erasure), _) => {
                self.on_erased(token, &entry, erasure, result)
            }
            (MediaFor::Sanitize, _) => return self.on_sanitized(result),
            (MediaFor::SelfTest, _) => {
                let (flow, namespaces) = (&mut self.flow, &self.namespaces);
                if !self.self_test.on_read(flow, namespaces, &self.smart, result) {
                    self.smart.count_media_error();
                    self.capture_telemetry("a self-test has failed");
                }
                return;
            }
            (MediaFor::Save(dw0), _) => return self.on_saved(token, &entry, dw0, result),
            (MediaFor::ReadStored, Ok(())) => self.on_stored(token, &entry),
            (MediaFor::CopyRead(_), Ok(())) => self.executor().on_copy_read(token, &entry),
            (MediaFor::CopyWrite(_), Ok(())) => self.on_copy_written(token, &entry),
            (MediaFor::Protect(namespace), _) => self.on_flushed_to_protect(token, &entry, namespace, result),
            (_, Err(error)) => Err(self.media_failure(&entry, purpose, error)),
            (MediaFor::Read | MediaFor::Compare { equal: true }, Ok(())) => {
                self.smart.count_read(self.flow.slots.of(token).length);
                match self.flow.slots.of(token).partner {
                    Some(second) => self.on_fused_equal(token, second),
                    None => Ok(Step::Done(0)),
                }
            }
            (MediaFor::Write, Ok(())) => {
                self.smart.count_write(self.flow.slots.of(token).length);
                Ok(Step::Done(0))
            }
            (MediaFor::Compare { equal: false }, Ok(())) => {
                Err(Failure::at_lba(StatusCode::CompareFailure, entry.starting_lba()))
            }
            (MediaFor::WriteMarked, Ok(())) => {
                self.smart.count_write(self.flow.slots.of(token).length);
                self.unmark(entry.namespace, entry.starting_lba(), blocks_of(&entry));
                Ok(Step::Done(0))
            }
            (MediaFor::WriteZeroes, Ok(())) => {
                self.unmark(entry.namespace, entry.starting_lba(), blocks_of(&entry));
                Ok(Step::Done(0))
            }
            (MediaFor::Flush, Ok(())) => Ok(Step::Done(0)),
            (MediaFor::Verify, Ok(())) => self.on_verified(token, &entry),
            (MediaFor::Deallocate(index), Ok(())) => self.on_deallocated(token, &entry, index),
        };
        self.finish(token, handled);
    }

    #[inline]
    pub(super) fn complete(&mut self, token: CommandToken, dw0: u32, status: Status) {
        if !self.flow.slots.is_command(token) {
            return self.on_own_end(token, status);
        }
        let (now, slot) = (self.flow.now, self.flow.slots.of(token));
        if !slot.queue.is_admin() {
            self.smart.end_io(now);
            self.controllers.of_mut(slot.controller).tally.count(slot, status);
            let is_valid = self.namespaces.is_valid(slot.entry.namespace);
            self.tallies.count(now, slot, status, is_valid);
        }
        self.flow.slots.retire(token);
        let completion = CompletionResult { dw0, dw1: 0, status };
        self.flow.outputs.push_back(Output::Complete { token, completion });
        if self.restrictions.exist() {
            self.release(token);
        }
    }

    /// Ends work that the controller did without a command.
    #[cold]
    pub(super) fn on_own_end(&mut self, token: CommandToken, status: Status) {
        self.flow.slots.retire(token);
        if token == self.flow.slots.own(Own::Shutdown) {
            self.on_shutdown_flushed(status.is_success());
        }
    }

    /// Ends the command with a failure, which the Error Information log records.
    #[cold]
    pub(super) fn fail(&mut self, token: CommandToken, failure: Failure) {
        let slot = self.flow.slots.of(token);
        let (controller, queue, entry) = (slot.controller, slot.queue, slot.entry);
        let (was, second) = (slot.state, slot.partner.take());
        match was {
            State::AwaitingEvent => self.controllers.of_mut(controller).events.withdraw(token),
            State::AwaitingQuiet(Alone::Format) => self.set_formatting(controller, &entry, false),
            State::AwaitingQuiet(Alone::DeleteNamespaces) => self.spare_namespaces(),
            State::Deferred | State::DeferredData(_) | State::AwaitingSecond => {
                self.restrictions.withdraw(token)
            }
            _ => (),
        }
        if self.flow.slots.is_command(token) {
            self.record_failure(controller, queue, &entry, &failure);
        }
        self.complete(token, failure.dw0, failure.status.with_more());
        if let Some(second) = second {
            self.fail(second, Failure::field(StatusCode::AbortedFailedFused, Location::FUSED_OPERATION));
        }
    }
}
