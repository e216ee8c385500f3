//! Reads and writes, and their possible failures.

use proptest::prelude::*;

use super::*;
use crate::wire::log::ErrorEntry;

#[test]
fn reads_and_writes_keep_to_the_namespace_and_the_transfer_limit() {
    let mut bench = Bench::new();
    assert!(bench.write(2047, &[1; 512]).status.is_success());
    bench.fails(IO, io(IoOpcode::Read, 1, 2047, 2), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Write, 1, u64::MAX, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::WriteZeroes, 2, 1024, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Verify, 2, 1024, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 257), StatusCode::InvalidField);
    bench.fails(IO, io(IoOpcode::Read, 3, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    bench.fails(IO, io(IoOpcode::Read, 0, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    let fused = SubmissionQueueEntry { flags: 3, ..io(IoOpcode::Compare, 1, 0, 1) };
    bench.fails(IO, fused, StatusCode::InvalidField);
    assert_eq!(bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 256)), 0);
    assert_eq!(bench.pushed.len(), 128 << 10);
    bench.succeeds(IO, io(IoOpcode::Verify, 1, 0, 2048));
}

#[test]
fn media_errors_become_the_statuses_of_the_specification() {
    let mut bench = Bench::new();
    let cases = [
        (MediaError::Read, IoOpcode::Read, StatusCode::UnrecoveredReadError),
        (MediaError::Read, IoOpcode::Compare, StatusCode::UnrecoveredReadError),
        (MediaError::Read, IoOpcode::Verify, StatusCode::UnrecoveredReadError),
        (MediaError::Write, IoOpcode::Write, StatusCode::WriteFault),
        (MediaError::Write, IoOpcode::Flush, StatusCode::WriteFault),
        (MediaError::NoSpace, IoOpcode::Write, StatusCode::CapacityExceeded),
        (MediaError::ReadOnly, IoOpcode::WriteZeroes, StatusCode::NamespaceWriteProtected),
        (MediaError::OutOfRange, IoOpcode::Read, StatusCode::LbaOutOfRange),
    ];
    for (error, opcode, code) in cases {
        bench.media_error = Some(error);
        bench.fails(IO, io(opcode, 1, 9, 1), code);
    }
    assert_eq!((bench.subsystem.counters().media_errors, bench.subsystem.counters().space_errors), (5, 1));
    bench.media_error = None;
    let newest = bench.log(LogPage::ErrorInformation, 64);
    let newest = ErrorEntry::parse(newest.first_chunk().unwrap());
    assert_eq!((newest.lba, newest.namespace, newest.error_count), (9, 1, 8));
}

#[test]
fn a_full_medium_is_a_warning_for_as_long_as_writes_find_no_space() {
    let mut bench = Bench::new();
    let warns = |bench: &mut Bench| {
        let log = bench.log(LogPage::Smart, 512);
        (log[0] & 1, log[3])
    };
    assert_eq!(warns(&mut bench), (0, 100));
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1));
    let heard = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.media_error = Some(MediaError::NoSpace);
    for _ in 0..3 {
        bench.fails(IO, io(IoOpcode::Write, 1, 9, 1), StatusCode::CapacityExceeded);
    }
    bench.media_error = None;
    // SMART / Health, spare below the threshold, the SMART log: reported once.
    assert_eq!(bench.take(heard).dw0, 0x0002_0201);
    assert_eq!(warns(&mut bench), (1, 0));
    assert_eq!(bench.subsystem.counters().space_errors, 3);
    bench.now = bench.now + engine::Nanos::from_secs(61);
    assert_eq!(warns(&mut bench), (0, 100));
}

#[test]
fn a_read_only_namespace_refuses_every_write() {
    let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
    config.namespaces[0].read_only = true;
    let mut bench = Bench::with(config);
    assert_eq!(bench.identify(0, 1)[99], 1);
    for opcode in [IoOpcode::Write, IoOpcode::WriteZeroes] {
        bench.fails(IO, io(opcode, 1, 0, 1), StatusCode::NamespaceWriteProtected);
    }
    let deallocate = SubmissionQueueEntry { cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    bench.fails(IO, SubmissionQueueEntry { cdw10: 0, ..deallocate }, StatusCode::NamespaceWriteProtected);
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    bench.fails(ADMIN, format, StatusCode::NamespaceWriteProtected);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.succeeds(IO, io(IoOpcode::Flush, u32::MAX, 0, 1));
}

#[test]
fn compare_and_dataset_management_read_host_data() {
    let mut bench = Bench::new();
    bench.write(8, &[3; 8192]);
    bench.succeeds(IO, io(IoOpcode::Compare, 1, 8, 16));
    bench.host_data[8191] = 4;
    bench.fails(IO, io(IoOpcode::Compare, 1, 8, 16), StatusCode::CompareFailure);
    let range = |blocks: u32, lba: u64| [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
    let manage = SubmissionQueueEntry { cdw10: 2, cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    bench.host_data = [range(1, 8), range(0, 0), range(2, 10)].concat();
    bench.succeeds(IO, manage);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 8, 4));
    let firsts: Vec<_> = bench.pushed.chunks(512).map(|block| block[0]).collect();
    assert_eq!(firsts, [0, 3, 0, 0]);
    bench.host_data = [range(1, 9), range(1, 2048), range(0, 0)].concat();
    bench.fails(IO, manage, StatusCode::LbaOutOfRange);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 9, 1));
    assert_eq!(bench.pushed[0], 3, "an invalid range prevents every deallocation");
}

#[test]
fn answers_of_media_after_an_abort_or_a_reset_are_ignored() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let read = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let write = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    let abort =
        |token: CommandToken| SubmissionQueueEntry { cdw10: 1 | token.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort(read)), 0);
    assert_eq!(bench.succeeds(ADMIN, abort(write)), 1, "a write that has begun is not aborted");
    assert_eq!(bench.take(read).status.code(), StatusCode::CommandAbortRequested);
    assert_eq!(bench.subsystem.abort_queue(bench.now, bench.controller, IO), 1);
    bench.subsystem.reset(bench.now, bench.controller);
    assert_eq!(
        (bench.subsystem.all_media_outstanding(), bench.subsystem.in_flight(bench.controller, IO)),
        (2, 0)
    );
    // The same tokens are used again before the old answers arrive.
    bench.next = 0;
    bench.media_stuck = false;
    let stuck: Vec<_> = bench.stuck.drain(..).collect();
    let waiting = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.media_stuck = true;
    let again = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    for request in stuck {
        let data = Buffer::zeroed(512);
        let piece = Completion::Data { id: request.id, offset: 0, data };
        bench.subsystem.handle_input(bench.now, Input::Media(piece));
        let done = Completion::Done { id: request.id, result: Ok(()) };
        bench.subsystem.handle_input(bench.now, Input::Media(done));
    }
    bench.drain();
    assert!(bench.completed.is_empty(), "{waiting:?} and {again:?} still wait");
    assert_eq!(bench.subsystem.all_media_outstanding(), 1);
}

#[test]
fn writes_are_durable_when_they_must_be_and_a_shutdown_flushes() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let durable = |bench: &mut Bench, entry| {
        bench.send(IO, entry);
        matches!(bench.stuck.pop().unwrap().operation, Operation::Write { durable: true, .. })
    };
    let write = io(IoOpcode::Write, 1, 0, 1);
    assert!(!durable(&mut bench, write));
    assert!(durable(&mut bench, SubmissionQueueEntry { cdw12: 1 << 30, ..write }));
    bench.succeeds(ADMIN, set(FeatureId::VolatileWriteCache, 0));
    assert!(durable(&mut bench, write));
    bench.media_stuck = false;
    bench.subsystem.shut_down(bench.now, bench.controller);
    bench.drain();
    assert_eq!(bench.notified, [Notification::ShutDown { controller: ControllerKey(0), flushed: true }]);
    bench.media_error = Some(MediaError::Write);
    bench.subsystem.shut_down(bench.now, bench.controller);
    bench.drain();
    assert_eq!(bench.notified[1], Notification::ShutDown { controller: ControllerKey(0), flushed: false });
    bench.fails(IO, io(IoOpcode::Flush, u32::MAX, 0, 1), StatusCode::WriteFault);
}

#[test]
fn host_data_that_never_comes_ends_the_command() {
    let mut bench = Bench::new();
    let entry = io(IoOpcode::Write, 1, 0, 1);
    let token = CommandToken(1000);
    bench
        .subsystem
        .handle_input(bench.now, Input::Command { controller: bench.controller, token, queue: IO, entry });
    assert!(matches!(bench.subsystem.poll_output(), Some(Output::PullHostData { length: 512, .. })));
    let status = StatusCode::DataTransferError.into();
    bench.subsystem.handle_input(bench.now, Input::HostDataFailed { token, status });
    bench.subsystem.handle_input(bench.now, Input::HostDataFailed { token, status });
    bench.drain();
    assert_eq!(bench.take(token).status, status.with_more());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_commands_agree_with_an_array(
        large in any::<bool>(),
        steps in prop::collection::vec((0..7_u8, 0..300_u64, 1..20_u32, 1..=255_u8), 1..60),
    ) {
        let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
        let block = if large { BlockSize::Bytes4096 } else { BlockSize::Bytes512 };
        config.namespaces[0].block = block;
        let mut bench = Bench::with(config);
        let mut model = vec![0_u8; usize::try_from(DISK).unwrap()];
        let byte = |lba: u64| usize::try_from(lba << block.shift()).unwrap();
        for (kind, lba, blocks, value) in steps {
            let range = byte(lba)..byte(lba + u64::from(blocks));
            let valid = range.end <= model.len();
            bench.host_data = vec![value; range.len().min(128 << 10)];
            let mut expected = if valid { None } else { Some(StatusCode::LbaOutOfRange) };
            let mut entry = io(IoOpcode::Read, 1, lba, blocks);
            match kind {
                0 | 1 => entry.opcode = IoOpcode::Write.into(),
                2 => entry.opcode = IoOpcode::WriteZeroes.into(),
                3 => {
                    entry.opcode = IoOpcode::Compare.into();
                    if valid && model[range.clone()].iter().any(|byte| *byte != value) {
                        expected = Some(StatusCode::CompareFailure);
                    }
                }
                4 => {
                    bench.host_data = [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
                    entry = SubmissionQueueEntry { cdw10: 0, cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
                }
                5 => entry.opcode = IoOpcode::Verify.into(),
                _ => (),
            }
            let status = bench.run(IO, entry).status;
            prop_assert_eq!((!status.is_success()).then(|| status.code()), expected);
            if valid {
                match kind {
                    0 | 1 => model[range].fill(value),
                    2 | 4 => model[range].fill(0),
                    6 => prop_assert_eq!(&bench.pushed[..], &model[range]),
                    _ => (),
                }
            }
        }
    }
}

#[test]
fn uncorrectable_blocks_fail_to_be_read_until_they_are_written() {
    let mut bench = Bench::new();
    bench.write(0, &[5; 8192]);
    bench.succeeds(IO, io(IoOpcode::WriteUncorrectable, 1, 4, 8));
    for opcode in [IoOpcode::Read, IoOpcode::Compare, IoOpcode::Verify] {
        bench.fails(IO, io(opcode, 1, 0, 16), StatusCode::UnrecoveredReadError);
        assert_eq!(bench.subsystem.controllers.of(bench.controller).errors.iter().next().unwrap().lba, 4);
        bench.succeeds(IO, io(opcode, 1, 12, 4));
    }
    assert_eq!(bench.subsystem.counters().media_errors, 0, "the host requested it");
    bench.write(4, &[6; 512]);
    bench.succeeds(IO, io(IoOpcode::WriteZeroes, 1, 5, 1));
    bench.host_data = [&[0; 4][..], &1_u32.to_le_bytes(), &6_u64.to_le_bytes()].concat();
    bench.succeeds(
        IO,
        SubmissionQueueEntry { cdw10: 0, cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) },
    );
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 7));
    bench.fails(IO, io(IoOpcode::Read, 1, 7, 1), StatusCode::UnrecoveredReadError);
    bench.fails(IO, io(IoOpcode::WriteUncorrectable, 1, 2048, 1), StatusCode::LbaOutOfRange);
    // The blocks stay unreadable through a reset and a power cycle.
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.fails(IO, io(IoOpcode::Read, 1, 11, 1), StatusCode::UnrecoveredReadError);
    let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
    for notification in &bench.notified {
        if let Notification::BlocksUnreadable(run) = notification {
            config.unreadable_blocks.push(*run);
        }
    }
    let readable = bench.notified.iter().filter(|one| matches!(one, Notification::BlocksReadable(_)));
    assert_eq!(readable.count(), 3);
    let mut again = Bench::with(config);
    again.fails(IO, io(IoOpcode::Read, 1, 11, 1), StatusCode::UnrecoveredReadError);
    // A format clears the marks. The number of marked blocks has a limit.
    again
        .succeeds(ADMIN, SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) });
    again.succeeds(IO, io(IoOpcode::Read, 1, 11, 1));
    let mut large = Bench::with(Config::new("S").with_namespace(MediumId(0), 64 << 20));
    large.succeeds(IO, io(IoOpcode::WriteUncorrectable, 1, 0, 65_536));
    large.fails(IO, io(IoOpcode::WriteUncorrectable, 1, 65_536, 1), StatusCode::WriteFault);
}
