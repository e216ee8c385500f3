//! The SSD behind the circuit: Farlane's own controller, a disk in memory that can be slow, pause
//! and fail, and the software that brings the controller up.

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Rng};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediaError, MediumId, Operation, Request};
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::controller::{self, Controller, Input, Output};
use nvme_pcie::registers::{DOORBELL_BYTES, configuration, offset};
use pcie::device::{Dma, DmaId, DmaResult};

use super::memory::BufferMemory;
use super::{BELLS, CYCLE, Held, WINDOW};
use crate::ffi::{StreamerIn, StreamerOut};
use crate::stream::Stalls;

/// Software's memory, with the Admin queues.
const SOFTWARE: u64 = 0x1000_0000;
const PAGE: u64 = 4096;
/// The completion queue in the window.
const COMPLETIONS: u64 = 0x10_0000;
/// The lists of pages in the window.
const LISTS: u64 = 0x40_0000;
/// The window's length.
const WINDOW_BYTES: u64 = 0x80_0000;
const BEAT: u64 = 16;

/// How the SSD behaves.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    /// The most cycles that a command takes.
    pub latency_max: u64,
    /// A read or write of the medium fails once in so many times; 0 is never.
    pub fails_one_in: u64,
}

/// A read of the circuit's window.
#[derive(Debug)]
struct WindowRead {
    id: DmaId,
    address: u64,
    length: u64,
    bytes: Vec<u8>,
    is_asked: bool,
}

/// A write of the circuit's window: the next beat's place in its bytes.
#[derive(Debug)]
struct WindowWrite {
    address: u64,
    data: Buffer,
    at: usize,
    is_addressed: bool,
}

/// A write of the medium. Writes are in the order in which they were done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The byte of the medium at which it begins.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
    /// Whether the medium has taken them.
    pub is_stored: bool,
}

/// The SSD at the circuit's ports `s_ssd` and `m_bell`.
#[derive(Debug)]
pub(super) struct Ssd {
    controller: Controller,
    disk: RamDisk,
    software: Vec<u8>,
    stalls: Stalls,
    pub(super) temper: Temper,
    /// Commands of the medium, with the cycles at which they are done.
    at_medium: Vec<(u64, Request)>,
    /// The medium does nothing before this cycle.
    pub(super) paused_until: u64,
    reads: VecDeque<WindowRead>,
    writes: VecDeque<WindowWrite>,
    /// Writes of the window that have no answer yet.
    unanswered: usize,
    bell: (Option<u64>, Option<u32>, bool),
    held: (Held<u64>, Held<u32>),
    /// Entries of the submission queue, as they were read.
    pub(super) entries: Vec<SubmissionQueueEntry>,
    /// Lists of pages, as they were read, with their addresses.
    pub(super) lists: Vec<(u64, Vec<u8>)>,
    pub(super) written: Vec<Written>,
    pub(super) flushes: u32,
}

impl Ssd {
    pub(super) fn new(core: nvme::subsystem::Config, bytes: u64, stalls: Stalls, temper: Temper) -> Self {
        Self {
            controller: Controller::new(Instant::ZERO, controller::Config::new(core)),
            disk: RamDisk::new(bytes),
            software: vec![0; 4 * PAGE as usize],
            stalls,
            temper,
            at_medium: Vec::new(),
            paused_until: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            unanswered: 0,
            bell: (None, None, false),
            held: (Held::new("m_bell_aw"), Held::new("m_bell_w")),
            entries: Vec::new(),
            lists: Vec::new(),
            written: Vec::new(),
            flushes: 0,
        }
    }

    /// Takes the place of software: starts the controller, and creates the queues in the window.
    pub(super) fn bring_up(&mut self, entries: u32) {
        let mut none = BufferMemory::new(0, 0, Stalls(None), 1);
        let writes = [
            (offset::ADMIN_QUEUE_ATTRIBUTES, 4, 7 << 16 | 7),
            (offset::ADMIN_SUBMISSION_QUEUE, 8, SOFTWARE),
            (offset::ADMIN_COMPLETION_QUEUE, 8, SOFTWARE + PAGE),
            (
                offset::CONFIGURATION,
                4,
                configuration::ENABLE.put(1)
                    | configuration::SUBMISSION_ENTRY_SIZE.put(6)
                    | configuration::COMPLETION_ENTRY_SIZE.put(4),
            ),
        ];
        for (register, length, value) in writes {
            self.write_register(Instant::ZERO, register, &value.to_le_bytes()[..length]);
        }
        self.advance(0, &mut none, &mut Rng::from_seed(0));
        let mut status = [0; 4];
        self.controller.read_register(offset::STATUS, &mut status);
        assert_eq!(status, [1, 0, 0, 0], "the controller is ready");
        let size = (entries - 1) << 16 | 1;
        let queue = |opcode, cdw11, address| SubmissionQueueEntry {
            opcode,
            cdw10: size,
            cdw11,
            data_pointer: [address, 0],
            ..SubmissionQueueEntry::EMPTY
        };
        let features = SubmissionQueueEntry { opcode: 9, cdw10: 7, ..SubmissionQueueEntry::EMPTY };
        let commands = [features, queue(5, 1, WINDOW + COMPLETIONS), queue(1, 1 << 16 | 1, WINDOW)];
        for (place, command) in commands.into_iter().enumerate() {
            self.software[64 * place..][..64].copy_from_slice(&command.emit());
            let tail = u32::try_from(place + 1).expect("a few");
            self.write_register(Instant::ZERO, offset::DOORBELLS, &tail.to_le_bytes());
            self.advance(0, &mut none, &mut Rng::from_seed(0));
            let completion = PAGE as usize + 16 * place;
            assert_eq!(self.software[completion + 14..completion + 16], [1, 0], "command {place}");
        }
    }

    fn write_register(&mut self, now: Instant, offset: u32, bytes: &[u8]) {
        self.controller.handle_input(now, Input::RegisterWrite { offset, bytes });
    }

    pub(super) fn offer(&self, inputs: &mut StreamerIn, rng: &mut Rng) {
        let stall = |rng: &mut Rng| self.stalls.pauses(rng);
        let read = self.reads.front();
        let asks = read.filter(|read| !read.is_asked);
        // An offer is not withdrawn: the circuit takes an address at once, or waits for data.
        inputs.s_ssd_arvalid = asks.is_some();
        if let Some(read) = asks {
            let first = read.address / BEAT;
            let beats = (read.address + read.length).div_ceil(BEAT) - first;
            inputs.s_ssd_araddr = u32::try_from(read.address - WINDOW).expect("in the window");
            inputs.s_ssd_arlen = u32::try_from(beats - 1).ok().filter(|beats| *beats < 256).expect("a burst");
        }
        inputs.s_ssd_rready = !stall(rng);
        let write = self.writes.front();
        inputs.s_ssd_awvalid = write.is_some_and(|write| !write.is_addressed);
        inputs.s_ssd_wvalid = write.is_some_and(|write| write.is_addressed);
        if let Some(write) = write {
            inputs.s_ssd_awaddr = u32::try_from(write.address - WINDOW).expect("in the window");
            let words = write.data[write.at..write.at + BEAT as usize].as_chunks::<4>().0;
            inputs.s_ssd_wdata = std::array::from_fn(|word| u32::from_le_bytes(words[word]));
            inputs.s_ssd_wstrb = 0xffff;
            inputs.s_ssd_wlast = write.at + BEAT as usize == write.data.len();
        }
        inputs.s_ssd_bready = !stall(rng);
        inputs.m_bell_awready = self.bell.0.is_none() && !stall(rng);
        inputs.m_bell_wready = self.bell.1.is_none() && !stall(rng);
        inputs.m_bell_bvalid = self.bell.2;
    }

    /// Takes the circuit's offers, and goes on. Returns whether anything moved.
    pub(super) fn take(
        &mut self,
        now: u64,
        inputs: &StreamerIn,
        outputs: &StreamerOut,
        memory: &mut BufferMemory,
        rng: &mut Rng,
    ) -> bool {
        let mut moved = false;
        if inputs.s_ssd_arvalid && outputs.s_ssd_arready {
            self.reads.front_mut().expect("a read was offered").is_asked = true;
            moved = true;
        }
        let mut wakes = false;
        if outputs.s_ssd_rvalid && inputs.s_ssd_rready {
            wakes = self.on_beat(now, &outputs.s_ssd_rdata, outputs.s_ssd_rlast);
            moved = true;
        }
        moved |= self.take_write(inputs, outputs);
        let address =
            self.held.0.passes(outputs.m_bell_awvalid, inputs.m_bell_awready, outputs.m_bell_awaddr);
        let value = self.held.1.passes(outputs.m_bell_wvalid, inputs.m_bell_wready, outputs.m_bell_wdata);
        moved |= address.is_some() || value.is_some();
        self.bell.0 = self.bell.0.or(address);
        self.bell.1 = self.bell.1.or(value);
        if std::mem::take(&mut self.bell.2) {
            (self.bell.0, self.bell.1) = (None, None);
        } else if let (Some(address), Some(value)) = (self.bell.0, self.bell.1) {
            let bell = u32::try_from(address - BELLS).expect("a doorbell of queue 1");
            assert!(bell < 2 * DOORBELL_BYTES, "a doorbell at {address:#x}");
            let offset = offset::DOORBELLS + 2 * DOORBELL_BYTES + bell;
            self.write_register(time(now), offset, &value.to_le_bytes());
            self.bell.2 = true;
            wakes = true;
        }
        let is_due = now >= self.paused_until && self.at_medium.iter().any(|(due, _)| *due <= now);
        if wakes || is_due || now.is_multiple_of(1024) {
            moved |= wakes || is_due;
            self.advance(now, memory, rng);
        }
        moved
    }

    fn take_write(&mut self, inputs: &StreamerIn, outputs: &StreamerOut) -> bool {
        let mut moved = false;
        if let Some(write) = self.writes.front_mut() {
            if inputs.s_ssd_awvalid && outputs.s_ssd_awready {
                write.is_addressed = true;
                moved = true;
            }
            if inputs.s_ssd_wvalid && outputs.s_ssd_wready {
                write.at += BEAT as usize;
                moved = true;
                if write.at == write.data.len() {
                    self.writes.pop_front();
                    self.unanswered += 1;
                }
            }
        }
        if outputs.s_ssd_bvalid && inputs.s_ssd_bready {
            self.unanswered = self.unanswered.checked_sub(1).expect("an answer for each write");
            moved = true;
        }
        moved
    }

    /// Takes a beat of a read of the window. Returns whether the read has ended.
    fn on_beat(&mut self, now: u64, words: &[u32; 4], last: bool) -> bool {
        let read = self.reads.front_mut().expect("a beat of a read");
        read.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let whole = (read.address % BEAT + read.length).next_multiple_of(BEAT);
        assert_eq!(last, read.bytes.len() as u64 == whole, "a read has as many beats as asked for");
        if !last {
            return false;
        }
        let WindowRead { id, address, length, bytes, .. } = self.reads.pop_front().expect("it is there");
        let start = usize::try_from(address % BEAT).expect("small");
        let data = bytes[start..start + usize::try_from(length).expect("small")].to_vec();
        if address < WINDOW + COMPLETIONS {
            let entries = data.as_chunks().0.iter().map(SubmissionQueueEntry::parse);
            self.entries.extend(entries);
        } else if address >= WINDOW + LISTS {
            self.lists.push((address, data.clone()));
        }
        let result = DmaResult::Data { id, offset: 0, data: Buffer::from(data), last: true };
        self.controller.handle_input(time(now), Input::Dma(result));
        true
    }

    /// Lets the medium and the controller do their work that is due.
    fn advance(&mut self, now: u64, memory: &mut BufferMemory, rng: &mut Rng) {
        let at = time(now);
        if self.controller.poll_timeout().is_some_and(|due| due <= at) {
            self.controller.handle_timeout(at);
        }
        if now >= self.paused_until {
            let due = |entry: &mut (u64, Request)| entry.0 <= now;
            let mut done: Vec<Request> =
                self.at_medium.extract_if(.., due).map(|(_, request)| request).collect();
            while !done.is_empty() {
                let next = usize::try_from(rng.below(done.len() as u64)).expect("a few");
                self.serve(at, done.swap_remove(next), rng);
            }
        }
        while let Some(output) = self.controller.poll_output() {
            match output {
                Output::Dma(dma) => self.on_dma(at, dma, memory),
                Output::Media(request) => {
                    let due = now + 1 + rng.below(self.temper.latency_max);
                    self.at_medium.push((due, request));
                }
                Output::Notify(_) | Output::ToLane(..) | Output::ToHome(_) => {}
            }
        }
    }

    fn serve(&mut self, at: Instant, request: Request, rng: &mut Rng) {
        let may_fail = !matches!(request.operation, Operation::Flush);
        let fails = may_fail && rng.one_in(self.temper.fails_one_in);
        match &request.operation {
            Operation::Write { offset, data, .. } => {
                self.written.push(Written { offset: *offset, data: data.to_vec(), is_stored: !fails });
            }
            Operation::Flush => self.flushes += 1,
            _ => {}
        }
        if fails {
            let is_read = matches!(request.operation, Operation::Read { .. });
            let error = if is_read { MediaError::ReadFailed } else { MediaError::Write };
            let done = Completion::Done { id: request.id, result: Err(error) };
            return self.controller.handle_input(at, Input::Media(done));
        }
        let mut answers = Vec::new();
        self.disk.submit(request, &mut |answer| answers.push(answer));
        for answer in answers {
            self.controller.handle_input(at, Input::Media(answer));
        }
    }

    fn on_dma(&mut self, at: Instant, dma: Dma, memory: &mut BufferMemory) {
        let in_window = |address: u64| (WINDOW..WINDOW + WINDOW_BYTES).contains(&address);
        match dma {
            Dma::Read { id, address, length } if in_window(address) => {
                let bytes = Vec::new();
                self.reads.push_back(WindowRead {
                    id,
                    address,
                    length: length.into(),
                    bytes,
                    is_asked: false,
                });
            }
            Dma::Read { id, address, length } => {
                let data = Buffer::copy_from_slice(self.slice(memory, address, length as usize));
                let result = DmaResult::Data { id, offset: 0, data, last: true };
                self.controller.handle_input(at, Input::Dma(result));
            }
            Dma::Write { address, data } if in_window(address) => {
                assert!(address.is_multiple_of(BEAT) && data.len().is_multiple_of(BEAT as usize));
                self.writes.push_back(WindowWrite { address, data, at: 0, is_addressed: false });
            }
            Dma::Write { address, data } => {
                self.slice(memory, address, data.len()).copy_from_slice(&data);
            }
            // Software polls the Admin queue; the other queue has no interrupts.
            Dma::Interrupt { .. } => {}
        }
    }

    fn slice<'a>(&'a mut self, memory: &'a mut BufferMemory, address: u64, length: usize) -> &'a mut [u8] {
        let software = address.checked_sub(SOFTWARE).and_then(|start| usize::try_from(start).ok());
        match software.filter(|start| *start < self.software.len()) {
            Some(start) => &mut self.software[start..start + length],
            None => memory.slice(address, length).unwrap_or_else(|| panic!("no memory at {address:#x}")),
        }
    }

    /// The bytes of the medium in a range.
    pub(super) fn contents(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).expect("a small medium")];
        let operation = Operation::Read { offset, length: u32::try_from(length).expect("a small medium") };
        let request = Request { id: nvme::media::IoId(0), medium: MediumId(0), operation };
        self.disk.submit(request, &mut |answer| {
            if let Completion::Data { offset, data, .. } = answer {
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            }
        });
        bytes
    }

    /// Whether the SSD will do something by itself.
    pub(super) fn is_busy(&self) -> bool {
        !self.at_medium.is_empty()
    }
}

fn time(cycle: u64) -> Instant {
    Instant::from_nanos(cycle * CYCLE)
}
