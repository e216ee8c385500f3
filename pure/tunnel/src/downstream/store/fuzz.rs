//! Fuzz target for the store.

use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos};
use pcie::wire::{Bdf, Packet, Tag};

use super::Store;
use crate::frame::{Ahead, AheadKey};

/// Size of the memory that the target uses, in double words.
const DWORDS: usize = 256;
const STEP: Nanos = Nanos::from_millis(300);

/// Compares a store with a model that has the value of each byte that may be answered. Each five
/// bytes of `bytes` choose one step.
///
/// # Panics
/// When a read is answered with other bytes, or with too few or too many.
pub fn store(bytes: &[u8]) {
    let mut store = Store::new(600);
    let mut memory: Vec<Option<(u8, u32)>> = vec![None; DWORDS * 4];
    let mut now = Instant::ZERO;
    for (serial, step) in bytes.as_chunks::<5>().0.iter().enumerate() {
        let [what, at, length, key, extra] = *step;
        let start = usize::from(at) * 4;
        let length = (usize::from(length % 32) + 1) * 4;
        let end = (start + length).min(memory.len());
        let (address, length) = (start as u64, end - start);
        match what % 6 {
            0 | 1 => {
                let key = AheadKey(u32::from(key % 7) + 1);
                let fill = serial.to_le_bytes()[0];
                let ahead = Ahead {
                    address,
                    key,
                    completer: Bdf::new(0, 0, 0),
                    payload_size: 128 << (extra % 6),
                    once: extra & 0x80 != 0,
                };
                store.insert(now, ahead, Buffer::from(vec![fill; length]));
                memory[start..end].fill(Some((fill, key.0)));
            }
            2 | 3 => {
                let tag = Tag::new(u16::from(extra));
                let lead = usize::from(key % 4).min(length - 1);
                let asked = u32::try_from(length - lead).unwrap_or(1);
                let read = Packet::memory_read(Bdf::new(1, 0, 0), tag, address + lead as u64, asked);
                let mut found = Vec::new();
                if store.take(now, &read, |answer| found.extend_from_slice(answer.data_bytes())) {
                    found.truncate(asked as usize);
                    let expected = memory[start + lead..end].iter().map(|byte| byte.map(|(byte, _)| byte));
                    assert!(found.iter().copied().map(Some).eq(expected), "at {address:#x}: {found:?}");
                }
            }
            4 => {
                let write = Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::zeroed(length));
                assert!(!store.take(now, &write, |_| ()), "a write is not for the store");
                memory[start..end].fill(None);
            }
            _ => {
                let key = AheadKey(u32::from(key % 8));
                store.forget(key);
                for byte in &mut memory {
                    byte.take_if(|(_, of)| key == AheadKey::ALL || *of == key.0);
                }
                now = now + STEP;
            }
        }
        assert!(store.bytes() <= 600, "the store keeps {} B", store.bytes());
    }
}
