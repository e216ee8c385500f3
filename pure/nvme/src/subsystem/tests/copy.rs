//! Copy, and the fused operation Compare and Write.

use proptest::prelude::*;

use super::*;

/// Sets source ranges in a format, and returns the command that copies them to `lba`.
fn copy(bench: &mut Bench, format: u32, lba: u64, ranges: &[(u64, u16)]) -> SubmissionQueueEntry {
    let length = if format == 0 { 32 } else { 40 };
    bench.host_data = vec![0; ranges.len() * length];
    for (place, (start, blocks)) in bench.host_data.chunks_mut(length).zip(ranges) {
        place[8..16].copy_from_slice(&start.to_le_bytes());
        place[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    }
    let count = u32::try_from(ranges.len()).unwrap() - 1;
    SubmissionQueueEntry { cdw12: count | format << 8, ..io(IoOpcode::Copy, 1, lba, 1) }
}

#[test]
fn ranges_are_copied_in_both_formats_and_within_limits() {
    let mut bench = Bench::new();
    let page = bench.identify(0x00, 1);
    assert_eq!((u16_at(&page, 74), u32_at(&page, 76), page[80]), (32_768, 32_768, 127));
    let controller = bench.identify(0x01, 0);
    assert_eq!((u16_at(&controller, 534), u16_at(&controller, 522), u16_at(&controller, 532)), (3, 1, 31));
    for lba in 0..8 {
        bench.write(lba, &[u8::try_from(lba + 1).unwrap(); 512]);
    }
    for format in [0, 1] {
        let command = copy(&mut bench, format, 100, &[(6, 2), (0, 1), (3, 2)]);
        assert_eq!(bench.succeeds(IO, command), 0);
        bench.succeeds(IO, io(IoOpcode::Read, 1, 100, 6));
        let firsts: Vec<_> = bench.pushed.chunks(512).map(|block| block[0]).collect();
        assert_eq!(firsts, [7, 8, 1, 4, 5, 0]);
        bench.succeeds(IO, io(IoOpcode::WriteZeroes, 1, 100, 6));
    }
    // The range is longer than a transfer.
    let command = copy(&mut bench, 0, 1024, &[(0, 1024)]);
    bench.succeeds(IO, command);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 1024 + 7, 1));
    assert_eq!(bench.pushed[0], 8);
    let command = copy(&mut bench, 0, 100, &[(0, 1), (2047, 2)]);
    let status = bench.run(IO, command);
    assert_eq!((status.status.code(), status.dw0), (StatusCode::LbaOutOfRange, 1));
    let command = copy(&mut bench, 0, 2047, &[(0, 2)]);
    bench.fails(IO, command, StatusCode::LbaOutOfRange);
    let command = copy(&mut bench, 0, 0, &[(0, 65_535)]);
    bench.fails(IO, command, StatusCode::CommandSizeLimitExceeded);
    let command = copy(&mut bench, 0, 0, &[(0, 1); 129]);
    bench.fails(IO, command, StatusCode::CommandSizeLimitExceeded);
    let command = copy(&mut bench, 0, 0, &[(0, 1)]);
    for (change, code) in [(2 << 8, StatusCode::InvalidField), (1 << 20, StatusCode::InvalidField)] {
        bench.fails(IO, SubmissionQueueEntry { cdw12: change, ..command }, code);
    }
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    bench.fails(IO, command, StatusCode::NamespaceWriteProtected);
}

#[test]
fn a_copy_reads_no_unreadable_block_and_reports_the_range_that_failed() {
    let mut bench = Bench::new();
    bench.succeeds(IO, io(IoOpcode::WriteUncorrectable, 1, 9, 1));
    let command = copy(&mut bench, 0, 100, &[(0, 1), (8, 2)]);
    let failed = bench.run(IO, command);
    assert_eq!((failed.status.code(), failed.dw0), (StatusCode::UnrecoveredReadError, 1));
    let command = copy(&mut bench, 0, 9, &[(0, 1), (1, 1)]);
    bench.succeeds(IO, command);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 9, 2));
    bench.media_stuck = true;
    let command = copy(&mut bench, 0, 100, &[(0, 1), (8, 2)]);
    let token = bench.send(IO, command);
    bench.media_stuck = false;
    bench.media_error = Some(MediaError::Read);
    let request = bench.stuck.remove(0);
    bench.on_media(request);
    bench.drain();
    let failed = bench.take(token);
    assert_eq!((failed.status.code(), failed.dw0), (StatusCode::UnrecoveredReadError, 0));
    let abort =
        |token: CommandToken| SubmissionQueueEntry { cdw10: 1 | token.0 << 16, ..admin(AdminOpcode::Abort) };
    bench.media_error = None;
    bench.media_stuck = true;
    let command = copy(&mut bench, 0, 100, &[(0, 1)]);
    let token = bench.send(IO, command);
    assert_eq!(bench.succeeds(ADMIN, abort(token)), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn copies_agree_with_an_array(
        steps in prop::collection::vec((0..2_u32, 200..300_u64, prop::collection::vec((0..190_u64, 1..9_u16), 1..8)), 1..12),
    ) {
        let mut bench = Bench::new();
        let mut model = vec![0_u8; 512 * 400];
        for lba in 0..200_u64 {
            let value = u8::try_from(lba).unwrap();
            bench.write(lba, &[value; 512]);
            model[usize::try_from(lba).unwrap() * 512..][..512].fill(value);
        }
        for (format, lba, ranges) in steps {
            let command = copy(&mut bench, format, lba, &ranges);
            bench.succeeds(IO, command);
            let mut to = usize::try_from(lba).unwrap() * 512;
            for (start, blocks) in ranges {
                let (from, length) = (usize::try_from(start).unwrap() * 512, usize::from(blocks) * 512);
                model.copy_within(from..from + length, to);
                to += length;
            }
        }
        bench.succeeds(IO, io(IoOpcode::Read, 1, 150, 250));
        prop_assert_eq!(&bench.pushed[..], &model[150 * 512..]);
    }
}

fn first(lba: u64, blocks: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, lba, blocks) }
}

fn second(lba: u64, blocks: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { flags: 2, ..io(IoOpcode::Write, 1, lba, blocks) }
}

#[test]
fn compare_and_write_writes_where_the_comparison_holds() {
    let mut bench = Bench::new();
    bench.host_data = vec![0; 512];
    let compare = bench.send(IO, first(5, 1));
    assert!(bench.completed.is_empty() && bench.subsystem.in_flight(bench.controller, IO) == 1);
    // Both commands get the same data: the block was all zeroes, and is again.
    let write = bench.send(IO, second(5, 1));
    assert!(bench.take(compare).status.is_success() && bench.take(write).status.is_success());
    bench.host_data = vec![1; 512];
    let compare = bench.send(IO, first(5, 1));
    let write = bench.send(IO, second(5, 1));
    assert_eq!(bench.take(compare).status.code(), StatusCode::CompareFailure);
    assert_eq!(bench.take(write).status.code(), StatusCode::AbortedFailedFused);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 5, 1));
    assert_eq!(bench.pushed, vec![0; 512]);
}

#[test]
fn nothing_comes_between_compare_and_write() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let before = bench.send(IO, io(IoOpcode::Write, 1, 5, 1));
    let compare = bench.send(IO, first(5, 1));
    let write = bench.send(IO, second(5, 1));
    let between = bench.send(QueueId(2), io(IoOpcode::Write, 1, 5, 1));
    let format = SubmissionQueueEntry { namespace: NamespaceId(2), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.send(ADMIN, format);
    // Requests are sent one by one: the earlier write, the comparison, the write, then the others.
    // The format erases, and flushes the erasure.
    bench.host_data = vec![0; 512];
    let mut order = Vec::new();
    while !bench.stuck.is_empty() {
        order.push((bench.stuck.len(), bench.completed.len()));
        let request = bench.stuck.remove(0);
        bench.media_stuck = false;
        let disk = &mut bench.disks[request.medium.0 as usize];
        let (subsystem, now) = (&mut bench.subsystem, bench.now);
        disk.submit(request, &mut |completion| subsystem.handle_input(now, Input::Media(completion)));
        bench.media_stuck = true;
        // Data of a later command is not even pulled before the pair has ended.
        if bench.completed.len() == 2 {
            bench.host_data = vec![9; 512];
        }
        bench.drain();
    }
    assert_eq!(order, [(1, 0), (1, 1), (1, 2), (1, 3), (1, 3), (1, 4)]);
    for token in [before, compare, write, between, format] {
        assert!(bench.take(token).status.is_success());
    }
    bench.media_stuck = false;
    bench.succeeds(IO, io(IoOpcode::Read, 1, 5, 1));
    assert_eq!(bench.pushed, vec![9; 512], "the command between the pair ran after it");
}

#[test]
fn halves_of_pairs_fail_as_the_specification_says() {
    let mut bench = Bench::new();
    bench.fails(IO, second(5, 1), StatusCode::AbortedMissingFused);
    // Another command is sent in between on this queue. A command on another queue does not matter.
    let alone = bench.send(IO, first(5, 1));
    assert!(bench.run(QueueId(2), io(IoOpcode::Read, 1, 0, 1)).status.is_success());
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.take(alone).status.code(), StatusCode::AbortedMissingFused);
    let alone = bench.send(IO, first(5, 1));
    let compare = bench.send(IO, first(5, 1));
    assert_eq!(bench.take(alone).status.code(), StatusCode::AbortedMissingFused);
    let write = bench.send(IO, second(6, 1));
    for token in [compare, write] {
        assert_eq!(bench.take(token).status.code(), StatusCode::InvalidField, "ranges differ");
    }
    let compare = bench.send(IO, first(2048, 1));
    let write = bench.send(IO, second(2048, 1));
    assert_eq!(bench.take(compare).status.code(), StatusCode::LbaOutOfRange);
    assert_eq!(bench.take(write).status.code(), StatusCode::AbortedFailedFused);
    let admin = SubmissionQueueEntry { flags: 1, ..identify(1, 0) };
    bench.fails(ADMIN, admin, StatusCode::InvalidField);
    // Abort ends the first command that waits. A reset and the deletion of the queue end whole
    // pairs.
    let compare = bench.send(IO, first(5, 1));
    let abort = SubmissionQueueEntry { cdw10: 1 | compare.0 << 16, ..super::admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort), 0);
    assert_eq!(bench.take(compare).status.code(), StatusCode::CommandAbortRequested);
    bench.media_stuck = true;
    bench.send(QueueId(2), io(IoOpcode::Write, 1, 0, 1));
    let compare = bench.send(IO, first(5, 1));
    let write = bench.send(IO, second(5, 1));
    assert_eq!(bench.subsystem.abort_queue(bench.now, bench.controller, IO), 0);
    bench.drain();
    assert_eq!(bench.take(compare).status.code(), StatusCode::AbortedSubmissionQueueDeletion);
    assert_eq!(bench.take(write).status.code(), StatusCode::AbortedFailedFused);
    bench.send(IO, first(5, 1));
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.media_stuck = false;
    bench.fails(IO, second(5, 1), StatusCode::AbortedMissingFused);
}

#[test]
fn a_pair_does_not_wait_for_data_that_others_have_asked_for() {
    let mut bench = Bench::new();
    // The data of a write may arrive at any time, and is written after the pair.
    let entry = io(IoOpcode::Write, 1, 5, 1);
    let early = CommandToken(900);
    let input = Input::Command { controller: bench.controller, token: early, queue: IO, entry };
    bench.subsystem.handle_input(bench.now, input);
    assert!(matches!(bench.subsystem.poll_output(), Some(Output::PullHostData { .. })));
    bench.media_stuck = true;
    let compare = bench.send(IO, first(5, 1));
    let write = bench.send(IO, second(5, 1));
    assert_eq!(bench.stuck.len(), 1);
    let data = Buffer::copy_from_slice(&[9; 512]);
    bench.subsystem.handle_input(bench.now, Input::HostData { token: early, data });
    bench.drain();
    assert_eq!(bench.stuck.len(), 1, "no request is sent between the two");
    bench.release_media();
    for token in [early, compare, write] {
        assert!(bench.take(token).status.is_success());
    }
    bench.succeeds(IO, io(IoOpcode::Read, 1, 5, 1));
    assert_eq!(bench.pushed, [9; 512]);
    // A failed pull while the pair is alone ends only its own command.
    let input = Input::Command { controller: bench.controller, token: early, queue: IO, entry };
    bench.subsystem.handle_input(bench.now, input);
    assert!(matches!(bench.subsystem.poll_output(), Some(Output::PullHostData { .. })));
    bench.host_data = [9; 512].to_vec();
    let compare = bench.send(IO, first(5, 1));
    let write = bench.send(IO, second(5, 1));
    let status = StatusCode::DataTransferError.into();
    bench.subsystem.handle_input(bench.now, Input::HostDataFailed { token: early, status });
    bench.drain();
    assert_eq!(bench.take(early).status.code(), StatusCode::DataTransferError);
    for token in [compare, write] {
        assert!(bench.take(token).status.is_success());
    }
}
