//! Tests of the command core against the specification, on a RAM disk.

mod admin_commands;
mod ana;
mod background;
mod controllers;
mod copy;
mod firmware;
mod integrity;
mod io_commands;
mod lanes;
mod life;
mod namespaces;
mod overlap;
mod permits;
mod protection;
mod reservations;
mod saving;
mod tally;
mod views;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};

use engine::Buffer;

use super::*;
use crate::media::ram::RamDisk;
use crate::media::{Completion, MediaError, MediumId, Operation, Request};
use crate::wire::feature::FeatureId;
use crate::wire::log::LogPage;
use crate::wire::{AdminOpcode, CommandId, IoOpcode, NamespaceId};

const ADMIN: QueueId = QueueId::ADMIN;
const IO: QueueId = QueueId(1);
const DISK: u64 = 1 << 20;

/// A controller, its disks, and a host that answers pulls.
struct Bench {
    subsystem: Subsystem,
    controller: ControllerKey,
    disks: Vec<RamDisk>,
    now: Instant,
    next: u32,
    host_data: Vec<u8>,
    completed: BTreeMap<u32, CompletionResult>,
    pushed: Vec<u8>,
    notified: Vec<Notification>,
    /// Events that the Persistent Event log recorded, oldest first.
    recorded: Vec<PersistentEvent>,
    /// The error with which media answer instead of executing requests.
    media_error: Option<MediaError>,
    /// Whether media keep their requests instead of executing them.
    media_stuck: bool,
    stuck: Vec<Request>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Config::new("S1").with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK / 2))
    }

    fn with(config: Config) -> Self {
        let mut media: Vec<_> = config.media().collect();
        media.sort_unstable();
        let state = config.state.map(|state| (state, 0));
        let disks = media.into_iter().chain(state).map(|(_, bytes)| RamDisk::new(bytes)).collect();
        let mut subsystem = Subsystem::new(Instant::ZERO, config);
        let controller = subsystem.add_controller(Instant::ZERO, ControllerConfig::pcie(1));
        let mut bench = Self {
            subsystem,
            controller,
            disks,
            now: Instant::ZERO,
            next: 0,
            host_data: Vec::new(),
            completed: BTreeMap::new(),
            pushed: Vec::new(),
            notified: Vec::new(),
            recorded: Vec::new(),
            media_error: None,
            media_stuck: false,
            stuck: Vec::new(),
        };
        bench.drain();
        bench
    }

    /// Sends a command and returns its token.
    fn send(&mut self, queue: QueueId, mut entry: SubmissionQueueEntry) -> CommandToken {
        let token = CommandToken(self.next % 1024);
        self.next += 1;
        entry.command_id = CommandId(u16::try_from(token.0).unwrap());
        self.pushed.clear();
        self.subsystem
            .handle_input(self.now, Input::Command { controller: self.controller, token, queue, entry });
        self.drain();
        token
    }

    /// Adds a controller over fabrics, which later commands are for.
    fn connect(&mut self, id: u16) -> ControllerKey {
        let host = HostIdentity {
            name: format!("nqn.2014-08.org.nvmexpress:host{id}"),
            identifier: [id.to_le_bytes()[0]; 16],
        };
        self.connect_with(ControllerConfig::fabrics(id, host))
    }

    fn connect_with(&mut self, config: ControllerConfig) -> ControllerKey {
        self.controller = self.subsystem.add_controller(self.now, config);
        self.drain();
        self.controller
    }

    /// The bench as the host of another controller.
    fn of(&mut self, controller: ControllerKey) -> &mut Self {
        self.controller = controller;
        self
    }

    fn drain(&mut self) {
        while let Some(output) = self.subsystem.poll_output() {
            match output {
                Output::PullHostData { token, length } => {
                    if self.has_ended(token) {
                        continue; // The command was aborted before the pull was polled.
                    }
                    let transfer = self.subsystem.transfer(token);
                    assert_eq!(
                        transfer.map(|one| (one.direction, one.length)),
                        Some((Direction::FromHost, length))
                    );
                    let mut data = self.host_data.clone();
                    data.resize(length as usize, 0);
                    let input = Input::HostData { token, data: Buffer::from(data) };
                    self.subsystem.handle_input(self.now, input);
                }
                Output::PushHostData { offset, length, data, .. } => {
                    self.pushed.resize(length as usize, 0);
                    self.pushed[offset as usize..][..data.len()].copy_from_slice(&data);
                }
                Output::Complete { token, completion } => {
                    assert!(
                        self.completed.insert(token.0, completion).is_none(),
                        "{token:?} completed twice"
                    );
                }
                Output::Media(request) => self.on_media(request),
                Output::Notify(Notification::EventRecorded(event)) => self.recorded.push(event),
                Output::Notify(notification) => self.notified.push(notification),
                Output::ToLane(..) | Output::ToSubsystem(_) | Output::Disowned(_) => {
                    unreachable!("no lane is attached")
                }
            }
        }
    }

    /// Whether the command's completion waits to be polled.
    fn has_ended(&self, token: CommandToken) -> bool {
        let is_its = |output: &Output| matches!(output, Output::Complete { token: one, .. } if *one == token);
        self.subsystem.flow.outputs.iter().any(is_its)
    }

    fn on_media(&mut self, request: Request) {
        let (subsystem, now) = (&mut self.subsystem, self.now);
        if self.media_stuck {
            self.stuck.push(request);
        } else if let Some(error) = self.media_error {
            let done = Completion::Done { id: request.id, result: Err(error) };
            subsystem.handle_input(now, Input::Media(done));
        } else {
            let disk = &mut self.disks[request.medium.0 as usize];
            disk.submit(request, &mut |completion| subsystem.handle_input(now, Input::Media(completion)));
        }
    }

    /// Makes media execute the requests that they kept, and all later ones at once.
    fn release_media(&mut self) {
        self.media_stuck = false;
        for request in core::mem::take(&mut self.stuck) {
            self.on_media(request);
        }
        self.drain();
    }

    /// Advances the time to the next deadline. Returns false when there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.subsystem.poll_timeout() else { return false };
        self.now = at;
        self.subsystem.handle_timeout(at);
        self.drain();
        true
    }

    /// Lets time pass until no deadline is left.
    fn settle(&mut self) {
        let steps = (0..100_000).take_while(|_| self.step()).count();
        assert!(steps < 100_000, "background work has no end");
    }

    fn take(&mut self, token: CommandToken) -> CompletionResult {
        self.completed.remove(&token.0).expect("the command has not ended")
    }

    fn run(&mut self, queue: QueueId, entry: SubmissionQueueEntry) -> CompletionResult {
        let token = self.send(queue, entry);
        self.take(token)
    }

    #[track_caller]
    fn fails(&mut self, queue: QueueId, entry: SubmissionQueueEntry, code: StatusCode) {
        let before = self.subsystem.controllers.of(self.controller).errors.count();
        let status = self.run(queue, entry).status;
        assert_eq!(status.code(), code);
        assert!(status.has_more());
        assert_eq!(self.subsystem.controllers.of(self.controller).errors.count(), before + 1);
        let newest = self.subsystem.controllers.of(self.controller).errors.iter().next().unwrap();
        assert_eq!((newest.status >> 1, newest.error_count), (Status::from(code).raw(), before + 1));
    }

    #[track_caller]
    fn succeeds(&mut self, queue: QueueId, entry: SubmissionQueueEntry) -> u32 {
        let completion = self.run(queue, entry);
        assert_eq!(completion.status, Status::SUCCESS);
        completion.dw0
    }

    fn identify(&mut self, cns: u32, namespace: u32) -> Vec<u8> {
        self.succeeds(ADMIN, identify(cns, namespace));
        assert_eq!(self.pushed.len(), 4096);
        self.pushed.clone()
    }

    fn log(&mut self, page: LogPage, bytes: u32) -> Vec<u8> {
        self.succeeds(ADMIN, log(page, bytes));
        self.pushed.clone()
    }

    fn write(&mut self, lba: u64, bytes: &[u8]) -> CompletionResult {
        self.host_data = bytes.to_vec();
        let blocks = u32::try_from(bytes.len() / 512).unwrap();
        self.run(IO, io(IoOpcode::Write, 1, lba, blocks))
    }
}

fn admin(opcode: AdminOpcode) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), ..Default::default() }
}

/// Detaches a namespace from the controllers of a list.
fn detach(namespace: NamespaceId) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: 1, namespace, ..admin(AdminOpcode::NamespaceAttachment) }
}

fn identify(cns: u32, namespace: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: cns, namespace: NamespaceId(namespace), ..admin(AdminOpcode::Identify) }
}

fn log(page: LogPage, bytes: u32) -> SubmissionQueueEntry {
    let dwords = bytes / 4 - 1;
    let cdw10 = u32::from(u8::from(page)) | (dwords & 0xffff) << 16;
    SubmissionQueueEntry { cdw10, cdw11: dwords >> 16, ..admin(AdminOpcode::GetLogPage) }
}

fn set(feature: FeatureId, value: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: u8::from(feature).into(), cdw11: value, ..admin(AdminOpcode::SetFeatures) }
}

fn get(feature: FeatureId, select: u32) -> SubmissionQueueEntry {
    let cdw10 = u32::from(u8::from(feature)) | select << 8;
    SubmissionQueueEntry { cdw10, ..admin(AdminOpcode::GetFeatures) }
}

fn io(opcode: IoOpcode, namespace: u32, lba: u64, blocks: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw12: blocks - 1, ..Default::default() }
        .with_starting_lba(lba)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}
