//! Sets up interrupts as an operating system does: programs the MSI-X table and sets the enable
//! bit.

use assemblies::near::Near;
use engine::Buffer;
use pcie::root_complex::INTERRUPT_WINDOW;
use pcie::wire::{Bdf, Packet, Tag};

/// The tag of the one request that the host sends besides those of its root complex, which never
/// needs this many tags.
pub(super) const TAG: Tag = Tag::new(0xff);
/// Length of an entry of the MSI-X table in bytes (PCIe Base 7.7.2.3).
const ENTRY: u64 = 16;
/// MSI-X Enable in Message Control (PCIe Base 7.7.2.2).
const ENABLE: u16 = 1 << 15;
/// Offset of Message Control in the MSI-X capability.
const MESSAGE_CONTROL: u16 = 2;
/// Number of vectors that are programmed: the admin queue's and the I/O queue's.
const VECTORS: u16 = 2;

/// The packets that set up the controller's interrupts. The last one is a configuration write with
/// [`TAG`].
///
/// # Panics
/// When `near` has no controller, or the controller has no MSI-X.
pub(super) fn enable(near: &Near) -> Vec<Packet> {
    let (_, target) = near.controllers().next().expect("there is a controller");
    let topology = near.topology().expect("it was found by enumeration");
    let function = topology.functions().find(|function| function.bdf == target).expect("it was found there");
    let msix = function.msix.expect("an NVMe controller has MSI-X");
    let bar = function.bar(msix.table_bar).and_then(|bar| bar.address).expect("its table's BAR is placed");
    let host = Bdf::new(0, 0, 0);
    let mut packets = Vec::new();
    for vector in 0..VECTORS.min(msix.vectors) {
        let address = bar + u64::from(msix.table_offset) + u64::from(vector) * ENTRY;
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&INTERRUPT_WINDOW.start.to_le_bytes());
        entry[8..12].copy_from_slice(&u32::from(vector).to_le_bytes());
        // The last double word of the entry is Vector Control; zero means not masked.
        packets.push(Packet::memory_write(host, address, Buffer::copy_from_slice(&entry)));
    }
    let control = Buffer::copy_from_slice(&ENABLE.to_le_bytes());
    let write = Packet::config_write(host, TAG, target, msix.offset + MESSAGE_CONTROL, control);
    let below = topology.root.bridge.as_ref().map_or(1, |bridge| bridge.secondary);
    let routing =
        if target.bus() == below { pcie::wire::ConfigType::Type0 } else { pcie::wire::ConfigType::Type1 };
    packets.push(write.with_config_type(routing));
    packets
}
