//! A function that QEMU may unplug.
//!
//! QEMU ends with a failed assertion when it unplugs a function whose MSI-X it emulates. For such a
//! monitor, this slot emulates MSI-X itself: the monitor does not learn that the function has
//! capabilities, and passes the guest's accesses to them on. An interrupt is then what it is on a
//! real bus: a write of the function to the address that the guest has put into the MSI-X table.

use alloc::vec::Vec;

use pcie::config::{Field, header};

use super::Guest;
use super::function::Slot;

/// Bytes of the longest access of a guest to configuration space. Only the monitor itself reads
/// more at once, when the function is plugged in.
const GUEST_ACCESS_MAX: usize = 4;

/// Removes the list of capabilities from a monitor's read at `offset` of configuration space. The
/// guest's own accesses are shorter and stay as they are.
pub(super) fn hide_capabilities(offset: u64, bytes: &mut [u8]) {
    if bytes.len() <= GUEST_ACCESS_MAX {
        return;
    }
    for field in [header::CAPABILITIES_LIST, header::CAPABILITIES] {
        clear(field, offset, bytes);
    }
}

/// Clears the bits of `field` in bytes that begin at `offset` of configuration space.
fn clear(field: Field, offset: u64, bytes: &mut [u8]) {
    let first = u64::from(field.offset());
    for (at, mask) in (first..).zip(field.mask().to_le_bytes()) {
        let position = at.checked_sub(offset).and_then(|position| usize::try_from(position).ok());
        if let Some(byte) = position.and_then(|position| bytes.get_mut(position)) {
            *byte &= !mask;
        }
    }
}

impl Slot {
    /// Takes over which vectors the guest's MSI-X table and Message Control let pass. Returns the
    /// vectors whose kept interrupts are due.
    pub(super) fn follow_table(&mut self) -> Vec<usize> {
        let is_open = self.shadow.msix_passes();
        let table = self.table.as_ref().filter(|_| is_open && self.interrupts_by_message);
        let mut due = Vec::new();
        for vector in (0..self.vectors.count()).filter(|_| self.interrupts_by_message) {
            let wanted = table.is_some_and(|table| table.message(vector).is_some());
            if self.vectors.want(vector, wanted) {
                due.push(vector);
            }
        }
        due
    }
}

impl<D: 'static> Guest<D> {
    /// Writes the message of `vector` to the address that the guest has chosen.
    pub(super) fn send_interrupt(&mut self, vector: usize) {
        let table = self.slot.as_ref().and_then(|slot| slot.table.as_ref());
        if let Some((address, data)) = table.and_then(|table| table.message(vector)) {
            let data = self.pool.copy(&data.to_le_bytes());
            self.by_message.interrupt(address, data);
            self.send_messages();
        }
    }
}
