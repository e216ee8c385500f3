//! The circuit of the Streamer, between a stream, the memory of its buffer and an SSD.

pub mod campaign;
mod memory;
mod ssd;
#[cfg(test)]
mod tests;

use std::fmt;

use engine::Rng;
use nvme::media::MediumId;
use nvme::subsystem::BlockSize;
use nvme::wire::SubmissionQueueEntry;
use record::registers::{Account, State, layout as at};

use crate::ffi::{Streamer, StreamerIn};
use crate::stream::{Sink, Source, Stalls};
use memory::BufferMemory;
use ssd::Ssd;

pub use ssd::{Temper, Written};

/// Nanoseconds of a cycle.
const CYCLE: u64 = 4;
/// Where the SSD sees the circuit's window.
const WINDOW: u64 = 0x8000_0000;
/// Where the doorbells of the SSD's queue 1 lie.
const BELLS: u64 = 0xf000_1008;
/// Where the stream buffer lies.
const BUFFER: u64 = 0x2_0000_0000;
/// So many cycles without any progress are a circuit that hangs.
const PATIENCE: u64 = 20_000;
/// So many cycles a register takes at most.
const REGISTER_PATIENCE: u32 = 100;

/// The setup registers of the circuit, which gateware/rtl/streamer/README.md describes.
mod setup {
    pub(super) const CONTROL: u32 = 0x400;
    pub(super) const SHIFTS: u32 = 0x404;
    pub(super) const CHUNKS: u32 = 0x408;
    pub(super) const ENTRIES: u32 = 0x40c;
    pub(super) const NAMESPACE: u32 = 0x410;
    pub(super) const BUFFER: u32 = 0x418;
    pub(super) const WINDOW: u32 = 0x420;
    pub(super) const TAIL_BELL: u32 = 0x428;
    pub(super) const HEAD_BELL: u32 = 0x430;
    pub(super) const MEDIA: u32 = 0x438;
    pub(super) const MODEL: u32 = 0x440;
    pub(super) const GAP_INDEX: u32 = 0x480;
    pub(super) const GAP_ADDRESS: u32 = 0x488;
    pub(super) const GAP_CHUNKS: u32 = 0x490;
}

/// How the circuit is set up, and how its surroundings behave.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes in a chunk: 16 KiB to 128 KiB, a power of 2.
    pub chunk: u32,
    /// Chunks in the stream buffer.
    pub chunks: u32,
    /// Entries of each queue.
    pub entries: u32,
    /// Whether the stream waits when the buffer is full.
    pub waits: bool,
    /// Bytes of the medium.
    pub media: u64,
    /// Whether a block of the medium has 4,096 bytes, and not 512.
    pub has_large_blocks: bool,
    /// How the streams pause.
    pub stalls: Stalls,
    /// The most cycles that the buffer's memory takes.
    pub memory_latency_max: u64,
    /// How the SSD behaves.
    pub temper: Temper,
    /// All that is random.
    pub seed: u64,
}

impl Config {
    /// Surroundings that neither pause nor fail.
    pub const fn new(seed: u64) -> Self {
        Self {
            chunk: 16 << 10,
            chunks: 32,
            entries: 64,
            waits: false,
            media: 16 << 20,
            has_large_blocks: false,
            stalls: Stalls(None),
            memory_latency_max: 20,
            temper: Temper { latency_max: 1_000, fails_one_in: 0 },
            seed,
        }
    }
}

/// A gap of the circuit's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The address at which the first lost chunk would lie.
    pub address: u64,
    /// How many chunks in a row are lost.
    pub chunks: u32,
    /// Whether the medium did not take them; otherwise the buffer had no room.
    pub is_of_medium: bool,
}

/// An offer to a receiver that was not ready: it must stay.
#[derive(Debug)]
struct Held<T> {
    name: &'static str,
    value: Option<T>,
}

impl<T: Copy + PartialEq + fmt::Debug> Held<T> {
    const fn new(name: &'static str) -> Self {
        Self { name, value: None }
    }

    /// The value, if it passes in this cycle.
    fn passes(&mut self, valid: bool, ready: bool, value: T) -> Option<T> {
        let offered = valid.then_some(value);
        if self.value.is_some() {
            assert_eq!(offered, self.value, "{}: it changed before it was taken", self.name);
        }
        self.value = offered.filter(|_| !ready);
        offered.filter(|_| ready)
    }
}

/// A Streamer in hardware, and all that it is connected to.
pub struct StreamerCircuit {
    model: Streamer,
    inputs: StreamerIn,
    config: Config,
    rng: Rng,
    now: u64,
    source: Source,
    sink: Sink,
    memory: BufferMemory,
    ssd: Ssd,
    /// Cycles since anything moved.
    quiet: u64,
    is_busy: bool,
    changes: u32,
    /// Cycles since a beat of the source passed, in which one was not taken.
    refused: u64,
    /// Cycles in which a beat waited that was taken in the end.
    waited: u64,
    /// The value that the last read of a register has shown.
    shown: Option<u32>,
}

impl StreamerCircuit {
    /// A circuit after power-up, with its SSD and the software that sets both up.
    ///
    /// # Panics
    /// When the software finds a register that does not hold the written value.
    pub fn new(config: Config) -> Self {
        let Config { chunk, chunks, stalls, temper, media, .. } = config;
        let mut core = nvme::subsystem::Config::new("STREAMER").with_namespace(MediumId(0), media);
        if config.has_large_blocks {
            core.namespaces[0].block = BlockSize::Bytes4096;
        }
        let length = usize::try_from(u64::from(chunk) * u64::from(chunks)).expect("a small buffer");
        let memory = BufferMemory::new(BUFFER, length, stalls, config.memory_latency_max);
        let mut circuit = Self {
            model: Streamer::new(),
            inputs: StreamerIn::default(),
            config,
            rng: Rng::from_seed(config.seed).fork("streamer"),
            now: 0,
            source: Source::new(stalls),
            sink: Sink::new("m", stalls),
            memory,
            ssd: Ssd::new(core, media, stalls, temper),
            quiet: 0,
            is_busy: true,
            changes: 0,
            refused: 0,
            waited: 0,
            shown: None,
        };
        circuit.inputs.rst = true;
        circuit.cycle();
        circuit.cycle();
        circuit.inputs.rst = false;
        circuit.set_up();
        circuit
    }

    fn set_up(&mut self) {
        let Config { chunk, chunks, entries, waits, media, .. } = self.config;
        self.ssd.bring_up(entries);
        let page_shift = chunk.trailing_zeros() - 12;
        let block_shift = if self.config.has_large_blocks { 0 } else { 3 };
        self.write(setup::SHIFTS, page_shift | block_shift << 8);
        self.write(setup::CHUNKS, chunks);
        self.write(setup::ENTRIES, entries);
        self.write(setup::NAMESPACE, 1);
        let wide = [
            (setup::BUFFER, BUFFER),
            (setup::WINDOW, WINDOW),
            (setup::TAIL_BELL, BELLS),
            (setup::HEAD_BELL, BELLS + 4),
            (setup::MEDIA, media),
        ];
        for (register, value) in wide {
            self.write_wide(register, value);
            assert_eq!(self.read_wide(register), value, "{register:#x}");
        }
        for (place, word) in b"A disk in memory                        ".as_chunks().0.iter().enumerate() {
            let register = setup::MODEL + 4 * u32::try_from(place).expect("10 words");
            self.write(register, u32::from_le_bytes(*word));
        }
        self.write(setup::CONTROL, 1 | u32::from(waits) << 1);
        while self.read(setup::CONTROL) >> 31 == 0 {}
    }

    /// Runs the circuit and its surroundings for a cycle.
    fn cycle(&mut self) {
        let (rng, inputs, now) = (&mut self.rng, &mut self.inputs, self.now);
        let offered = self.source.offer(rng);
        offered.unwrap_or_default().put(&mut inputs.s_tdata, &mut inputs.s_tkeep, &mut inputs.s_tlast);
        inputs.s_tvalid = offered.is_some();
        inputs.m_tready = self.sink.ready(rng);
        self.memory.offer(now, inputs, rng);
        self.ssd.offer(inputs, rng);
        let outputs = self.model.cycle(inputs);
        self.now += 1;
        if inputs.rst {
            return;
        }
        let mut moved = self.source.passed(outputs.s_tready);
        if moved {
            self.waited += std::mem::take(&mut self.refused);
        } else if offered.is_some() {
            self.refused += 1;
        }
        let beat = outputs.m_tvalid.then(|| crate::stream::Beat::new(outputs.m_tdata, outputs.m_tlast));
        moved |= self.sink.passed(inputs.m_tready, beat);
        moved |= self.memory.take(now, inputs, &outputs, rng);
        moved |= self.ssd.take(now, inputs, &outputs, &mut self.memory, rng);
        if inputs.s_reg_awvalid && outputs.s_reg_awready {
            (inputs.s_reg_awvalid, inputs.s_reg_wvalid) = (false, false);
        }
        inputs.s_reg_arvalid &= !outputs.s_reg_arready;
        if outputs.s_reg_rvalid {
            inputs.s_reg_rready = false;
            self.shown = Some(outputs.s_reg_rdata);
        }
        inputs.s_reg_bready &= !outputs.s_reg_bvalid;
        self.changes += u32::from(outputs.changed);
        self.is_busy = outputs.busy;
        let waits = self.memory.is_busy(self.now) || self.ssd.is_busy();
        self.quiet = if moved || waits { 0 } else { self.quiet + 1 };
    }

    fn step(&mut self) {
        self.cycle();
        assert!(self.quiet < PATIENCE, "nothing moved for {PATIENCE} cycles: {self:?}");
    }

    /// Runs this many cycles.
    pub fn run(&mut self, cycles: u64) {
        (0..cycles).for_each(|_| self.cycle());
    }

    /// Cycles since power-up.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Writes a register of 32 bits.
    ///
    /// # Panics
    /// When the circuit does not answer.
    pub fn write(&mut self, register: u32, value: u32) {
        let inputs = &mut self.inputs;
        (inputs.s_reg_awaddr, inputs.s_reg_wdata, inputs.s_reg_wstrb) = (register, value, 0xf);
        (inputs.s_reg_awvalid, inputs.s_reg_wvalid, inputs.s_reg_bready) = (true, true, true);
        for _ in 0..REGISTER_PATIENCE {
            self.cycle();
            if !self.inputs.s_reg_bready {
                return;
            }
        }
        panic!("a write of the register {register:#x} has no answer: {self:?}");
    }

    /// Reads a register of 32 bits.
    ///
    /// # Panics
    /// When the circuit does not answer.
    pub fn read(&mut self, register: u32) -> u32 {
        self.inputs.s_reg_araddr = register;
        (self.inputs.s_reg_arvalid, self.inputs.s_reg_rready) = (true, true);
        for _ in 0..REGISTER_PATIENCE {
            self.cycle();
            if let Some(shown) = self.shown.take() {
                return shown;
            }
        }
        panic!("a read of the register {register:#x} has no answer: {self:?}");
    }

    /// Writes a register of 64 bits by halves.
    pub fn write_wide(&mut self, register: u32, value: u64) {
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        self.write(register, u32::from_le_bytes([a, b, c, d]));
        self.write(register + 4, u32::from_le_bytes([e, f, g, h]));
    }

    /// Reads a register of 64 bits by halves.
    pub fn read_wide(&mut self, register: u32) -> u64 {
        let low = self.read(register);
        u64::from(low) | u64::from(self.read(register + 4)) << 32
    }

    /// Starts a direction ([`at::WRITING`] or [`at::READING`]) between two addresses. Returns its
    /// state.
    pub fn start(&mut self, direction: u32, first: u64, maximum: u64, chunks_max: u64) -> State {
        self.write_wide(direction + at::FIRST_ADDRESS, first);
        self.write_wide(direction + at::MAXIMUM_ADDRESS, maximum);
        self.write_wide(direction + at::CHUNKS_MAX, chunks_max);
        self.write(direction + at::CONTROL, at::START);
        self.state(direction)
    }

    /// Stops a direction.
    pub fn stop(&mut self, direction: u32) {
        self.write(direction + at::CONTROL, at::STOP);
    }

    /// The state of a direction.
    ///
    /// # Panics
    /// When the register has no state.
    pub fn state(&mut self, direction: u32) -> State {
        match self.read(direction + at::STATE) {
            0 => State::Idle,
            1 => State::Armed,
            2 => State::Running,
            3 => State::Ending,
            4 => State::Ended,
            5 => State::Failed,
            other => panic!("{other} is no state"),
        }
    }

    /// The registers of a direction.
    pub fn account(&mut self, direction: u32) -> Account {
        let mut wide = |register| self.read_wide(direction + register);
        Account {
            first_address: wide(at::FIRST_ADDRESS),
            maximum_address: wide(at::MAXIMUM_ADDRESS),
            chunks_max: wide(at::CHUNKS_MAX),
            last_address: wide(at::LAST_ADDRESS),
            bytes: wide(at::BYTES),
            bytes_stored: wide(at::BYTES_STORED),
            bytes_lost: wide(at::BYTES_LOST),
            gaps: wide(at::GAPS),
            fill: wide(at::FILL),
            high_water: wide(at::HIGH_WATER),
            state: self.state(direction),
        }
    }

    /// The gaps of the log, which has the first 512.
    pub fn gaps(&mut self) -> Vec<Gap> {
        let count = self.read(at::WRITING + at::GAPS);
        (0..count.min(512))
            .map(|index| {
                self.write(setup::GAP_INDEX, index);
                let address = self.read_wide(setup::GAP_ADDRESS);
                let chunks = self.read(setup::GAP_CHUNKS);
                Gap { address, chunks, is_of_medium: self.read(setup::GAP_CHUNKS + 4) != 0 }
            })
            .collect()
    }

    /// Gives bytes to the stream, in whole beats.
    ///
    /// # Panics
    /// When the bytes are not whole beats.
    pub fn give(&mut self, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(16), "{} B are not whole beats", bytes.len());
        self.source.push_open(bytes);
    }

    /// Gives the last bytes to the stream.
    pub fn give_last(&mut self, bytes: &[u8]) {
        self.source.push(bytes, false);
    }

    /// Runs until the source has nothing left to give.
    ///
    /// # Panics
    /// When the circuit hangs.
    pub fn run_until_given(&mut self) {
        while !self.source.is_empty() {
            self.step();
        }
    }

    /// Runs until the source has nothing left to give, or a recording takes nothing any more.
    ///
    /// # Panics
    /// When the circuit hangs.
    pub fn run_until_given_or_ended(&mut self) {
        while !self.source.is_empty() && self.state(at::WRITING) == State::Running {
            (0..64).for_each(|_| self.step());
        }
    }

    /// Runs until a direction has ended or failed.
    ///
    /// # Panics
    /// When the circuit hangs.
    pub fn run_until_ended(&mut self, direction: u32) -> State {
        loop {
            match self.state(direction) {
                state @ (State::Ended | State::Failed) => return state,
                _ => (0..64).for_each(|_| self.step()),
            }
        }
    }

    /// The next stream that was played back, whole.
    pub fn played(&mut self) -> Option<Vec<u8>> {
        self.sink.pop()
    }

    /// Lets the receiver of a replay take beats, or none.
    pub const fn open_sink(&mut self, is_open: bool) {
        self.sink.is_open = is_open;
    }

    /// Lets the SSD's medium do nothing for so many cycles.
    pub const fn pause_ssd(&mut self, cycles: u64) {
        self.ssd.paused_until = self.now + cycles;
    }

    /// Lets the buffer's memory take no burst for so many cycles.
    pub const fn pause_memory(&mut self, cycles: u64) {
        self.memory.closed_until = self.now + cycles;
    }

    /// Has the buffer's memory answer each burst with an error, or none.
    pub const fn fail_memory(&mut self, fails: bool) {
        self.memory.fails = fails;
    }

    /// Changes how the SSD behaves.
    pub const fn set_temper(&mut self, temper: Temper) {
        self.ssd.temper = temper;
    }

    /// The writes of the medium so far.
    pub fn written(&self) -> &[Written] {
        &self.ssd.written
    }

    /// The entries of the submission queue that the SSD has read.
    pub fn entries(&self) -> &[SubmissionQueueEntry] {
        &self.ssd.entries
    }

    /// The lists of pages that the SSD has read, with their addresses.
    pub fn lists(&self) -> &[(u64, Vec<u8>)] {
        &self.ssd.lists
    }

    /// How often the SSD was flushed.
    pub const fn flushes(&self) -> u32 {
        self.ssd.flushes
    }

    /// The bytes of the medium in a range.
    pub fn contents(&mut self, offset: u64, length: u64) -> Vec<u8> {
        self.ssd.contents(offset, length)
    }

    /// In how many cycles a beat of the source waited that was taken in the end.
    pub const fn waited(&self) -> u64 {
        self.waited
    }

    /// Forgets the beats that the source has left.
    pub fn discard(&mut self) {
        (self.source, self.refused) = (Source::new(self.config.stalls), 0);
    }

    /// How often the circuit has signalled a change of state.
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Whether the circuit says that a further cycle changes something.
    pub const fn is_busy(&self) -> bool {
        self.is_busy
    }
}

impl fmt::Debug for StreamerCircuit {
    /// Writes who waits for whom: the watchdog's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycle {}", self.now)?;
        if !self.source.is_empty() {
            f.write_str(", the stream waits for the circuit")?;
        }
        if self.sink.is_awaited() {
            f.write_str(", the circuit waits for the receiver of the stream")?;
        }
        let ports = [
            (self.inputs.s_reg_bready || self.inputs.s_reg_rready, "software waits for a register"),
            (self.inputs.s_ssd_arvalid || self.inputs.s_ssd_awvalid, "the SSD waits for the window"),
        ];
        for (_, sentence) in ports.into_iter().filter(|(waits, _)| *waits) {
            write!(f, ", {sentence}")?;
        }
        let [entries, written] = [self.ssd.entries.len(), self.ssd.written.len()];
        write!(f, ", the SSD has read {entries} entries and was written to {written} times")?;
        f.write_str(if self.is_busy { ", busy" } else { ", idle" })
    }
}
