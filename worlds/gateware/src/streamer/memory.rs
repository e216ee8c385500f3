//! The memory of the stream buffer, at the circuit's AXI4 port `m_mem`.

use std::collections::VecDeque;

use engine::Rng;

use super::Held;
use crate::ffi::{StreamerIn, StreamerOut};
use crate::stream::Stalls;

/// Beats of a burst, and bytes of a beat.
const BURST: u64 = 64;
const BEAT: usize = 16;

/// A burst that the circuit has asked for.
#[derive(Clone, Copy, Debug)]
struct Burst {
    /// Where the next beat lies in the memory.
    at: usize,
    left: u64,
    /// The cycle from which on it is answered.
    due: u64,
}

/// The memory, with bytes of its own and a latency that varies.
#[derive(Debug)]
pub(super) struct BufferMemory {
    /// The address of its first byte.
    base: u64,
    bytes: Vec<u8>,
    stalls: Stalls,
    latency_max: u64,
    writes: VecDeque<Burst>,
    /// Beats that came before their address.
    early: VecDeque<([u32; 4], bool)>,
    written: VecDeque<u64>,
    reads: VecDeque<Burst>,
    /// No burst is taken before this cycle.
    pub(super) closed_until: u64,
    /// Each burst is answered with an error.
    pub(super) fails: bool,
    held: (Held<u64>, Held<([u32; 4], bool)>, Held<u64>),
}

impl BufferMemory {
    pub(super) fn new(base: u64, length: usize, stalls: Stalls, latency_max: u64) -> Self {
        Self {
            base,
            bytes: vec![0x5a; length],
            stalls,
            latency_max,
            writes: VecDeque::new(),
            early: VecDeque::new(),
            written: VecDeque::new(),
            reads: VecDeque::new(),
            closed_until: 0,
            fails: false,
            held: (Held::new("m_mem_aw"), Held::new("m_mem_w"), Held::new("m_mem_ar")),
        }
    }

    /// The bytes from `address` on, if the memory has all of them.
    pub(super) fn slice(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(length)?)
    }

    fn place(&self, address: u64) -> usize {
        let place = address.checked_sub(self.base).expect("a burst lies in the memory");
        assert!(address.is_multiple_of(BURST * BEAT as u64), "a burst at {address:#x}");
        let place = usize::try_from(place).expect("a small memory");
        assert!(place + BEAT * 64 <= self.bytes.len(), "a burst lies behind the memory");
        place
    }

    pub(super) fn offer(&self, now: u64, inputs: &mut StreamerIn, rng: &mut Rng) {
        let is_open = now >= self.closed_until;
        inputs.m_mem_awready = is_open && !self.stalls.pauses(rng);
        inputs.m_mem_wready = is_open && !self.stalls.pauses(rng);
        inputs.m_mem_arready = is_open && !self.stalls.pauses(rng);
        // SLVERR, or OKAY.
        let answer = if self.fails { 2 } else { 0 };
        (inputs.m_mem_bresp, inputs.m_mem_rresp) = (answer, answer);
        inputs.m_mem_bvalid = self.written.front().is_some_and(|due| *due <= now);
        inputs.m_mem_rvalid =
            self.reads.front().is_some_and(|read| read.due <= now) && !self.stalls.pauses(rng);
        if let Some(read) = self.reads.front().filter(|_| inputs.m_mem_rvalid) {
            let words = self.bytes[read.at..read.at + BEAT].as_chunks::<4>().0;
            inputs.m_mem_rdata = std::array::from_fn(|word| u32::from_le_bytes(words[word]));
            inputs.m_mem_rlast = read.left == 1;
        }
    }

    /// Takes the circuit's offers. Returns whether anything moved.
    pub(super) fn take(
        &mut self,
        now: u64,
        inputs: &StreamerIn,
        outputs: &StreamerOut,
        rng: &mut Rng,
    ) -> bool {
        let mut due = || now + 1 + rng.below(self.latency_max);
        let aw = self.held.0.passes(outputs.m_mem_awvalid, inputs.m_mem_awready, outputs.m_mem_awaddr);
        let beat = (outputs.m_mem_wdata, outputs.m_mem_wlast);
        let w = self.held.1.passes(outputs.m_mem_wvalid, inputs.m_mem_wready, beat);
        let ar = self.held.2.passes(outputs.m_mem_arvalid, inputs.m_mem_arready, outputs.m_mem_araddr);
        if let Some(address) = aw {
            self.writes.push_back(Burst { at: self.place(address), left: BURST, due: 0 });
        }
        if let Some(address) = ar {
            self.reads.push_back(Burst { at: self.place(address), left: BURST, due: due() });
        }
        self.early.extend(w);
        if inputs.m_mem_bvalid {
            self.written.pop_front();
        }
        if inputs.m_mem_rvalid {
            let read = self.reads.front_mut().expect("a beat of a burst");
            (read.at, read.left) = (read.at + BEAT, read.left - 1);
            if read.left == 0 {
                self.reads.pop_front();
            }
        }
        while let Some(burst) = self.writes.front_mut().filter(|_| !self.early.is_empty()) {
            let Some((words, last)) = self.early.pop_front() else { break };
            for (bytes, word) in self.bytes[burst.at..burst.at + BEAT].chunks_exact_mut(4).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            (burst.at, burst.left) = (burst.at + BEAT, burst.left - 1);
            assert_eq!(last, burst.left == 0, "a burst has {BURST} beats");
            if last {
                self.writes.pop_front();
                self.written.push_back(due().max(self.written.back().copied().unwrap_or(0)));
            }
        }
        aw.is_some() || w.is_some() || ar.is_some() || inputs.m_mem_bvalid || inputs.m_mem_rvalid
    }

    /// Whether the memory still has to answer.
    pub(super) fn is_busy(&self, now: u64) -> bool {
        !self.written.is_empty() || !self.reads.is_empty() || now < self.closed_until
    }
}
