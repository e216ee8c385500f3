//! Namespace Write Protection, and namespaces that share a medium.

use super::*;
use crate::wire::low_u8;

const FEATURE: FeatureId = FeatureId::WriteProtection;

fn of(namespace: u32, entry: SubmissionQueueEntry) -> SubmissionQueueEntry {
    SubmissionQueueEntry { namespace: NamespaceId(namespace), ..entry }
}

impl Bench {
    fn protect(&mut self, namespace: u32, state: u32) {
        self.succeeds(ADMIN, of(namespace, set(FEATURE, state)));
    }

    fn protection(&mut self, namespace: u32) -> u32 {
        let state = self.succeeds(ADMIN, of(namespace, get(FEATURE, 0)));
        let attributes = (self.identify(0, namespace)[99], self.identify(8, namespace)[8]);
        assert_eq!(attributes, if state == 0 { (0, 0) } else { (1, 1) });
        state
    }
}

#[test]
fn the_feature_is_of_namespaces_and_not_saveable() {
    let mut bench = Bench::new();
    assert_eq!(bench.identify(1, 0)[531], 0b001);
    assert_eq!(bench.succeeds(ADMIN, of(1, get(FEATURE, 3))), 0b110);
    let saved = SubmissionQueueEntry { cdw10: 0x84 | 1 << 31, ..set(FEATURE, 1) };
    bench.fails(ADMIN, of(1, saved), StatusCode::FeatureNotSaveable);
    // The states Until Power Cycle and Permanent need a Replay Protected Memory Block.
    for state in 2..8 {
        bench.fails(ADMIN, of(1, set(FEATURE, state)), StatusCode::InvalidField);
    }
    bench.fails(ADMIN, of(0, set(FEATURE, 1)), StatusCode::InvalidNamespaceOrFormat);
    bench.fails(ADMIN, of(9, get(FEATURE, 0)), StatusCode::InvalidNamespaceOrFormat);
    assert_eq!((bench.protection(1), bench.protection(2)), (0, 0));
    bench.protect(u32::MAX, 1);
    assert_eq!((bench.protection(1), bench.protection(2)), (1, 1));
    assert_eq!(bench.succeeds(ADMIN, of(1, get(FEATURE, 1))), 0, "there is no protection by default");
    assert_eq!(u32_at(&bench.log(LogPage::FeatureEffects, 1024), 4 * 0x84) & 1, 1);
}

#[test]
fn states_change_as_far_as_they_may() {
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut bench = Bench::new();
        bench.protect(1, from);
        let said = bench.notified.len();
        bench.protect(1, to);
        assert_eq!((bench.protection(1), bench.protection(2)), (to, 0));
        assert_eq!(bench.notified.len(), said + usize::from(to != from));
        // Neither a reset nor a power cycle lifts the protection.
        bench.subsystem.reset(bench.now, bench.controller);
        bench.drain();
        assert_eq!(bench.protection(1), to);
        let namespaces = bench.subsystem.namespaces().collect();
        let mut again = Bench::with(Config { namespaces, ..bench.subsystem.config().clone() });
        assert_eq!(again.protection(1), to);
    }
}

#[test]
fn changes_of_a_protected_namespace_are_refused() {
    let mut bench = Bench::new();
    bench.write(0, &[7; 512]);
    bench.protect(1, 1);
    let refused = StatusCode::NamespaceWriteProtected;
    bench.host_data = vec![7; 512];
    for opcode in [IoOpcode::Write, IoOpcode::WriteZeroes, IoOpcode::WriteUncorrectable, IoOpcode::Copy] {
        bench.fails(IO, io(opcode, 1, 0, 1), refused);
    }
    let trim = SubmissionQueueEntry { cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    bench.fails(IO, trim, refused);
    bench.host_data.clear();
    bench.succeeds(IO, SubmissionQueueEntry { cdw11: 1, ..trim });
    bench.fails(ADMIN, of(1, admin(AdminOpcode::FormatNvm)), refused);
    bench.fails(ADMIN, of(u32::MAX, admin(AdminOpcode::FormatNvm)), refused);
    bench.fails(ADMIN, SubmissionQueueEntry { cdw10: 2, ..admin(AdminOpcode::Sanitize) }, refused);
    bench.host_data = vec![7; 512];
    for opcode in [IoOpcode::Read, IoOpcode::Compare, IoOpcode::Verify, IoOpcode::Flush] {
        bench.succeeds(IO, io(opcode, 1, 0, 1));
    }
    assert_eq!(bench.log(LogPage::Smart, 512)[0] & 1 << 3, 0, "that is no critical warning");
    bench.succeeds(IO, io(IoOpcode::Write, 2, 0, 1));
    bench.protect(1, 0);
    bench.succeeds(IO, io(IoOpcode::Write, 1, 0, 1));
    // The read-only setting of the configuration also holds.
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    assert_eq!(bench.succeeds(ADMIN, of(1, get(FEATURE, 0))), 0);
    bench.fails(IO, io(IoOpcode::Write, 1, 0, 1), refused);
}

#[test]
fn a_protected_namespace_of_the_pool_is_not_deleted() {
    let mut config = Config::new("S1").with_pool(MediumId(0), DISK);
    config = config.with_namespace(MediumId(0), DISK / 2);
    let mut bench = Bench::with(config);
    bench.protect(1, 1);
    let delete = SubmissionQueueEntry { cdw10: 1, ..admin(AdminOpcode::NamespaceManagement) };
    for id in [1, u32::MAX] {
        bench.fails(ADMIN, of(id, delete), StatusCode::NamespaceWriteProtected);
    }
    assert_eq!(bench.protection(1), 1);
}

#[test]
fn writes_under_way_are_durable_before_the_namespace_is_protected() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    bench.host_data = vec![7; 512];
    let write = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    let protect = bench.send(ADMIN, of(1, set(FEATURE, 1)));
    let late = bench.send(IO, io(IoOpcode::Write, 1, 1, 1));
    assert_eq!(bench.stuck.len(), 1, "later commands wait");
    assert!(bench.completed.is_empty());
    bench.release_media();
    assert_eq!(bench.take(write).status, Status::SUCCESS);
    assert_eq!(bench.take(protect).status, Status::SUCCESS);
    assert_eq!(bench.take(late).status.code(), StatusCode::NamespaceWriteProtected);
    // If the cache can't be flushed, the state remains as it was.
    bench.media_error = Some(MediaError::Write);
    bench.fails(ADMIN, of(2, set(FEATURE, 1)), StatusCode::WriteFault);
    bench.media_error = None;
    assert_eq!(bench.protection(2), 0);
    // If the command is aborted while it waits, the state also remains.
    bench.media_stuck = true;
    let read = bench.send(IO, io(IoOpcode::Read, 2, 0, 1));
    let protect = bench.send(ADMIN, of(2, set(FEATURE, 1)));
    let abort = SubmissionQueueEntry { cdw10: protect.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort), 0);
    assert_eq!(bench.take(protect).status.code(), StatusCode::CommandAbortRequested);
    bench.release_media();
    bench.take(read);
    assert_eq!(bench.protection(2), 0);
    bench.succeeds(IO, io(IoOpcode::Write, 2, 0, 1));
}

#[test]
fn every_controller_refuses_and_hears_of_it() {
    let mut bench = Bench::new();
    let [first, second] = [1, 2].map(|id| bench.connect(id + 1));
    let notices = set(FeatureId::AsynchronousEventConfiguration, 1 << 8);
    let heard = [first, second].map(|controller| {
        bench.of(controller).succeeds(ADMIN, notices);
        bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest))
    });
    bench.of(first).protect(2, 1);
    for (controller, heard) in [first, second].into_iter().zip(heard) {
        assert_eq!(bench.take(heard).dw0, 0x0004_0002);
        assert_eq!(u32_at(&bench.of(controller).log(LogPage::ChangedNamespaces, 4096), 0), 2);
        assert_eq!(bench.protection(2), 1);
        bench.fails(IO, io(IoOpcode::Write, 2, 0, 1), StatusCode::NamespaceWriteProtected);
    }
}

#[test]
fn protection_is_saved_before_the_command_completes() {
    let mut config = Config::new("S1").with_namespace(MediumId(0), DISK);
    config.state = Some(MediumId(1));
    let mut bench = Bench::with(config);
    bench.protect(1, 1);
    let said = Notification::NamespaceProtected {
        namespace: NamespaceId(1),
        protection: WriteProtection::Protected,
    };
    assert_eq!(bench.notified, [said]);
    // The first flush is of the namespace's cache, the second of the saved state.
    let mut bench = Bench::with(bench.subsystem.config().clone());
    bench.media_stuck = true;
    let protect = bench.send(ADMIN, of(1, set(FEATURE, 1)));
    let flushes = bench.stuck.iter().map(|request| request.medium).collect::<Vec<_>>();
    assert_eq!(flushes, [MediumId(0)]);
    for medium in [0, 1] {
        assert!(bench.completed.is_empty() && bench.stuck[0].medium == MediumId(medium));
        let id = bench.stuck.remove(0).id;
        bench.subsystem.handle_input(bench.now, Input::Media(Completion::Done { id, result: Ok(()) }));
        bench.drain();
    }
    assert_eq!(bench.take(protect).status, Status::SUCCESS);
}

#[test]
fn namespaces_may_be_parts_of_one_medium() {
    let mut config =
        Config::new("S1").with_namespace(MediumId(0), DISK).with_namespace(MediumId(0), DISK / 2);
    config.namespaces[1].offset = DISK;
    let mut bench = Bench::with(config);
    for namespace in [1, 2] {
        bench.host_data = vec![low_u8(namespace); 512];
        bench.succeeds(IO, io(IoOpcode::Write, namespace, 3, 1));
    }
    for namespace in [1, 2] {
        bench.succeeds(IO, io(IoOpcode::Read, namespace, 3, 1));
        assert_eq!(bench.pushed, [low_u8(namespace); 512]);
    }
    bench.fails(IO, io(IoOpcode::Read, 1, DISK / 512, 1), StatusCode::LbaOutOfRange);
    // A sanitize operation clears both namespaces, and a format clears one.
    bench.succeeds(ADMIN, of(1, admin(AdminOpcode::FormatNvm)));
    bench.succeeds(IO, io(IoOpcode::Read, 2, 3, 1));
    assert_eq!(bench.pushed, [2; 512]);
    let pattern = SubmissionQueueEntry {
        cdw10: 3 | 1 << 4 | 1 << 9,
        cdw11: 0x0505_0505,
        ..admin(AdminOpcode::Sanitize)
    };
    bench.succeeds(ADMIN, pattern);
    bench.settle();
    for namespace in [1, 2] {
        bench.succeeds(IO, io(IoOpcode::Read, namespace, 3, 1));
        assert_eq!(bench.pushed, [5; 512]);
    }
}

#[test]
#[should_panic(expected = "overlaps")]
fn parts_of_one_medium_do_not_overlap() {
    let mut config =
        Config::new("S1").with_namespace(MediumId(0), DISK).with_namespace(MediumId(0), DISK / 2);
    config.namespaces[1].offset = DISK - 512;
    let _ = Bench::with(config);
}
