//! The heaps of a telescope (SPEAD): bytes of which each packet says where they belong.

use super::rows::{Closed, Place, Rows};
use super::window::{Came, Counting, WINDOW_MAX, Window};
use super::{Loss, Numbered};

/// A packet's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the heap.
    pub(super) heap: u64,
    /// Bytes of the whole heap.
    pub(super) size: u64,
    /// The place of the packet's bytes in the heap.
    pub(super) offset: u64,
    /// How many bytes of the heap the packet has.
    pub(super) length: u64,
}

#[derive(Debug, Default)]
struct Heap {
    window: Option<Window>,
    size: u64,
    came: u64,
    /// The place behind the last byte that came.
    end: u64,
    is_first: bool,
}

/// The heaps of one sender.
#[derive(Debug)]
pub(super) struct Heaps {
    rows: Rows<Heap>,
    usual: Usual,
}

/// What heaps and packets usually are, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    heap: u64,
    /// The most bytes of a heap in one packet.
    unit: u64,
    /// What a packet has besides.
    head: u64,
}

/// Packets of a heap count as what is missing only when it is closed; their order means nothing.
const COUNTING: Counting = Counting { bits: 64, step: 1, window: WINDOW_MAX };

impl Heaps {
    /// Heaps with numbers of `bits` bits, at most 64.
    pub(super) const fn new(bits: u32) -> Self {
        Self { rows: Rows::new(1 << bits), usual: Usual { heap: 0, unit: 0, head: 0 } }
    }

    pub(super) fn on_packet(&mut self, piece: Piece, length: u32, lost: &mut Loss) -> Numbered {
        let usual = self.usual;
        self.usual.unit = usual.unit.max(piece.length);
        // The first packet of a heap has more items than others.
        let head = u64::from(length).saturating_sub(piece.length);
        self.usual.head = if usual.head == 0 { head } else { usual.head.min(head) };
        self.usual.heap = piece.size;
        let usual = Usual { heap: usual.heap, ..self.usual };
        let place = self.rows.place(piece.heap, |closed| lost.add(close(closed, usual)));
        let (heap, is_first, is_new) = match place {
            Place::First(heap) => (heap, true, false),
            Place::Anew(heap) => (heap, true, true),
            Place::In(heap) => (heap, false, false),
            Place::Old => return Numbered::Late,
            Place::Far => return Numbered::Foreign,
        };
        heap.is_first |= is_first;
        heap.size = heap.size.max(piece.size);
        heap.end = heap.end.max(piece.offset.saturating_add(piece.length));
        let number = piece.offset.div_ceil(usual.unit.max(1));
        let window = heap.window.get_or_insert_with(|| Window::from_zero(COUNTING));
        let came = match window.on_number(COUNTING, number) {
            (Came::Late, _) => Came::Reordered,
            (came, _) => came,
        };
        if came != Came::Twice {
            heap.came = heap.came.saturating_add(piece.length);
        }
        if is_new { Numbered::Anew } else { came.into() }
    }

    /// The end. What the newest heap has behind its last packet is not missing: it is yet to come.
    pub(super) fn finish(&mut self, lost: &mut Loss) {
        let usual = self.usual;
        if let Some(newest) = self.rows.newest() {
            newest.size = newest.end;
        }
        self.rows.close_all(|closed| lost.add(close(closed, usual)));
    }
}

/// What a heap that is over has lost.
fn close(closed: Closed<Heap>, usual: Usual) -> Loss {
    let (bytes, heaps) = match closed {
        // A recording may begin within a heap.
        Closed::Open(heap) if heap.is_first => return Loss::default(),
        Closed::Open(heap) if heap.window.is_some() => (heap.size.saturating_sub(heap.came), 1),
        Closed::Open(_) => (usual.heap, 1),
        Closed::Skipped(heaps) => (usual.heap, heaps),
    };
    let packets = bytes.div_ceil(usual.unit.max(1)).saturating_mul(heaps);
    let heads = packets.saturating_mul(usual.head);
    Loss { packets, bytes: bytes.saturating_mul(heaps).saturating_add(heads) }
}
