//! Interrupts of a controller, set up as operating systems do: the entries of its MSI-X table, and
//! then the bit that enables it.

use pcie::root_complex::{INTERRUPT_WINDOW, Topology};
use pcie::wire::Bdf;

use super::{Near, driver};

/// Bytes of an entry of the MSI-X table (PCIe Base 7.7.2.3).
const ENTRY: u64 = 16;
/// MSI-X Enable in the first double word of the capability, and the byte enables of the half that
/// has it, Message Control (PCIe Base 7.7.2.2).
const ENABLE: u32 = 1 << 31;
const MESSAGE_CONTROL: u8 = 0b1100;

impl Near {
    /// Lets the queues of the driver `index` interrupt, whose controller is `function`: vector `n`
    /// is that of queue `n`. A controller without MSI-X stays as it is, and is not waited for.
    pub(super) fn enable_interrupts(&mut self, topology: &Topology, function: Bdf, index: usize) {
        let found = topology.functions().find(|one| one.bdf == function);
        let Some((msix, table)) = found.and_then(|function| {
            let msix = function.msix?;
            Some((msix, function.bar(msix.table_bar)?.address? + u64::from(msix.table_offset)))
        }) else {
            self.config.waits_for_interrupts = false;
            return;
        };
        let window = INTERRUPT_WINDOW.start + driver::interrupt_offset(index);
        for vector in 0..msix.vectors.min(self.config.driver.queue_pairs.saturating_add(1)) {
            let mut entry = [0; 16];
            entry[..8].copy_from_slice(&window.to_le_bytes());
            entry[8..12].copy_from_slice(&u32::from(vector).to_le_bytes());
            // The last double word is Vector Control; zero means not masked.
            let data = self.pool.copy(&entry);
            self.port.root_mut().write(table + u64::from(vector) * ENTRY, &data);
        }
        let cookie = driver::SET_UP;
        let root = self.port.root_mut();
        let written = root.config_write(self.now, cookie, function, msix.offset, MESSAGE_CONTROL, ENABLE);
        if written.is_err() {
            // No request can be made now: the driver polls.
            self.config.waits_for_interrupts = false;
        }
    }
}
