//! The work of a station's host with its controller: its workload, commands that fail, and worse.

use engine::Rng;
use nvme::wire::{AdminOpcode, IoOpcode, NamespaceId, SubmissionQueueEntry};

use super::queue::COMMANDS;
use super::station::{Command, Ground, NAMESPACE, Stage, Station, What};
use crate::checker::Kind;
use crate::workload::{Operation, Phase};

/// One command in this many does not belong to the workload.
const JUNK_ONE_IN: u64 = 3;
/// One command in this many is followed by a disruption.
const DISRUPTION_ONE_IN: u64 = 150;

impl Station {
    pub(super) fn work(&mut self, ground: &mut Ground<'_>) {
        for _ in 0..4 * COMMANDS {
            if !self.queues.iter().any(|queue| queue.id != 0 && queue.room()) {
                return;
            }
            let Some(operation) = self.pending.take().or_else(|| self.workload.poll(ground.now)) else {
                return;
            };
            if !self.start(ground, operation) {
                return;
            }
            if ground.rng.one_in(JUNK_ONE_IN) {
                self.junk(ground);
            }
            if self.phase == Phase::Chaos && ground.rng.one_in(DISRUPTION_ONE_IN) {
                self.disrupt(ground);
            }
            if self.stage != Stage::Up {
                return;
            }
        }
    }

    /// A random I/O queue that has room.
    fn pick(&self, rng: &mut Rng) -> Option<u16> {
        let open: Vec<_> = self.queues.iter().filter(|queue| queue.id != 0 && queue.room()).collect();
        let index = rng.below(open.len().max(1) as u64);
        open.get(usize::try_from(index).expect("an index")).map(|queue| queue.id)
    }

    /// Submits an operation of the workload; returns false if the operation has to wait.
    fn start(&mut self, ground: &mut Ground<'_>, operation: Operation) -> bool {
        let length = self.workload.length(&operation);
        let blocks = operation.blocks.end - operation.blocks.start;
        let (opcode, length) = match operation.kind {
            Kind::Read => (IoOpcode::Read, length),
            Kind::Write => (IoOpcode::Write, length),
            Kind::WriteZeroes => (IoOpcode::WriteZeroes, 0),
            Kind::Flush => (IoOpcode::Flush, 0),
        };
        let mut bytes = vec![0xee; length];
        if operation.kind == Kind::Write {
            self.workload.stamp(&operation, &mut bytes);
        }
        let first = operation.blocks.start;
        let count = u32::try_from(blocks.saturating_sub(1)).expect("few blocks");
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            namespace: NAMESPACE,
            cdw12: count,
            ..Default::default()
        };
        let entry = entry.with_starting_lba(first);
        self.issue(ground, entry, &bytes, What::Work(operation))
    }

    /// Submits an I/O command with `bytes` as its data. Returns false if the command has to wait;
    /// an operation of the workload is then kept.
    fn issue(
        &mut self,
        ground: &mut Ground<'_>,
        mut entry: SubmissionQueueEntry,
        bytes: &[u8],
        what: What,
    ) -> bool {
        let taken = match self.pick(ground.rng) {
            Some(id) => self
                .buffers
                .take(bytes.len() as u64, ground.rng)
                .map(|(pages, segments)| (id, pages, segments)),
            None => None,
        };
        let Some((id, mut pages, segments)) = taken else {
            if let What::Work(operation) = what {
                self.pending = Some(operation);
            }
            return false;
        };
        self.buffers.scatter(&segments, bytes, ground.memory);
        if !bytes.is_empty() {
            self.buffers.point(&mut entry, &segments, &mut pages, ground.memory, ground.rng);
        }
        self.submit(ground, id, entry, Command { what, pages, segments, sent: ground.now });
        true
    }

    /// Submits a command that is not part of the workload. Most of these commands fail before they
    /// have fetched their data.
    fn junk(&mut self, ground: &mut Ground<'_>) {
        let bytes = self.block * (1 + ground.rng.below(8));
        let mut data = vec![0; usize::try_from(bytes).expect("few")];
        ground.rng.fill(&mut data[..64]);
        let count = u32::try_from(bytes / self.block - 1).expect("few blocks");
        let io = |opcode: IoOpcode, namespace, lba| {
            let entry =
                SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw12: count, ..Default::default() };
            entry.with_starting_lba(lba)
        };
        let far_out = 1 << 40;
        match ground.rng.below(9) {
            0 | 1 => self.issue(ground, io(IoOpcode::Write, NAMESPACE, far_out), &data, What::Junk),
            2 => self.issue(ground, io(IoOpcode::Write, NamespaceId(7), 0), &data, What::Junk),
            3 => self.issue(ground, io(IoOpcode::Compare, NAMESPACE, 0), &data, What::Junk),
            4 => {
                // The command sets no attribute, so nothing is done with its ranges.
                let ranges = 8;
                let entry = SubmissionQueueEntry {
                    cdw10: ranges - 1,
                    cdw12: 0,
                    ..io(IoOpcode::DatasetManagement, NAMESPACE, 0)
                };
                self.issue(ground, entry, &[0; 128], What::Junk)
            }
            5 => self.issue(ground, io(IoOpcode::Read, NAMESPACE, far_out), &data, What::Junk),
            _ => {
                self.admin_junk(ground);
                true
            }
        };
    }

    fn admin_junk(&mut self, ground: &mut Ground<'_>) {
        if !self.queues[0].room() || self.queues[0].free.len() < 4 {
            return;
        }
        let victim = self.commands.keys().next_back().copied().filter(|key| key.0 != 0);
        match (ground.rng.below(4), victim) {
            (0, Some((queue, name))) if self.phase == Phase::Chaos => {
                let abort = self.admin(AdminOpcode::Abort, [u32::from(queue) | u32::from(name) << 16, 0], 0);
                self.submit(ground, 0, abort, self.bare(ground.now, What::Junk));
            }
            (1, _) => self.identify(ground, What::Junk),
            _ => {
                // Set Features, Timestamp: eight bytes go to the controller, and never ahead.
                let Some((pages, segments)) = self.buffers.take(8, ground.rng) else { return };
                self.buffers.scatter(&segments, &[1, 2, 3, 4, 5, 6, 0, 0], ground.memory);
                let entry = self.admin(AdminOpcode::SetFeatures, [0x0e, 0], segments[0].address);
                self.submit(
                    ground,
                    0,
                    entry,
                    Command { what: What::Junk, pages, segments, sent: ground.now },
                );
            }
        }
    }

    /// Does something that ends many commands, or all.
    fn disrupt(&mut self, ground: &mut Ground<'_>) {
        match ground.rng.below(8) {
            6 => self.reset_function(ground),
            0 => self.disable(ground),
            1 => {
                // The controller cannot reach memory, so its commands end by the time-out.
                self.master(ground, false);
                self.disable(ground);
            }
            2 if self.queues[0].room() => self.format(ground),
            _ => {
                let Some(id) = self.pick(ground.rng) else { return };
                if !self.queues[0].room() {
                    return;
                }
                let queue = self.queues.iter_mut().find(|queue| queue.id == id).expect("it was picked");
                if ground.rng.one_in(2) {
                    // The doorbell is followed at once by the end of its queue.
                    queue.ring_at = Some(ground.now);
                    self.ring(ground);
                }
                let queue = self.queues.iter_mut().find(|queue| queue.id == id).expect("queues stay");
                // Entries that were not rung yet will never be rung.
                (queue.closed, queue.rung) = (true, queue.tail);
                let entry = self.admin(AdminOpcode::DeleteIoSubmissionQueue, [u32::from(id), 0], 0);
                self.submit(ground, 0, entry, self.bare(ground.now, What::Delete(id)));
            }
        }
    }

    fn format(&mut self, ground: &mut Ground<'_>) {
        let operation = self.workload.erase();
        let format = u32::from(self.block == 4096);
        let entry = self.admin(AdminOpcode::FormatNvm, [format, 0], 0);
        self.submit(ground, 0, entry, self.bare(ground.now, What::Work(operation)));
    }

    /// Sets or clears Bus Master Enable of the function.
    pub(super) fn master(&mut self, ground: &mut Ground<'_>, on: bool) {
        let Some(bdf) = self.bdf else { return };
        if self.set_master(ground, bdf, on) {
            self.bus_master = on;
        }
    }
}
