use std::vec::Vec;

use engine::{Buffer, Instant};
use nvme::pointer::{self, DataPointer, Direction, PageSize, Segments, Step};
use nvme::wire::SubmissionQueueEntry;
use pcie::switch::{Ahead, AheadKey, FarLink, Strand};
use pcie::wire::{Bdf, Kind, Packet, Tag};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof, proptest};

use crate::follow::controller::{Controller, Ended};
use crate::follow::function::{Function, Seen};
use crate::gather::{double_words, joined};
use crate::transfer::Transfer;
use crate::walk::{Next, Walk};

/// A link of one strand that only records calls.
#[derive(Default)]
pub(crate) struct Link {
    /// Addresses and bytes of the memory that was sent ahead, until the packet that it precedes.
    pub(crate) ahead: Vec<(u64, Buffer)>,
    pub(crate) sent: Vec<Packet>,
    pub(crate) forgotten: Vec<AheadKey>,
    /// How many bytes may be sent ahead.
    pub(crate) window: u32,
}

impl FarLink for Link {
    fn is_open(&self) -> bool {
        true
    }
    fn is_flushed(&self) -> bool {
        false
    }
    fn ahead_window(&self) -> u32 {
        self.window
    }
    fn is_spread(&self) -> bool {
        false
    }
    fn strand_of_queue(&self, _queue: u16) -> Strand {
        Strand::MAIN
    }
    fn send_on(&mut self, _now: Instant, _strand: Strand, packet: Packet) {
        self.sent.push(packet);
    }
    fn send_ahead_on(&mut self, _strand: Strand, ahead: Ahead, bytes: Buffer) -> bool {
        self.ahead.push((ahead.address, bytes));
        true
    }
    fn forget_ahead(&mut self, key: AheadKey) {
        self.forgotten.push(key);
    }
    fn lay(&mut self, _: Instant, _: Strand, _: Strand, _: AheadKey, _: &[(u64, u32)]) {}
}

const ROOT: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(3, 0, 0);

fn follow(entry: &SubmissionQueueEntry, lists: &[(u64, Vec<u8>)]) -> Vec<(u64, u64)> {
    let transfer = Transfer::of(entry, 512).unwrap();
    let mut found = Vec::new();
    let (mut walk, mut next) =
        Walk::start(entry, transfer, PageSize::KIB4, &mut |at, length| found.push((at, length)));
    for (at, list) in lists {
        assert_eq!(next, Next::List { address: *at, length: u32::try_from(list.len()).unwrap() });
        next = walk.on_list(list, &mut |at, length| found.push((at, length)));
    }
    assert_eq!(next, Next::Done);
    found
}

#[test]
fn prps_and_sgls_are_followed() {
    let write = |blocks: u32, data_pointer| SubmissionQueueEntry {
        opcode: 1,
        cdw12: blocks - 1,
        data_pointer,
        ..SubmissionQueueEntry::default()
    };
    assert_eq!(follow(&write(8, [0x1000, 0]), &[]), [(0x1000, 4096)]);
    assert_eq!(follow(&write(8, [0x1800, 0x5000]), &[]), [(0x1800, 2048), (0x5000, 2048)]);
    // A list at the end of its page points to the next list with its last entry.
    let list = |entries: &[u64]| entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>();
    let lists = [(0x8ff0, list(&[0x2_0000, 0x9000])), (0x9000, list(&[0x3_0000, 0x4_0000]))];
    let found = follow(&write(32, [0x1000, 0x8ff0]), &lists);
    assert_eq!(found, [(0x1000, 4096), (0x2_0000, 4096), (0x3_0000, 4096), (0x4_0000, 4096)]);
    // A segment of two data blocks.
    let block = |address: u64, length: u64| [address, length];
    let mut entry = write(8, [0x7000, 32 | 0x30 << 56]);
    entry.flags = 0x40;
    let segment = list(&[block(0x1004, 1000), block(0x6000, 4000)].concat());
    assert_eq!(follow(&entry, &[(0x7000, segment)]), [(0x1004, 1000), (0x6000, 3096)]);
}

#[test]
fn a_list_that_goes_over_the_end_of_a_page_is_left_to_the_device() {
    // A segment of two descriptors begins close to the end of a page.
    let entry = SubmissionQueueEntry {
        opcode: 1,
        flags: 0x40,
        cdw12: 7,
        data_pointer: [0x7ff0, 32 | 0x30 << 56],
        ..SubmissionQueueEntry::default()
    };
    assert_eq!(follow(&entry, &[]), []);
    // A PRP list with pages of 8 KiB.
    let entry = SubmissionQueueEntry { flags: 0, cdw12: 1023, data_pointer: [0x2000, 0x4100], ..entry };
    let (transfer, page) = (Transfer { length: 1 << 19, to_controller: true }, PageSize::from_mps(1));
    let (_, next) = Walk::start(&entry, transfer, page, &mut |_, _| ());
    assert_eq!(next, Next::List { address: 0x4100, length: 63 * 8 });
    let entry = SubmissionQueueEntry { data_pointer: [0x2000, 0x4f80], ..entry };
    assert_eq!(Walk::start(&entry, transfer, page, &mut |_, _| ()).1, Next::Done);
}

#[test]
fn without_memory_space_enable_no_write_is_a_doorbell() {
    let mut function = Function::new(DEVICE);
    let config = |offset| pcie::wire::ConfigRequest {
        write: true,
        target: DEVICE,
        offset,
        enables: 0xf,
        ..config_request()
    };
    function.on_config(&config(0x10), 0x8000_0004);
    assert_eq!(function.offset_of(0x8000_1000), None);
    function.on_config(&config(0x04), 6);
    assert_eq!((function.offset_of(0x8000_1000), function.may_read()), (Some(0x1000), true));
    function.on_config(&config(0x04), 4);
    assert_eq!(function.offset_of(0x8000_1000), None);
}

fn config_request() -> pcie::wire::ConfigRequest {
    let write = Packet::config_write(ROOT, Tag::new(0), DEVICE, 0, Buffer::zeroed(4));
    let Kind::Config(request) = write.header.kind else { panic!("{write}") };
    request
}

/// The bytes of the completion of `command` on `queue`.
fn completion(queue: u16, command: u16, status: u16) -> Vec<u8> {
    let mut entry = std::vec![0; 16];
    entry[10..12].copy_from_slice(&queue.to_le_bytes());
    entry[12..14].copy_from_slice(&command.to_le_bytes());
    entry[14..16].copy_from_slice(&(status << 1).to_le_bytes());
    entry
}

fn admin(opcode: u8, command: u16, [cdw10, cdw11]: [u32; 2], base: u64) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode,
        command_id: nvme::wire::CommandId(command),
        data_pointer: [base, 0],
        cdw10,
        cdw11,
        ..SubmissionQueueEntry::default()
    }
}

#[test]
fn queues_come_and_go_with_the_commands_that_succeed() {
    let mut controller = Controller::new(PageSize::KIB4, (0x1000, 32), (0x2000, 32));
    let mut ended = Vec::new();
    let mut complete = |controller: &mut Controller, command, status| {
        ended.clear();
        controller.on_write(0x2000, &completion(0, command, status), &mut |end| ended.push(end));
        ended.clone()
    };
    controller.on_admin(&admin(5, 1, [1 | 15 << 16, 1], 0x5000));
    controller.on_admin(&admin(1, 2, [1 | 15 << 16, 1 | 1 << 16], 0x6000));
    complete(&mut controller, 2, 0);
    assert!(controller.ring(1, 3).is_none(), "its completion queue does not exist yet");
    complete(&mut controller, 1, 0);
    let queue = controller.ring(1, 5).unwrap();
    assert_eq!((queue.base, queue.entries, queue.tail), (0x6000, 16, 3));
    assert!(controller.ring(1, 16).is_none(), "beyond its end");
    // Creation fails for one queue, another queue's place is impossible, and a third queue
    // is deleted.
    controller.on_admin(&admin(1, 5, [3 | 15 << 16, 1 | 1 << 16], 0x7010));
    complete(&mut controller, 5, 0);
    assert!(controller.ring(3, 1).is_none());
    controller.on_admin(&admin(1, 3, [2 | 15 << 16, 1 | 1 << 16], 0x7000));
    complete(&mut controller, 3, 0x101);
    assert!(controller.ring(2, 1).is_none());
    controller.on_admin(&admin(0, 4, [1, 0], 0));
    assert!(controller.ring(1, 6).is_none());
    let command = nvme::wire::CommandId(4);
    assert_eq!(complete(&mut controller, 4, 0), [Ended::Command { queue: 0, command }, Ended::Queue(1)]);
    // The deletion of a queue is requested before its creation has completed.
    controller.on_admin(&admin(1, 6, [1 | 15 << 16, 1 | 1 << 16], 0x6000));
    controller.on_admin(&admin(0, 7, [1, 0], 0));
    complete(&mut controller, 6, 0);
    complete(&mut controller, 7, 0);
    assert!(controller.ring(1, 1).is_none(), "a deleted queue is not read");
    // After half an entry, the ends are uncertain.
    controller.on_write(0x2008, &[0; 8], &mut |end| assert_eq!(end, Ended::Unclear));
    assert!(controller.ring(0, 1).is_none());
}

#[test]
fn block_sizes_come_from_identify_and_go_with_format() {
    let namespace = nvme::wire::NamespaceId(1);
    let mut controller = Controller::new(PageSize::KIB4, (0x1000, 32), (0x2000, 32));
    let mut identify = admin(6, 1, [0, 0], 0x9000);
    identify.namespace = namespace;
    controller.on_admin(&identify);
    let mut data = std::vec![0; 4096];
    // Format 1 of 2: blocks of 4 KiB.
    (data[25], data[26], data[128 + 4 + 2]) = (1, 1, 12);
    for (index, piece) in data.chunks(256).enumerate() {
        controller.on_write(0x9000 + index as u64 * 256, piece, &mut |_| ());
    }
    assert_eq!(controller.block(namespace), None);
    controller.on_write(0x2000, &completion(0, 1, 0), &mut |_| ());
    assert_eq!(controller.block(namespace), Some(4096));
    controller.on_admin(&admin(0x80, 2, [0, 0], 0));
    assert_eq!(controller.block(namespace), None);
    controller.on_admin(&admin(0x7c, 3, [0, 0], 0));
    assert!(controller.lost, "shadow doorbells are not seen");
}

#[test]
fn memory_at_the_end_of_the_address_space_is_left_alone() {
    let mut controller = Controller::new(PageSize::KIB4, (0x1000, 32), (0x2000, 32));
    for address in [u64::MAX - 383, u64::MAX - 4095] {
        controller.on_admin(&admin(6, 1, [0, 0], address));
        controller.on_write(address, &[1; 64], &mut |_| ());
    }
    assert_eq!(double_words(0x1001, 6), Some((0x1000, 0x1008)));
    assert_eq!(double_words(u64::MAX - 7, 4), Some((u64::MAX - 7, u64::MAX - 3)));
    assert_eq!(double_words(u64::MAX - 7, 5), None);
    assert_eq!(double_words(u64::MAX - 4095, 4096), None);
    let pieces = [(u64::MAX - 4095, 4096), (0, 4096)];
    let joined: Vec<_> = joined(&pieces).collect();
    assert_eq!(joined, [(u64::MAX - 4095, 4096), (0, 4096)]);
}

#[test]
fn an_enabled_controller_rings_and_a_reset_is_seen() {
    let mut function = Function::new(DEVICE);
    let enable = |function: &mut Function, on: u32| function.on_write(0x14, &(0x46_0000 | on).to_le_bytes());
    function.on_write(0x24, &0x001f_001f_u32.to_le_bytes());
    function.on_write(0x28, &0x1_0000_1000_u64.to_le_bytes());
    function.on_write(0x30, &0x2000_u64.to_le_bytes());
    assert_eq!(enable(&mut function, 1), Seen::Reset);
    // A host that has not read CAP counts on the shortest stride.
    assert_eq!(function.on_write(0x1000, &[1, 0, 0, 0]), Seen::Doorbell(0, 1));
    assert_eq!(function.completion_queue(0x1004), Some(0));
    function.on_capabilities(1);
    assert_eq!(function.completion_queue(0x1004), None);
    assert_eq!(function.completion_queue(0x1008), Some(0));
    function.on_capabilities(0);
    assert_eq!(enable(&mut function, 0), Seen::Reset);
    assert!(function.controller.is_none());
    enable(&mut function, 1);
    assert_eq!(function.on_write(0x1000, &[1, 0, 0, 0]), Seen::Doorbell(0, 1));
    assert_eq!(function.on_write(0x1004, &[1, 0, 0, 0]), Seen::Nothing, "a completion queue's");
    assert_eq!(function.on_write(0x2000, &[0; 16]), Seen::Nothing, "the table of interrupts");
    let queue = function.controller.as_mut().unwrap().ring(0, 1).unwrap();
    assert_eq!((queue.base, queue.entries), (0x1_0000_1000, 32));
}

/// The pieces of a transfer of `length` bytes in the order of the data: as a controller sees them,
/// and as lookahead does. Also whether lookahead has read all lists that the controller reads.
fn pieces(
    entry: &SubmissionQueueEntry,
    transfer: Transfer,
    list_at: impl Fn(u64, u32) -> Vec<u8>,
) -> ([Vec<(u64, u64)>; 2], bool) {
    let direction = if transfer.to_controller { Direction::ToController } else { Direction::ToHost };
    let (mut segments, mut found, mut lists) = (Segments::default(), Vec::new(), [0; 2]);
    let (mut walk, mut step) = pointer::Walk::start(
        DataPointer::of(entry),
        transfer.length,
        PageSize::KIB4,
        direction,
        &mut |one| {
            segments.push(one);
        },
    );
    while let Step::ReadList { address, length } = step {
        lists[0] += 1;
        step = walk.on_list(&list_at(address, length), &mut |one| segments.push(one));
    }
    let (mut walk, mut next) =
        Walk::start(entry, transfer, PageSize::KIB4, &mut |at, length| found.push((at, length)));
    while let Next::List { address, length } = next {
        lists[1] += 1;
        next = walk.on_list(&list_at(address, length), &mut |at, length| found.push((at, length)));
    }
    let named = segments.as_slice().iter().filter_map(|one| Some((one.address?, u64::from(one.length))));
    let of_controller: Vec<_> = named.filter(|(at, length)| at.checked_add(*length).is_some()).collect();
    // Joins pieces that adjoin once the bit buckets between them are left out.
    let [of_controller, of_lookahead] = [&of_controller, &found]
        .map(|pieces| joined(pieces).map(|(at, length)| (at, u64::from(length))).collect());
    ([of_controller, of_lookahead], lists[0] == lists[1])
}

/// Addresses: mostly of pages, some of lists in pages.
fn address() -> impl Strategy<Value = u64> {
    let page = (1..64_u64).prop_map(|page| page << 12);
    let slot = (1..64_u64, 0..512_u64).prop_map(|(page, slot)| page << 12 | slot << 3);
    prop_oneof![60 => page, 10 => slot, 1 => Just(0), 1 => any::<u64>()]
}

/// Second halves of SGL descriptors: a length, and the type.
fn descriptor() -> impl Strategy<Value = u64> {
    let data = (prop::sample::select(&[0x00_u64, 0x00, 0x10][..]), 0..2000_u64);
    let list = (prop::sample::select(&[0x20_u64, 0x30][..]), 1..20_u64);
    let wrong = (prop::sample::select(&[0x01_u64, 0x40, 0x20][..]), 0..9_u64);
    let list = list.prop_map(|(kind, count)| (kind, count * 16));
    prop_oneof![20 => data, 4 => list, 1 => wrong].prop_map(|(kind, length)| kind << 56 | length)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn lookahead_sees_the_pieces_that_the_controller_sees(
        addresses in prop::collection::vec(address(), 7),
        descriptors in prop::collection::vec(descriptor(), 11),
        first in prop::sample::select(&[0x20_u64, 0x30][..]),
        count in 1_u64..40,
        sgl: bool,
        length in 1_u64..1 << 17,
        to_controller: bool,
    ) {
        let second = if sgl { first << 56 | (count * 16) } else { addresses[1] };
        let entry = SubmissionQueueEntry {
            flags: u8::from(sgl) << 6,
            data_pointer: [addresses[0], second],
            ..SubmissionQueueEntry::default()
        };
        // The word at an address is the same for every reader.
        let word_at = |at: u64| {
            let at = usize::try_from(at / 8).unwrap();
            if sgl && at % 2 == 1 { descriptors[at / 2 % 11] } else { addresses[at % 7] }
        };
        let list_at = |at: u64, length: u32| {
            (0..u64::from(length) / 8).flat_map(|index| word_at(at.wrapping_add(index * 8)).to_le_bytes()).collect()
        };
        let ([of_controller, of_lookahead], whole) = pieces(&entry, Transfer { length, to_controller }, list_at);
        // The part that lookahead leaves to the device comes last.
        let total: u64 = of_lookahead.iter().map(|(_, length)| length).sum();
        let mut left = total;
        let first = of_controller.iter().map_while(|(at, length)| {
            let length = left.min(*length);
            left -= length;
            (length > 0).then_some((*at, length))
        });
        assert!(first.eq(of_lookahead.iter().copied()), "{of_controller:x?} {of_lookahead:x?}");
        if whole {
            assert_eq!(of_controller, of_lookahead);
        }
    }

    #[test]
    fn nothing_that_passes_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzz::learn(&bytes);
    }
}
