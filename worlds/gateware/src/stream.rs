//! AXI4-Stream of 128 bits: beats, a source that pauses at random, and a sink that does.

use std::collections::VecDeque;

use engine::Rng;

/// Bytes of a beat.
const WIDTH: usize = 16;

/// One beat, as the shims have it. Byte 0 of the stream is in the low bits of the first word.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    data: [u32; 4],
    keep: u16,
    last: bool,
    user: bool,
}

impl Beat {
    /// A whole beat.
    pub(crate) const fn new(data: [u32; 4], last: bool) -> Self {
        Self { data, keep: u16::MAX, last, user: false }
    }

    /// Shows the beat at the ports of a stream.
    pub(crate) fn put(&self, data: &mut [u32; 4], keep: &mut u32, last: &mut bool) {
        (*data, *keep, *last) = (self.data, self.keep.into(), self.last);
    }

    fn bytes(&self) -> Vec<u8> {
        let count = self.keep.count_ones();
        assert_eq!(u32::from(self.keep) + 1, 1 << count, "the bytes of a beat are its first ones");
        self.data.iter().flat_map(|word| word.to_le_bytes()).take(count as usize).collect()
    }
}

/// How often a stream pauses: not at all, or once in so many cycles on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls(pub Option<u64>);

impl Stalls {
    pub(crate) fn pauses(self, rng: &mut Rng) -> bool {
        self.0.is_some_and(|times| rng.one_in(times))
    }
}

/// Offers beats to a circuit.
#[derive(Debug)]
pub(crate) struct Source {
    stalls: Stalls,
    beats: VecDeque<Beat>,
    is_offered: bool,
}

impl Source {
    pub(crate) const fn new(stalls: Stalls) -> Self {
        Self { stalls, beats: VecDeque::new(), is_offered: false }
    }

    /// Appends a packet; `is_bad` marks its last beat.
    pub(crate) fn push(&mut self, bytes: &[u8], is_bad: bool) {
        let mut parts = bytes.chunks(WIDTH).peekable();
        while let Some(part) = parts.next() {
            let mut padded = [0; WIDTH];
            padded[..part.len()].copy_from_slice(part);
            let mut beat = Beat { last: parts.peek().is_none(), ..Beat::default() };
            beat.user = is_bad && beat.last;
            beat.keep = u16::MAX >> (WIDTH - part.len());
            for (word, bytes) in beat.data.iter_mut().zip(padded.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            self.beats.push_back(beat);
        }
    }

    /// Appends whole beats of a packet that goes on.
    pub(crate) fn push_open(&mut self, bytes: &[u8]) {
        self.push(bytes, false);
        if let Some(last) = self.beats.back_mut() {
            last.last = false;
        }
    }

    /// The beat of this cycle. What was offered stays until it is taken.
    pub(crate) fn offer(&mut self, rng: &mut Rng) -> Option<Beat> {
        self.is_offered = self.is_offered || (!self.beats.is_empty() && !self.stalls.pauses(rng));
        self.beats.front().copied().filter(|_| self.is_offered)
    }

    /// Notes whether the circuit was ready; returns whether a beat passed.
    pub(crate) fn passed(&mut self, ready: bool) -> bool {
        let passes = self.is_offered && ready;
        if passes {
            self.beats.pop_front();
            self.is_offered = false;
        }
        passes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.beats.is_empty()
    }
}

/// Takes beats from a circuit, and checks that a beat stays until it is taken.
#[derive(Debug)]
pub(crate) struct Sink {
    name: &'static str,
    stalls: Stalls,
    held: Option<Beat>,
    bytes: Vec<u8>,
    packets: VecDeque<Vec<u8>>,
    /// Whether it takes anything.
    pub(crate) is_open: bool,
}

impl Sink {
    pub(crate) const fn new(name: &'static str, stalls: Stalls) -> Self {
        Self { name, stalls, held: None, bytes: Vec::new(), packets: VecDeque::new(), is_open: true }
    }

    pub(crate) fn ready(&self, rng: &mut Rng) -> bool {
        self.is_open && !self.stalls.pauses(rng)
    }

    /// Notes what the circuit offered in a cycle, for which the sink was `ready` or not; returns
    /// whether a beat passed.
    ///
    /// # Panics
    /// When the circuit has withdrawn or changed a beat that was not taken.
    pub(crate) fn passed(&mut self, ready: bool, beat: Option<Beat>) -> bool {
        if let Some(held) = self.held {
            assert_eq!(beat, Some(held), "{}: a beat changed before it was taken", self.name);
        }
        self.held = beat.filter(|_| !ready);
        let Some(beat) = beat.filter(|_| ready) else { return false };
        assert!(beat.last || beat.keep == u16::MAX, "{}: only the last beat is short", self.name);
        self.bytes.extend(beat.bytes());
        if beat.last {
            self.packets.push_back(core::mem::take(&mut self.bytes));
        }
        true
    }

    /// The next packet that is complete.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.packets.pop_front()
    }

    /// Whether a beat waits for this sink.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the circuit is between two packets.
    pub(crate) const fn is_between(&self) -> bool {
        self.bytes.is_empty() && self.held.is_none()
    }
}
