//! The admin commands: one table of their handlers and effects.

use super::Subsystem;
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::firmware::Firmware;
use super::flow::{Handled, Step};
use super::identify::Identify;
use super::lanes::Ending;
use super::types::CommandToken;
use super::view::Touch;
use crate::wire::identify::IDENTIFY_LENGTH;
use crate::wire::{
    AdminOpcode, Bits, CommandId, IoOpcode, QueueId, StatusCode, SubmissionQueueEntry, low_u16,
};

/// A double word of the Commands Supported and Effects log or of the features' log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effects(u32);

impl Effects {
    /// Command Supported (CSUPP), with no effect on anything.
    pub(super) const NONE: Self = Self(1 << 0);
    /// Logical Block Content Change (LBCC).
    pub(super) const CONTENT: Self = Self(1 << 1);
    /// Namespace Capability Change (NCC).
    pub(super) const NAMESPACE: Self = Self(1 << 2);
    /// Namespace Inventory Change (NIC).
    pub(super) const INVENTORY: Self = Self(1 << 3);
    /// Controller Capability Change (CCC).
    pub(super) const CAPABILITY: Self = Self(1 << 4);
    /// Command Submission and Execution (CSE) 001b: no other command to the same namespace at the
    /// same time.
    pub(super) const ALONE_IN_NAMESPACE: Self = Self(0b001 << 16);
    /// Command Submission and Execution (CSE) 010b: no other command to any namespace at the same
    /// time.
    pub(super) const ALONE: Self = Self(0b010 << 16);
    /// Command Scope: one namespace.
    pub(super) const NAMESPACE_SCOPE: Self = Self(1 << 20);
    /// Command Scope: the controller.
    pub(super) const CONTROLLER_SCOPE: Self = Self(1 << 21);

    /// Command Scope: the NVM subsystem.
    pub(super) const SUBSYSTEM_SCOPE: Self = Self(1 << 25);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn word(self) -> u32 {
        self.0
    }
}

type Handler = fn(&mut Subsystem, CommandToken, &SubmissionQueueEntry) -> Handled;

/// An admin command, as one line of [`ADMIN_COMMANDS`].
pub(super) struct AdminCommand {
    pub(super) opcode: AdminOpcode,
    handler: Handler,
    pub(super) effects: Effects,
}

const fn command(opcode: AdminOpcode, handler: Handler, effects: Effects) -> AdminCommand {
    AdminCommand { opcode, handler, effects: Effects::NONE.and(effects) }
}

const CONTROLLER: Effects = Effects::CONTROLLER_SCOPE;
const FORMAT: Effects =
    Effects::NAMESPACE_SCOPE.and(Effects::CONTENT).and(Effects::NAMESPACE).and(Effects::ALONE);
const FIRMWARE: Effects = CONTROLLER.and(Effects::CAPABILITY);
const SANITIZE: Effects = Effects::SUBSYSTEM_SCOPE.and(Effects::CONTENT).and(Effects::ALONE);
const ATTACHMENT: Effects = Effects::NAMESPACE_SCOPE.and(Effects::INVENTORY).and(Effects::ALONE_IN_NAMESPACE);
const MANAGEMENT: Effects = ATTACHMENT.and(Effects::CONTENT).and(Effects::NAMESPACE);

/// Every admin command of the core. The controller's configuration lists those of the transport.
pub(super) static ADMIN_COMMANDS: &[AdminCommand] = &[
    command(AdminOpcode::GetLogPage, Subsystem::on_get_log_page, CONTROLLER),
    command(AdminOpcode::Identify, Subsystem::on_identify, CONTROLLER),
    command(AdminOpcode::Abort, Subsystem::on_abort, CONTROLLER),
    command(AdminOpcode::SetFeatures, Subsystem::on_set_features, CONTROLLER),
    command(AdminOpcode::GetFeatures, Subsystem::on_get_features, CONTROLLER),
    command(AdminOpcode::AsynchronousEventRequest, Subsystem::on_event_request, CONTROLLER),
    command(AdminOpcode::FirmwareCommit, Subsystem::on_firmware_commit, FIRMWARE),
    command(AdminOpcode::FirmwareImageDownload, Subsystem::on_firmware_download, CONTROLLER),
    command(AdminOpcode::DeviceSelfTest, Subsystem::on_self_test, CONTROLLER),
    command(AdminOpcode::Sanitize, Subsystem::on_sanitize, SANITIZE),
    command(AdminOpcode::NamespaceManagement, Subsystem::on_namespace_management, MANAGEMENT),
    command(AdminOpcode::NamespaceAttachment, Subsystem::on_namespace_attachment, ATTACHMENT),
    command(AdminOpcode::KeepAlive, Subsystem::on_keep_alive, CONTROLLER),
    command(
        AdminOpcode::CrossControllerReset,
        Subsystem::on_cross_controller_reset,
        Effects::SUBSYSTEM_SCOPE,
    ),
    command(AdminOpcode::FormatNvm, Subsystem::on_format, FORMAT),
];

/// Without a scope, although it would be the namespace: Linux calls the effects of an I/O command
/// with a scope unusual.
const READS: Effects = Effects::NONE;
const WRITES: Effects = READS.and(Effects::CONTENT);

/// Every I/O command with its effects. The hot path finds handlers by a `match`, and a test checks
/// that both agree.
pub(super) static IO_COMMANDS: &[(IoOpcode, Effects)] = &[
    (IoOpcode::Flush, READS),
    (IoOpcode::Write, WRITES),
    (IoOpcode::Read, READS),
    (IoOpcode::WriteUncorrectable, WRITES),
    (IoOpcode::Compare, READS),
    (IoOpcode::WriteZeroes, WRITES),
    (IoOpcode::DatasetManagement, WRITES),
    (IoOpcode::Verify, READS),
    (IoOpcode::ReservationRegister, READS),
    (IoOpcode::ReservationReport, READS),
    (IoOpcode::ReservationAcquire, READS),
    (IoOpcode::ReservationRelease, READS),
    (IoOpcode::Copy, WRITES),
];

/// Submission Queue Identifier (SQID) of Abort, in CDW10.
const ABORT_QUEUE: Bits = Bits::new(15, 0);
/// Command Identifier (CID) of Abort, in CDW10.
const ABORT_COMMAND: Bits = Bits::new(31, 16);
/// DW0 of an Abort completion: the command was not aborted.
pub(super) const NOT_ABORTED: u32 = 1;

impl Subsystem {
    pub(super) fn on_admin_command(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let opcode = AdminOpcode::from(entry.opcode);
        self.sanitize.check_admin(entry)?;
        let controller = self.flow.slots.of(token).controller;
        if !self.namespaces.permit(controller).allows(opcode) {
            return Err(Failure::field(StatusCode::OperationDenied, Location::OPCODE));
        }
        match ADMIN_COMMANDS.iter().find(|command| command.opcode == opcode) {
            Some(command) if self.offers(controller, opcode) => (command.handler)(self, token, entry),
            _ => Err(Failure::field(StatusCode::InvalidCommandOpcode, Location::OPCODE)),
        }
    }

    /// Whether the controller supports the command. Keep Alive needs a timer, and Cross-Controller
    /// Reset needs an instance.
    fn offers(&self, controller: ControllerKey, opcode: AdminOpcode) -> bool {
        let controller = self.controllers.of(controller);
        let fabrics = controller.config.of_fabrics();
        match opcode {
            AdminOpcode::KeepAlive => fabrics.is_some_and(|one| one.keep_alive_granularity > 0),
            AdminOpcode::CrossControllerReset => controller.instance.is_some(),
            _ => true,
        }
    }

    fn on_identify(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let mut page = [0; IDENTIFY_LENGTH];
        let controller = self.flow.slots.of(token).controller;
        let revision = self.firmware.revision();
        let (config, controllers, namespaces) = (&self.config, &self.controllers, &self.namespaces);
        Identify { config, controllers, namespaces, revision }.fill(controller, entry, &mut page)?;
        let data = self.flow.pool.copy(&page);
        self.flow.push_all(token, data);
        Ok(Step::Done(0))
    }

    fn on_self_test(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        self.self_test.on_command(&mut self.flow, &self.namespaces, &self.smart, token, entry)
    }

    fn on_firmware_download(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        Firmware::on_download(&mut self.flow, token, entry, self.config.transfer_bytes_max)
    }

    fn on_firmware_commit(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let change = self.firmware.commit(&mut self.flow, entry)?;
        let controller = self.flow.slots.of(token).controller;
        self.event_log.record_firmware(&mut self.flow, &self.controllers, controller, &change);
        Ok(Step::Done(0))
    }

    fn on_event_request(&mut self, token: CommandToken, _: &SubmissionQueueEntry) -> Handled {
        self.controllers.on_event_request(&mut self.flow, token)
    }

    /// Completes a Keep Alive, whose arrival the transport has already noticed.
    const fn on_keep_alive(&mut self, _: CommandToken, _: &SubmissionQueueEntry) -> Handled {
        Ok(Step::Done(0))
    }

    /// Ends the command at once if that leaves its effect in no doubt; otherwise the command runs
    /// on and Abort reports that. The Abort Command Limit is never exceeded, since every Abort ends
    /// at once, or as soon as lanes have looked for the command.
    fn on_abort(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let queue = QueueId(low_u16(ABORT_QUEUE.of(entry.cdw10)));
        let command = CommandId(low_u16(ABORT_COMMAND.of(entry.cdw10)));
        let controller = self.flow.slots.of(token).controller;
        let found = self.flow.slots.tokens().find(|other| {
            *other != token
                && self.flow.slots.peek(*other).is_some_and(|slot| {
                    slot.controller == controller
                        && slot.queue == queue
                        && slot.entry.command_id == command
                        && slot.state.can_abort()
                })
        });
        let Some(found) = found else {
            return self.abort_in_lanes(token, Ending::Abort { by: token, controller, queue, command });
        };
        self.fail(found, Failure::new(StatusCode::CommandAbortRequested));
        Ok(Step::Done(0))
    }

    /// Sets the double words of the log: 256 for admin commands, then those for I/O commands.
    pub(super) fn command_effects(&self, controller: ControllerKey, mut set: impl FnMut(usize, u32)) {
        for command in ADMIN_COMMANDS.iter().filter(|one| self.offers(controller, one.opcode)) {
            set(usize::from(u8::from(command.opcode)), command.effects.word());
        }
        for opcode in self.controllers.of(controller).config.transport_commands() {
            let effects = Effects::NONE.and(Effects::CONTROLLER_SCOPE);
            set(usize::from(u8::from(*opcode)), effects.word());
        }
        let offered = |opcode: IoOpcode| {
            Touch::of(opcode) != Touch::Nothing || self.controllers.has_reservations(controller)
        };
        for (opcode, effects) in IO_COMMANDS.iter().filter(|(opcode, _)| offered(*opcode)) {
            set(256 + usize::from(u8::from(*opcode)), effects.word());
        }
    }
}
