//! What fuzz targets run: an end whose peer writes anything anywhere.

use alloc::vec;

use pcie::memory::{Memory, Ram};

use crate::{End, MEMORY_BYTES, Side};

/// Bytes of one step of the peer: a place, a length and what is written there.
const STEP: usize = 12;

/// Has both ends talk while `data` says which bytes are overwritten, and where.
///
/// # Panics
/// When an end receives more than it has room for, or accepts anything after a fault of the memory.
pub fn scribbles(data: &[u8]) {
    let mut memory = Ram::new(0, MEMORY_BYTES);
    let (mut near, mut far) = (End::new(Side::Dialler), End::new(Side::Listener));
    let mut room = vec![0; 8 << 10];
    for step in data.chunks_exact(STEP) {
        let [a, b, c, length, value @ ..] = step else { return };
        let place = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % (MEMORY_BYTES as u64 - 8);
        // Half of the steps meet the first lines, where ends look.
        let place = if length & 0x80 == 0 { place } else { 4096 + place % 256 };
        let scribbled = memory.write(place, &value[..usize::from(length % 8) + 1]);
        assert!(scribbled.is_ok(), "the place is within the memory");
        let bytes = vec![*length; usize::from(*a) * usize::from(length % 64)];
        let (sent, took) = (near.send(&mut memory, &bytes), far.receive(&mut memory, &mut room));
        assert!(took.is_ok_and(|count| count <= room.len()) || took.is_err());
        if sent.is_err() || took.is_err() || near.poll_wake(&memory).is_err() {
            return;
        }
    }
}
