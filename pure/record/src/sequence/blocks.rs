//! The blocks of a camera (GigE Vision stream): leader, payload packets, trailer.

use super::rows::{Closed, Place, Rows};
use super::window::{Came, Counting, Window};
use super::{Loss, Numbered};

/// The fewest packets of a block: leader and trailer.
const PACKETS_MIN: u64 = 2;

/// A packet's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the block, from 0.
    pub(super) block: u64,
    /// The number of the packet in the block; the leader's is 0.
    pub(super) packet: u64,
    /// Whether the block has more packets before and after.
    pub(super) is_payload: bool,
    /// Whether the block ends with it.
    pub(super) is_last: bool,
}

/// The known facts about a block.
#[derive(Debug, Default)]
struct Block {
    window: Option<Window>,
    /// Whether its leader has come.
    has_leader: bool,
    /// Packets of the block, the trailer included.
    total: Option<u64>,
    /// Packets of later blocks that have come.
    later: u32,
}

/// The blocks of one camera.
#[derive(Debug)]
pub(super) struct Blocks {
    rows: Rows<Block>,
    counting: Counting,
    /// Packets of the last block of which the trailer came.
    usual: Option<u64>,
    /// The longest payload packet in bytes: all but a block's last have the same length.
    payload: u32,
}

impl Blocks {
    /// Blocks with numbers of `block_bits` bits, of packets with numbers of `packet_bits` bits.
    pub(super) const fn new(is_extended: bool, window: u32) -> Self {
        let (cycle, bits) = if is_extended { (u64::MAX as u128, 32) } else { (u16::MAX as u128, 24) };
        Self { rows: Rows::new(cycle), counting: Counting { bits, step: 1, window }, usual: None, payload: 0 }
    }

    pub(super) fn on_packet(&mut self, piece: Piece, length: u32, lost: &mut Loss) -> Numbered {
        if piece.is_payload {
            self.payload = self.payload.max(length);
        }
        let (counting, usual, payload) = (self.counting, self.usual, self.payload);
        let place = self.rows.place(piece.block, |closed| lost.add(close(closed, usual)));
        let (block, is_first, is_new) = match place {
            Place::First(block) => (block, true, false),
            Place::Anew(block) => (block, true, true),
            Place::In(block) => (block, false, false),
            Place::Old => return Numbered::Late,
            Place::Far => return Numbered::Foreign,
        };
        let window = block.window.get_or_insert_with(|| match is_first {
            true => Window::new(piece.packet),
            false => Window::from_zero(counting),
        });
        // A recording may begin within a block.
        let came = if is_first {
            Came::Ahead
        } else {
            report(window, block.has_leader, piece, counting, payload, lost)
        };
        block.has_leader |= piece.packet == 0 || is_first;
        if piece.is_last {
            block.total = piece.packet.checked_add(1);
            self.usual = if block.has_leader { block.total } else { self.usual };
        }
        self.close_early(lost);
        if is_new { Numbered::Anew } else { came.into() }
    }

    /// A camera sends one block after the other: the older one is over once enough of the
    /// next came.
    fn close_early(&mut self, lost: &mut Loss) {
        self.rows.older().for_each(|block| block.later += 1);
        let (counting, usual) = (self.counting, self.usual);
        while let Some(block) = self.rows.close_if(|block| block.later > counting.window) {
            lost.add(close(Closed::Open(block), usual));
        }
    }

    /// The end. Packets of the newest block behind its last one are not missing: they are yet to
    /// come.
    pub(super) fn finish(&mut self, lost: &mut Loss) {
        let usual = self.usual;
        if let Some(newest) = self.rows.newest() {
            let came = newest.window.map(|window| window.highest().wrapping_add(1));
            newest.total = newest.total.or(came);
        }
        self.rows.close_all(|closed| lost.add(close(closed, usual)));
    }
}

fn report(
    window: &mut Window,
    has_leader: bool,
    piece: Piece,
    counting: Counting,
    payload: u32,
    lost: &mut Loss,
) -> Came {
    let (came, packets) = window.on_number(counting, piece.packet);
    let bytes = if has_leader { packets.saturating_mul(u64::from(payload)) } else { 0 };
    lost.add(Loss { packets, bytes });
    came
}

/// The loss of a block that is over.
fn close(closed: Closed<Block>, usual: Option<u64>) -> Loss {
    // Leader, payload and trailer may be one packet.
    let unseen = usual.unwrap_or(PACKETS_MIN).max(1);
    let block = match closed {
        Closed::Skipped(blocks) => return Loss { packets: blocks.saturating_mul(unseen), bytes: 0 },
        Closed::Open(block) => block,
    };
    let Some(mut window) = block.window else { return Loss { packets: unseen, bytes: 0 } };
    let inside = window.flush();
    let came = window.highest().wrapping_add(1);
    let tail = match (block.total, usual) {
        (Some(_), _) => 0,
        // Without its trailer a block has lost that at least.
        (None, usual) => usual.unwrap_or(0).saturating_sub(came).max(1),
    };
    Loss { packets: inside + tail, bytes: 0 }
}
