//! How a station finds the completions of its commands.

use engine::Nanos;

use super::queue::COMMANDS;
use super::station::{Command, Ground, Stage, Station, What};
use crate::checker::{End, Kind};

impl Station {
    /// Looks for completions in all queues.
    pub(super) fn reap(&mut self, ground: &mut Ground<'_>) {
        if !matches!(self.stage, Stage::SetUp(_) | Stage::Up) {
            return;
        }
        // The admin queue comes last: the completions of a queue precede the completion of its
        // deletion.
        for index in (0..self.queues.len()).rev() {
            while let Some(queue) = self.queues.get_mut(index) {
                let at = queue.completions + u64::from(queue.completion_head) * 16;
                let memory = ground.memory.borrow();
                let Some(entry) = memory.slice(at, 16).and_then(|bytes| bytes.first_chunk::<16>()) else {
                    break;
                };
                let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                let (head, of, name, status) = (half(8), half(10), half(12), half(14));
                if (status & 1 == 1) != queue.phase {
                    break;
                }
                drop(memory);
                queue.completion_head = (queue.completion_head + 1) % queue.completion_entries;
                queue.phase ^= queue.completion_head == 0;
                if queue.ring_at.is_none() {
                    let wait = ground.rng.below(50_000);
                    queue.ring_at = Some(ground.now + Nanos::new(wait));
                }
                self.on_completion(ground, (of, name), head.into(), status >> 1 & 0x7ff == 0);
            }
        }
    }

    fn on_completion(&mut self, ground: &mut Ground<'_>, key: (u16, u16), head: u32, success: bool) {
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.id == key.0) {
            if head < queue.entries {
                queue.head = head;
            }
            if queue.free.len() < usize::from(COMMANDS) && key.1 < COMMANDS && !queue.free.contains(&key.1) {
                queue.free.push(key.1);
            }
        }
        let Some(command) = self.commands.remove(&key) else { return };
        let Command { what, pages, segments, .. } = command;
        match what {
            What::Create(id) => {
                let queue = self.queues.iter().find(|queue| queue.id == id).expect("queues stay");
                ground.tap.answer(id, queue.base);
            }
            What::Made { id, base, .. } => ground.tap.answer(id, base),
            _ => {}
        }
        if let What::Work(operation) = what {
            let bytes = if operation.kind == Kind::Read {
                self.buffers.gather(&segments, &ground.memory.borrow())
            } else {
                Vec::new()
            };
            self.workload.end(operation.id, if success { End::Done(&bytes) } else { End::Failed });
        } else if !success && matches!(what, What::SetUp | What::Create(_) | What::Delete(_)) {
            self.rest(ground.now);
        } else {
            match what {
                What::SetUp => self.set_up_next(ground),
                What::Create(id) => {
                    let queue = self.queues.iter_mut().find(|queue| queue.id == id);
                    let queue = queue.expect("queues stay");
                    queue.closed = false;
                    ground.tap.create(id, queue.base, queue.entries);
                    if matches!(self.stage, Stage::SetUp(_)) {
                        self.set_up_next(ground);
                    }
                }
                What::Delete(id) => {
                    self.end_all(ground, Some(id));
                    ground.tap.delete(id);
                    self.create_submission(ground, id);
                }
                What::Gone(id) if success => ground.tap.delete(id),
                What::Made { id, base, entries } if success => ground.tap.create(id, base, entries),
                What::Junk | What::Work(_) | What::Gone(_) | What::Made { .. } => {}
            }
        }
        self.buffers.reuse(&pages, ground.memory, ground.rng);
        self.buffers.give(&pages);
    }
}
