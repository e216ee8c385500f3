//! A command that changes lasting state completes once the change is durable.

use super::*;
use crate::wire::NamespaceId;
use crate::wire::identify::namespace_list;

const STATE: MediumId = MediumId(2);

/// A bench with a disk, a pool and a medium for state.
fn bench() -> Bench {
    let config = Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), DISK);
    Bench::with(Config { state: Some(STATE), ..config })
}

/// Answers the only request that media have.
fn answer(bench: &mut Bench, result: Result<(), MediaError>) -> Request {
    assert_eq!(bench.stuck.len(), 1);
    let request = bench.stuck.remove(0);
    bench.subsystem.handle_input(bench.now, Input::Media(Completion::Done { id: request.id, result }));
    bench.drain();
    request
}

/// Answers the erasure of `medium` and the flush that makes it durable. Nothing has changed or
/// completed before the flush.
fn erase(bench: &mut Bench, medium: MediumId) {
    let before = bench.notified.len();
    let erasure = answer(bench, Ok(()));
    assert!(erasure.medium == medium && matches!(erasure.operation, Operation::Deallocate { .. }));
    assert!(bench.completed.is_empty() && bench.notified.len() == before);
    let flush = answer(bench, Ok(()));
    assert!(flush.medium == medium && matches!(flush.operation, Operation::Flush));
}

/// Checks that the only request of the media is a flush of the state, and that nothing has
/// completed meanwhile.
#[track_caller]
fn is_saving(bench: &Bench) {
    assert!(matches!(bench.stuck[..], [Request { medium: STATE, operation: Operation::Flush, .. }]));
    assert!(bench.completed.is_empty());
}

fn save_feature() -> SubmissionQueueEntry {
    let entry = set(FeatureId::WriteAtomicity, 1);
    SubmissionQueueEntry { cdw10: entry.cdw10 | 1 << 31, ..entry }
}

fn create(bench: &mut Bench) -> CommandToken {
    bench.host_data = vec![0; 4096];
    bench.host_data[0] = 8;
    bench.host_data[8] = 8;
    bench.send(ADMIN, admin(AdminOpcode::NamespaceManagement))
}

#[test]
fn a_saved_feature_is_durable_before_its_command_completes() {
    let mut bench = bench();
    bench.media_stuck = true;
    bench.succeeds(ADMIN, set(FeatureId::WriteAtomicity, 0));
    let token = bench.send(ADMIN, save_feature());
    assert!(matches!(bench.notified[..], [.., Notification::FeatureSaved(_)]));
    is_saving(&bench);
    // A command that changed nothing does not wait.
    bench.identify(0x01, 0);
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).status, Status::SUCCESS);

    let token = bench.send(ADMIN, save_feature());
    answer(&mut bench, Err(MediaError::NoSpace));
    assert_eq!(bench.take(token).status.code(), StatusCode::InternalError);
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::WriteAtomicity, 2)), 1, "in effect nevertheless");
}

#[test]
fn a_namespace_exists_when_it_is_remembered() {
    let mut bench = bench();
    bench.media_stuck = true;
    let token = create(&mut bench);
    erase(&mut bench, MediumId(1));
    is_saving(&bench);
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1)]));
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).dw0, 2);
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));

    let token = create(&mut bench);
    erase(&mut bench, MediumId(1));
    answer(&mut bench, Err(MediaError::NoSpace));
    assert_eq!(bench.take(token).status.code(), StatusCode::InternalError);
    assert_eq!(bench.notified.last(), Some(&Notification::NamespaceDeleted(NamespaceId(3))));
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));
    bench.identify(0x01, 0);

    let token = create(&mut bench);
    erase(&mut bench, MediumId(1));
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    answer(&mut bench, Ok(()));
    assert!(!bench.completed.contains_key(&token.0));
    assert_eq!(bench.notified.last(), Some(&Notification::NamespaceDeleted(NamespaceId(3))));
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));
}

#[test]
fn formats_and_attachments_are_remembered_and_background_work_delays_no_command() {
    let mut bench = bench();
    bench.media_stuck = true;
    let format =
        SubmissionQueueEntry { cdw10: 1, namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let token = bench.send(ADMIN, format);
    erase(&mut bench, MediumId(0));
    is_saving(&bench);
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).status, Status::SUCCESS);

    let token = bench.send(ADMIN, SubmissionQueueEntry { cdw10: 2, ..admin(AdminOpcode::Sanitize) });
    is_saving(&bench);
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).status, Status::SUCCESS);
    bench.media_stuck = false;
    bench.settle();
    bench.identify(0x01, 0);
    bench.media_stuck = true;
    let said = |bench: &Bench| matches!(bench.notified.last(), Some(Notification::SanitizeChanged(_)));
    assert!(said(&bench));
    bench.identify(0x01, 0);

    // The first write after a sanitize operation clears Global Data Erased.
    bench.host_data = vec![1; 4096];
    let token = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    answer(&mut bench, Ok(()));
    is_saving(&bench);
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).status, Status::SUCCESS);
    let token = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    answer(&mut bench, Ok(()));
    assert_eq!(bench.take(token).status, Status::SUCCESS);
}

#[test]
fn a_shutdown_ends_when_everything_is_remembered() {
    let mut bench = bench();
    bench.media_stuck = true;
    bench.subsystem.shut_down(bench.now, bench.controller);
    bench.drain();
    answer(&mut bench, Ok(()));
    is_saving(&bench);
    assert!(matches!(bench.notified.last(), Some(Notification::ReadyForPowerLoss(_))));
    answer(&mut bench, Ok(()));
    assert_eq!(
        bench.notified.last(),
        Some(&Notification::ShutDown { controller: bench.controller, flushed: true })
    );
}
