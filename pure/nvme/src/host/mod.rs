//! What a host of a controller does whatever the transport: it says how much data a command moves, builds commands, and
//! keeps what the controller and its namespaces say about themselves.

pub mod command;
mod data;
mod namespace;

pub use data::Data;
pub use namespace::{NAMESPACES_MAX, Namespace};

use crate::wire::Bits;
use crate::wire::identify::IdentifyController;

/// CAP: Memory Page Size Minimum (MPSMIN), as a power of two of 4 KiB.
const PAGE_SIZE_MIN: Bits = Bits::new(19, 16);

/// Bytes that one command may move by the controller's MDTS and CAP; none where the controller names no limit.
pub fn transfer_limit(controller: &IdentifyController, capabilities: u64) -> Option<u32> {
    let page_power = 12 + PAGE_SIZE_MIN.of(crate::wire::bits::high_u32(capabilities));
    match u32::from(controller.maximum_data_transfer_size) {
        0 => None,
        power => 1_u32.checked_shl(power + page_power),
    }
}
