//! Namespaces with protection information, or with other metadata.

use super::*;
use crate::wire::{Guard, ProtectionInformation, Status};

const BLOCK: usize = 4096;
const ACT: u32 = 1 << 29;
const GUARD: u32 = 1 << 28;
const APPLICATION: u32 = 1 << 27;
const REFERENCE: u32 = 1 << 26;

fn protected(block: BlockSize) -> Bench {
    let mut config = Config::new("S1").with_namespace(MediumId(0), DISK);
    config.namespaces[0].block = block;
    Bench::with(config)
}

fn command(opcode: IoOpcode, lba: u64, blocks: u32, flags: u32) -> SubmissionQueueEntry {
    let mut entry = io(opcode, 1, lba, blocks);
    entry.cdw12 |= flags;
    entry.cdw14 = u32::try_from(lba).unwrap();
    entry
}

fn information(guard: Guard, data: &[u8], application_tag: u16, reference_tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; guard.length()];
    ProtectionInformation { guard: guard.of(data), application_tag, reference_tag }.emit(guard, &mut bytes);
    bytes
}

/// Changes one byte of the first disk.
fn flip(bench: &mut Bench, offset: u64) {
    let sector = offset / 512 * 512;
    let id = crate::media::IoId(0);
    let read = Operation::Read { offset: sector, length: 512 };
    let mut bytes = vec![0; 512];
    bench.disks[0].submit(Request { id, medium: MediumId(0), operation: read }, &mut |completion| {
        if let Completion::Data { offset, data, .. } = completion {
            bytes[offset as usize..][..data.len()].copy_from_slice(&data);
        }
    });
    bytes[(offset % 512) as usize] ^= 0x10;
    let write = Operation::Write { offset: sector, data: Buffer::from(bytes), durable: false };
    bench.disks[0].submit(Request { id, medium: MediumId(0), operation: write }, &mut |_| ());
}

#[test]
fn the_controller_generates_and_strips() {
    for (block, guard) in [(BlockSize::Guarded16, Guard::Bits16), (BlockSize::Guarded64, Guard::Bits64)] {
        let mut bench = protected(block);
        let data: Vec<u8> = (0..=250).cycle().take(2 * BLOCK).collect();
        bench.host_data = data.clone();
        bench.succeeds(IO, command(IoOpcode::Write, 5, 2, ACT));
        bench.succeeds(IO, command(IoOpcode::Read, 5, 2, ACT | GUARD | REFERENCE));
        assert!(bench.pushed == data);
        // Without PRACT the information follows the data.
        bench.succeeds(IO, command(IoOpcode::Read, 5, 2, GUARD | REFERENCE));
        assert!(bench.pushed[..2 * BLOCK] == data);
        let second = information(guard, &data[BLOCK..], 0, 6);
        assert_eq!(bench.pushed[2 * BLOCK + guard.length()..], second);
        bench.succeeds(IO, command(IoOpcode::Verify, 5, 2, GUARD | REFERENCE));
        bench.host_data = data;
        bench.succeeds(IO, command(IoOpcode::Compare, 5, 2, ACT | GUARD | REFERENCE));
        bench.host_data[9] ^= 1;
        bench.fails(IO, command(IoOpcode::Compare, 5, 2, ACT), StatusCode::CompareFailure);
    }
}

#[test]
fn a_flipped_bit_ends_as_an_error() {
    for block in [BlockSize::Guarded16, BlockSize::Guarded64] {
        for place in [0, 4095, 4096] {
            let mut bench = protected(block);
            bench.host_data = vec![0x5a; BLOCK];
            bench.succeeds(IO, command(IoOpcode::Write, 1, 1, ACT));
            flip(&mut bench, 4608 + place);
            let flags = GUARD | REFERENCE;
            for read in [
                command(IoOpcode::Read, 1, 1, ACT | flags),
                command(IoOpcode::Read, 1, 1, flags),
                command(IoOpcode::Verify, 1, 1, flags),
            ] {
                bench.fails(IO, read, StatusCode::GuardCheckError);
                assert!(bench.pushed.is_empty());
            }
            assert_eq!(bench.subsystem.controllers.of(bench.controller).errors.iter().next().unwrap().lba, 1);
            // A host that requests no check gets the stored bytes.
            bench.succeeds(IO, command(IoOpcode::Read, 1, 1, ACT));
        }
    }
}

#[test]
fn data_of_the_host_are_checked() {
    let mut bench = protected(BlockSize::Guarded16);
    let data = vec![3; BLOCK];
    let all = GUARD | APPLICATION | REFERENCE;
    let with = |info: Vec<u8>| [data.clone(), info].concat();
    let tagged = |opcode, flags, tag: u32| SubmissionQueueEntry {
        cdw15: 0xffff_0000 | tag,
        ..command(opcode, 4, 1, flags)
    };
    let good = information(Guard::Bits16, &data, 0x1234, 4);
    bench.host_data = with(information(Guard::Bits16, &[4; BLOCK], 0x1234, 4));
    bench.fails(IO, tagged(IoOpcode::Write, all, 0x1234), StatusCode::GuardCheckError);
    bench.host_data = with(information(Guard::Bits16, &data, 0x1234, 5));
    bench.fails(IO, tagged(IoOpcode::Write, all, 0x1234), StatusCode::ReferenceTagCheckError);
    bench.host_data = with(good.clone());
    bench.fails(IO, tagged(IoOpcode::Write, all, 0x1235), StatusCode::ApplicationTagCheckError);
    let mut wrong = command(IoOpcode::Write, 4, 1, all);
    wrong.cdw14 = 5;
    bench.fails(IO, wrong, StatusCode::InvalidProtectionInformation);
    let unaligned = SubmissionQueueEntry { metadata_pointer: 2, ..command(IoOpcode::Read, 4, 1, 0) };
    bench.fails(IO, unaligned, StatusCode::InvalidField);
    let segment = SubmissionQueueEntry { flags: 0b10 << 6, ..command(IoOpcode::Read, 4, 1, 0) };
    bench.fails(IO, segment, StatusCode::InvalidField);
    bench.host_data = with(vec![0xff; 8]);
    bench.fails(IO, tagged(IoOpcode::Write, all, 0), StatusCode::InvalidProtectionInformation);
    bench.host_data = with(good.clone());
    bench.succeeds(IO, tagged(IoOpcode::Write, all, 0x1234));
    bench.succeeds(IO, tagged(IoOpcode::Read, all, 0x1234));
    assert_eq!(bench.pushed[BLOCK..], good);
    bench.fails(IO, tagged(IoOpcode::Read, all, 0x1230), StatusCode::ApplicationTagCheckError);
    let mut masked = tagged(IoOpcode::Read, all, 0x1230);
    masked.cdw15 &= 0xfff0_ffff;
    bench.succeeds(IO, masked);
    bench.fails(IO, command(IoOpcode::Verify, 4, 1, ACT), StatusCode::InvalidField);
    bench.fails(IO, command(IoOpcode::Copy, 4, 1, 0), StatusCode::CommandSizeLimitExceeded);
}

#[test]
fn blocks_without_contents_have_information_of_ones() {
    let mut bench = protected(BlockSize::Guarded16);
    let check = GUARD | REFERENCE;
    for _ in 0..2 {
        bench.succeeds(IO, command(IoOpcode::Read, 3, 1, check));
        assert!(bench.pushed[..BLOCK].iter().all(|byte| *byte == 0));
        assert_eq!(bench.pushed[BLOCK..], [0xff; 8]);
        bench.host_data = vec![1; BLOCK];
        bench.succeeds(IO, command(IoOpcode::Write, 3, 1, ACT));
        bench.succeeds(IO, command(IoOpcode::WriteZeroes, 3, 1, 0));
    }
    // A write whose information never reached the medium is not valid data.
    flip(&mut bench, 3 * 4608);
    bench.fails(IO, command(IoOpcode::Read, 3, 1, check), StatusCode::GuardCheckError);
}

#[test]
fn data_that_land_where_information_belongs_do_not_pass_for_a_wish_not_to_be_checked() {
    let mut bench = protected(BlockSize::Guarded64);
    bench.host_data = vec![7; BLOCK];
    bench.succeeds(IO, command(IoOpcode::Write, 2, 1, ACT));
    // Zeroes are stored where an application tag is kept: it reads as FFFFh.
    let mut sector = vec![0x5a; 512];
    sector[8..10].fill(0);
    let operation = Operation::Write { offset: 2 * 4608 + 4096, data: Buffer::from(sector), durable: false };
    let request = Request { id: crate::media::IoId(0), medium: MediumId(0), operation };
    bench.disks[0].submit(request, &mut |_| ());
    for flags in [ACT | GUARD, REFERENCE] {
        bench.fails(IO, command(IoOpcode::Read, 2, 1, flags), StatusCode::GuardCheckError);
    }
    bench.succeeds(IO, command(IoOpcode::Read, 2, 1, ACT));
}

#[test]
fn a_format_adds_protection() {
    let mut bench = protected(BlockSize::Bytes512);
    let format =
        |cdw10| SubmissionQueueEntry { cdw10, namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    for wrong in [
        4,
        1 << 5,
        1 | 1 << 5,
        2 | 2 << 5,
        2 | 3 << 5,
        2 | 1 << 4,
        2 | 1 << 8,
        2 | 1 << 4 | 1 << 5,
        2 | 1 << 5 | 1 << 8,
    ] {
        bench.fails(ADMIN, format(wrong), StatusCode::InvalidFormat);
    }
    bench.succeeds(ADMIN, format(3 | 1 << 5));
    let page = bench.identify(0, 1);
    assert_eq!(u64_at(&page, 0), DISK / 4608);
    // NLBAF, FLBAS, MC, DPC, DPS; then MS and LBADS of formats 2 and 3.
    assert_eq!(page[25..30], [3, 3, 0b10, 0b1_0001, 1]);
    assert_eq!((u16_at(&page, 136), page[138], u16_at(&page, 140), page[142]), (8, 12, 16, 12));
    let page = bench.identify(5, 1);
    assert_eq!((u32_at(&page, 20), u32_at(&page, 24)), (0, 2 << 7));
    bench.fails(IO, command(IoOpcode::Read, DISK / 4608, 1, ACT), StatusCode::LbaOutOfRange);
}

#[test]
fn over_fabrics_the_controller_must_act() {
    let mut bench = protected(BlockSize::Guarded16);
    bench.connect(7);
    bench.fails(IO, command(IoOpcode::Read, 0, 1, GUARD), StatusCode::InvalidField);
    bench.host_data = vec![8; BLOCK];
    bench.succeeds(IO, command(IoOpcode::Write, 0, 1, ACT));
    bench.succeeds(IO, command(IoOpcode::Read, 0, 1, ACT | GUARD | REFERENCE));
    assert_eq!(bench.pushed, [8; BLOCK]);
}

#[test]
fn compare_and_write_is_checked() {
    let mut bench = protected(BlockSize::Guarded16);
    bench.host_data = vec![0; BLOCK];
    let fused =
        |opcode, part| SubmissionQueueEntry { flags: part, ..command(opcode, 2, 1, ACT | GUARD | REFERENCE) };
    let first = bench.send(IO, fused(IoOpcode::Compare, 1));
    let second = bench.send(IO, fused(IoOpcode::Write, 2));
    assert_eq!((bench.take(first).status, bench.take(second).status), (Status::SUCCESS, Status::SUCCESS));
    flip(&mut bench, 2 * 4608 + 9);
    let first = bench.send(IO, fused(IoOpcode::Compare, 1));
    let second = bench.send(IO, fused(IoOpcode::Write, 2));
    assert_eq!(bench.take(first).status.code(), StatusCode::GuardCheckError);
    assert_eq!(bench.take(second).status.code(), StatusCode::AbortedFailedFused);
}

#[test]
fn metadata_without_protection_are_the_hosts_own() {
    for (block, bytes) in [(BlockSize::Tagged8, 8), (BlockSize::Tagged16, 16)] {
        let mut bench = protected(block);
        let data: Vec<u8> = (0..=250).cycle().take(2 * BLOCK).collect();
        let with = |metadata: &[u8]| [&data[..], metadata].concat();
        let every: Vec<u8> = (0..2 * bytes).collect();
        // Ones and zeros are metadata like any others, and PRINFO has no effect.
        for metadata in [every, vec![0xff; 2 * usize::from(bytes)], vec![0; 2 * usize::from(bytes)]] {
            for flags in [0, ACT | GUARD | APPLICATION | REFERENCE] {
                bench.host_data = with(&metadata);
                bench.succeeds(IO, command(IoOpcode::Write, 5, 2, flags));
                bench.succeeds(IO, SubmissionQueueEntry { cdw14: 9, ..command(IoOpcode::Read, 5, 2, flags) });
                assert!(bench.pushed == with(&metadata));
                bench.host_data = with(&metadata);
                bench.succeeds(IO, command(IoOpcode::Compare, 5, 2, flags));
                *bench.host_data.last_mut().unwrap() ^= 1;
                bench.fails(IO, command(IoOpcode::Compare, 5, 2, flags), StatusCode::CompareFailure);
                bench.succeeds(IO, command(IoOpcode::Verify, 5, 2, flags));
            }
        }
        bench.succeeds(IO, command(IoOpcode::WriteZeroes, 5, 1, 0));
        bench.succeeds(IO, command(IoOpcode::Read, 5, 1, 0));
        assert!(bench.pushed == vec![0; BLOCK + usize::from(bytes)]);
        bench.fails(IO, command(IoOpcode::Copy, 4, 1, 0), StatusCode::CommandSizeLimitExceeded);
    }
}

#[test]
fn a_torn_block_with_metadata_ends_as_an_error() {
    for place in [0, 4095, 4096, 4103, 4096 + 16] {
        let mut bench = protected(BlockSize::Tagged8);
        bench.host_data = vec![0x5a; BLOCK + 8];
        bench.succeeds(IO, command(IoOpcode::Write, 1, 1, 0));
        // The block before was never written, and the block behind is whole.
        bench.succeeds(IO, command(IoOpcode::Write, 2, 1, 0));
        flip(&mut bench, 4608 + place);
        for opcode in [IoOpcode::Read, IoOpcode::Verify, IoOpcode::Compare] {
            bench.fails(IO, command(opcode, 0, 3, 0), StatusCode::UnrecoveredReadError);
            assert_eq!(bench.subsystem.controllers.of(bench.controller).errors.iter().next().unwrap().lba, 1);
        }
        bench.succeeds(IO, command(IoOpcode::Read, 2, 1, 0));
    }
    // Data whose metadata never reached the medium are not a valid block.
    let mut bench = protected(BlockSize::Tagged8);
    flip(&mut bench, 4608);
    bench.fails(IO, command(IoOpcode::Read, 1, 1, 0), StatusCode::UnrecoveredReadError);
}

#[test]
fn a_format_adds_metadata_where_hosts_can_move_them() {
    let mut bench = protected(BlockSize::Bytes512);
    let format =
        |cdw10| SubmissionQueueEntry { cdw10, namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    for (index, bytes) in [(2, 8), (3, 16)] {
        bench.succeeds(ADMIN, format(index));
        let page = bench.identify(0, 1);
        assert_eq!(u64_at(&page, 0), DISK / 4608);
        // NLBAF, FLBAS, MC, DPC, DPS.
        assert_eq!(page[25..30], [3, u8::try_from(index).unwrap(), 0b10, 0b1_0001, 0]);
        bench.succeeds(IO, command(IoOpcode::Read, 0, 1, 0));
        assert_eq!(bench.pushed, vec![0; BLOCK + bytes]);
        bench.succeeds(ADMIN, format(index | 1 << 5));
        assert_eq!(bench.identify(0, 1)[29], 1);
    }
    bench.succeeds(ADMIN, format(2));
    // Over fabrics, such metadata have no separate buffer.
    bench.connect(7);
    bench.fails(IO, command(IoOpcode::Read, 0, 1, ACT), StatusCode::InvalidField);
    bench.fails(ADMIN, format(2), StatusCode::InvalidFormat);
    bench.succeeds(ADMIN, format(2 | 1 << 5));
}
