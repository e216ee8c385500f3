//! Entry of the fuzz target: an end whose peer writes any bytes anywhere.

use alloc::vec;

use pcie::memory::{Memory, Ram};

use crate::{End, MEMORY_BYTES, Side};

/// Bytes of one step of the peer: an offset, a length and the bytes to write there.
const STEP: usize = 12;

/// Runs both ends while `data` says which bytes are overwritten, and where.
///
/// # Panics
/// When an end receives more than it has room for, or continues after a fault of the memory.
pub fn scribbles(data: &[u8]) {
    let mut memory = Ram::new(0, MEMORY_BYTES);
    let (mut near, mut far) = (End::new(Side::Dialler), End::new(Side::Listener));
    let mut room = vec![0; 8 << 10];
    for step in data.chunks_exact(STEP) {
        let [a, b, c, length, value @ ..] = step else { return };
        let place = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % (MEMORY_BYTES as u64 - 8);
        // Half of the steps overwrite the first lines, which the ends read.
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
