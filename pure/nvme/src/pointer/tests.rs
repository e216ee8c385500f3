use alloc::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn walk(
    pointer: DataPointer,
    total: u32,
    direction: Direction,
    memory: &BTreeMap<u64, u8>,
) -> Result<Vec<Segment>, PointerFault> {
    let mut segments = Segments::default();
    let mut found = |segment| segments.push(segment);
    let (mut walk, mut step) = Walk::start(pointer, total.into(), PageSize::KIB4, direction, &mut found);
    for _ in 0..10_000 {
        match step {
            Step::Done => return Ok(segments.as_slice().to_vec()),
            Step::Failed(fault) => return Err(fault),
            Step::ReadList { address, length } => {
                let bytes: Vec<u8> = (address..address + u64::from(length))
                    .map(|at| memory.get(&at).copied().unwrap_or(0))
                    .collect();
                step = walk.on_list(&bytes, &mut |segment| segments.push(segment));
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
        let mut segments = Segments::default();
        let mut found = |segment| segments.push(segment);
        let (mut walk, mut step) =
            Walk::start(pointer, total.into(), PageSize::KIB4, Direction::ToHost, &mut found);
        let mut reads = 0;
        while let Step::ReadList { length, .. } = step {
            reads += 1;
            prop_assert!(reads <= SGL_DESCRIPTORS_MAX + total / 4096 && length <= 4096);
            let list: Vec<u8> = bytes.iter().copied().cycle().take(length as usize).collect();
            step = walk.on_list(&list, &mut |segment| segments.push(segment));
        }
        if step == Step::Done {
            prop_assert_eq!(segments.as_slice().iter().map(|segment| segment.length).sum::<u32>(), total);
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
    let fault = |descriptor| walk(DataPointer::Sgl(descriptor), 512, Direction::ToHost, &memory).unwrap_err();
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
    let mut segments = Segments::default();
    let pointer = DataPointer::Prp(0x1800, 0x5000);
    Walk::start(pointer, 4096, PageSize::KIB4, Direction::ToHost, &mut |segment| segments.push(segment));
    let segment = |address, length| Segment { address: Some(address), length };
    assert_eq!(segments.locate(3000), Some((segment(0x5000, 2048), 952)));
    assert_eq!(segments.locate(10), Some((segment(0x1800, 2048), 10)));
    assert_eq!(segments.locate(4096), None);
}
