//! Entry points for fuzzing. They are ordinary code, always compiled, and must never panic.

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant};

use crate::host::{ana_groups, ana_log_length, persistent_events};
use crate::media::MediumId;
use crate::media::ram::RamDisk;
use crate::subsystem::{
    BlockSize, CommandToken, Config, ControllerConfig, ControllerKey, HostIdentity, Input, Output, Subsystem,
};
use crate::wire::identify::{
    IDENTIFY_LENGTH, IdentifyController, IdentifyNamespace, NamespaceDescriptor, namespace_list, uuid_list,
};
use crate::wire::log::{ErrorEntry, SmartLog};
use crate::wire::{AdminOpcode, CommandId, FusedOperation, QueueId, StatusCode, SubmissionQueueEntry};

/// The most commands in flight at once in [`submission`].
const TOKENS: u32 = 8;
/// Length in bytes of the first disk and of the pool. The second disk has half this length.
const DISK_BYTES: u64 = 64 << 10;

/// Runs the commands in `bytes` (each one byte of control and a submission queue entry) on two
/// controllers with three RAM disks, one of which is a pool. Checks that each command completes
/// exactly once, except Asynchronous Event Requests and first commands of fused pairs.
///
/// # Panics
/// When a command does not complete exactly once.
pub fn submission(bytes: &[u8]) {
    let mut world = World::new();
    for (index, chunk) in bytes.chunks(1 + SubmissionQueueEntry::LENGTH).enumerate() {
        let [control, entry @ ..] = chunk else { break };
        let mut raw = [0; SubmissionQueueEntry::LENGTH];
        raw[..entry.len()].copy_from_slice(entry);
        let mut entry = SubmissionQueueEntry::parse(&raw);
        // Most random identifiers and opcodes would be refused at once, so steer the bytes towards
        // deeper code.
        if control & 0x10 != 0 {
            entry.namespace.0 &= 3;
            entry.flags = 0;
            entry.cdw11 &= 0x0000_ffff;
        }
        entry.command_id = CommandId(u16::from_le_bytes([raw[2] & 7, 0]));
        world.now = world.now.max(u64::try_from(index).unwrap_or(u64::MAX) * 1_000);
        world.command(*control, entry);
        if control & 0x80 != 0 {
            world.pass_time();
        }
    }
    world.finish();
}

/// Parses `bytes` as each structure that a host reads from a device, and formats the results.
pub fn structures(bytes: &[u8]) {
    let mut page = [0; IDENTIFY_LENGTH];
    let count = bytes.len().min(page.len());
    page[..count].copy_from_slice(&bytes[..count]);
    let controller = IdentifyController::parse(&page);
    let namespace = IdentifyNamespace::parse(&page);
    let _ = alloc::format!("{controller:?} {:?} {:?}", namespace.formatted(), namespace.block_bytes());
    let _ = NamespaceDescriptor::list(bytes).count() + namespace_list(bytes).count();
    let _ = uuid_list(bytes).count() + persistent_events(bytes).count() + ana_groups(bytes).len();
    assert!(
        ana_log_length(bytes).is_none_or(|length| length <= bytes.len()),
        "a log is no longer than its bytes"
    );
    if let Some(raw) = page.first_chunk() {
        let _ = SmartLog::parse(raw);
    }
    if let Some(raw) = page.first_chunk() {
        let _ = ErrorEntry::parse(raw);
    }
}

/// A command in flight.
type Command = (ControllerKey, QueueId, SubmissionQueueEntry);

struct World {
    subsystem: Subsystem,
    /// A controller on PCIe and one over fabrics.
    controllers: [ControllerKey; 2],
    disks: [RamDisk; 3],
    now: u64,
    /// The controller, queue and entry of each command in flight.
    commands: [Option<Command>; TOKENS as usize],
    pulls: VecDeque<(CommandToken, u32, u8)>,
}

impl World {
    fn new() -> Self {
        let mut config = Config::new("fuzz")
            .with_namespace(MediumId(0), DISK_BYTES)
            .with_namespace(MediumId(1), DISK_BYTES / 2)
            .with_pool(MediumId(2), DISK_BYTES);
        config.namespaces[1].block = BlockSize::Guarded16;
        config.commands_max = TOKENS;
        let mut subsystem = Subsystem::new(Instant::ZERO, config);
        let fabrics = ControllerConfig::fabrics(2, HostIdentity::default());
        let controllers = [ControllerConfig::pcie(1), fabrics]
            .map(|config| subsystem.add_controller(Instant::ZERO, config));
        Self {
            subsystem,
            controllers,
            disks: [DISK_BYTES, DISK_BYTES / 2, DISK_BYTES].map(RamDisk::new),
            now: 0,
            commands: [None; TOKENS as usize],
            pulls: VecDeque::new(),
        }
    }

    fn command(&mut self, control: u8, entry: SubmissionQueueEntry) {
        let Some(index) = self.commands.iter().position(Option::is_none) else {
            // Only Asynchronous Event Requests and unanswered pulls remain: answer the pulls, or
            // else reset.
            self.answer_pulls();
            if self.commands.iter().all(Option::is_some) {
                self.controllers.into_iter().for_each(|controller| self.reset(controller));
            }
            return;
        };
        let queue = QueueId(u16::from(control & 1));
        let controller = self.controllers[usize::from(control >> 7)];
        self.commands[index] = Some((controller, queue, entry));
        let token = CommandToken(u32::try_from(index).unwrap_or_default());
        self.input(Input::Command { controller, token, queue, entry }, control);
        match control >> 1 & 7 {
            0 => self.reset(controller),
            1 => {
                self.subsystem.abort_queue(Instant::from_nanos(self.now), controller, QueueId(1));
                self.drain(control);
            }
            // Delay the pulls, so that other commands run in between.
            2 | 3 => (),
            _ => self.answer_pulls(),
        }
    }

    fn input(&mut self, input: Input, control: u8) {
        self.subsystem.handle_input(Instant::from_nanos(self.now), input);
        self.drain(control);
    }

    fn drain(&mut self, control: u8) {
        while let Some(output) = self.subsystem.poll_output() {
            match output {
                Output::PullHostData { token, length } => self.pulls.push_back((token, length, control)),
                Output::PushHostData { token, offset, length, data } => {
                    assert!(self.slot(token).is_some(), "data for a command that has ended");
                    assert!(offset as usize + data.len() <= length as usize, "a piece beyond its transfer");
                }
                Output::Complete { token, .. } => {
                    assert!(self.slot(token).take().is_some(), "{token:?} completed twice");
                    self.pulls.retain(|(pulling, ..)| *pulling != token);
                }
                Output::Media(request) => {
                    let disk = &mut self.disks[request.medium.0 as usize];
                    let (subsystem, now) = (&mut self.subsystem, Instant::from_nanos(self.now));
                    disk.submit(request, &mut |completion| {
                        subsystem.handle_input(now, Input::Media(completion))
                    });
                }
                Output::Notify(_) => (),
                Output::ToLane(..) | Output::ToSubsystem(_) | Output::Disowned(_) => {
                    unreachable!("no lane is attached")
                }
            }
        }
    }

    fn slot(&mut self, token: CommandToken) -> &mut Option<Command> {
        &mut self.commands[token.0 as usize]
    }

    /// Advances to the next deadline, if there is one.
    fn pass_time(&mut self) {
        if let Some(at) = self.subsystem.poll_timeout() {
            self.now = self.now.max(at.as_nanos());
            self.subsystem.handle_timeout(Instant::from_nanos(self.now));
            self.drain(0);
        }
    }

    fn answer_pulls(&mut self) {
        while let Some((token, length, control)) = self.pulls.pop_front() {
            let input = if control & 0x20 == 0 {
                let data =
                    (0..length).map(|index| control ^ index.to_le_bytes()[0]).collect::<alloc::vec::Vec<_>>();
                Input::HostData { token, data: Buffer::from(data) }
            } else {
                Input::HostDataFailed { token, status: StatusCode::DataTransferError.into() }
            };
            self.input(input, control);
        }
    }

    fn reset(&mut self, controller: ControllerKey) {
        self.subsystem.reset(Instant::from_nanos(self.now), controller);
        for command in &mut self.commands {
            command.take_if(|(of, ..)| *of == controller);
        }
        let commands = &self.commands;
        self.pulls.retain(|(token, ..)| commands[token.0 as usize].is_some());
        self.drain(0);
    }

    fn finish(&mut self) {
        self.answer_pulls();
        for (_, queue, entry) in self.commands.iter().flatten() {
            let event_request = AdminOpcode::from(entry.opcode) == AdminOpcode::AsynchronousEventRequest;
            let first = entry.fused() == FusedOperation::First;
            assert!(if queue.is_admin() { event_request } else { first }, "never completed: {entry:?}");
        }
        assert!(self.subsystem.all_media_outstanding() == 0, "a medium's answer was not counted");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn arbitrary_commands_complete_exactly_once(
            commands in prop::collection::vec((any::<u8>(), 0..16_u8, any::<[u8; 24]>(), any::<bool>()), 1..60),
        ) {
            let mut bytes = alloc::vec::Vec::new();
            for (control, opcode, fields, format) in commands {
                let mut chunk = [0; 65];
                chunk[0] = control;
                chunk[1] = if format { [0x80, 0x15, 0x0d, 0x19, 0x84, 0x14, 0x10, 0x11][usize::from(opcode & 7)] } else { opcode };
                chunk[3] = fields[0];
                chunk[5] = fields[1] & 3;
                chunk[41..65].copy_from_slice(&fields);
                // Use small numbers where large ones would be refused: identifiers, blocks,
                // lengths.
                if control & 0x40 != 0 {
                    chunk[42..49].fill(0);
                    chunk[50..57].fill(0);
                }
                bytes.extend_from_slice(&chunk);
            }
            super::submission(&bytes);
        }

        #[test]
        fn arbitrary_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..5_000)) {
            super::submission(&bytes);
            super::structures(&bytes);
        }
    }
}
