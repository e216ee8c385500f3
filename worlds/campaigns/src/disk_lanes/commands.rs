//! What the host sends, and how it judges what comes back.

use nvme::host::command;
use nvme::wire::{
    AdminOpcode, CommandId, CompletionQueueEntry, IoOpcode, NamespaceId, QueueId, StatusCode,
    SubmissionQueueEntry,
};

use super::host::{QUEUES_MAX, Stage, State};
use super::memory::PAGE;
use super::{BLOCK, BLOCKS, DRAIN, World};
use crate::checker::{End, Kind, OperationId};

const NAMESPACE: NamespaceId = NamespaceId(1);
/// The block that only fused pairs use. The checker does not know it.
const PAIR_BLOCK: u64 = BLOCKS - 1;
/// The most blocks of a command.
const BLOCKS_MAX: u64 = 24;

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Io(IoOpcode),
    CreateCompletion(u16),
    CreateSubmission(u16),
    DeleteCompletion(u16),
    DeleteSubmission(u16),
    Other,
}

/// A command in progress.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) what: What,
    /// Memory to free in the end.
    pub(super) pieces: Vec<u64>,
    /// The address and length of the data.
    data: Option<(u64, usize)>,
    pub(super) operation: Option<OperationId>,
    fused: bool,
    aborted: bool,
}

impl Command {
    const fn new(what: What) -> Self {
        Self { what, pieces: Vec::new(), data: None, operation: None, fused: false, aborted: false }
    }
}

impl World {
    /// Does something, now and then.
    pub(super) fn act(&mut self) {
        if self.healing {
            return self.end_pairs();
        }
        match self.rng.below(600) {
            0..3 => return self.disable(),
            3 => return self.begin_shutdown(),
            4..8 => return self.set_something(),
            8..14 => return self.abort_something(),
            14..30 => self.delete_something(),
            _ => (),
        }
        self.create_queues();
        let ready =
            self.host.submission.iter().filter(|(id, queue)| **id != 0 && queue.state == State::Ready);
        let ready: Vec<_> = ready.map(|(id, _)| *id).collect();
        for id in ready {
            while self.host.in_progress(id) < self.host.depth && self.has_room(id, 2) && !self.rng.one_in(4) {
                self.send_something(id);
            }
        }
    }

    /// Creates queues that are missing, one after the other.
    pub(super) fn create_queues(&mut self) {
        if !self.has_room(0, 1) {
            return;
        }
        let id = 1 + u16::try_from(self.rng.below(QUEUES_MAX.into())).expect("few queues");
        let completion = &self.host.completion;
        if !completion.contains_key(&id) && (completion.len() == 1 || !self.rng.one_in(3)) {
            return self.create_completion_queue(id);
        }
        let usable = completion.iter().filter(|(id, queue)| **id != 0 && queue.state != State::Deleting);
        let usable: Vec<_> = usable.map(|(id, _)| *id).collect();
        if !usable.is_empty() && !self.host.submission.contains_key(&id) {
            let completes_to = usable[self.below(usable.len())];
            self.create_submission_queue(id, completes_to);
        }
    }

    fn create_completion_queue(&mut self, id: u16) {
        let entries = u32::try_from(3 + self.rng.below(24)).expect("few entries");
        let vector =
            (!self.rng.one_in(3)).then(|| u16::try_from(1 + self.rng.below(4)).expect("few vectors"));
        let base = self.add_completion_queue(id, entries, vector, State::Creating);
        let entry = command::create_completion_queue(QueueId(id), base, entries, vector);
        self.submit(0, entry, Command::new(What::CreateCompletion(id)));
        if self.has_room(0, 1) && !self.host.submission.contains_key(&id) {
            self.create_submission_queue(id, id);
        }
    }

    fn create_submission_queue(&mut self, id: u16, completes_to: u16) {
        let entries = u32::try_from(4 + self.rng.below(28)).expect("few entries");
        let base = self.add_submission_queue(id, entries, completes_to, State::Creating);
        let mut entry = command::create_submission_queue(QueueId(id), base, entries);
        entry.cdw11 = u32::from(completes_to) << 16 | 1;
        self.submit(0, entry, Command::new(What::CreateSubmission(id)));
    }

    /// Deletes a submission queue, whatever is in progress, or a completion queue without any.
    fn delete_something(&mut self) {
        let id = 1 + u16::try_from(self.rng.below(QUEUES_MAX.into())).expect("few queues");
        if !self.has_room(0, 1) {
            return;
        }
        if let Some(queue) = self.host.submission.get_mut(&id).filter(|queue| queue.state == State::Ready) {
            queue.state = State::Deleting;
            return self.delete(AdminOpcode::DeleteIoSubmissionQueue, id, What::DeleteSubmission(id));
        }
        let is_used = self.host.submission.values().any(|queue| queue.completes_to == id);
        let queue = self.host.completion.get_mut(&id).filter(|queue| queue.state == State::Ready && !is_used);
        if let Some(queue) = queue {
            queue.state = State::Deleting;
            self.delete(AdminOpcode::DeleteIoCompletionQueue, id, What::DeleteCompletion(id));
        }
    }

    fn delete(&mut self, opcode: AdminOpcode, id: u16, what: What) {
        let entry = SubmissionQueueEntry { opcode: opcode.into(), cdw10: id.into(), ..Default::default() };
        self.submit(0, entry, Command::new(what));
    }

    /// Sets a feature, configures shadow doorbells, or reads the health log.
    fn set_something(&mut self) {
        if !self.has_room(0, 1) {
            return;
        }
        let set = |feature: u32, value| SubmissionQueueEntry {
            opcode: AdminOpcode::SetFeatures.into(),
            cdw10: feature,
            cdw11: value,
            ..Default::default()
        };
        let mut command = Command::new(What::Other);
        let entry = match self.rng.below(4) {
            // Arbitration Burst.
            0 => set(1, u32::try_from(self.rng.below(8)).expect("3 bits")),
            // Interrupt Coalescing: a few entries, or 100 µs.
            1 => set(8, 1 << 8 | u32::try_from(self.rng.below(6)).expect("few")),
            2 if self.config.doorbell_buffers && self.host.shadow.is_none() => self.begin_shadow(),
            _ => {
                let address = self.memory.allocate(512);
                command.pieces.push(address);
                let mut entry = command::get_log_page(NamespaceId::ALL, 2, 0, 512);
                entry.data_pointer = [address, 0];
                entry
            }
        };
        self.submit(0, entry, command);
    }

    fn begin_shadow(&mut self) -> SubmissionQueueEntry {
        let page = usize::try_from(PAGE).expect("a page");
        let buffers = [self.memory.allocate(page), self.memory.allocate(page)];
        for (number, value) in self.doorbells() {
            let bytes = self.memory.at(buffers[0] + number * 4, 4).expect("a doorbell's place");
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        self.host.shadow = Some(buffers[0]);
        SubmissionQueueEntry {
            opcode: AdminOpcode::DoorbellBufferConfig.into(),
            data_pointer: buffers,
            ..Default::default()
        }
    }

    fn abort_something(&mut self) {
        let io: Vec<_> = self.host.commands.keys().copied().filter(|(queue, _)| *queue != 0).collect();
        if io.is_empty() || !self.has_room(0, 1) {
            return;
        }
        let (queue, name) = io[self.below(io.len())];
        if let Some(command) = self.host.commands.get_mut(&(queue, name)) {
            command.aborted = true;
        }
        self.submit(0, command::abort(QueueId(queue), CommandId(name)), Command::new(What::Other));
    }

    fn send_something(&mut self, id: u16) {
        let first = self.rng.below(PAIR_BLOCK - BLOCKS_MAX);
        let most = if self.rng.one_in(3) { BLOCKS_MAX } else { 8 };
        let blocks = first..first + 1 + self.rng.below(most);
        match self.rng.below(60) {
            0..22 => self.send_io(id, IoOpcode::Read, Some(Kind::Read), blocks),
            22..46 => self.send_io(id, IoOpcode::Write, Some(Kind::Write), blocks),
            46..49 => self.send_io(id, IoOpcode::WriteZeroes, Some(Kind::WriteZeroes), blocks),
            49..52 => self.send_io(id, IoOpcode::Verify, None, blocks),
            52..56 => self.send_flush(id),
            56 if self.rng.one_in(8) => {
                self.host.marked = true;
                self.send_io(id, IoOpcode::WriteUncorrectable, None, blocks);
            }
            _ => self.send_pair(id),
        }
    }

    /// Sends a command for blocks.
    fn send_io(&mut self, id: u16, opcode: IoOpcode, kind: Option<Kind>, blocks: std::ops::Range<u64>) {
        let count = blocks.end - blocks.start;
        let length = usize::try_from(count).expect("few blocks") * BLOCK;
        let operation = kind.map(|kind| self.checker.begin(kind, blocks.clone()));
        let mut command = Command { operation, ..Command::new(What::Io(opcode)) };
        let mut entry =
            command::on_blocks(opcode, NAMESPACE, blocks.start, u32::try_from(count).expect("few blocks"));
        if let (Some(operation), Some(Kind::Read | Kind::Write)) = (operation, kind) {
            let mut data = vec![0xee; length];
            if kind == Some(Kind::Write) {
                self.checker.stamp(operation, blocks, &mut data);
            }
            self.attach_data(&mut command, &mut entry, &data);
        }
        self.set_open(id, false);
        self.submit(id, entry, command);
    }

    /// Puts data into memory of its own, and makes the command point to it.
    fn attach_data(&mut self, command: &mut Command, entry: &mut SubmissionQueueEntry, data: &[u8]) {
        let skip = self.rng.below(PAGE / 4) * 4;
        let address = self.memory.allocate(usize::try_from(skip).expect("a page") + data.len()) + skip;
        command.pieces.push(address - skip);
        self.memory.at(address, data.len()).expect("it is new").copy_from_slice(data);
        command.data = Some((address, data.len()));
        let second = (address / PAGE + 1) * PAGE;
        let end = address + data.len() as u64;
        let further: Vec<u64> = (second..end).step_by(4096).collect();
        let pointer = match further[..] {
            [] => 0,
            [one] => one,
            _ => {
                let list = self.memory.allocate(further.len() * 8);
                command.pieces.push(list);
                let bytes: Vec<u8> = further.iter().flat_map(|page| page.to_le_bytes()).collect();
                self.memory.at(list, bytes.len()).expect("it is new").copy_from_slice(&bytes);
                list
            }
        };
        entry.data_pointer = [address, pointer];
    }

    fn send_flush(&mut self, id: u16) {
        let namespace = if self.rng.one_in(3) { NamespaceId::ALL } else { NAMESPACE };
        self.set_open(id, false);
        self.submit(id, command::flush(namespace), Command::new(What::Io(IoOpcode::Flush)));
    }

    /// Sends a fused pair, or only its first half.
    fn send_pair(&mut self, id: u16) {
        for (opcode, fuse) in [(IoOpcode::Compare, 1), (IoOpcode::Write, 2)] {
            if fuse == 2 && self.rng.one_in(8) {
                return;
            }
            let mut entry = command::on_blocks(opcode, NAMESPACE, PAIR_BLOCK, 1);
            entry.flags |= fuse;
            let mut command = Command { fused: true, ..Command::new(What::Io(opcode)) };
            let value = u8::try_from(self.rng.below(2)).expect("a bit");
            self.attach_data(&mut command, &mut entry, &[value; BLOCK]);
            self.set_open(id, fuse == 1);
            self.submit(id, entry, command);
        }
    }

    fn set_open(&mut self, id: u16, is_open: bool) {
        if let Some(queue) = self.host.submission.get_mut(&id) {
            queue.is_open = is_open;
        }
    }

    /// Ends first halves that no second half follows.
    fn end_pairs(&mut self) {
        let is_open =
            |(_, queue): &(&u16, &super::host::SubmissionQueue)| queue.is_open && queue.state == State::Ready;
        let open: Vec<_> = self.host.submission.iter().filter(is_open).map(|(id, _)| *id).collect();
        for id in open {
            if self.has_room(id, 1) {
                self.send_flush(id);
            }
        }
    }

    /// A command has completed.
    pub(super) fn on_completed(&mut self, id: u16, command: Command, entry: &CompletionQueueEntry) {
        let code = entry.status().code();
        let done = code == StatusCode::SuccessfulCompletion;
        let data = command.data.and_then(|(address, length)| self.memory.at(address, length));
        let data = data.map(|bytes| bytes.to_vec()).unwrap_or_default();
        command.pieces.iter().for_each(|piece| self.memory.free(*piece));
        self.host.errors += u64::from(entry.status().has_more());
        match command.what {
            What::Io(opcode) => {
                *if done { &mut self.counts.done } else { &mut self.counts.failed } += 1;
                self.host.reads += u64::from(done && opcode == IoOpcode::Read);
                self.host.writes += u64::from(done && opcode == IoOpcode::Write);
                self.judge(id, &command, code);
                let is_read = opcode == IoOpcode::Read;
                let end = match done {
                    true => End::Done(if is_read { &data } else { &[] }),
                    false => End::Failed,
                };
                command.operation.into_iter().for_each(|operation| self.checker.end(operation, end));
            }
            what if !done => self.fail(format!("{what:?} ends with {code:?}")),
            What::CreateCompletion(queue) => {
                if let Some(queue) = self.host.completion.get_mut(&queue) {
                    queue.state = State::Ready;
                }
            }
            What::CreateSubmission(queue) => {
                if let Some(queue) = self.host.submission.get_mut(&queue) {
                    queue.state = State::Ready;
                }
            }
            What::DeleteCompletion(queue) => {
                if let Some(queue) = self.host.completion.remove(&queue) {
                    self.memory.free(queue.base);
                }
            }
            What::DeleteSubmission(queue) => self.forget_submission_queue(queue),
            What::Other => (),
        }
    }

    /// Checks that a command may end with a status.
    fn judge(&mut self, id: u16, command: &Command, code: StatusCode) {
        let excused = match code {
            StatusCode::SuccessfulCompletion => true,
            StatusCode::CommandAbortRequested => command.aborted,
            StatusCode::AbortedSubmissionQueueDeletion => self.is_deleting(id),
            StatusCode::CompareFailure | StatusCode::AbortedMissingFused | StatusCode::AbortedFailedFused => {
                command.fused
            }
            StatusCode::UnrecoveredReadError => self.host.marked || self.host.may_fail,
            _ => self.host.may_fail,
        };
        if !excused {
            let what = command.what;
            self.fail(format!("{what:?} on queue {id} ends with {code:?}"));
        }
    }

    /// Writes and reads all blocks through a queue, after everything has ended.
    pub(super) fn verify_through(&mut self, id: u16) {
        self.host.may_fail = false;
        self.host.marked = false;
        for (opcode, kind) in [(IoOpcode::Write, Kind::Write), (IoOpcode::Read, Kind::Read)] {
            for first in (0..PAIR_BLOCK).step_by(usize::try_from(BLOCKS_MAX).expect("few blocks")) {
                self.send_io(id, opcode, Some(kind), first..PAIR_BLOCK.min(first + BLOCKS_MAX));
                self.run_until(self.now + DRAIN, |world| !world.host.is_idle());
                if !self.host.is_idle() || self.host.stage != Stage::Running {
                    return self.fail(format!("a command of the verification on queue {id} has not ended"));
                }
            }
        }
    }
}
