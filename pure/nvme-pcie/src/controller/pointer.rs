//! Walks a command's data pointer (PRP entries or SGL) to find the pieces of host memory that it
//! names.
//!
//! The walk never accesses memory: it asks for the next list and receives the list's bytes.

use alloc::vec::Vec;

use crate::registers::PageSize;

/// The most descriptors of one command's SGL that the walk follows. A longer SGL fails with Invalid
/// Number of SGL Descriptors.
const SGL_DESCRIPTORS_MAX: u32 = 2048;
/// The longest SGL segment that the walk reads at once: a page of descriptors.
const SGL_SEGMENT_BYTES_MAX: u32 = 4096;

const PRP_BYTES: u32 = 8;
const DESCRIPTOR_BYTES: u32 = 16;
/// The alignment of an SGL segment: a quad word.
const SGL_SEGMENT_ALIGNMENT: u64 = 8;

/// The direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From host memory to the controller.
    ToController,
    /// From the controller to host memory.
    ToHost,
}

/// A contiguous piece of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The address in host memory; `None` for an SGL bit bucket, whose data is discarded.
    pub(super) address: Option<u64>,
    /// Length of the piece in bytes, at least 1.
    pub(super) length: u32,
}

/// The data pointer of a submission queue entry (DPTR), decoded by PSDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPointer {
    /// PRP Entry 1 and PRP Entry 2.
    Prp(u64, u64),
    /// The first SGL descriptor.
    Sgl([u8; 16]),
    /// PSDT has a reserved value.
    Reserved,
}

/// The reason why a data pointer can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointerFault {
    /// The offset of a PRP entry is not 0 where it must be, or is not a multiple of 4 (of 8 for a
    /// list).
    PrpOffset,
    /// A PRP entry that is needed is 0, which means that the host did not set it.
    PrpMissing,
    /// A segment descriptor is malformed or in the last segment, or another segment ends without
    /// one.
    SglSegment,
    /// There are more descriptors than [`SGL_DESCRIPTORS_MAX`], or a segment descriptor is not the
    /// last of its segment.
    SglDescriptorCount,
    /// The SGL describes fewer bytes than the command transfers.
    SglLength,
    /// The type or subtype of a descriptor is not supported.
    SglType,
    /// PSDT has a reserved value.
    Transfer,
}

/// The result of a step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The walk needs the bytes of a list, for [`Walk::on_list`].
    ReadList {
        /// Host memory address of the list.
        address: u64,
        /// Length of the list in bytes: at least 1, about 4096 at most, and never more than the
        /// data needs.
        length: u32,
    },
    /// Every piece is known.
    Done,
    /// The walk has failed.
    Failed(PointerFault),
}

#[derive(Clone, Copy, Debug, Default)]
enum List {
    #[default]
    None,
    Prp,
    Sgl {
        last: bool,
    },
}

/// The walk along one command's data pointer. The next command uses the same walk, so that its
/// storage is kept.
#[derive(Debug, Default)]
pub(super) struct Walk {
    segments: Vec<Segment>,
    /// Bytes of the data that no piece covers yet.
    left: u32,
    page: Option<PageSize>,
    discard: bool,
    list: List,
    descriptors: u32,
    /// The index of a piece and its offset within the data. Pushes mostly come in order.
    cursor: (usize, u32),
}

impl Walk {
    /// Starts a new walk for `total` bytes (at least 1) at `pointer`.
    pub(super) fn start(
        &mut self,
        pointer: DataPointer,
        total: u32,
        page: PageSize,
        direction: Direction,
    ) -> Step {
        self.segments.clear();
        self.left = total;
        self.page = Some(page);
        self.discard = direction == Direction::ToHost;
        self.list = List::None;
        self.descriptors = 0;
        self.cursor = (0, 0);
        match pointer {
            DataPointer::Prp(first, second) => self.start_prp(first, second, page),
            DataPointer::Sgl(descriptor) => self.on_descriptors(&descriptor, true),
            DataPointer::Reserved => Step::Failed(PointerFault::Transfer),
        }
    }

    /// The pieces in the order of the data.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Continues with the bytes of the list that the last step asked for.
    pub(super) fn on_list(&mut self, bytes: &[u8]) -> Step {
        match self.list {
            List::None => Step::Done,
            List::Prp => self.on_prp_list(bytes),
            List::Sgl { last } => self.on_descriptors(bytes, last),
        }
    }

    /// The piece with byte `offset` of the data, and the byte's offset within the piece.
    pub(super) fn locate(&mut self, offset: u32) -> Option<(Segment, u32)> {
        if offset < self.cursor.1 {
            self.cursor = (0, 0);
        }
        loop {
            let segment = *self.segments.get(self.cursor.0)?;
            if offset - self.cursor.1 < segment.length {
                return Some((segment, offset - self.cursor.1));
            }
            self.cursor = (self.cursor.0 + 1, self.cursor.1 + segment.length);
        }
    }

    fn push(&mut self, address: Option<u64>, length: u32) {
        self.left -= length;
        if let (Some(previous), Some(address)) = (self.segments.last_mut(), address)
            && previous.address.and_then(|start| start.checked_add(u64::from(previous.length)))
                == Some(address)
        {
            previous.length += length;
            return;
        }
        self.segments.push(Segment { address, length });
    }

    fn start_prp(&mut self, first: u64, second: u64, page: PageSize) -> Step {
        let offset = page.offset_of(first);
        if !offset.is_multiple_of(4) {
            return Step::Failed(PointerFault::PrpOffset);
        }
        self.push(Some(first), self.left.min(page.bytes() - offset));
        if self.left == 0 {
            return Step::Done;
        }
        if self.left > page.bytes() {
            return self.read_prp_list(second, page);
        }
        match check_page(second, page) {
            Ok(()) => self.push(Some(second), self.left),
            Err(fault) => return Step::Failed(fault),
        }
        Step::Done
    }

    /// Number of entries that a list needs for the remaining bytes, and number of entries that its
    /// page has room for.
    fn prp_list_entries(&self, list: u64, page: PageSize) -> (u32, u32) {
        (self.left.div_ceil(page.bytes()), (page.bytes() - page.offset_of(list)) / PRP_BYTES)
    }

    fn read_prp_list(&mut self, list: u64, page: PageSize) -> Step {
        if list == 0 {
            return Step::Failed(PointerFault::PrpMissing);
        }
        if !page.offset_of(list).is_multiple_of(PRP_BYTES) {
            return Step::Failed(PointerFault::PrpOffset);
        }
        let (needed, room) = self.prp_list_entries(list, page);
        self.list = List::Prp;
        Step::ReadList { address: list, length: needed.min(room) * PRP_BYTES }
    }

    fn on_prp_list(&mut self, bytes: &[u8]) -> Step {
        let Some(page) = self.page else { return Step::Done };
        let (entries, _) = bytes.as_chunks::<8>();
        for (index, entry) in entries.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if index + 1 == entries.len() && self.left > page.bytes() {
                return match page.offset_of(entry) {
                    // A list continues at the start of a page.
                    0 => self.read_prp_list(entry, page),
                    _ => Step::Failed(PointerFault::PrpOffset),
                };
            }
            if let Err(fault) = check_page(entry, page) {
                return Step::Failed(fault);
            }
            self.push(Some(entry), self.left.min(page.bytes()));
            if self.left == 0 {
                return Step::Done;
            }
        }
        Step::Failed(PointerFault::PrpOffset)
    }

    fn on_descriptors(&mut self, bytes: &[u8], last_segment: bool) -> Step {
        let (descriptors, _) = bytes.as_chunks::<16>();
        let first = matches!(self.list, List::None);
        for (index, descriptor) in descriptors.iter().enumerate() {
            self.descriptors += 1;
            if self.descriptors > SGL_DESCRIPTORS_MAX {
                return Step::Failed(PointerFault::SglDescriptorCount);
            }
            let descriptor = Descriptor::parse(descriptor);
            let at_end = index + 1 == descriptors.len();
            match descriptor.kind {
                Descriptor::DATA_BLOCK => {
                    let length = descriptor.length.min(self.left);
                    if length > 0 {
                        self.push(Some(descriptor.address), length);
                    }
                }
                Descriptor::BIT_BUCKET => {
                    let length = descriptor.length.min(self.left);
                    if length > 0 && self.discard {
                        self.push(None, length);
                    }
                }
                // The last segment may not point to another one. The descriptor in the command
                // itself is not part of a segment.
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT if last_segment && !first => {
                    return Step::Failed(PointerFault::SglSegment);
                }
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT if !at_end => {
                    return Step::Failed(PointerFault::SglDescriptorCount);
                }
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT => return self.read_sgl_segment(descriptor),
                _ => return Step::Failed(PointerFault::SglType),
            }
            if self.left == 0 {
                return Step::Done;
            }
        }
        Step::Failed(if last_segment { PointerFault::SglLength } else { PointerFault::SglSegment })
    }

    fn read_sgl_segment(&mut self, descriptor: Descriptor) -> Step {
        let length = descriptor.length;
        let is_aligned = descriptor.address.is_multiple_of(SGL_SEGMENT_ALIGNMENT);
        if length == 0 || !length.is_multiple_of(DESCRIPTOR_BYTES) || !is_aligned {
            return Step::Failed(PointerFault::SglSegment);
        }
        if length > SGL_SEGMENT_BYTES_MAX {
            return Step::Failed(PointerFault::SglDescriptorCount);
        }
        self.list = List::Sgl { last: descriptor.kind == Descriptor::LAST_SEGMENT };
        Step::ReadList { address: descriptor.address, length }
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

/// An SGL descriptor: 16 bytes, the last of which has the type and subtype.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    length: u32,
    /// SGL Descriptor Type in bits 7:4 and subtype in bits 3:0. Subtype 0 means an address.
    kind: u8,
}

impl Descriptor {
    const DATA_BLOCK: u8 = 0x00;
    const BIT_BUCKET: u8 = 0x10;
    const SEGMENT: u8 = 0x20;
    const LAST_SEGMENT: u8 = 0x30;

    const fn parse(bytes: &[u8; 16]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, _, _, _, kind] = *bytes;
        Self {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn walk(
        pointer: DataPointer,
        total: u32,
        direction: Direction,
        memory: &BTreeMap<u64, u8>,
    ) -> Result<Vec<Segment>, PointerFault> {
        let mut walk = Walk::default();
        let mut step = walk.start(pointer, total, PageSize::KIB4, direction);
        for _ in 0..10_000 {
            match step {
                Step::Done => return Ok(walk.segments().to_vec()),
                Step::Failed(fault) => return Err(fault),
                Step::ReadList { address, length } => {
                    let bytes: Vec<u8> = (address..address + u64::from(length))
                        .map(|at| memory.get(&at).copied().unwrap_or(0))
                        .collect();
                    step = walk.on_list(&bytes);
                }
            }
        }
        panic!("the walk does not end");
    }

    fn put(memory: &mut BTreeMap<u64, u8>, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            memory.insert(at, *byte);
        }
    }

    /// Writes the PRP lists for `pages` as a host would. The first list is at `list_offset` of its
    /// page, and further lists are on scattered pages.
    fn lay_prps(pages: &[u64], list_offset: u64, memory: &mut BTreeMap<u64, u8>) -> u64 {
        let head = 0x1000_0000 + list_offset;
        let mut list = head;
        let mut next_list = 0x1100_0000_u64;
        for (index, page) in pages.iter().enumerate() {
            let last_in_page = (list + 8).is_multiple_of(PAGE);
            if last_in_page && index + 1 < pages.len() {
                put(memory, list, &next_list.to_le_bytes());
                list = next_list;
                next_list += 2 * PAGE;
            }
            put(memory, list, &page.to_le_bytes());
            list += 8;
        }
        head
    }

    fn bytes_of(segments: &[Segment]) -> Vec<u64> {
        segments
            .iter()
            .flat_map(|segment| {
                let start = segment.address.unwrap();
                start..start + u64::from(segment.length)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn prps_name_the_same_bytes_as_a_naive_reading(
            pages in prop::collection::vec(0_u64..64, 1..40),
            offset in 0_u64..1024,
            list_slot in 0_u64..512,
            cut in 0_u32..4096,
        ) {
            let pages: Vec<u64> = pages.iter().map(|page| 0x20_0000 + page * PAGE).collect();
            let first = pages[0] + offset * 4;
            let full = u32::try_from(pages.len() as u64 * PAGE - offset * 4).unwrap();
            let last_page = if pages.len() == 1 { full } else { 4096 };
            let total = full - cut % last_page;
            let mut memory = BTreeMap::new();
            let second = match pages.len() {
                1 => 0xdead_beef,
                2 => pages[1],
                _ => lay_prps(&pages[1..], list_slot * 8, &mut memory),
            };
            let expected: Vec<u64> = pages.iter().enumerate()
                .flat_map(|(index, page)| (if index == 0 { first } else { *page })..page + PAGE)
                .take(total as usize)
                .collect();
            let segments = walk(DataPointer::Prp(first, second), total, Direction::ToHost, &memory).unwrap();
            prop_assert_eq!(bytes_of(&segments), expected);
        }

        #[test]
        fn garbage_never_makes_a_walk_endless(
            bytes in prop::collection::vec(any::<u8>(), 64), total in 1_u32..1 << 20, sgl: bool,
        ) {
            let word = |index: usize| u64::from_le_bytes(bytes[index..index + 8].try_into().unwrap());
            let pointer = if sgl {
                DataPointer::Sgl(bytes[..16].try_into().unwrap())
            } else {
                DataPointer::Prp(word(0), word(8))
            };
            let mut walk = Walk::default();
            let mut step = walk.start(pointer, total, PageSize::KIB4, Direction::ToHost);
            let mut reads = 0;
            while let Step::ReadList { length, .. } = step {
                reads += 1;
                prop_assert!(reads <= SGL_DESCRIPTORS_MAX + total / 4096 && length <= 4096);
                let list: Vec<u8> = bytes.iter().copied().cycle().take(length as usize).collect();
                step = walk.on_list(&list);
            }
            if step == Step::Done {
                prop_assert_eq!(walk.segments().iter().map(|segment| segment.length).sum::<u32>(), total);
            }
        }
    }

    #[test]
    fn wrong_prp_offsets_are_refused() {
        let none = BTreeMap::new();
        let refused = Err(PointerFault::PrpOffset);
        let to_host = Direction::ToHost;
        assert_eq!(walk(DataPointer::Prp(0x1002, 0), 4096, to_host, &none), refused);
        assert_eq!(walk(DataPointer::Prp(0x1004, 0x2004), 4096, to_host, &none), refused);
        assert_eq!(walk(DataPointer::Prp(0x1000, 0x2004), 8192 + 512, to_host, &none), refused);
        let mut memory = BTreeMap::new();
        put(&mut memory, 0x8000, &0x3008_u64.to_le_bytes());
        assert_eq!(walk(DataPointer::Prp(0x1000, 0x8000), 12288, to_host, &memory), refused);
    }

    #[test]
    fn a_page_that_is_needed_and_not_named_is_missing() {
        let missing = Err(PointerFault::PrpMissing);
        let (to_host, none) = (Direction::ToHost, BTreeMap::new());
        assert_eq!(walk(DataPointer::Prp(0x1c00, 0), 4096, to_host, &none), missing);
        assert_eq!(walk(DataPointer::Prp(0x1000, 0), 4097, to_host, &none), missing);
        assert_eq!(walk(DataPointer::Prp(0x1000, 0), 12288, to_host, &none), missing);
        // The walk ignores an entry that it does not need.
        assert!(walk(DataPointer::Prp(0x1c00, 0), 1024, to_host, &none).is_ok());
        // One list ends too early, and another does not name its next list.
        let mut memory = BTreeMap::new();
        put(&mut memory, 0x8000, &0x3000_u64.to_le_bytes());
        assert_eq!(walk(DataPointer::Prp(0x1000, 0x8000), 12288, to_host, &memory), missing);
        assert!(walk(DataPointer::Prp(0x1004, 0x8000), 12288 - 4, to_host, &memory) == missing);
        let mut memory = BTreeMap::new();
        put(&mut memory, 0x8ff0, &0x3000_u64.to_le_bytes());
        assert_eq!(walk(DataPointer::Prp(0x1000, 0x8ff0), 16384, to_host, &memory), missing);
    }

    fn descriptor(kind: u8, address: u64, length: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[15] = kind;
        bytes
    }

    #[test]
    fn sgl_segments_chain_and_buckets_discard() {
        let mut memory = BTreeMap::new();
        put(&mut memory, 0x8000, &descriptor(0x00, 0x1001, 100));
        put(&mut memory, 0x8010, &descriptor(0x10, 0, 28));
        put(&mut memory, 0x8020, &descriptor(0x30, 0x9000, 16));
        put(&mut memory, 0x9000, &descriptor(0x00, 0x4000, 500));
        let pointer = DataPointer::Sgl(descriptor(0x20, 0x8000, 48));
        let segment = |address, length| Segment { address, length };
        assert_eq!(
            walk(pointer, 512, Direction::ToHost, &memory).unwrap(),
            [segment(Some(0x1001), 100), segment(None, 28), segment(Some(0x4000), 384)]
        );
        assert_eq!(
            walk(pointer, 512, Direction::ToController, &memory).unwrap(),
            [segment(Some(0x1001), 100), segment(Some(0x4000), 412)]
        );
        assert_eq!(walk(pointer, 700, Direction::ToHost, &memory), Err(PointerFault::SglLength));
    }

    #[test]
    fn sgl_faults_have_their_own_names() {
        let mut memory = BTreeMap::new();
        put(&mut memory, 0x8000, &descriptor(0x30, 0x8000, 16));
        let fault =
            |descriptor| walk(DataPointer::Sgl(descriptor), 512, Direction::ToHost, &memory).unwrap_err();
        assert_eq!(fault(descriptor(0x40, 0, 512)), PointerFault::SglType);
        assert_eq!(fault(descriptor(0x01, 0, 512)), PointerFault::SglType);
        assert_eq!(fault(descriptor(0x20, 0x8000, 24)), PointerFault::SglSegment);
        assert_eq!(fault(descriptor(0x30, 0x8000, 16)), PointerFault::SglSegment);
        assert_eq!(fault(descriptor(0x30, 0x8000, 8192)), PointerFault::SglDescriptorCount);
        assert_eq!(fault(descriptor(0x00, 0x8000, 100)), PointerFault::SglLength);
        assert_eq!(fault(descriptor(0x00, 0x8000, 0)), PointerFault::SglLength);
        assert_eq!(fault(descriptor(0x5a, 0, 512)), PointerFault::SglType);
        for kind in [0x20, 0x30] {
            assert_eq!(fault(descriptor(kind, 0x8004, 16)), PointerFault::SglSegment);
            assert_eq!(fault(descriptor(kind, 0x8000, 0)), PointerFault::SglSegment);
        }
        assert_eq!(fault(descriptor(0x20, 0x8000, 32)), PointerFault::SglDescriptorCount);
        let reserved = walk(DataPointer::Reserved, 512, Direction::ToHost, &memory);
        assert_eq!(reserved, Err(PointerFault::Transfer));
    }

    #[test]
    fn an_offset_is_found_in_any_order() {
        let mut walk = Walk::default();
        walk.start(DataPointer::Prp(0x1800, 0x5000), 4096, PageSize::KIB4, Direction::ToHost);
        let segment = |address, length| Segment { address: Some(address), length };
        assert_eq!(walk.locate(3000), Some((segment(0x5000, 2048), 952)));
        assert_eq!(walk.locate(10), Some((segment(0x1800, 2048), 10)));
        assert_eq!(walk.locate(4096), None);
    }
}
