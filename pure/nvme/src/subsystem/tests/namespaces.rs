//! Namespace Management and Attachment, and commands that must be alone with the media.

use super::*;
use crate::wire::identify::{IdentifyNamespace, namespace_list};

const POOL: u64 = 1 << 20;

fn bench() -> Bench {
    Bench::with(Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), POOL))
}

/// Sets the NSZE, NCAP and FLBAS that `create` will send.
fn describe(bench: &mut Bench, blocks: u64, capacity: u64, format: u8) {
    bench.host_data = vec![0; 4096];
    bench.host_data[0..8].copy_from_slice(&blocks.to_le_bytes());
    bench.host_data[8..16].copy_from_slice(&capacity.to_le_bytes());
    bench.host_data[26] = format;
}

fn create() -> SubmissionQueueEntry {
    admin(AdminOpcode::NamespaceManagement)
}

fn delete(namespace: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: 1, namespace: NamespaceId(namespace), ..create() }
}

fn attachment(bench: &mut Bench, namespace: u32, select: u32) -> SubmissionQueueEntry {
    bench.host_data = vec![1, 0, 1, 0];
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { cdw10: select, namespace, ..admin(AdminOpcode::NamespaceAttachment) }
}

fn attach(bench: &mut Bench, namespace: u32) {
    let entry = attachment(bench, namespace, 0);
    bench.succeeds(ADMIN, entry);
}

fn created(bench: &mut Bench, blocks: u64, format: u8) -> u32 {
    describe(bench, blocks, blocks, format);
    bench.succeeds(ADMIN, create())
}

#[test]
fn a_namespace_is_created_attached_used_detached_and_deleted() {
    let mut bench = bench();
    let controller = bench.identify(0x01, 0);
    assert_eq!(u16_at(&controller, 256) & 1 << 3, 1 << 3);
    assert_eq!((u64_at(&controller, 280), u64_at(&controller, 296)), (DISK + POOL, POOL));
    assert_eq!(u32_at(&controller, 516), 32);
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 8));
    let event = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));

    assert_eq!(created(&mut bench, 16, 1), 2);
    assert_eq!(bench.identify(0x00, 2), vec![0; 4096], "not attached: inactive");
    let page = bench.identify(0x11, 2);
    assert_eq!((u64_at(&page, 0), page[26], u64_at(&page, 48)), (16, 1, 65_536));
    assert!(namespace_list(&bench.identify(0x02, 0)).eq([NamespaceId(1)]));
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));
    assert_eq!(bench.identify(0x12, 2)[..2], [0, 0]);
    bench.fails(IO, io(IoOpcode::Read, 2, 0, 1), StatusCode::InvalidField);
    bench.fails(IO, io(IoOpcode::Read, 33, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    assert!(bench.completed.is_empty(), "an unattached namespace causes no event");
    assert_eq!(u64_at(&bench.identify(0x01, 0), 296), POOL - 65_536);

    attach(&mut bench, 2);
    assert_eq!(bench.take(event).dw0, 0x0004_0002);
    assert!(namespace_list(&bench.log(LogPage::ChangedNamespaces, 4096)).eq([NamespaceId(2)]));
    assert_eq!(bench.identify(0x12, 2)[..4], [1, 0, 1, 0]);
    let again = attachment(&mut bench, 2, 0);
    bench.fails(ADMIN, again, StatusCode::NamespaceAlreadyAttached);
    bench.host_data = vec![7; 4096];
    bench.succeeds(IO, io(IoOpcode::Write, 2, 15, 1));
    bench.fails(IO, io(IoOpcode::Read, 2, 16, 1), StatusCode::LbaOutOfRange);
    bench.succeeds(IO, io(IoOpcode::Read, 2, 15, 1));
    assert_eq!(bench.pushed, vec![7; 4096]);

    let detach = attachment(&mut bench, 2, 1);
    bench.succeeds(ADMIN, detach);
    bench.fails(ADMIN, detach, StatusCode::NamespaceNotAttached);
    bench.fails(IO, io(IoOpcode::Read, 2, 15, 1), StatusCode::InvalidField);
    bench.succeeds(ADMIN, delete(2));
    bench.fails(ADMIN, delete(2), StatusCode::InvalidField);
    assert_eq!(u64_at(&bench.identify(0x01, 0), 296), POOL);
    assert_eq!(bench.identify(0x11, 2), vec![0; 4096]);

    // The same identifier again: the namespace is empty, and its names are different.
    let first = page;
    assert_eq!(created(&mut bench, 16, 1), 2);
    attach(&mut bench, 2);
    bench.succeeds(IO, io(IoOpcode::Read, 2, 15, 1));
    assert_eq!(bench.pushed, vec![0; 4096]);
    assert_ne!(bench.identify(0x00, 2)[104..128], first[104..128]);
}

#[test]
fn creation_is_refused_with_the_reason() {
    let mut bench = bench();
    for (blocks, capacity, format, code) in [
        (16, 16, 4, StatusCode::InvalidFormat),
        (16, 16, 1 << 4, StatusCode::InvalidFormat),
        (16, 8, 0, StatusCode::ThinProvisioningNotSupported),
        (0, 0, 0, StatusCode::InvalidField),
        (POOL / 512 + 1, POOL / 512 + 1, 0, StatusCode::NamespaceInsufficientCapacity),
        (u64::MAX, u64::MAX, 1, StatusCode::NamespaceInsufficientCapacity),
    ] {
        describe(&mut bench, blocks, capacity, format);
        bench.fails(ADMIN, create(), code);
    }
    bench.host_data[29] = 1;
    bench.fails(ADMIN, create(), StatusCode::InvalidFormat);
    let zoned = SubmissionQueueEntry { cdw11: 2 << 24, ..create() };
    bench.fails(ADMIN, zoned, StatusCode::IoCommandSetNotSupported);
    bench.fails(ADMIN, SubmissionQueueEntry { cdw10: 2, ..create() }, StatusCode::InvalidField);
    for number in 2..=32 {
        assert_eq!(created(&mut bench, 1, 0), number);
    }
    describe(&mut bench, 1, 1, 0);
    bench.fails(ADMIN, create(), StatusCode::NamespaceIdentifierUnavailable);
    bench.fails(ADMIN, delete(1), StatusCode::OperationDenied);
    bench.fails(ADMIN, delete(u32::MAX), StatusCode::OperationDenied);
    bench.fails(ADMIN, delete(33), StatusCode::InvalidNamespaceOrFormat);
    // Without a pool no space is left, but attachment still works.
    let mut bench = Bench::new();
    describe(&mut bench, 1, 1, 0);
    bench.fails(ADMIN, create(), StatusCode::NamespaceInsufficientCapacity);
    let detach = attachment(&mut bench, 2, 1);
    bench.succeeds(ADMIN, detach);
    let detached = Notification::NamespaceAttached { namespace: NamespaceId(2), attached: false };
    assert_eq!(bench.notified.last(), Some(&detached));
    for list in [vec![0, 0], vec![2, 0, 1, 0, 1, 0], vec![1, 0, 9, 0], vec![0xff, 0xff]] {
        bench.host_data = list;
        bench.fails(ADMIN, detach, StatusCode::ControllerListInvalid);
    }
    let wrong = attachment(&mut bench, 3, 0);
    bench.fails(ADMIN, wrong, StatusCode::InvalidNamespaceOrFormat);
    let wrong = attachment(&mut bench, 2, 2);
    bench.fails(ADMIN, wrong, StatusCode::InvalidField);
}

#[test]
fn extents_fill_gaps_and_come_back_with_the_configuration() {
    let mut bench = bench();
    let quarter = POOL / 4 / 512;
    for number in 2..=5 {
        assert_eq!(created(&mut bench, quarter, 0), number);
    }
    describe(&mut bench, 1, 1, 0);
    bench.fails(ADMIN, create(), StatusCode::NamespaceInsufficientCapacity);
    bench.succeeds(ADMIN, delete(3));
    assert_eq!(created(&mut bench, quarter - 8, 0), 3);
    assert_eq!(created(&mut bench, 3, 0), 6);
    attach(&mut bench, 6);
    let mut config = Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), POOL);
    for notification in &bench.notified {
        match notification {
            Notification::NamespaceCreated { namespace, created } => {
                config.namespaces.push(**namespace);
                config.pool.as_mut().unwrap().created = *created;
            }
            Notification::NamespaceDeleted(id) => config.namespaces.retain(|one| one.id != *id),
            Notification::NamespaceAttached { namespace, attached } => {
                config.namespaces.iter_mut().find(|one| one.id == *namespace).unwrap().attached = *attached;
            }
            _ => (),
        }
    }
    let pages = [1, 2, 3, 4, 5, 6].map(|id| bench.identify(0x11, id));
    assert_eq!(u64_at(&pages[5], 0), 3);
    let mut again = Bench::with(config);
    assert_eq!([1, 2, 3, 4, 5, 6].map(|id| again.identify(0x11, id)), pages);
    assert!(namespace_list(&again.identify(0x02, 0)).eq([NamespaceId(1), NamespaceId(6)]));
    describe(&mut again, 1, 1, 0);
    again.fails(ADMIN, create(), StatusCode::NamespaceInsufficientCapacity);
}

#[test]
fn the_broadcast_identifier_reports_the_common_part_of_all_namespaces() {
    let mut bench = bench();
    let page = bench.identify(0x00, u32::MAX);
    let common = IdentifyNamespace::parse(page.first_chunk().unwrap());
    assert_eq!((common.size, common.lba_format_count), (0, 3));
    assert_eq!((page[130], page[134]), (9, 12));
    assert_eq!(bench.identify(0x13, 0)[..4], [1, 0, 1, 0]);
    let effects = bench.log(LogPage::CommandEffects, 4096);
    assert_eq!(u32_at(&effects, 0x0d * 4), 0b1111 | 1 << 16 | 1 << 20);
    assert_eq!(u32_at(&effects, 0x15 * 4), 0b1001 | 1 << 16 | 1 << 20);
}

#[test]
fn a_deletion_waits_for_writes_and_others_wait_for_it() {
    let mut bench = bench();
    created(&mut bench, 16, 0);
    attach(&mut bench, 2);
    bench.media_stuck = true;
    let write = bench.send(IO, io(IoOpcode::Write, 2, 0, 1));
    let deletion = bench.send(ADMIN, delete(2));
    let late = bench.send(IO, io(IoOpcode::Write, 2, 0, 1));
    assert_eq!(
        bench.take(late).status.code(),
        StatusCode::InvalidField,
        "a namespace in deletion counts as removed"
    );
    let other = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let aborted = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let second = bench.send(ADMIN, SubmissionQueueEntry { cdw10: 1, ..admin(AdminOpcode::FormatNvm) });
    assert_eq!(bench.take(second).status.code(), StatusCode::InvalidNamespaceOrFormat);
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.send(ADMIN, format);
    let abort = SubmissionQueueEntry { cdw10: 1 | aborted.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort), 0);
    assert_eq!(bench.take(aborted).status.code(), StatusCode::CommandAbortRequested);
    assert_eq!(bench.stuck.len(), 1, "only the write is in progress");
    bench.media_stuck = false;
    let request = bench.stuck.remove(0);
    bench.on_media(request);
    bench.drain();
    for token in [write, deletion, other, format] {
        assert!(bench.take(token).status.is_success());
    }
    assert!(bench.completed.is_empty());
    bench.fails(IO, io(IoOpcode::Read, 2, 0, 1), StatusCode::InvalidField);
}

#[test]
fn an_aborted_failed_or_reset_deletion_deletes_nothing() {
    let mut bench = bench();
    created(&mut bench, 16, 0);
    attach(&mut bench, 2);
    bench.media_stuck = true;
    bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    let deletion = bench.send(ADMIN, delete(2));
    let waiting = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let abort = SubmissionQueueEntry { cdw10: deletion.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort), 0);
    assert_eq!(bench.take(deletion).status.code(), StatusCode::CommandAbortRequested);
    assert_eq!(bench.stuck.len(), 2, "{waiting:?} continues");
    bench.send(ADMIN, delete(2));
    bench.subsystem.reset(bench.now, bench.controller);
    assert_eq!(bench.subsystem.all_media_outstanding(), 2);
    for request in core::mem::take(&mut bench.stuck) {
        let done = Completion::Done { id: request.id, result: Ok(()) };
        bench.subsystem.handle_input(bench.now, Input::Media(done));
    }
    bench.drain();
    bench.media_stuck = false;
    bench.media_error = Some(MediaError::Write);
    bench.completed.clear();
    bench.fails(ADMIN, delete(2), StatusCode::WriteFault);
    bench.media_error = None;
    bench.succeeds(IO, io(IoOpcode::Read, 2, 0, 1));
    // A creation that fails leaves nothing behind.
    bench.media_error = Some(MediaError::Write);
    describe(&mut bench, 8, 8, 0);
    bench.fails(ADMIN, create(), StatusCode::WriteFault);
    bench.media_error = None;
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));
}

#[test]
fn a_format_that_leaves_no_block_is_refused() {
    let mut bench = bench();
    assert_eq!(created(&mut bench, 7, 0), 2);
    attach(&mut bench, 2);
    let format = SubmissionQueueEntry { namespace: NamespaceId(2), ..admin(AdminOpcode::FormatNvm) };
    bench.fails(ADMIN, SubmissionQueueEntry { cdw10: 1, ..format }, StatusCode::InvalidFormat);
    assert_eq!(u64_at(&bench.identify(0x00, 2), 0), 7);
    bench.succeeds(ADMIN, format);
}
