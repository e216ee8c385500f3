//! Several controllers of one subsystem, each for a host.

use super::*;
use crate::wire::identify::namespace_list;
use crate::wire::log::PersistentEventHeader;

/// Two controllers over fabrics, 1 and 2, of a subsystem with two namespaces and a pool.
fn two() -> (Bench, ControllerKey, ControllerKey) {
    let config = Config { namespaces_max: 40, ..Config::new("S1") };
    let config = config.with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK / 2);
    let mut bench = Bench::with(config.with_pool(MediumId(2), DISK));
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let first = bench.connect(1);
    let second = bench.connect(2);
    (bench, first, second)
}

/// Makes the host of a controller request events, including namespace changes.
fn listen(bench: &mut Bench, controller: ControllerKey) -> CommandToken {
    bench.of(controller).succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 8));
    bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest))
}

fn controllers(bench: &mut Bench, cns: u32, namespace: u32) -> Vec<u16> {
    let page = bench.identify(cns, namespace);
    (1..=usize::from(u16_at(&page, 0))).map(|index| u16_at(&page, 2 * index)).collect()
}

fn attachment(select: u32, namespace: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { cdw10: select, namespace, ..admin(AdminOpcode::NamespaceAttachment) }
}

fn list_of(ids: &[u16]) -> Vec<u8> {
    let count = u16::try_from(ids.len()).unwrap();
    core::iter::once(&count).chain(ids).flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn keys_are_dense_and_free_again() {
    let (mut bench, first, second) = two();
    assert_eq!((first, second), (ControllerKey(0), ControllerKey(1)));
    assert_eq!(controllers(&mut bench, 0x13, 0), [1, 2]);
    assert_eq!(controllers(&mut bench, 0x12, 1), [1, 2]);
    bench.subsystem.remove_controller(bench.now, first);
    assert_eq!(controllers(&mut bench, 0x13, 0), [2]);
    assert_eq!(bench.connect(9), first);
    assert_eq!(bench.connect(4), ControllerKey(2));
    assert_eq!(controllers(&mut bench, 0x13, 0), [2, 4, 9]);
    let from = SubmissionQueueEntry { cdw10: 0x13 | 3 << 16, ..admin(AdminOpcode::Identify) };
    bench.succeeds(ADMIN, from);
    assert_eq!(bench.pushed[..6], [2, 0, 4, 0, 9, 0]);
    assert_eq!(bench.subsystem.controller_called(4), Some(ControllerKey(2)));
    assert!(bench.subsystem.controllers().eq([0, 1, 2].map(ControllerKey)));
}

#[test]
#[should_panic(expected = "there is a controller 1")]
fn a_controller_id_is_of_one_controller() {
    Bench::new().connect(1);
}

#[test]
fn identify_reports_fabrics() {
    let (mut bench, first, _) = two();
    let page = bench.of(first).identify(1, 0);
    assert_eq!((page[76], u16_at(&page, 78), page[111]), (0b011, 1, 1));
    assert_eq!((u32_at(&page, 96), u16_at(&page, 320), u16_at(&page, 514)), (1 | 1 << 6 | 1 << 15, 1, 1024));
    assert_eq!((u32_at(&page, 1792), u32_at(&page, 1796), u16_at(&page, 1800)), (4 + 512, 1, 0));
    assert_eq!((page[1802], page[1803], u16_at(&page, 1804), page[536] & 1), (0, 1, 1, 1));
    assert_eq!(u32_at(&page, 536), 1 | 1 << 20 | 1 << 21);
    assert_eq!(u16_at(&page, 256) & 1 << 8, 0, "doorbell buffers are for PCIe");
    assert_eq!((bench.identify(0, 1)[30], bench.identify(8, 1)[1]), (1, 1));
    let mut config = ControllerConfig::fabrics(7, HostIdentity::default());
    let Transport::Fabrics(fabrics) = &mut config.transport else { unreachable!() };
    (fabrics.dynamic, fabrics.disconnect, fabrics.traffic_keep_alive) = (false, false, false);
    (fabrics.keep_alive_granularity, fabrics.commands_max, fabrics.capsule_data_offset) = (0, 32, 4);
    bench.connect_with(config);
    let page = bench.identify(1, 0);
    assert_eq!((page[1802], u16_at(&page, 1804), u16_at(&page, 514), u16_at(&page, 1800)), (1, 0, 32, 4));
    assert_eq!((u32_at(&page, 96), u16_at(&page, 320)), (1 | 1 << 15, 0));
    // The controller on PCIe reports that it does not share its namespaces.
    let page = Bench::new().identify(1, 0);
    assert_eq!((page[76], u32_at(&page, 1792), u16_at(&page, 320)), (0, 0, 0));
    assert_eq!(Bench::new().identify(0, 1)[30], 0);
}

#[test]
fn fabrics_have_no_queue_commands_and_a_timer() {
    let (mut bench, first, second) = two();
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x7c] {
        let entry = admin(AdminOpcode::from(opcode));
        bench.fails(ADMIN, entry, StatusCode::InvalidCommandOpcode);
        assert_eq!(u32_at(&bench.log(LogPage::CommandEffects, 4096), usize::from(opcode) * 4), 0);
    }
    assert_ne!(u32_at(&bench.log(LogPage::CommandEffects, 4096), 0x18 * 4), 0);
    bench.succeeds(ADMIN, admin(AdminOpcode::KeepAlive));
    for feature in [FeatureId::InterruptCoalescing, FeatureId::InterruptVectorConfiguration] {
        assert_eq!(bench.succeeds(ADMIN, get(feature, 0)), 0);
        assert_eq!(bench.succeeds(ADMIN, get(feature, 3)), 0);
        bench.fails(ADMIN, set(feature, 0x0102), StatusCode::FeatureNotChangeable);
    }
    // A setting of one controller does not apply to the other. The granularity is 100 ms.
    bench.of(first).succeeds(ADMIN, set(FeatureId::KeepAliveTimer, 5_001));
    let reported = Notification::KeepAliveTimeout { controller: first, milliseconds: 5_100 };
    assert_eq!(bench.notified.last(), Some(&reported));
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::KeepAliveTimer, 0)), 5_100);
    assert_eq!(bench.subsystem.keep_alive_milliseconds(first), 5_100);
    assert_eq!(bench.subsystem.keep_alive_milliseconds(second), 0);
    assert_eq!(bench.of(second).succeeds(ADMIN, get(FeatureId::KeepAliveTimer, 0)), 0);
    let most = crate::subsystem::KEEP_ALIVE_MAX_MILLISECONDS;
    bench.succeeds(ADMIN, set(FeatureId::KeepAliveTimer, most));
    assert_eq!(bench.subsystem.keep_alive_milliseconds(second), most);
    for longer in [most + 1, u32::MAX] {
        bench.fails(ADMIN, set(FeatureId::KeepAliveTimer, longer), StatusCode::KeepAliveTimeoutInvalid);
    }
    assert_eq!(bench.subsystem.keep_alive_milliseconds(second), most);
    let save = SubmissionQueueEntry { cdw10: 0x0b | 1 << 31, ..admin(AdminOpcode::SetFeatures) };
    bench.fails(ADMIN, save, StatusCode::FeatureNotSaveable);
    let mut pcie = Bench::new();
    pcie.fails(ADMIN, admin(AdminOpcode::KeepAlive), StatusCode::InvalidCommandOpcode);
    for select in 0..=3 {
        assert_eq!(pcie.succeeds(ADMIN, get(FeatureId::KeepAliveTimer, select)), 0);
    }
    pcie.fails(ADMIN, set(FeatureId::KeepAliveTimer, 5_000), StatusCode::FeatureNotChangeable);
}

#[test]
fn features_events_and_errors_are_of_one_controller() {
    let (mut bench, first, second) = two();
    let heard = listen(&mut bench, first);
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::AsynchronousEventConfiguration, 0)), 1 << 8);
    assert_eq!(bench.of(second).succeeds(ADMIN, get(FeatureId::AsynchronousEventConfiguration, 0)), 0);
    let unheard = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.fails(IO, io(IoOpcode::Read, 9, 0, 1), StatusCode::InvalidField);
    assert_eq!(u64_at(&bench.log(LogPage::ErrorInformation, 64), 0), 1);
    assert_eq!(u64_at(&bench.of(first).log(LogPage::ErrorInformation, 64), 0), 0);
    assert_eq!(u64_at(&bench.log(LogPage::Smart, 512), 176), 1, "the health log is of all");
    bench.subsystem.resize_namespace(bench.now, NamespaceId(2), DISK / 4);
    bench.drain();
    assert_eq!(bench.take(heard).dw0, 0x0004_0002);
    assert!(!bench.completed.contains_key(&unheard.0));
    // Each controller has its own list.
    assert!(namespace_list(&bench.log(LogPage::ChangedNamespaces, 4096)).eq([NamespaceId(2)]));
    assert!(namespace_list(&bench.log(LogPage::ChangedNamespaces, 4096)).eq([]));
    assert!(namespace_list(&bench.of(second).log(LogPage::ChangedNamespaces, 4096)).eq([NamespaceId(2)]));
    // A host can abort only commands of its own controller.
    let abort = SubmissionQueueEntry { cdw10: unheard.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.of(first).succeeds(ADMIN, abort), 1);
    assert_eq!(bench.of(second).succeeds(ADMIN, abort), 0);
}

#[test]
fn namespaces_are_attached_to_each_controller() {
    let (mut bench, first, second) = two();
    let heard = [listen(&mut bench, first), listen(&mut bench, second)];
    bench.write(0, &[7; 512]);
    bench.host_data = list_of(&[1]);
    bench.succeeds(ADMIN, attachment(1, 1));
    assert_eq!(bench.take(heard[0]).dw0, 0x0004_0002);
    assert!(!bench.completed.contains_key(&heard[1].0), "the other controller is not affected");
    assert!(bench.notified.is_empty(), "a setting of single controllers is not saved");
    assert_eq!(controllers(&mut bench, 0x12, 1), [2]);
    assert!(namespace_list(&bench.of(first).identify(2, 0)).eq([NamespaceId(2)]));
    assert!(namespace_list(&bench.identify(0x10, 0)).eq([NamespaceId(1), NamespaceId(2)]));
    assert!(bench.identify(0, 1).iter().all(|byte| *byte == 0));
    assert_ne!(bench.identify(0x11, 1)[0..8], [0; 8]);
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::InvalidField);
    bench.of(second).succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, [7; 512]);
    // A list of controllers takes effect completely or not at all.
    bench.host_data = list_of(&[1, 2]);
    bench.fails(ADMIN, attachment(0, 1), StatusCode::NamespaceAlreadyAttached);
    bench.fails(ADMIN, attachment(1, 1), StatusCode::NamespaceNotAttached);
    for bad in [&[2, 1][..], &[1, 1], &[3], &[]] {
        bench.host_data = list_of(bad);
        bench.fails(ADMIN, attachment(1, 2), StatusCode::ControllerListInvalid);
    }
    bench.host_data = list_of(&[2]);
    bench.succeeds(ADMIN, attachment(1, 1));
    let detached = Notification::NamespaceAttached { namespace: NamespaceId(1), attached: false };
    assert_eq!(bench.notified, [detached]);
    assert_eq!(controllers(&mut bench, 0x12, 1), []);
    // A new controller does not get the namespace either.
    bench.connect(3);
    assert!(namespace_list(&bench.identify(2, 0)).eq([NamespaceId(2)]));
    bench.host_data = list_of(&[3]);
    bench.succeeds(ADMIN, attachment(0, 1));
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(controllers(&mut bench, 0x12, 1), [3]);
    let third = bench.controller;
    bench.subsystem.remove_controller(bench.now, third);
    assert_eq!(controllers(bench.of(first), 0x12, 1), []);
}

#[test]
fn a_format_is_alone_over_all_controllers() {
    let (mut bench, first, second) = two();
    bench.write(0, &[7; 512]);
    let heard = [listen(&mut bench, first), listen(&mut bench, second)];
    bench.media_stuck = true;
    let read = bench.of(second).send(IO, io(IoOpcode::Read, 1, 0, 1));
    let format =
        SubmissionQueueEntry { cdw10: 1, namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.of(first).send(ADMIN, format);
    assert_eq!(bench.stuck.len(), 1, "the read is first");
    bench.of(second).fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::FormatInProgress);
    let other = bench.send(IO, io(IoOpcode::Read, 2, 0, 1));
    assert_eq!(bench.stuck.len(), 1, "the other namespace waits");
    bench.release_media();
    for token in [read, format, other] {
        assert_eq!(bench.take(token).status, Status::SUCCESS);
    }
    for token in heard {
        assert_eq!(bench.take(token).dw0, 0x0004_0002, "both hosts get the event");
    }
    assert_eq!(bench.identify(0, 1)[26], 1);
}

#[test]
fn data_that_comes_while_another_is_alone_is_kept() {
    let (mut bench, first, second) = two();
    let token = CommandToken(900);
    let write = SubmissionQueueEntry { command_id: CommandId(900), ..io(IoOpcode::Write, 2, 0, 1) };
    let input = Input::Command { controller: second, token, queue: IO, entry: write };
    bench.subsystem.handle_input(bench.now, input);
    let pull = bench.subsystem.poll_output();
    assert!(matches!(pull, Some(Output::PullHostData { length: 512, .. })), "{pull:?}");
    // A slow host does not delay a format.
    bench.media_stuck = true;
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.of(first).send(ADMIN, format);
    assert_eq!(bench.stuck.len(), 1);
    let data = Buffer::from(vec![9; 512]);
    bench.subsystem.handle_input(bench.now, Input::HostData { token, data });
    bench.drain();
    assert_eq!(bench.stuck.len(), 1, "the write waits");
    bench.release_media();
    assert_eq!((bench.take(format).status, bench.take(token).status), (Status::SUCCESS, Status::SUCCESS));
    bench.succeeds(IO, io(IoOpcode::Read, 2, 0, 1));
    assert_eq!(bench.pushed, [9; 512]);
}

#[test]
fn a_reset_is_of_one_controller() {
    let (mut bench, first, second) = two();
    let heard = listen(&mut bench, second);
    bench.media_stuck = true;
    let reads = [first, second].map(|key| bench.of(key).send(IO, io(IoOpcode::Read, 1, 0, 1)));
    assert_eq!([first, second].map(|key| bench.subsystem.media_outstanding(key)), [1, 1]);
    assert_eq!([first, second].map(|key| bench.subsystem.in_flight(key, IO)), [1, 1]);
    bench.of(first).succeeds(ADMIN, set(FeatureId::TemperatureThreshold, 333));
    bench.of(second).succeeds(ADMIN, set(FeatureId::TemperatureThreshold, 334));
    bench.subsystem.reset(bench.now, first);
    bench.drain();
    assert_eq!(
        [first, second].map(|key| bench.subsystem.media_outstanding(key)),
        [1, 1],
        "media know no reset"
    );
    assert_eq!([first, second].map(|key| bench.subsystem.in_flight(key, IO)), [0, 1]);
    bench.release_media();
    assert!(!bench.completed.contains_key(&reads[0].0));
    assert_eq!(bench.take(reads[1]).status, Status::SUCCESS);
    assert_eq!([first, second].map(|key| bench.subsystem.media_outstanding(key)), [0, 0]);
    assert_eq!(bench.of(first).succeeds(ADMIN, get(FeatureId::TemperatureThreshold, 0)), 343);
    assert_eq!(bench.of(second).succeeds(ADMIN, get(FeatureId::TemperatureThreshold, 0)), 334);
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    bench.drain();
    assert_eq!(bench.take(heard).dw0, 0x0004_0002, "its requests for events are still there");
    let header = |event: &PersistentEvent| PersistentEventHeader::parse(event.bytes().first_chunk().unwrap());
    let reset = header(bench.recorded.last().unwrap());
    assert_eq!((reset.kind, reset.controller), (4, 1));
}

#[test]
fn a_command_that_waits_for_a_format_ends_when_its_controller_is_reset() {
    for remove in [false, true] {
        let (mut bench, first, second) = two();
        bench.media_stuck = true;
        let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
        bench.of(first).send(ADMIN, format);
        let read = bench.of(second).send(IO, io(IoOpcode::Read, 2, 0, 1));
        assert_eq!(bench.stuck.len(), 1);
        if remove {
            bench.subsystem.remove_controller(bench.now, first);
        } else {
            bench.subsystem.reset(bench.now, first);
        }
        bench.drain();
        let late = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
        assert_eq!(bench.stuck.len(), 1, "the medium has not ended with the format");
        bench.release_media();
        assert_eq!((bench.take(read).status, bench.take(late).status), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(bench.subsystem.all_media_outstanding(), 0);
    }
}

#[test]
fn one_flush_is_for_all_that_shut_down() {
    let (mut bench, first, second) = two();
    bench.media_stuck = true;
    for key in [first, second] {
        bench.subsystem.shut_down(bench.now, key);
    }
    bench.drain();
    assert_eq!(bench.stuck.len(), 1);
    bench.subsystem.reset(bench.now, first);
    bench.drain();
    bench.release_media();
    let done = Notification::ShutDown { controller: second, flushed: true };
    assert_eq!(bench.notified, [done], "a reset ends a shutdown");
}

#[test]
fn the_world_adds_and_removes_namespaces() {
    let (mut bench, first, second) = two();
    let heard = [listen(&mut bench, first), listen(&mut bench, second)];
    assert_eq!(u32_at(&bench.identify(1, 0), 516), 40);
    let namespace = |id, medium| NamespaceConfig {
        id: NamespaceId(id),
        medium: MediumId(medium),
        offset: 0,
        bytes: DISK,
        block: BlockSize::Bytes4096,
        read_only: false,
        write_protection: WriteProtection::None,
        attached: true,
        identity: NamespaceIdentity::derived("new"),
    };
    let now = bench.now;
    let add = |bench: &mut Bench, config| bench.subsystem.add_namespace(now, &config);
    assert_eq!(add(&mut bench, namespace(41, 3)), Err(NamespaceError::Identifier(40)));
    assert_eq!(add(&mut bench, namespace(2, 3)), Err(NamespaceError::Exists));
    assert_eq!(add(&mut bench, namespace(3, 2)), Err(NamespaceError::Pool));
    bench.disks.push(RamDisk::new(DISK));
    assert_eq!(add(&mut bench, namespace(40, 3)), Ok(()));
    bench.drain();
    for (token, key) in heard.into_iter().zip([first, second]) {
        assert_eq!(bench.take(token).dw0, 0x0004_0002);
        assert!(namespace_list(&bench.of(key).log(LogPage::ChangedNamespaces, 4096)).eq([NamespaceId(40)]));
    }
    bench.succeeds(IO, io(IoOpcode::Read, 40, 0, 1));
    assert_eq!(bench.pushed.len(), 4096);
    assert!(bench.subsystem.namespaces().map(|one| one.id.0).eq([1, 2, 40]));
    assert_eq!(bench.subsystem.remove_namespace(now, NamespaceId(3)), Err(NamespaceError::Missing));
    let heard = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    assert_eq!(bench.subsystem.remove_namespace(now, NamespaceId(40)), Ok(()));
    bench.drain();
    assert_eq!(bench.take(heard).dw0, 0x0004_0002);
    bench.fails(IO, io(IoOpcode::Read, 40, 0, 1), StatusCode::InvalidField);
}

/// A creation that a lost controller leaves to the medium delays a command that needs exclusive
/// access, and does not make it wait for another command.
#[test]
fn a_format_goes_on_once_the_creation_of_a_lost_controller_has_ended() {
    let (mut bench, first, second) = two();
    bench.media_stuck = true;
    bench.host_data = vec![0; 4096];
    (bench.host_data[0], bench.host_data[8]) = (16, 16);
    bench.of(second).send(ADMIN, admin(AdminOpcode::NamespaceManagement));
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = bench.of(first).send(ADMIN, format);
    let read = bench.send(IO, io(IoOpcode::Read, 2, 0, 1));
    bench.subsystem.remove_controller(bench.now, second);
    bench.drain();
    assert_eq!(bench.stuck.len(), 1, "the format and the read wait for the creation");
    bench.release_media();
    assert_eq!(bench.take(format).status, Status::SUCCESS);
    assert_eq!(bench.take(read).status, Status::SUCCESS);
    assert_eq!(bench.subsystem.all_media_outstanding(), 0);
}

/// A Cross-Controller Reset of controller `id`, in the life with the number `random`.
fn end(id: u32, uniquifier: u32, random: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        cdw10: id | uniquifier << 16,
        cdw12: random,
        ..admin(AdminOpcode::CrossControllerReset)
    }
}

#[test]
fn a_host_has_a_controller_ended_by_another_of_its_own() {
    let mut bench = Bench::new();
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let host = HostIdentity { name: "nqn.2014-08.org.nvmexpress:host".into(), identifier: [1; 16] };
    let config = |id| ControllerConfig::fabrics(id, host.clone());
    let (first, second) = (bench.connect_with(config(1)), bench.connect_with(config(2)));
    let stranger = bench.connect(3);
    // Without an instance the command does not exist.
    bench.of(second).fails(ADMIN, end(1, 5, 77), StatusCode::InvalidCommandOpcode);
    let instance = |uniquifier, random| Instance { uniquifier, random };
    bench.subsystem.set_instance(first, instance(5, 77));
    bench.subsystem.set_instance(second, instance(6, 78));
    bench.subsystem.set_instance(stranger, instance(7, 79));
    let page = bench.of(first).identify(1, 0);
    assert_eq!((page[135], &page[136..144], page[1807]), (5, &77_u64.to_le_bytes()[..], 4));
    assert_eq!(u16_at(&page, 386), 1, "Command Quiesce Time");
    let reported = |bench: &Bench| -> Vec<ControllerKey> {
        let its = |reported: &Notification| match reported {
            Notification::CrossControllerReset { controller } => Some(*controller),
            _ => None,
        };
        bench.notified.iter().filter_map(its).collect()
    };
    // A life that is over, or that belongs to another host, counts as ended, and the command has no
    // effect.
    // An earlier life may have had the controller's own identifier.
    for gone in [end(1, 5, 76), end(1, 4, 77), end(9, 5, 77), end(3, 7, 79), end(2, 6, 77)] {
        assert_eq!(bench.of(second).succeeds(ADMIN, gone), 1);
    }
    assert!(reported(&bench).is_empty());
    assert_eq!(bench.of(second).succeeds(ADMIN, end(1, 5, 77)), 1, "at once");
    assert_eq!(reported(&bench), [first]);
    // A controller can't reset itself.
    bench.of(second).fails(ADMIN, end(2, 6, 78), StatusCode::InvalidField);
    let log = SubmissionQueueEntry { cdw10: 3 << 16 | 0x1e, ..admin(AdminOpcode::GetLogPage) };
    bench.of(second).succeeds(ADMIN, log);
    assert_eq!(bench.pushed, [0; 16], "no reset is in progress");
}

#[test]
fn controllers_of_other_places_are_not_spoken_for() {
    let mut bench = Bench::new();
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let mut config = ControllerConfig::fabrics(10, HostIdentity::default());
    if let Transport::Fabrics(fabrics) = &mut config.transport {
        fabrics.controller_ids = 10..=19;
    }
    let own = bench.connect_with(config);
    bench.subsystem.set_instance(own, Instance { uniquifier: 1, random: 1 });
    bench.fails(ADMIN, end(20, 1, 1), StatusCode::InvalidControllerIdentifier);
    assert_eq!(bench.succeeds(ADMIN, end(19, 1, 1)), 1);
}
