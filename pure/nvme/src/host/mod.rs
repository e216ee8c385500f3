//! The parts of a host that do not depend on the transport: the data transfer of a command, the
//! construction of commands, and what the controller and its namespaces report about themselves.

pub mod command;
mod data;
mod namespace;

pub use data::Data;
pub use namespace::{NAMESPACES_MAX, Namespace};

use crate::wire::Bits;
use crate::wire::identify::IdentifyController;

/// Memory Page Size Minimum (MPSMIN) in the high half of CAP, as a power of two of 4 KiB.
const PAGE_SIZE_MIN: Bits = Bits::new(19, 16);

/// The most bytes that one command may move, by the controller's MDTS and CAP; `None` if the
/// controller sets no limit.
pub fn transfer_limit(controller: &IdentifyController, capabilities: u64) -> Option<u32> {
    let page_power = 12 + PAGE_SIZE_MIN.of(crate::wire::bits::high_u32(capabilities));
    match u32::from(controller.maximum_data_transfer_size) {
        0 => None,
        power => 1_u32.checked_shl(power + page_power),
    }
}
