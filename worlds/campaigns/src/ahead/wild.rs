//! The acts of a host that keeps no rules. Its own data may suffer, but nothing else may go wrong.

use engine::{Instant, Nanos};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};

use super::buffers::PAGE;
use super::memory::BASE;
use super::station::{DATA_PAGES, DOORBELLS, Ground, QUEUE_PAGES, Stage, Station, What};

/// The longest pause in ns between two wild actions.
const PAUSE_MAX: u64 = 3_000_000;
/// NSSR, the register for an NVM Subsystem Reset, and the value that starts the reset.
const NSSR: u64 = 0x20;
const NVME: u32 = 0x4e56_4d65;
/// Sanitize Action (SANACT): Start a Block Erase sanitize operation.
const BLOCK_ERASE: u32 = 2;
/// Device Control in the PCI Express capability, and its bit Initiate Function Level Reset.
const DEVICE_CONTROL: u16 = 8;
const FUNCTION_RESET: u32 = 1 << 15;

impl Station {
    /// Does something wild when it is time to.
    pub(super) fn wild(&mut self, ground: &mut Ground<'_>) {
        if !self.unruly || self.wild_at > ground.now {
            return;
        }
        self.wild_at = ground.now + Nanos::new(1 + ground.rng.below(PAUSE_MAX));
        match ground.rng.below(17) {
            0..=2 => self.ring_anything(ground),
            3 | 4 => self.rewrite_entry(ground),
            5 | 6 => self.rewrite_page(ground),
            7 => self.master(ground, !self.bus_master),
            8 => self.bridge(ground),
            9 => {
                // The host resets the controller, and does not always wait for the reset.
                self.disable(ground);
                if ground.rng.one_in(2) {
                    self.enable(ground);
                }
            }
            10 => self.delete_anything(ground),
            11 => self.create_anything(ground),
            12 if ground.rng.one_in(8) => {
                let pages = self.base + QUEUE_PAGES * PAGE;
                let mut entry = self.admin(AdminOpcode::DoorbellBufferConfig, [0, 0], pages);
                entry.data_pointer[1] = pages + PAGE;
                self.admin_if_room(ground, entry, What::Junk);
            }
            13 => self.reset_function(ground),
            16 => self.erase(ground),
            14 => self.write(ground, NSSR, &NVME.to_le_bytes()),
            _ => {
                let value = u32::try_from(ground.rng.below(1 << 32)).expect("32 bits");
                let at = DOORBELLS + 4 + 8 * ground.rng.below(4);
                self.write(ground, at, &value.to_le_bytes());
            }
        }
    }

    pub(super) fn wild_timeout(&self) -> Option<Instant> {
        (self.unruly && self.stage == Stage::Up).then_some(self.wild_at)
    }

    /// A random address, at which there is often nothing good.
    fn anywhere(&self, ground: &mut Ground<'_>) -> u64 {
        let rng = &mut *ground.rng;
        let page = PAGE * rng.below(DATA_PAGES);
        match rng.below(12) {
            0 => rng.below(1 << 20),
            1 => 0xfee0_0000 + rng.below(1 << 20),
            2 => self.bar + rng.below(1 << 14),
            3 => 0xc000_0000 + rng.below(1 << 24),
            4 => u64::MAX - rng.below(3 * PAGE),
            5 => BASE - 64 + rng.below(128),
            6 => self.base + PAGE * rng.below(QUEUE_PAGES),
            7 => self.base + QUEUE_PAGES * PAGE + page + rng.below(PAGE),
            _ => self.base + QUEUE_PAGES * PAGE + page,
        }
    }

    fn entry(&self, ground: &mut Ground<'_>) -> SubmissionQueueEntry {
        let opcodes = [0x01, 0x01, 0x02, 0x05, 0x08, 0x09, 0x19, 0x0d, 0x7f];
        let mut word = |below: u64| u32::try_from(ground.rng.below(below)).expect("32 bits");
        let opcode = opcodes[word(9) as usize];
        let entry = SubmissionQueueEntry {
            opcode,
            flags: [0, 0, 0x40, 0x80, 0xc3][word(5) as usize],
            namespace: NamespaceId(word(3)),
            cdw10: word(64),
            cdw11: word(2),
            cdw12: word(300),
            ..Default::default()
        };
        let second = self.anywhere(ground);
        // Now and then, the pointer is an SGL segment descriptor.
        let second = if ground.rng.one_in(3) { second & 0xffff | 0x30 << 56 } else { second };
        SubmissionQueueEntry { data_pointer: [self.anywhere(ground), second], ..entry }
    }

    fn ring_anything(&mut self, ground: &mut Ground<'_>) {
        let id = u16::try_from(ground.rng.below(u64::from(self.pairs) + 3)).expect("few queues");
        let below = if ground.rng.one_in(4) { 1 << 32 } else { u64::from(self.queue_entries) + 2 };
        let tail = u32::try_from(ground.rng.below(below)).expect("32 bits");
        let enabled = self.may_read();
        if id == 0 {
            ground.tap.doubt();
        }
        ground.tap.ring(id, tail & 0xffff, enabled);
        self.write(ground, DOORBELLS + u64::from(id) * 8, &tail.to_le_bytes());
    }

    /// Overwrites an entry of an I/O queue, whether it was rung or not.
    fn rewrite_entry(&mut self, ground: &mut Ground<'_>) {
        let entry = self.entry(ground);
        let index = ground.rng.below(self.queues.len() as u64);
        let queue = &self.queues[usize::try_from(index).expect("an index")];
        if queue.id != 0 {
            let slot = ground.rng.below(u64::from(queue.entries));
            ground.memory.borrow_mut().write(queue.base + slot * 64, &entry.emit());
        }
    }

    /// Overwrites data or lists that may be in use, with pointers or with random bytes.
    fn rewrite_page(&mut self, ground: &mut Ground<'_>) {
        let page = self.base + PAGE * (QUEUE_PAGES + ground.rng.below(DATA_PAGES));
        let mut bytes = vec![0; 512];
        ground.rng.fill(&mut bytes);
        if ground.rng.one_in(2) {
            for place in bytes.chunks_exact_mut(8) {
                place.copy_from_slice(&self.anywhere(ground).to_le_bytes());
            }
        }
        let at = page + 512 * ground.rng.below(8);
        ground.memory.borrow_mut().write(at, &bytes);
    }

    fn admin_if_room(&mut self, ground: &mut Ground<'_>, entry: SubmissionQueueEntry, what: What) {
        if self.queues[0].room() {
            let command = self.bare(ground.now, what);
            self.submit(ground, 0, entry, command);
        }
    }

    /// Starts Format NVM or Sanitize, regardless of outstanding commands.
    fn erase(&mut self, ground: &mut Ground<'_>) {
        let format = u32::from(self.block == 4096);
        let (opcode, how) = if ground.rng.one_in(2) {
            (AdminOpcode::FormatNvm, format)
        } else {
            (AdminOpcode::Sanitize, BLOCK_ERASE)
        };
        let entry = self.admin(opcode, [how, 0], 0);
        self.admin_if_room(ground, entry, What::Junk);
    }

    fn delete_anything(&mut self, ground: &mut Ground<'_>) {
        let id = 1 + u32::try_from(ground.rng.below(u64::from(self.pairs) + 1)).expect("few queues");
        let submission = ground.rng.one_in(2);
        let opcode = if submission {
            AdminOpcode::DeleteIoSubmissionQueue
        } else {
            AdminOpcode::DeleteIoCompletionQueue
        };
        let id = u16::try_from(id).expect("few queues");
        let entry = self.admin(opcode, [id.into(), 0], 0);
        let what = if submission { What::Gone(id) } else { What::Junk };
        self.admin_if_room(ground, entry, what);
    }

    /// Creates a submission queue at a random address; a queue of this number may exist already.
    fn create_anything(&mut self, ground: &mut Ground<'_>) {
        let id = 1 + u16::try_from(ground.rng.below(u64::from(self.pairs) + 1)).expect("few queues");
        let base = self.anywhere(ground);
        let entries = 2 + u32::try_from(ground.rng.below(200)).expect("few");
        ground.tap.ask(id, base, entries);
        let size = (entries - 1) << 16 | u32::from(id);
        let entry = self.admin(AdminOpcode::CreateIoSubmissionQueue, [size, 1 << 16 | 1], base);
        self.admin_if_room(ground, entry, What::Made { id, base, entries });
    }

    /// Toggles Bus Master Enable of the port above the function.
    fn bridge(&mut self, ground: &mut Ground<'_>) {
        let Some(bridge) = self.bridge_id else { return };
        let on = !self.bridge_on;
        if self.set_master(ground, bridge, on) {
            self.bridge_on = on;
        }
    }

    pub(super) fn reset_function(&mut self, ground: &mut Ground<'_>) {
        let (Some(bdf), Some(express)) = (self.bdf, self.express) else { return };
        let cookie = self.cookie();
        let at = express + DEVICE_CONTROL;
        if ground.root.config_write(ground.now, cookie, bdf, at, 0b0010, FUNCTION_RESET).is_ok() {
            // The reset clears the function's registers, too; enumeration sets them again.
            self.rescan = true;
            self.lose(ground.tap);
        }
    }
}
