//! The heaps of a telescope (SPEAD): bytes of which each packet says where they belong.
//!
//! A sender numbers its heaps in steps of its choice, and may send several of them in turns.
//! Packets say neither. So heaps wait until enough younger ones have begun, and a gap between two
//! numbers counts as lost heaps only where the gaps before and behind it show a smaller step.

use alloc::collections::VecDeque;

use super::window::{Came, Counting, WINDOW_MAX, Window};
use super::{Loss, Numbered};

/// The most heaps that are open at once: as many may be sent in turns. When another begins, the
/// oldest is closed.
pub(super) const OPEN_MAX: usize = 16;
/// How many gaps before and behind a gap determine the step.
const AROUND: usize = 3;
/// The most heaps that a jump of a number counts as lost. A longer jump is a new beginning.
pub(super) const JUMP_MAX: i128 = 1 << 16;
/// The longest gap between the first two numbers, while the step is not known.
const FIRST_GAP_MAX: i128 = 1 << 32;

/// A packet's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the heap.
    pub(super) heap: u64,
    /// Bytes of the whole heap, if the packet says so.
    pub(super) size: Option<u64>,
    /// The place of the packet's bytes in the heap.
    pub(super) offset: u64,
    /// How many bytes of the heap the packet has.
    pub(super) length: u64,
}

#[derive(Debug)]
struct Heap {
    /// Its number, which goes on where the header's begins again.
    number: i128,
    window: Window,
    size: u64,
    came: u64,
    /// The place behind the last byte that came.
    end: u64,
    /// The number of its latest packet among those of all heaps.
    latest: u64,
    /// It may have begun before the recording, so its absent part is not missing.
    is_partial: bool,
}

/// The heaps of one sender.
#[derive(Debug)]
pub(super) struct Heaps {
    /// The bits of a heap's number.
    bits: u32,
    /// Heaps that are open, in the order of their numbers.
    open: VecDeque<Heap>,
    /// The number of the first packet's heap, the highest so far, and that of the heap which was
    /// closed last.
    first: Option<i128>,
    newest: Option<i128>,
    closed: Option<i128>,
    /// A number that was far from all others.
    probe: Option<u64>,
    gaps: Gaps,
    usual: Usual,
    packets: u64,
    /// The most heaps that had a packet from one packet of a heap to its next.
    turns: u64,
    /// A heap has begun at its beginning: those that begin from now on lack nothing.
    is_settled: bool,
}

/// The usual sizes of heaps and packets, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    heap: u64,
    /// The most bytes of a heap in one packet.
    unit: u64,
    /// The other bytes of a packet.
    head: u64,
}

impl Usual {
    /// The packets of `bytes` bytes of a heap.
    fn loss(self, bytes: u64, heaps: u64) -> Loss {
        let packets = bytes.div_ceil(self.unit.max(1)).saturating_mul(heaps);
        let heads = packets.saturating_mul(self.head);
        Loss { packets, bytes: bytes.saturating_mul(heaps).saturating_add(heads) }
    }
}

/// The differences between the numbers of heaps that came one behind the other.
#[derive(Debug, Default)]
struct Gaps {
    /// The step, if the user has named it.
    given: Option<i128>,
    /// The latest of which it is known whether heaps are missing there.
    decided: VecDeque<i128>,
    /// Numbers that wait for those behind them.
    waiting: VecDeque<i128>,
}

impl Gaps {
    /// Adds a gap. Returns how many heaps are missing, as far as that is known now.
    fn add(&mut self, gap: i128) -> u64 {
        self.waiting.push_back(gap);
        let behind = if self.given.is_some() { 0 } else { AROUND };
        if self.waiting.len() > behind { self.decide() } else { 0 }
    }

    /// How many heaps the oldest gap that waits has lost.
    fn decide(&mut self) -> u64 {
        let Some(gap) = self.waiting.pop_front() else { return 0 };
        // Where gaps differ, the step may change here: it is what both sides show.
        let (before, behind) = (self.decided.iter(), self.waiting.iter().take(AROUND));
        let step = self.given.or_else(|| match (before.clone().min(), behind.clone().min()) {
            (Some(before), Some(behind)) => Some(*before.max(behind)),
            _ => before.chain(behind).max().copied(),
        });
        self.decided.push_back(gap);
        if self.decided.len() > AROUND {
            self.decided.pop_front();
        }
        let missing = match step {
            Some(step) if step > 0 && gap % step == 0 => gap / step - 1,
            _ => 0,
        };
        u64::try_from(missing).unwrap_or(0)
    }

    /// The end of a row of numbers: the numbers that came decide the open cases.
    fn finish(&mut self) -> u64 {
        let mut missing = 0;
        while !self.waiting.is_empty() {
            missing += self.decide();
        }
        self.decided.clear();
        missing
    }

    /// The latest gaps.
    fn known(&self) -> impl Iterator<Item = i128> {
        self.decided.iter().chain(&self.waiting).copied()
    }
}

/// Packets of a heap count as missing only when it is closed; their order means nothing.
const COUNTING: Counting = Counting { bits: 64, step: 1, window: WINDOW_MAX };

impl Heaps {
    /// Heaps with numbers of `bits` bits, 8 to 56, and in steps of `step` if that is known.
    pub(super) fn new(bits: u32, step: Option<u64>) -> Self {
        Self {
            bits,
            open: VecDeque::new(),
            first: None,
            newest: None,
            closed: None,
            probe: None,
            gaps: Gaps { given: step.map(i128::from), ..Gaps::default() },
            usual: Usual::default(),
            packets: 0,
            turns: 0,
            is_settled: false,
        }
    }

    pub(super) fn on_packet(&mut self, piece: Piece, length: u32, lost: &mut Loss) -> Numbered {
        let Some(number) = self.absolute(piece.heap) else {
            return self.on_far(piece, length, lost);
        };
        let Some(at) = self.find(number, lost) else { return Numbered::Late };
        self.probe = None;
        self.take(at, piece, length)
    }

    /// The number of a heap that goes on from those before; `None` if it is far from them.
    fn absolute(&self, number: u64) -> Option<i128> {
        let Some(newest) = self.newest else { return Some(number.into()) };
        let cycle = 1_i128 << self.bits;
        let ahead = (i128::from(number) - newest).rem_euclid(cycle);
        let gap = self.longest_gap();
        let most = gap.map_or(FIRST_GAP_MAX, |gap| gap.saturating_mul(JUMP_MAX));
        if ahead <= most.min(cycle / 2) {
            return Some(newest + ahead);
        }
        let behind = cycle - ahead;
        let span = gap.map_or(JUMP_MAX, |gap| gap.saturating_mul(2 * OPEN_MAX as i128));
        (behind <= span).then(|| newest - behind)
    }

    /// The longest of the latest gaps between numbers; the step, if the user has named it.
    fn longest_gap(&self) -> Option<i128> {
        let of_open =
            self.open.iter().zip(self.open.iter().skip(1)).map(|(one, next)| next.number - one.number);
        self.gaps.given.or_else(|| of_open.chain(self.gaps.known()).max())
    }

    /// The place of the heap among those that are open. A heap that has not begun is opened there;
    /// `None` if it is older than one that was closed.
    fn find(&mut self, number: i128, lost: &mut Loss) -> Option<usize> {
        if let Ok(at) = self.open.binary_search_by_key(&number, |heap| heap.number) {
            return Some(at);
        }
        if self.closed.is_some_and(|closed| number <= closed) {
            return None;
        }
        if self.open.len() == OPEN_MAX {
            self.close_oldest(lost);
            if self.closed.is_some_and(|closed| number <= closed) {
                return None;
            }
        }
        self.newest = Some(self.newest.map_or(number, |newest| newest.max(number)));
        let first = *self.first.get_or_insert(number);
        let is_partial = number <= first || !self.is_settled;
        let window = Window::from_zero(COUNTING);
        let heap = Heap { number, window, size: 0, came: 0, end: 0, latest: 0, is_partial };
        let at = self.open.partition_point(|one| one.number < number);
        self.open.insert(at, heap);
        Some(at)
    }

    /// Takes in a packet of an open heap.
    fn take(&mut self, at: usize, piece: Piece, length: u32) -> Numbered {
        self.packets += 1;
        self.usual.unit = self.usual.unit.max(piece.length);
        // The first packet of a heap has more items than others.
        let head = u64::from(length).saturating_sub(piece.length);
        self.usual.head = if self.usual.head == 0 { head } else { self.usual.head.min(head) };
        if self.open[at].came > 0 {
            let latest = self.open[at].latest;
            let since = self.open.iter().filter(|heap| heap.latest >= latest).count();
            self.turns = self.turns.max(since as u64);
        }
        let heap = &mut self.open[at];
        if heap.came == 0 && piece.offset == 0 && self.first.is_some_and(|first| heap.number > first) {
            heap.is_partial = false;
            self.is_settled = true;
        }
        heap.latest = self.packets;
        heap.end = heap.end.max(piece.offset.saturating_add(piece.length));
        heap.size = heap.size.max(piece.size.unwrap_or(0)).max(heap.end);
        self.usual.heap = heap.size;
        let number = piece.offset.div_ceil(self.usual.unit.max(1));
        let came = match heap.window.on_number(COUNTING, number) {
            (Came::Late, _) => Came::Reordered,
            (came, _) => came,
        };
        if came != Came::Twice {
            heap.came = heap.came.saturating_add(piece.length);
        }
        came.into()
    }

    /// A packet whose heap is far from all others. With a second one, the sender has begun anew.
    fn on_far(&mut self, piece: Piece, length: u32, lost: &mut Loss) -> Numbered {
        let mask = u64::MAX >> (64 - self.bits);
        let near = self.longest_gap().unwrap_or(1).saturating_mul(OPEN_MAX as i128);
        let is_second = self.probe.replace(piece.heap).is_some_and(|probe| {
            let ahead = i128::from(piece.heap.wrapping_sub(probe) & mask);
            ahead <= near || (i128::from(mask) + 1 - ahead) <= near
        });
        if !is_second {
            return Numbered::Foreign;
        }
        self.close_all(lost);
        let given = self.gaps.given;
        *self =
            Self { usual: self.usual, gaps: Gaps { given, ..Gaps::default() }, ..Self::new(self.bits, None) };
        if let Some(at) = self.find(piece.heap.into(), lost) {
            self.take(at, piece, length);
        }
        Numbered::Anew
    }

    fn close_oldest(&mut self, lost: &mut Loss) {
        let Some(heap) = self.open.pop_front() else { return };
        if let Some(before) = self.closed.replace(heap.number) {
            let missing = self.gaps.add(heap.number - before);
            lost.add(self.usual.loss(self.usual.heap, missing));
        }
        if !heap.is_partial {
            lost.add(self.usual.loss(heap.size.saturating_sub(heap.came), 1));
        }
    }

    fn close_all(&mut self, lost: &mut Loss) {
        while !self.open.is_empty() {
            self.close_oldest(lost);
        }
        let missing = self.gaps.finish();
        lost.add(self.usual.loss(self.usual.heap, missing));
    }

    /// The end. Packets of the newest heap behind its last one are not missing: they are yet to
    /// come. So are those of other heaps that are sent in turns, and whose turn has not come again.
    pub(super) fn finish(&mut self, lost: &mut Loss) {
        let newest = self.open.len().saturating_sub(1);
        for (at, heap) in self.open.iter_mut().enumerate() {
            if at == newest || self.packets - heap.latest < self.turns {
                heap.size = heap.end;
            }
        }
        self.close_all(lost);
    }
}
