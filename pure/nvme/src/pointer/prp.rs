//! PRP entries and PRP lists.

use super::{List, PageSize, PointerFault, Segment, Step, Walk};

const PRP_BYTES: u32 = 8;

impl Walk {
    pub(super) fn start_prp(&mut self, first: u64, second: u64, found: &mut impl FnMut(Segment)) -> Step {
        let offset = self.page.offset_of(first);
        if !offset.is_multiple_of(4) {
            return Step::Failed(PointerFault::PrpOffset);
        }
        self.find(Some(first), self.length(self.page.bytes() - offset), found);
        if self.left == 0 {
            return Step::Done;
        }
        if self.left > u64::from(self.page.bytes()) {
            return self.read_prp_list(second);
        }
        match check_page(second, self.page) {
            Ok(()) => self.find(Some(second), self.length(self.page.bytes()), found),
            Err(fault) => return Step::Failed(fault),
        }
        Step::Done
    }

    fn read_prp_list(&mut self, list: u64) -> Step {
        if list == 0 {
            return Step::Failed(PointerFault::PrpMissing);
        }
        let offset = self.page.offset_of(list);
        if !offset.is_multiple_of(PRP_BYTES) {
            return Step::Failed(PointerFault::PrpOffset);
        }
        // The entries that the remaining bytes need, and those that the list's page has room for.
        let needed = self.left.div_ceil(u64::from(self.page.bytes()));
        let room = (self.page.bytes() - offset) / PRP_BYTES;
        self.list = List::Prp;
        let entries = u32::try_from(needed).map_or(room, |needed| needed.min(room));
        Step::ReadList { address: list, length: entries * PRP_BYTES }
    }

    pub(super) fn on_prp_list(&mut self, bytes: &[u8], found: &mut impl FnMut(Segment)) -> Step {
        let (entries, _) = bytes.as_chunks::<8>();
        for (index, entry) in entries.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if index + 1 == entries.len() && self.left > u64::from(self.page.bytes()) {
                return match self.page.offset_of(entry) {
                    // A list continues at the start of a page.
                    0 => self.read_prp_list(entry),
                    _ => Step::Failed(PointerFault::PrpOffset),
                };
            }
            if let Err(fault) = check_page(entry, self.page) {
                return Step::Failed(fault);
            }
            self.find(Some(entry), self.length(self.page.bytes()), found);
            if self.left == 0 {
                return Step::Done;
            }
        }
        Step::Failed(PointerFault::PrpOffset)
    }
}

/// Fails if a PRP entry after the first one does not name a page. An entry of 0 was not filled in
/// by the host; used as an address, it would overwrite the page at 0.
fn check_page(entry: u64, page: PageSize) -> Result<(), PointerFault> {
    match (entry, page.offset_of(entry)) {
        (0, _) => Err(PointerFault::PrpMissing),
        (_, 0) => Ok(()),
        _ => Err(PointerFault::PrpOffset),
    }
}
