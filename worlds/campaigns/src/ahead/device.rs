//! An SSD that reads host memory as it likes: in pieces, in any order, late, twice, and even memory
//! that no command names.

use std::collections::BTreeMap;

use assemblies::far::{Device, Said, Storage};
use engine::{Buffer, Engine, Instant, Nanos, Rng};
use nvme::media;
use nvme::wire::AdminOpcode;
use nvme_pcie::controller::{self, Controller};
use nvme_pcie::function;
use pcie::config::BarIndex;
use pcie::device::{Dma, DmaId, DmaResult};
use pcie::endpoint::{self, Endpoint};
use pcie::wire::{Kind, MemoryOperation, Packet};

use super::memory::{Moment, Shared};

/// Offset in the first 16 KiB of a BAR where the host writes the current moment of its memory. No
/// register is there.
pub(super) const MOMENT_REGISTER: u64 = 0x3ff8;
const MOMENT_MASK: u64 = 0x3fff;
/// Number of read addresses that are remembered and may be read again for no reason.
const SEEN_MAX: usize = 64;
/// Number of failures that are kept; the first ones are the most useful.
const FAILURES_MAX: usize = 8;
const PAGE: u64 = 4096;
/// Offsets of registers: CC, NSSR, AQA and ASQ, then the doorbells with the shortest stride.
const CONFIGURATION: u64 = 0x14;
const SUBSYSTEM_RESET: u64 = 0x20;
const ADMIN_ATTRIBUTES: u64 = 0x24;
const ADMIN_SUBMISSION: u64 = 0x28;
const DOORBELLS: u64 = 0x1000;
const ENTRY: u64 = 64;
/// The longest time in ns for which a doorbell is not heeded.
const DEAF_MAX: u64 = 8_000_000;

/// How the device reads host memory.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// The largest piece in bytes.
    piece: u64,
    /// Whether pieces are read in any order.
    shuffled: bool,
    /// The longest time that a piece waits before it is read.
    late: Nanos,
    /// One piece in this many is read twice.
    twice: u64,
    /// One read in this many, and one doorbell in this many, is accompanied by a read of something
    /// else.
    idle: u64,
    /// One doorbell of an I/O queue in this many is heeded late, when the queue may be gone
    /// already.
    deaf: u64,
}

impl Habit {
    fn draw(rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, of: [u64; 4]| of[usize::try_from(rng.below(4)).expect("one of four")];
        Self {
            piece: pick(rng, [64, 256, PAGE, PAGE]),
            shuffled: rng.one_in(2),
            late: Nanos::from_micros(pick(rng, [0, 0, 50, 3_000])),
            twice: pick(rng, [2, 8, 64, u64::MAX]),
            idle: pick(rng, [2, 4, 16, u64::MAX]),
            deaf: pick(rng, [2, 2, 8, u64::MAX]),
        }
    }
}

/// A piece of a read, which is read under an identifier of its own.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The controller's read that the piece belongs to, if any.
    of: Option<DmaId>,
    address: u64,
    length: u32,
    /// The moment of host memory that the device knew when it asked.
    known: Moment,
}

/// A read of the controller that is split into pieces.
#[derive(Debug)]
struct Read {
    address: u64,
    bytes: Vec<u8>,
    missing: usize,
    failed: bool,
}

/// A real controller behind an endpoint that reads host memory as it likes.
#[derive(Debug)]
pub(super) struct Whimsical {
    endpoint: Endpoint,
    controller: Controller,
    memory: Shared,
    rng: Rng,
    habit: Habit,
    /// The reads of the controller by their identifiers.
    reads: BTreeMap<DmaId, Read>,
    /// The pieces that have been asked for, with the bytes that have arrived.
    asked: BTreeMap<DmaId, (Piece, Vec<u8>)>,
    /// The pieces that wait to be asked for.
    later: BTreeMap<(Instant, u32), Piece>,
    seen: Vec<(u64, u32)>,
    /// Doorbells of I/O submission queues that are not heeded yet, each with the time at which it
    /// will be and its value.
    unheeded: BTreeMap<u16, (Instant, [u8; 4])>,
    /// The first address and the end of the admin submission queue.
    admin: (u64, u64),
    names: u32,
    known: Moment,
    now: Instant,
    /// Whether reads are compared with memory, which is so with a host that keeps the rules.
    judges: bool,
    failures: Vec<String>,
}

impl Whimsical {
    pub(super) fn new(
        now: Instant,
        config: function::Config,
        memory: Shared,
        judges: bool,
        mut rng: Rng,
    ) -> Self {
        let (endpoint, controller) = function::Function::parts(now, config);
        Self {
            endpoint,
            controller,
            memory,
            habit: Habit::draw(&mut rng),
            rng,
            reads: BTreeMap::new(),
            asked: BTreeMap::new(),
            later: BTreeMap::new(),
            seen: Vec::new(),
            unheeded: BTreeMap::new(),
            admin: (0, 0),
            names: 0,
            known: Moment(0),
            now,
            judges,
            failures: Vec::new(),
        }
    }

    /// Descriptions of reads that gave bytes which memory did not hold.
    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }

    fn on_dma(&mut self, dma: Dma) {
        let Dma::Read { id, address, length } = dma else { return self.endpoint.dma(self.now, dma) };
        let mut pieces = Vec::new();
        let (mut at, end) = (address, address.saturating_add(u64::from(length)));
        while at < end {
            let stop = end.min((at / self.habit.piece + 1).saturating_mul(self.habit.piece));
            let length = u32::try_from(stop - at).expect("a piece is short");
            pieces.push(Piece { of: Some(id), address: at, length, known: self.known });
            at = stop;
        }
        let read = Read { address, bytes: vec![0; length as usize], missing: pieces.len(), failed: false };
        self.reads.insert(id, read);
        if self.habit.shuffled {
            for index in (1..pieces.len()).rev() {
                let other = self.rng.below(index as u64 + 1);
                pieces.swap(index, usize::try_from(other).expect("an index"));
            }
        }
        for piece in pieces {
            if self.rng.one_in(self.habit.twice) {
                self.ask_later(Piece { of: None, ..piece });
            }
            self.ask_later(piece);
            self.note(piece.address, piece.length);
        }
        if self.rng.one_in(self.habit.idle) {
            self.idle();
        }
    }

    fn note(&mut self, address: u64, length: u32) {
        if self.seen.len() == SEEN_MAX {
            let victim = self.rng.below(SEEN_MAX as u64);
            self.seen.swap_remove(usize::try_from(victim).expect("an index"));
        }
        self.seen.push((address, length));
    }

    /// Reads memory again that was read before, or memory next to it.
    fn idle(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let index = usize::try_from(self.rng.below(self.seen.len() as u64)).expect("an index");
        let (address, length) = self.seen[index];
        let (address, length) = match self.rng.below(6) {
            4 | 5 => {
                let page = (address & !(PAGE - 1)).wrapping_add(PAGE * self.rng.below(5));
                (page.wrapping_sub(2 * PAGE), 64)
            }
            0 => (address.wrapping_add(u64::from(length)), length.min(64)),
            1 => (address, (length / 2).max(1)),
            2 => (address & !63, 64),
            _ => (address, length),
        };
        let length = length.min(u32::try_from(PAGE - address % PAGE).expect("within a page"));
        self.ask_later(Piece { of: None, address, length, known: self.known });
    }

    fn ask_later(&mut self, piece: Piece) {
        if self.habit.late == Nanos::ZERO || self.rng.one_in(2) {
            return self.ask(piece);
        }
        self.names += 1;
        let at = self.now + Nanos::new(self.rng.below(self.habit.late.get()));
        self.later.insert((at, self.names), piece);
    }

    fn ask(&mut self, mut piece: Piece) {
        piece.known = self.known;
        self.names += 1;
        let id = DmaId(self.names);
        self.asked.insert(id, (piece, vec![0; piece.length as usize]));
        self.endpoint.dma(self.now, Dma::Read { id, address: piece.address, length: piece.length });
    }

    fn on_result(&mut self, result: DmaResult) {
        let (id, failed) = match result {
            DmaResult::Data { id, offset, data, last } => {
                if let Some((_, bytes)) = self.asked.get_mut(&id) {
                    bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                }
                if !last {
                    return;
                }
                (id, false)
            }
            DmaResult::Failed { id } => (id, true),
        };
        let Some((piece, bytes)) = self.asked.remove(&id) else { return };
        if !failed && self.judges {
            self.judge(&piece, &bytes);
        }
        let Some(name) = piece.of else { return };
        let Some(read) = self.reads.get_mut(&name) else { return };
        let start = usize::try_from(piece.address - read.address).expect("within the read");
        read.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
        read.failed |= failed;
        read.missing -= 1;
        if read.missing > 0 {
            return;
        }
        let Some(read) = self.reads.remove(&name) else { return };
        if !read.failed {
            self.on_entries(read.address, &read.bytes);
        }
        let result = if read.failed {
            DmaResult::Failed { id: name }
        } else {
            DmaResult::Data { id: name, offset: 0, data: Buffer::from(read.bytes), last: true }
        };
        self.controller.handle_input(self.now, controller::Input::Dma(result));
    }

    /// The controller is about to see entries of its admin queue. A queue that an entry deletes has
    /// no doorbells any more.
    fn on_entries(&mut self, address: u64, bytes: &[u8]) {
        if !(self.admin.0..self.admin.1).contains(&address) {
            return;
        }
        for entry in bytes.as_chunks::<64>().0 {
            if AdminOpcode::from(entry[0]) == AdminOpcode::DeleteIoSubmissionQueue {
                self.unheeded.remove(&u16::from_le_bytes([entry[40], entry[41]]));
            }
        }
    }

    fn judge(&mut self, piece: &Piece, bytes: &[u8]) {
        let memory = self.memory.borrow();
        if let Err(at) = memory.judge(piece.known, piece.address, bytes)
            && self.failures.len() < FAILURES_MAX
        {
            let Piece { of, address, length, known } = piece;
            self.failures.push(format!(
                "at {} a read of {length} B at {address:#x} for {of:?} gave in byte {at} a value that was not there since write {} (of {})",
                self.now - Instant::ZERO,
                known.0,
                memory.moment().0,
            ));
        }
    }

    fn on_reset(&mut self) {
        self.controller.reset();
        self.reads.clear();
        self.asked.clear();
        self.later.clear();
        self.unheeded.clear();
        self.habit = Habit::draw(&mut self.rng);
    }

    fn write_bar(&mut self, bar: BarIndex, offset: u64, bytes: &[u8]) {
        let input = if bar == BarIndex::ZERO {
            if self.is_late(offset, bytes) {
                return;
            }
            let Ok(offset) = u32::try_from(offset) else { return };
            controller::Input::RegisterWrite { offset, bytes }
        } else {
            controller::Input::MemoryBufferWrite { offset, bytes }
        };
        self.controller.handle_input(self.now, input);
    }

    /// Notes writes to registers. Returns whether the controller is to see this write only later.
    fn is_late(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let word = bytes.first_chunk().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
        match (offset, word) {
            (ADMIN_ATTRIBUTES, Some(sizes)) => self.admin.1 = self.admin.0 + ((sizes & 0xfff) + 1) * ENTRY,
            (ADMIN_SUBMISSION, Some(low)) => {
                let length = self.admin.1 - self.admin.0;
                let base = bytes.first_chunk().map_or(low, |bytes| u64::from_le_bytes(*bytes));
                self.admin = (base, base.saturating_add(length));
            }
            (CONFIGURATION | SUBSYSTEM_RESET, _) => self.unheeded.clear(),
            (DOORBELLS.., Some(_)) if (offset - DOORBELLS).is_multiple_of(8) && bytes.len() == 4 => {
                let Ok(queue) = u16::try_from((offset - DOORBELLS) / 8) else { return false };
                let doorbell = *bytes.first_chunk().expect("four bytes");
                if let Some((_, waits)) = self.unheeded.get_mut(&queue) {
                    *waits = doorbell;
                    return true;
                }
                if queue != 0 && self.rng.one_in(self.habit.deaf) {
                    let at = self.now + Nanos::new(self.rng.below(DEAF_MAX));
                    self.unheeded.insert(queue, (at, doorbell));
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// Passes the doorbells that are due to the controller.
    fn on_event(&mut self) {
        while let Some((&queue, _)) = self.unheeded.iter().find(|(_, (at, _))| *at <= self.now) {
            let (_, doorbell) = self.unheeded.remove(&queue).expect("it was found");
            let offset = u32::try_from(DOORBELLS).expect("a register") + 8 * u32::from(queue);
            let input = controller::Input::RegisterWrite { offset, bytes: &doorbell };
            self.controller.handle_input(self.now, input);
        }
    }

    fn read_bar(&mut self, token: endpoint::BarToken, bar: BarIndex, offset: u64, length: u32) {
        let mut bytes = vec![0; length as usize];
        if bar == BarIndex::ZERO {
            self.controller.read_register(u32::try_from(offset).unwrap_or(u32::MAX), &mut bytes);
        } else {
            self.controller.read_memory_buffer(offset, &mut bytes);
        }
        self.endpoint.bar_read_done_bytes(token, &bytes);
    }
}

impl Device for Whimsical {
    type Input = media::Completion;
    type Output = Storage;

    fn on_packet(&mut self, now: Instant, packet: &Packet) {
        self.now = now;
        if let Kind::Memory(request) = &packet.header.kind
            && request.operation == MemoryOperation::Write
            && request.address & MOMENT_MASK == MOMENT_REGISTER
            && let Ok(bytes) = packet.payload.as_ref().try_into()
        {
            self.known = self.known.max(Moment(u64::from_le_bytes(bytes)));
            if self.rng.one_in(self.habit.idle) {
                self.idle();
            }
            return;
        }
        if let Some((bar, offset)) = self.endpoint.receive(now, packet) {
            self.write_bar(bar, offset, &packet.payload);
        }
    }

    fn on_hot_reset(&mut self, now: Instant) {
        self.now = now;
        self.endpoint.hot_reset();
    }

    fn on_input(&mut self, now: Instant, input: media::Completion) {
        self.now = now;
        self.controller.handle_input(now, controller::Input::Media(input));
    }

    fn poll(&mut self) -> Option<Said<Storage>> {
        loop {
            if let Some(output) = self.endpoint.poll_output() {
                match output {
                    endpoint::Output::Packet(packet) => return Some(Said::Packet(packet)),
                    endpoint::Output::BarRead { token, bar, offset, length } => {
                        self.read_bar(token, bar, offset, length);
                    }
                    endpoint::Output::BarWrite { bar, offset, data } => self.write_bar(bar, offset, &data),
                    endpoint::Output::Dma(result) => self.on_result(result),
                    endpoint::Output::Reset(_) => self.on_reset(),
                }
                continue;
            }
            match self.controller.poll_output()? {
                controller::Output::Dma(dma) => self.on_dma(dma),
                controller::Output::Media(request) => return Some(Said::World(Storage::Media(request))),
                controller::Output::Notify(notification) => {
                    return Some(Said::World(Storage::Notify(notification)));
                }
                controller::Output::ToLane(..) | controller::Output::ToHome(_) => {
                    unreachable!("no lane is attached")
                }
            }
        }
    }

    fn set_throttled(&mut self, throttled: bool) {
        self.controller.set_throttled(throttled);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let piece = entry.remove();
            self.ask(piece);
        }
        self.on_event();
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.handle_timeout(now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|(key, _)| key.0);
        let unheeded = self.unheeded.values().map(|(at, _)| *at);
        let others = [self.endpoint.poll_timeout(), self.controller.poll_timeout(), later];
        others.into_iter().flatten().chain(unheeded).min()
    }
}
