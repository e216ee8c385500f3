//! Fuzz targets for lookahead: each takes any bytes and must not panic.

use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos};
use nvme::pointer::PageSize;
use nvme::wire::SubmissionQueueEntry;
use pcie::wire::{Bdf, Kind, Packet, Tag};

use super::controller::Controller;
use super::function::Function;
use super::store::Store;
use super::transfer::Transfer;
use super::walk::{Next, Walk};
use crate::frame::{Ahead, AheadKey};

/// Size of the memory that the store's target uses, in double words.
const DWORDS: usize = 256;
const STEP: Nanos = Nanos::from_millis(300);
const LISTS_MAX: usize = 100;

/// Compares a store with a record of what each byte must be if it is answered. Each five bytes of
/// `bytes` choose one step.
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

/// Feeds a function's registers, its queues and their lists with what a host and a controller could
/// send. The only expectation is that it ends.
pub fn learn(bytes: &[u8]) {
    let mut function = Function::new(Bdf::new(1, 0, 0));
    let mut controller = Controller::new(PageSize::KIB4, (0x1000, 32), (0x2000, 32));
    let mut rest = bytes;
    while let [what, offset, length, after @ ..] = rest {
        let (piece, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let address = 0x2000 + u64::from(*offset) * 8;
        match what % 5 {
            0 => {
                function.on_write(u64::from(*offset) * 32, piece);
            }
            1 => controller.on_write(address, piece, &mut |_| ()),
            2 => {
                let mut entry = [0; SubmissionQueueEntry::LENGTH];
                entry.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
                let entry = SubmissionQueueEntry::parse(&entry);
                controller.on_admin(&entry);
                walk(&entry, piece);
            }
            3 => {
                controller.ring(u16::from(*offset), u32::from(*length));
            }
            _ => {
                let Ok(packet) = Packet::parse(&Buffer::copy_from_slice(piece)) else { continue };
                if let Kind::Config(request) = &packet.header.kind {
                    function.on_config(request, u32::from(*offset) << 24 | u32::from(*length));
                }
            }
        }
    }
}

/// Follows an entry's data through lists made of `bytes`.
fn walk(entry: &SubmissionQueueEntry, bytes: &[u8]) {
    let Some(transfer) = Transfer::of(entry, 512) else { return };
    let mut total = 0_u64;
    let mut data = |_, length| total += length;
    let (mut walk, mut next) = Walk::start(entry, transfer, PageSize::KIB4, &mut data);
    for _ in 0..LISTS_MAX {
        let Next::List { length, .. } = next else { break };
        let list: Vec<u8> = bytes.iter().copied().cycle().take(length as usize).collect();
        next = walk.on_list(&list, &mut data);
    }
    assert!(next == Next::Done, "{entry:?} has lists without end");
    assert!(total <= transfer.length, "{total} B of {transfer:?}");
}
