//! A host with restrictions.

use super::*;

/// Two controllers over fabrics of a subsystem with three namespaces. The host of the second
/// controller sees namespaces 1 and 3, and may only read if `read_only`.
fn restricted(read_only: bool) -> (Bench, ControllerKey, ControllerKey) {
    let config =
        (0..3).fold(Config::new("S1"), |config, medium| config.with_namespace(MediumId(medium), DISK));
    let mut bench = Bench::with(config);
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let (first, second) = (bench.connect(1), bench.connect(2));
    let namespaces = Some(vec![NamespaceId(1), NamespaceId(3)]);
    bench.subsystem.set_permit(bench.now, second, Permit { namespaces, read_only, ..Permit::default() });
    bench.drain();
    (bench, first, second)
}

fn listed(bench: &mut Bench, cns: u32) -> Vec<u32> {
    let page = bench.identify(cns, 0);
    (0..).step_by(4).map(|offset| u32_at(&page, offset)).take_while(|id| *id != 0).collect()
}

#[test]
fn a_namespace_that_is_not_permitted_does_not_exist_for_the_host() {
    let (mut bench, first, second) = restricted(false);
    bench.of(first).write(0, &[7; 512]);
    for cns in [0x02, 0x10] {
        assert_eq!(listed(bench.of(second), cns), [1, 3]);
        assert_eq!(listed(bench.of(first), cns), [1, 2, 3]);
    }
    for cns in [0x00, 0x11] {
        assert!(bench.of(second).identify(cns, 2).iter().all(|byte| *byte == 0));
        assert!(bench.of(first).identify(cns, 2).iter().any(|byte| *byte != 0));
    }
    for opcode in [IoOpcode::Read, IoOpcode::Write, IoOpcode::Flush] {
        bench.host_data = vec![1; 512];
        bench.of(second).fails(IO, io(opcode, 2, 0, 1), StatusCode::InvalidField);
        bench.of(second).succeeds(IO, io(opcode, 3, 0, 1));
        bench.of(first).succeeds(IO, io(opcode, 2, 0, 1));
    }
}

#[test]
fn a_host_that_may_only_read_changes_nothing() {
    let (mut bench, first, second) = restricted(true);
    bench.of(first).write(0, &[7; 512]);
    for opcode in [IoOpcode::Write, IoOpcode::WriteZeroes, IoOpcode::WriteUncorrectable] {
        bench.host_data = vec![1; 512];
        bench.of(second).fails(IO, io(opcode, 1, 0, 1), StatusCode::NamespaceWriteProtected);
    }
    for opcode in [IoOpcode::ReservationRegister, IoOpcode::ReservationAcquire, IoOpcode::ReservationRelease]
    {
        bench.of(second).fails(IO, io(opcode, 1, 0, 1), StatusCode::NamespaceWriteProtected);
    }
    assert_eq!(
        [0x00, 0x08].map(|cns| bench.of(second).identify(cns, 1)[if cns == 0 { 99 } else { 8 }]),
        [1, 1]
    );
    bench.of(second).succeeds(IO, io(IoOpcode::Flush, 1, 0, 1));
    bench.of(second).succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, [7; 512]);
    // The other host writes as before.
    bench.host_data = vec![9; 512];
    bench.of(first).succeeds(IO, io(IoOpcode::Write, 1, 0, 1));
}

#[test]
fn only_an_unrestricted_host_alters_shared_state() {
    for read_only in [false, true] {
        let (mut bench, first, second) = restricted(read_only);
        for opcode in [
            AdminOpcode::FormatNvm,
            AdminOpcode::Sanitize,
            AdminOpcode::NamespaceManagement,
            AdminOpcode::NamespaceAttachment,
            AdminOpcode::FirmwareCommit,
            AdminOpcode::FirmwareImageDownload,
            AdminOpcode::DeviceSelfTest,
        ] {
            let entry = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(opcode) };
            bench.of(second).fails(ADMIN, entry, StatusCode::OperationDenied);
        }
        let protect =
            SubmissionQueueEntry { namespace: NamespaceId(1), ..set(FeatureId::WriteProtection, 1) };
        bench.of(second).fails(ADMIN, protect, StatusCode::OperationDenied);
        let cache = set(FeatureId::VolatileWriteCache, 0);
        bench.of(second).fails(ADMIN, cache, StatusCode::OperationDenied);
        bench.of(first).succeeds(ADMIN, cache);
        let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
        bench.of(first).succeeds(ADMIN, format);
    }
}

#[test]
fn a_permit_that_is_given_back_leaves_nothing_behind() {
    let (mut bench, first, second) = restricted(true);
    bench.subsystem.set_permit(bench.now, second, Permit::default());
    for controller in [first, second] {
        bench.host_data = vec![1; 512];
        bench.of(controller).succeeds(IO, io(IoOpcode::Write, 2, 0, 1));
    }
    assert_eq!(listed(bench.of(second), 0x02), [1, 2, 3]);
    // A new controller has a permit of its own.
    bench.subsystem.set_permit(bench.now, second, Permit { read_only: true, ..Permit::default() });
    bench.subsystem.remove_controller(bench.now, second);
    let third = bench.connect(3);
    bench.host_data = vec![1; 512];
    bench.of(third).succeeds(IO, io(IoOpcode::Write, 1, 0, 1));
}
