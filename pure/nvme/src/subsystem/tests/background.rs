//! Self-tests and sanitize operations, which run in the background.

use super::*;
use crate::wire::log::{SanitizeLog, SelfTestLog};

const SELF_TEST: LogPage = LogPage::DeviceSelfTest;

fn self_test(code: u32, namespace: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        cdw10: code,
        namespace: NamespaceId(namespace),
        ..admin(AdminOpcode::DeviceSelfTest)
    }
}

fn sanitize(cdw10: u32, pattern: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10, cdw11: pattern, ..admin(AdminOpcode::Sanitize) }
}

const BLOCK_ERASE: u32 = 2;
const OVERWRITE: u32 = 3;

fn status(bench: &mut Bench) -> SanitizeLog {
    SanitizeLog::parse(bench.log(LogPage::SanitizeStatus, 512).first_chunk().unwrap())
}

#[test]
fn a_self_test_reads_media_and_leaves_a_result() {
    let mut bench = Bench::new();
    let page = bench.log(SELF_TEST, 564);
    assert_eq!((page[0], page[4], page[4 + 28 * 19]), (0, 0xf, 0xf));
    let controller = bench.identify(0x01, 0);
    assert_eq!((u16_at(&controller, 316), controller[318]), (1, 1));
    for (code, namespace, bytes) in [(1, 0, 0), (1, 1, DISK), (2, u32::MAX, DISK + DISK / 2)] {
        bench.succeeds(ADMIN, self_test(code, namespace));
        bench.fails(ADMIN, self_test(1, 0), StatusCode::DeviceSelfTestInProgress);
        let mut halves = 0;
        while bench.step() {
            let page = bench.log(SELF_TEST, 564);
            if page[0] != 0 {
                assert_eq!(u32::from(page[0]), code);
                halves += u64::from(page[1] >= 50);
            }
        }
        assert_eq!(bench.log(SELF_TEST, 564)[4..8], [u8::try_from(code << 4).unwrap(), 0, 0, 0]);
        assert!(bytes == 0 || halves > 0, "its progress was seen");
    }
    let log = SelfTestLog::parse(bench.log(SELF_TEST, 564).first_chunk().unwrap());
    assert_eq!(log.results.map(|result| result.status)[..4], [0x20, 0x10, 0x10, 0x0f]);
    for (code, namespace, failure) in [
        (0, 0, StatusCode::InvalidField),
        (3, 0, StatusCode::InvalidField),
        (1, 3, StatusCode::InvalidNamespaceOrFormat),
    ] {
        bench.fails(ADMIN, self_test(code, namespace), failure);
    }
}

#[test]
fn a_self_test_reports_the_block_that_failed() {
    let mut bench = Bench::new();
    bench.succeeds(ADMIN, self_test(2, 2));
    bench.step();
    bench.step();
    bench.step();
    bench.media_error = Some(MediaError::Read);
    bench.now = bench.now + engine::Nanos::from_secs(7200);
    bench.settle();
    let page = bench.log(SELF_TEST, 564);
    assert_eq!((page[0], page[4], page[5], page[6]), (0, 0x27, 3, 0b1111));
    // POH, NSID, failing LBA after the first 256 KiB, SCT 2 and SC 81h.
    assert_eq!((u32_at(&page, 16), u64_at(&page, 20), &page[28..30]), (2, 512, &[2, 0x81][..]));
    assert_eq!(bench.subsystem.counters().media_errors, 1);
}

#[test]
fn self_tests_are_ended_by_format_sanitize_and_abort() {
    let mut bench = Bench::new();
    let newest = |bench: &mut Bench| bench.log(SELF_TEST, 564)[4];
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    bench.succeeds(ADMIN, self_test(0xf, 0));
    assert_eq!(newest(&mut bench), 0xf, "there was no operation to abort");
    bench.succeeds(ADMIN, self_test(1, 1));
    bench.succeeds(ADMIN, self_test(0xf, 0));
    assert_eq!(newest(&mut bench), 0x11);
    bench.succeeds(ADMIN, self_test(1, 1));
    bench.succeeds(ADMIN, format);
    assert_eq!(newest(&mut bench), 0x14);
    bench.succeeds(ADMIN, self_test(2, 2));
    bench.succeeds(ADMIN, format);
    assert_eq!(bench.log(SELF_TEST, 564)[0], 2, "another namespace's format");
    bench.host_data = vec![1, 0, 1, 0];
    bench.succeeds(ADMIN, detach(NamespaceId(2)));
    assert_eq!(newest(&mut bench), 0x23);
    bench.succeeds(ADMIN, self_test(1, u32::MAX));
    bench.succeeds(ADMIN, sanitize(BLOCK_ERASE, 0));
    bench.settle();
    assert_eq!(newest(&mut bench), 0x19);
    // A reset ends a short self-test, even during a read. An extended one continues, even at the
    // next start.
    bench.succeeds(ADMIN, self_test(1, 1));
    bench.media_stuck = true;
    bench.settle();
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    assert_eq!((bench.stuck.len(), bench.subsystem.all_media_outstanding()), (1, 0));
    let late = bench.stuck.remove(0);
    bench.media_stuck = false;
    bench.on_media(late);
    assert_eq!(newest(&mut bench), 0x12);
    bench.succeeds(ADMIN, self_test(2, 1));
    bench.step();
    bench.subsystem.reset(bench.now, bench.controller);
    bench.settle();
    assert_eq!(newest(&mut bench), 0x20);
    let mut config = bench.subsystem.config().clone();
    config.extended_self_test = Some(NamespaceId(1));
    config.self_test_results = vec![crate::wire::log::SelfTestResult { status: 0x11, ..Default::default() }];
    let mut bench = Bench::with(config);
    assert_eq!(bench.log(SELF_TEST, 564)[0], 2);
    bench.settle();
    assert_eq!([4, 32, 60].map(|at| bench.log(SELF_TEST, 564)[at]), [0x20, 0x11, 0xf]);
}

#[test]
fn a_sanitized_device_reads_as_zeroes_and_says_so() {
    let mut bench =
        Bench::with(Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), DISK));
    assert_eq!(u32_at(&bench.identify(0x01, 0), 328), 1 << 30 | 0b110);
    let page = bench.log(LogPage::SanitizeStatus, 512);
    assert_eq!((u16_at(&page, 0), u16_at(&page, 2), u32_at(&page, 12)), (0xffff, 0, 1));
    bench.write(8, &[7; 4096]);
    bench.succeeds(IO, io(IoOpcode::WriteUncorrectable, 1, 0, 1));
    // A sanitize operation also erases extents of the pool that were freed.
    let junk = Request {
        id: crate::media::IoId(0),
        medium: MediumId(1),
        operation: Operation::Write { offset: 0, data: Buffer::copy_from_slice(&[9; 4096]), durable: false },
    };
    bench.disks[1].submit(junk, &mut |_| ());
    let event = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.succeeds(ADMIN, sanitize(BLOCK_ERASE, 0));
    assert_eq!(status(&mut bench).status, 2);
    bench.settle();
    assert_eq!(bench.take(event).dw0, 0x0081_0106);
    let log = status(&mut bench);
    assert_eq!((log.progress, log.status, log.command_dword_10), (0xffff, 1 | 1 << 8, BLOCK_ERASE));
    assert!(bench.disks.iter().all(|disk| disk.resident_bytes() == 0));
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 16));
    assert_eq!(bench.pushed, vec![0; 8192]);
    bench.write(0, &[1; 512]);
    assert_eq!(status(&mut bench).status, 1, "data was written since");
    let record = SanitizeRecord {
        status: SanitizeStatus::Completed,
        cdw10: BLOCK_ERASE,
        cdw11: 0,
        passes: 0,
        data_erased: false,
    };
    assert_eq!(bench.notified.last(), Some(&Notification::SanitizeChanged(record)));
}

#[test]
fn an_overwrite_leaves_its_pattern_when_nothing_is_to_be_deallocated() {
    let mut bench = Bench::new();
    // Three passes, with the pattern inverted in between, and without deallocation.
    bench.succeeds(ADMIN, sanitize(OVERWRITE | 3 << 4 | 1 << 8 | 1 << 9, 0x1122_3344));
    let (mut progress, mut passes) = (0, 0);
    while bench.step() {
        let log = status(&mut bench);
        if log.status & 7 == 2 {
            assert!(log.progress >= progress);
            (progress, passes) = (log.progress, passes.max(log.status >> 3));
        }
    }
    assert!(progress > 0x8000 && passes == 3);
    assert_eq!(status(&mut bench).status, 1 | 3 << 3 | 1 << 8);
    bench.succeeds(IO, io(IoOpcode::Read, 2, 1023, 1));
    assert_eq!(bench.pushed[..8], [0x44, 0x33, 0x22, 0x11, 0x44, 0x33, 0x22, 0x11]);
    bench.succeeds(ADMIN, sanitize(OVERWRITE | 2 << 4 | 1 << 8 | 1 << 9, 0));
    bench.settle();
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, vec![0xff; 512]);
    bench.succeeds(ADMIN, sanitize(OVERWRITE | 1 << 4, 0x55));
    bench.settle();
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, vec![0; 512]);
    bench.succeeds(ADMIN, sanitize(BLOCK_ERASE | 1 << 9, 0));
    bench.settle();
    assert_eq!(status(&mut bench).status, 1 | 1 << 8);
}

#[test]
fn most_commands_are_refused_while_media_are_sanitized() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let read = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let write = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    bench.succeeds(ADMIN, sanitize(BLOCK_ERASE, 0));
    assert_eq!(bench.take(read).status.code(), StatusCode::SanitizeInProgress);
    assert!(bench.subsystem.poll_timeout().is_none(), "a write is still in progress");
    assert_eq!(status(&mut bench).progress, 0);
    for opcode in [IoOpcode::Read, IoOpcode::Write, IoOpcode::Verify] {
        bench.fails(IO, io(opcode, 1, 0, 1), StatusCode::SanitizeInProgress);
    }
    bench.succeeds(IO, io(IoOpcode::Flush, 1, 0, 1));
    bench.fails(ADMIN, sanitize(BLOCK_ERASE, 0), StatusCode::SanitizeInProgress);
    bench.fails(ADMIN, self_test(1, 0), StatusCode::SanitizeInProgress);
    bench.fails(ADMIN, admin(AdminOpcode::FormatNvm), StatusCode::SanitizeInProgress);
    bench.fails(ADMIN, log(LogPage::FirmwareSlot, 512), StatusCode::SanitizeInProgress);
    bench.identify(0x01, 0);
    bench.log(LogPage::Smart, 512);
    bench.succeeds(ADMIN, set(FeatureId::Arbitration, 7));
    // The write ends only after a reset, through which the operation continues.
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.media_stuck = false;
    assert_eq!(bench.subsystem.all_media_outstanding(), 2);
    for request in core::mem::take(&mut bench.stuck) {
        bench.on_media(request);
    }
    bench.completed.remove(&write.0);
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::SanitizeInProgress);
    bench.step();
    bench.subsystem.reset(bench.now, bench.controller);
    bench.settle();
    assert_eq!(status(&mut bench).status & 7, 1);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    for cdw10 in [0, 4, 5, 6, 7] {
        bench.fails(ADMIN, sanitize(cdw10, 0), StatusCode::InvalidField);
    }
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    bench.fails(ADMIN, sanitize(BLOCK_ERASE, 0), StatusCode::NamespaceWriteProtected);
}

#[test]
fn a_failed_operation_must_be_repeated_or_left() {
    let mut bench = Bench::new();
    let fail = |bench: &mut Bench, cdw10| {
        bench.media_error = Some(MediaError::Write);
        bench.succeeds(ADMIN, sanitize(cdw10, 0));
        bench.settle();
        bench.media_error = None;
        assert_eq!(status(bench).status & 7, 3);
        bench.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::SanitizeFailed);
        bench.fails(ADMIN, admin(AdminOpcode::FormatNvm), StatusCode::SanitizeFailed);
    };
    // After a restricted operation, only another restricted operation helps.
    fail(&mut bench, BLOCK_ERASE);
    bench.fails(ADMIN, sanitize(1, 0), StatusCode::SanitizeFailed);
    bench.fails(ADMIN, sanitize(BLOCK_ERASE | 1 << 3, 0), StatusCode::SanitizeFailed);
    bench.subsystem.reset(bench.now, bench.controller);
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::SanitizeFailed);
    bench.succeeds(ADMIN, sanitize(BLOCK_ERASE, 0));
    bench.settle();
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.succeeds(ADMIN, sanitize(1, 0));
    // After an unrestricted operation, the host can leave the failure mode.
    fail(&mut bench, BLOCK_ERASE | 1 << 3);
    bench.succeeds(ADMIN, sanitize(1, 0));
    assert_eq!(status(&mut bench).status & 7, 3);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
}

#[test]
fn an_operation_that_a_power_loss_interrupts_is_carried_out_again() {
    let mut bench = Bench::new();
    bench.succeeds(ADMIN, sanitize(OVERWRITE | 1 << 4 | 1 << 9, 0x7777_7777));
    bench.step();
    let mut config = bench.subsystem.config().clone();
    let Some(Notification::SanitizeChanged(record)) = bench.notified.last() else {
        panic!("no notification")
    };
    config.sanitize = *record;
    let mut again = Bench::with(config);
    again.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::SanitizeInProgress);
    again.settle();
    again.succeeds(IO, io(IoOpcode::Read, 2, 5, 1));
    assert_eq!(again.pushed, vec![0x77; 512]);
}

#[test]
fn a_sanitize_command_waits_for_a_format() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.send(ADMIN, format);
    let command = bench.send(ADMIN, sanitize(BLOCK_ERASE, 0));
    assert!(!bench.completed.contains_key(&command.0));
    bench.media_stuck = false;
    let request = bench.stuck.remove(0);
    bench.on_media(request);
    bench.drain();
    assert!(bench.take(format).status.is_success() && bench.take(command).status.is_success());
    bench.settle();
    assert_eq!(status(&mut bench).status & 7, 1);
}
