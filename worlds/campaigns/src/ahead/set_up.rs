//! How a station sets up its controller: registers, and queues that come and go.

use engine::Nanos;
use nvme::wire::AdminOpcode;

use super::buffers::{Buffers, PAGE, Segment};
use super::queue::{COMMANDS, Queue};
use super::station::{Command, DATA_PAGES, Ground, QUEUE_PAGES, Stage, Station, What};

const CAP: u64 = 0;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
/// CMBMSC, the register with the address of the controller's memory buffer. [`BUFFER_ENABLED`]
/// enables the buffer and its capabilities.
const MEMORY_BUFFER: u64 = 0x50;
const BUFFER_ENABLED: u64 = 3;
/// CC: enabled, with entries of 64 and 16 bytes.
const ENABLED: u32 = 0x46_0001;
/// The time between two looks at a register.
const LOOK: Nanos = Nanos::from_micros(300);
/// How long a controller may take to become ready.
const READY: Nanos = Nanos::from_secs(4);
/// Number of entries of each completion queue, enough for all commands.
const COMPLETIONS: u32 = 256;
const ADMIN_ENTRIES: u32 = 16;

impl Station {
    /// Reads CSTS when it is time to, to see whether the controller has become ready or disabled.
    pub(super) fn look(&mut self, ground: &mut Ground<'_>) {
        if self.asked.is_none() && self.look_at <= ground.now {
            self.ask(ground, CSTS, 4);
        }
    }

    fn ask(&mut self, ground: &mut Ground<'_>, offset: u64, length: u32) {
        let cookie = self.cookie();
        self.look_at = ground.now + LOOK;
        if ground.root.read(ground.now, cookie, self.bar + offset, length).is_ok() && offset == CSTS {
            self.asked = Some(cookie);
        }
    }

    /// Handles the value of a register; `None` if the read has failed.
    pub(super) fn on_register(&mut self, ground: &mut Ground<'_>, cookie: u64, bytes: Option<&[u8]>) {
        if self.asked != Some(cookie) {
            return;
        }
        self.asked = None;
        self.look_at = ground.now + LOOK;
        let status = bytes.and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes));
        match (status, self.stage) {
            (None | Some(u32::MAX), Stage::Disabling | Stage::Enabling) => self.rest(ground.now),
            (Some(status), Stage::Disabling) if status & 1 == 0 => self.enable(ground),
            (Some(status), Stage::Enabling) if status & 1 == 1 => self.set_up(ground),
            _ if ground.now - self.since > READY => self.rest(ground.now),
            _ => {}
        }
    }

    pub(super) fn disable(&mut self, ground: &mut Ground<'_>) {
        self.resets += 1;
        if !self.bus_master {
            self.master(ground, true);
        }
        self.write(ground, CC, &0_u32.to_le_bytes());
        self.ask(ground, CAP, 8);
        (self.stage, self.since) = (Stage::Disabling, ground.now);
        ground.tap.delete_all();
    }

    pub(super) fn enable(&mut self, ground: &mut Ground<'_>) {
        self.end_all(ground, None);
        if self.unruly {
            // An unruly host loses track of some pages, so all pages are counted as free again.
            self.buffers = Buffers::new(self.base + QUEUE_PAGES * PAGE, DATA_PAGES);
        }
        if let Some(place) = self.memory_buffer {
            self.write(ground, MEMORY_BUFFER, &(place | BUFFER_ENABLED).to_le_bytes());
        }
        let mut admin = Queue::new(0, self.base, ADMIN_ENTRIES, self.base + PAGE, ADMIN_ENTRIES * 4);
        admin.closed = false;
        admin.free.truncate(8);
        let (submission, completion) = (admin.base, admin.completions);
        ground.memory.borrow_mut().write(completion, &[0; 4096]);
        self.queues = vec![admin];
        let sizes = (ADMIN_ENTRIES - 1) | (ADMIN_ENTRIES * 4 - 1) << 16;
        self.write(ground, AQA, &sizes.to_le_bytes());
        self.write(ground, ASQ, &submission.to_le_bytes());
        self.write(ground, ACQ, &completion.to_le_bytes());
        self.write(ground, CC, &ENABLED.to_le_bytes());
        (self.stage, self.since, self.look_at) = (Stage::Enabling, ground.now, ground.now);
        ground.tap.enable();
        ground.tap.ask(0, submission, ADMIN_ENTRIES);
        ground.tap.answer(0, submission);
        ground.tap.create(0, submission, ADMIN_ENTRIES);
    }

    /// The controller is ready: submits the first command that sets it up.
    fn set_up(&mut self, ground: &mut Ground<'_>) {
        self.stage = Stage::SetUp(0);
        self.identify(ground, What::SetUp);
    }

    pub(super) fn identify(&mut self, ground: &mut Ground<'_>, what: What) {
        let Some((pages, mut segments)) = self.buffers.take(2 * PAGE, ground.rng) else { return };
        segments[0] = Segment { address: pages[0], length: PAGE };
        segments.truncate(1);
        let entry = self.admin(AdminOpcode::Identify, [0, 0], pages[0]);
        self.submit(ground, 0, entry, Command { what, pages, segments, sent: ground.now });
    }

    fn create_completion(&mut self, ground: &mut Ground<'_>, id: u16, what: What) {
        let at = self.base + PAGE * (1 + u64::from(id));
        ground.memory.borrow_mut().write(at, &[0; 4096]);
        let size = (COMPLETIONS - 1) << 16 | u32::from(id);
        let entry = self.admin(AdminOpcode::CreateIoCompletionQueue, [size, 1], at);
        self.submit(ground, 0, entry, self.bare(ground.now, what));
    }

    /// Creates a submission queue, with a new size and in a new place.
    pub(super) fn create_submission(&mut self, ground: &mut Ground<'_>, id: u16) {
        let entries = match ground.rng.below(3) {
            0 => self.queue_entries,
            _ => 3 + u32::try_from(ground.rng.below(6)).expect("few"),
        };
        let place = 8 + u64::from(id) * 4 + 2 * ground.rng.below(2);
        let base = match self.memory_buffer {
            Some(buffer) if ground.rng.one_in(2) => buffer + 2 * PAGE * u64::from(id),
            _ => self.base + PAGE * place,
        };
        let completions = self.base + PAGE * (1 + u64::from(id));
        match self.queues.iter_mut().find(|queue| queue.id == id) {
            Some(queue) => {
                (queue.base, queue.entries) = (base, entries);
                (queue.tail, queue.rung, queue.head) = (0, 0, 0);
                queue.free = (0..COMMANDS).collect();
            }
            None => self.queues.push(Queue::new(id, base, entries, completions, COMPLETIONS)),
        }
        ground.tap.ask(id, base, entries);
        let size = (entries - 1) << 16 | u32::from(id);
        let entry = self.admin(AdminOpcode::CreateIoSubmissionQueue, [size, u32::from(id) << 16 | 1], base);
        self.submit(ground, 0, entry, self.bare(ground.now, What::Create(id)));
    }

    pub(super) fn set_up_next(&mut self, ground: &mut Ground<'_>) {
        let Stage::SetUp(step) = self.stage else { return };
        self.stage = Stage::SetUp(step + 1);
        let id = step / 2 + 1;
        if id > self.pairs {
            self.stage = Stage::Up;
        } else if step % 2 == 0 {
            self.create_completion(ground, id, What::SetUp);
        } else {
            self.create_submission(ground, id);
        }
    }
}
