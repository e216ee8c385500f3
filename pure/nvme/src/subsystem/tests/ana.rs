//! Asymmetric Namespace Access.

use super::*;
use crate::wire::AnaState;
use crate::wire::log::{AnaGroupDescriptor, AnaLogHeader};

/// Two controllers over fabrics of a subsystem with two namespaces, the second one in group 2 of 3.
fn two() -> (Bench, ControllerKey, ControllerKey) {
    let config = Config { ana_groups: 3, ..Config::new("S1") };
    let config = config.with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK / 2);
    let mut bench = Bench::with(config);
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let (first, second) = (bench.connect(1), bench.connect(2));
    bench.subsystem.set_ana_group(bench.now, NamespaceId(2), 2).unwrap();
    bench.drain();
    (bench, first, second)
}

/// Group, state and namespaces of each descriptor in the log.
fn groups(log: &[u8]) -> Vec<(u32, u8, Vec<u32>)> {
    let (header, mut rest) = log.split_first_chunk().unwrap();
    let header = AnaLogHeader::parse(header);
    let mut groups = Vec::new();
    for _ in 0..header.groups {
        let (descriptor, after) = rest.split_first_chunk().unwrap();
        let descriptor = AnaGroupDescriptor::parse(descriptor);
        let (ids, after) = after.split_at(descriptor.namespaces as usize * 4);
        let ids = ids.chunks(4).map(|id| u32_at(id, 0)).collect();
        groups.push((descriptor.group, descriptor.state, ids));
        rest = after;
    }
    assert!(rest.iter().all(|byte| *byte == 0));
    groups
}

#[test]
fn identify_reports_groups() {
    let (mut bench, first, _) = two();
    let page = bench.of(first).identify(1, 0);
    assert_eq!((page[76], page[342], page[343]), (0b1011, 10, 0x1f));
    assert_eq!((u32_at(&page, 344), u32_at(&page, 348), u32_at(&page, 540)), (3, 3, 2));
    assert_eq!(u32_at(&page, 92) & 1 << 11, 1 << 11);
    assert_eq!([1, 2].map(|id| u32_at(&bench.identify(0, id), 92)), [1, 2]);
    assert_eq!([1, 2].map(|id| u32_at(&bench.identify(8, id), 4)), [1, 2]);
    assert_eq!(u32_at(&bench.log(LogPage::SupportedLogPages, 1024), 0x0c * 4), 1);
    // Without groups, and on PCIe, ANA is not reported.
    let mut without = Bench::new();
    let page = without.identify(1, 0);
    assert_eq!((page[76], page[343], u32_at(&page, 92) & 1 << 11), (0, 0, 0));
    without.fails(ADMIN, log(LogPage::AsymmetricAccess, 64), StatusCode::InvalidLogPage);
    assert_eq!(u32_at(&without.log(LogPage::SupportedLogPages, 1024), 0x0c * 4), 0);
    without.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 11));
    assert_eq!(without.succeeds(ADMIN, get(FeatureId::AsynchronousEventConfiguration, 0)), 0);
}

#[test]
fn each_state_ends_commands_as_the_specification_says() {
    let (mut bench, first, second) = two();
    bench.of(first).write(0, &[7; 512]);
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    for (state, value, refused) in [
        (AnaState::Optimized, 0x1, None),
        (AnaState::NonOptimized, 0x2, None),
        (AnaState::Inaccessible, 0x3, Some((StatusCode::AsymmetricAccessInaccessible, (3, 2)))),
        (AnaState::PersistentLoss, 0x4, Some((StatusCode::AsymmetricAccessPersistentLoss, (3, 1)))),
        (AnaState::Change, 0xf, Some((StatusCode::AsymmetricAccessTransition, (3, 3)))),
    ] {
        bench.subsystem.set_ana_state(bench.now, first, 1, state);
        let page = bench.of(first).log(LogPage::AsymmetricAccess, 128);
        assert_eq!(groups(&page), [(1, value, vec![1]), (2, 1, vec![2])]);
        for opcode in [IoOpcode::Read, IoOpcode::Write, IoOpcode::Flush, IoOpcode::Compare] {
            bench.host_data = vec![7; 512];
            match refused {
                None => drop(bench.succeeds(IO, io(opcode, 1, 0, 1))),
                Some((code, kind)) => {
                    assert_eq!((code.kind(), code.code()), kind);
                    bench.fails(IO, io(opcode, 1, 0, 1), code);
                }
            }
        }
        if let Some((code, _)) = refused {
            bench.fails(ADMIN, format, code);
        }
        bench.succeeds(IO, io(IoOpcode::Read, 2, 0, 1));
        assert_ne!(bench.identify(0, 1)[..8], [0; 8], "Identify works in every state");
        bench.of(second).succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
        assert_eq!(bench.pushed[..7], [7; 7], "the other path works");
    }
    assert_eq!(bench.subsystem.ana_state(first, 1), AnaState::Change);
    bench.subsystem.remove_controller(bench.now, first);
    bench.of(second).succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
}

#[test]
fn a_change_is_an_event_of_its_controller() {
    let (mut bench, first, second) = two();
    let mut listen = |key| {
        bench.of(key).succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 11));
        bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest))
    };
    let heard = [first, second].map(&mut listen);
    let before = bench.of(first).log(LogPage::AsymmetricAccess, 128);
    bench.subsystem.set_ana_state(bench.now, first, 2, AnaState::Inaccessible);
    bench.subsystem.set_ana_state(bench.now, first, 2, AnaState::Inaccessible);
    bench.drain();
    assert_eq!(bench.take(heard[0]).dw0, 0x000c_0302);
    assert!(!bench.completed.contains_key(&heard[1].0));
    let after = bench.log(LogPage::AsymmetricAccess, 128);
    assert_eq!(u64_at(&after, 0), u64_at(&before, 0) + 1);
    assert_eq!(
        (u64_at(&after, 16 + 8), u64_at(&after, 52 + 8)),
        (u64_at(&before, 24), u64_at(&before, 60) + 1)
    );
    // The log with groups only.
    let only = SubmissionQueueEntry {
        cdw10: log(LogPage::AsymmetricAccess, 128).cdw10 | 1 << 8,
        ..log(LogPage::AsymmetricAccess, 128)
    };
    bench.succeeds(ADMIN, only);
    assert_eq!(groups(&bench.pushed), [(1, 1, vec![]), (2, 3, vec![])]);
    // The log leaves out a group without namespaces of the controller.
    bench.host_data = vec![1, 0, 1, 0];
    bench.succeeds(ADMIN, detach(NamespaceId(2)));
    assert_eq!(groups(&bench.log(LogPage::AsymmetricAccess, 128)), [(1, 1, vec![1])]);
    // A namespace with persistent loss can't be attached.
    bench.subsystem.set_ana_state(bench.now, first, 2, AnaState::PersistentLoss);
    bench.host_data = vec![1, 0, 1, 0];
    bench.fails(
        ADMIN,
        SubmissionQueueEntry { cdw10: 0, ..detach(NamespaceId(2)) },
        StatusCode::AnaAttachFailed,
    );
}

#[test]
fn a_write_whose_data_comes_after_the_change_is_not_carried_out() {
    let (mut bench, first, second) = two();
    let token = CommandToken(900);
    let entry = io(IoOpcode::Write, 1, 0, 1);
    let input = Input::Command { controller: first, token, queue: IO, entry };
    bench.subsystem.handle_input(bench.now, input);
    assert!(matches!(bench.subsystem.poll_output(), Some(Output::PullHostData { .. })));
    bench.subsystem.set_ana_state(bench.now, first, 1, AnaState::Inaccessible);
    let data = Buffer::from(vec![9; 512]);
    bench.subsystem.handle_input(bench.now, Input::HostData { token, data });
    bench.drain();
    assert_eq!(bench.take(token).status.code(), StatusCode::AsymmetricAccessInaccessible);
    bench.of(second).succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, [0; 512]);
}
