//! The last known values of an NVMe controller's registers.
//!
//! While the connection to the far end is lost but held, nothing answers. All ones would signal a
//! driver that its device is gone for good, though the device is only slow. The remembered values
//! show the driver an unchanged device, which is true as far as this end can know.

use vfio_user::RegionIndex;

/// Length in bytes of the controller's properties, up to and including those of the controller
/// memory buffer.
const BYTES: usize = 0x40;
const DWORDS: usize = BYTES / 4;
/// Registers whose reads do not return the written value: Interrupt Mask Set and Clear, Controller
/// Status, NVM Subsystem Reset.
const NOT_KEPT: [usize; 4] = [0x0c / 4, 0x10 / 4, 0x1c / 4, 0x20 / 4];

/// The last known value of each property, where one is known.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    dwords: [Option<u32>; DWORDS],
}

impl Remembered {
    /// The double words of an access, if the access is whole double words of remembered registers.
    fn place(region: RegionIndex, offset: u64, length: usize) -> Option<core::ops::Range<usize>> {
        let first = usize::try_from(offset).ok()?;
        let end = first.checked_add(length)?;
        let whole = first.is_multiple_of(4) && end.is_multiple_of(4);
        (region == RegionIndex::BAR0 && whole && end <= BYTES).then_some(first / 4..end / 4)
    }

    /// The controller has answered a read.
    pub(super) fn on_read(&mut self, region: RegionIndex, offset: u64, bytes: &[u8]) {
        let Some(place) = Self::place(region, offset, bytes.len()) else { return };
        for (dword, bytes) in self.dwords[place].iter_mut().zip(bytes.as_chunks().0) {
            *dword = Some(u32::from_le_bytes(*bytes));
        }
    }

    /// A write was sent to the controller.
    pub(super) fn on_write(&mut self, region: RegionIndex, offset: u64, bytes: &[u8]) {
        let Some(place) = Self::place(region, offset, bytes.len()) else { return };
        for (index, bytes) in place.zip(bytes.as_chunks().0) {
            if !NOT_KEPT.contains(&index) {
                self.dwords[index] = Some(u32::from_le_bytes(*bytes));
            }
        }
    }

    /// Puts the remembered values into `bytes`. Returns false where any of them is unknown.
    pub(super) fn recall(&self, region: RegionIndex, offset: u64, bytes: &mut [u8]) -> bool {
        let Some(place) = Self::place(region, offset, bytes.len()) else { return false };
        for (dword, bytes) in self.dwords[place].iter().zip(bytes.as_chunks_mut().0) {
            let Some(dword) = dword else { return false };
            *bytes = dword.to_le_bytes();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_or_written_last_is_recalled() {
        let mut remembered = Remembered::default();
        let mut bytes = [0; 8];
        assert!(!remembered.recall(RegionIndex::BAR0, 0, &mut bytes));
        remembered.on_read(RegionIndex::BAR0, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(remembered.recall(RegionIndex::BAR0, 0, &mut bytes));
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut dword = [0; 4];
        remembered.on_write(RegionIndex::BAR0, 0x14, &[1, 0, 0x46, 0]);
        assert!(remembered.recall(RegionIndex::BAR0, 0x14, &mut dword));
        // Bits that are cleared by writing ones do not read as written.
        remembered.on_read(RegionIndex::BAR0, 0x1c, &[0x11, 0, 0, 0]);
        remembered.on_write(RegionIndex::BAR0, 0x1c, &[0x10, 0, 0, 0]);
        assert!(remembered.recall(RegionIndex::BAR0, 0x1c, &mut dword));
        assert_eq!(dword, [0x11, 0, 0, 0]);
    }

    #[test]
    fn nothing_but_whole_properties_is_remembered() {
        let mut remembered = Remembered::default();
        for (region, offset, length) in
            [(RegionIndex::BAR0, 2, 4), (RegionIndex::BAR0, 0x3c, 8), (RegionIndex(2), 0, 4)]
        {
            remembered.on_read(region, offset, &[0; 8][..length]);
            assert!(!remembered.recall(region, offset, &mut [0; 8][..length]));
        }
    }
}
