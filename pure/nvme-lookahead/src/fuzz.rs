//! Fuzz target for the state that lookahead learns.

use alloc::vec::Vec;

use engine::Buffer;
use nvme::pointer::PageSize;
use nvme::wire::SubmissionQueueEntry;
use pcie::wire::{Bdf, Kind, Packet};

use crate::follow::controller::Controller;
use crate::follow::function::Function;
use crate::transfer::Transfer;
use crate::walk::{Next, Walk};

const LISTS_MAX: usize = 100;

/// Feeds a function's registers, its queues and their lists with any data of a host and a
/// controller. The only expectation is that it ends.
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
