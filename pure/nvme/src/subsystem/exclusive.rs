//! Commands that need exclusive access to the media: they wait until no other command is in
//! progress, and other commands wait for them.

use engine::Buffer;

use super::Subsystem;
use super::errors::Failure;
use super::flow::{Handled, Step};
use super::slots::{Alone, HostDataFor, State};
use super::types::CommandToken;
use crate::wire::{IoOpcode, SubmissionQueueEntry};

impl Subsystem {
    /// Runs `what` for the command once no medium is busy. Other commands wait meanwhile. The
    /// caller must have made sure that no other command has or awaits exclusive access.
    pub(super) fn alone(&mut self, token: CommandToken, what: Alone) -> Handled {
        assert!(self.restrictions.owner.is_none(), "two commands want exclusive access");
        self.restrictions.owner = Some(token);
        self.restrictions.remember();
        self.flow.slots.of(token).state = State::AwaitingQuiet(what);
        if self.is_quiet() { self.go_alone(token, what) } else { Ok(Step::Waiting) }
    }

    /// Whether no medium is busy. An I/O command may still wait for host data for as long as its
    /// host needs: the data is kept until the command may continue.
    fn is_quiet(&self) -> bool {
        self.flow.media_outstanding == 0 && self.lanes.as_ref().is_none_or(|lanes| lanes.are_quiet())
    }

    fn go_alone(&mut self, token: CommandToken, what: Alone) -> Handled {
        let entry = self.flow.slots.of(token).entry;
        self.flow.slots.of(token).state = State::Started;
        match what {
            Alone::Format => self.format_alone(token, &entry),
            Alone::DeleteNamespaces => self.delete_alone(token, &entry),
            Alone::CompareAndWrite => self.compare_alone(token, &entry),
            Alone::Protect => self.protect_alone(token, &entry),
        }
    }

    /// Something has ended, which may be the last thing that a command waited for.
    #[cold]
    pub(super) fn check_quiet(&mut self) {
        if self.flow.media_outstanding > 0 {
            return;
        }
        self.sanitize_when_quiet();
        if core::mem::take(&mut self.restrictions.draining) {
            self.restrictions.remember();
            // No command is released while another one waits for exclusive access: that command
            // continues below.
            self.release_waiting();
        }
        let Some(token) = self.restrictions.owner else { return };
        if let State::AwaitingQuiet(what) = self.flow.slots.of(token).state
            && self.is_quiet()
        {
            let handled = self.go_alone(token, what);
            self.finish(token, handled);
        }
    }

    /// Makes the command wait until the command that is alone has ended.
    pub(super) fn defer(&mut self, token: CommandToken) -> Handled {
        self.flow.slots.of(token).state = State::Deferred;
        self.restrictions.waiting.push_back(token);
        Ok(Step::Waiting)
    }

    /// Makes the command and the data that it pulled wait until the command that is alone has
    /// ended.
    #[cold]
    pub(super) fn defer_data(&mut self, token: CommandToken, purpose: HostDataFor, data: Buffer) {
        let slot = self.flow.slots.of(token);
        slot.state = State::DeferredData(purpose);
        slot.data = data;
        self.restrictions.waiting.push_back(token);
    }

    /// A command has ended: if it was alone, the waiting commands continue.
    #[cold]
    pub(super) fn release(&mut self, token: CommandToken) {
        if self.restrictions.owner != Some(token) {
            self.check_quiet();
            return;
        }
        self.restrictions.owner = None;
        self.restrictions.remember();
        self.release_waiting();
    }

    /// Releases the waiting commands, since no command is alone any longer.
    pub(super) fn release_waiting(&mut self) {
        if core::mem::replace(&mut self.restrictions.releasing, true) {
            return; // The call that is already releasing commands continues with the others.
        }
        // A released command may need exclusive access in turn. The commands behind it then wait
        // again, in their order.
        while !self.restrictions.is_owned()
            && let Some(next) = self.restrictions.waiting.pop_front()
        {
            self.resume(next);
        }
        self.restrictions.releasing = false;
    }

    /// Continues a command that waited for one with exclusive access.
    fn resume(&mut self, token: CommandToken) {
        let slot = self.flow.slots.of(token);
        let (queue, entry, state) = (slot.queue, slot.entry, slot.state);
        match state {
            State::Deferred => {
                slot.state = State::Started;
                let handled = if queue.is_admin() {
                    self.on_admin_command(token, &entry)
                } else {
                    self.on_io_command_with_care(token, &entry)
                };
                self.finish(token, handled);
            }
            State::DeferredData(purpose) => {
                slot.state = State::Started;
                let data = core::mem::take(&mut slot.data);
                self.on_pulled(token, purpose, data);
            }
            _ => (),
        }
    }

    /// Executes an I/O command while restrictions apply.
    #[cold]
    pub(super) fn on_io_command_with_care(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let opcode = IoOpcode::from(entry.opcode);
        let views = self.namespaces.views();
        if let Some(code) = views.sanitize() {
            // Only Flush succeeds, since it has nothing to do.
            return if opcode == IoOpcode::Flush { Ok(Step::Done(0)) } else { Err(Failure::new(code)) };
        }
        // A namespace that is being formatted or deleted refuses commands at once. Commands for
        // other namespaces wait.
        let refused = views.find(entry.namespace).is_none_or(|view| view.busy);
        let first_change = views.is_erased() && changes_data(opcode);
        if self.restrictions.is_owned() && !refused {
            return self.defer(token);
        }
        if first_change {
            self.on_first_change();
        }
        self.on_io_command(token, entry)
    }
}

/// Whether the command changes the contents of blocks.
pub(super) const fn changes_data(opcode: IoOpcode) -> bool {
    matches!(opcode, IoOpcode::Write | IoOpcode::WriteZeroes | IoOpcode::WriteUncorrectable | IoOpcode::Copy)
}
