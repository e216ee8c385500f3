//! Hosts that connect to a target, use it, reset it, leave it.

mod lanes;
mod memory;
mod permits;
mod strangers;
mod test_bench;

use alloc::vec::Vec;

use engine::{Buffer, Nanos};
use nvme::host::Data;
use nvme::wire::{AdminOpcode, AnaState, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::target::{ControllerModel, Directory, Hosts};
use nvme_fabrics::wire::{
    ControllerId, DiscoveryHeader, FabricsCommand, FabricsStatus, Nqn, PortId, PropertyGet, PropertySet,
    PropertySize, property,
};

use super::{Close, Event, Output};
use test_bench::{DISK, HOST, KEY, PORT, TestBench, directory};

fn admin(opcode: AdminOpcode, cdw10: u32, cdw11: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), cdw10, cdw11, ..SubmissionQueueEntry::default() }
}

fn io(opcode: IoOpcode, lba: u64, blocks: u32) -> SubmissionQueueEntry {
    let entry = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace: NamespaceId(1),
        cdw12: blocks - 1,
        ..SubmissionQueueEntry::default()
    };
    entry.with_starting_lba(lba)
}

fn pattern(length: usize, seed: u8) -> Buffer {
    let bytes: Vec<u8> = (0..length).map(|index| (index / 7).to_le_bytes()[0] ^ seed).collect();
    Buffer::from(bytes)
}

#[test]
fn a_host_connects_and_uses_a_namespace() {
    for without_flow_control in [false, true] {
        let mut bench = TestBench::new(directory());
        bench.without_flow_control = without_flow_control;
        let host = bench.admin_queue(DISK).unwrap();
        bench.enable(host);
        let identify = bench.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
        assert_eq!(&identify.data[768..768 + DISK.len()], DISK.as_bytes());
        assert_eq!(identify.data[78..80], [1, 0], "CNTLID is the one of the Connect response");
        let queues = bench.ask(host, admin(AdminOpcode::SetFeatures, 7, 0x0003_0003), Data::None);
        assert!(queues.entry.status().is_success());
        let queue = bench.io_queue(DISK, 1, 1).unwrap();
        // One write in the capsule, one with an R2T.
        for (lba, length) in [(0, 4096), (64, 128 << 10)] {
            let blocks = u32::try_from(length / 512).unwrap();
            let data = pattern(length, 3);
            let written = bench.ask(queue, io(IoOpcode::Write, lba, blocks), Data::Write(data.clone()));
            assert!(written.entry.status().is_success(), "{:?}", written.entry.status());
            let length = u32::try_from(length).unwrap();
            let read = bench.ask(queue, io(IoOpcode::Read, lba, blocks), Data::Read(length));
            assert!(read.entry.status().is_success());
            assert_eq!(read.data, data);
        }
        // A data pointer that does not fit the command is the host's mistake.
        let short = bench.ask(queue, io(IoOpcode::Read, 0, 8), Data::Read(512));
        assert_eq!(short.entry.status().code(), StatusCode::DataSglLengthInvalid);
        let far = bench.ask(queue, io(IoOpcode::Read, 1 << 40, 1), Data::Read(512));
        assert_eq!(far.entry.status().code(), StatusCode::LbaOutOfRange);
        assert_eq!(bench.target.status()[0].connections.len(), 2);
    }
}

/// Admin commands end at once, with their data. A host whose SGL is shorter than the data must hear
/// of it nevertheless.
#[test]
fn data_beyond_the_sgl_are_refused_on_every_queue() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    let discovery = bench.admin_queue(Nqn::DISCOVERY).unwrap();
    bench.enable(discovery);
    let log = |page: u32, bytes: u32| admin(AdminOpcode::GetLogPage, page | (bytes / 4 - 1) << 16, 0);
    let report = SubmissionQueueEntry { cdw10: 63, cdw11: 1, ..io(IoOpcode::ReservationReport, 0, 1) };
    let report = SubmissionQueueEntry { cdw12: 0, ..report };
    let identify = admin(AdminOpcode::Identify, 1, 0);
    let cases = [
        (host, identify, 4096, 1024),
        (host, identify, 4096, 0),
        (host, log(2, 512), 512, 64),
        (host, log(1, 4096), 4096, 4092),
        (host, admin(AdminOpcode::GetFeatures, 0x81, 1), 16, 8),
        (queue, io(IoOpcode::Read, 0, 8), 4096, 512),
        (queue, report, 256, 64),
        (discovery, identify, 4096, 1024),
        (discovery, log(0x70, 1024), 1024, 512),
    ];
    for (queue, entry, whole, short) in cases {
        let refused = bench.ask(queue, entry, Data::Read(short));
        let code = refused.entry.status().code();
        assert_eq!(code, StatusCode::DataSglLengthInvalid, "{entry:?} with {short} B");
        assert_eq!((refused.entry.dw0, refused.data.len()), (0, 0), "{entry:?} with {short} B");
        // SGLs as long as the data, and longer.
        for room in [whole, whole + 512] {
            let taken = bench.ask(queue, entry, Data::Read(room));
            assert!(taken.entry.status().is_success(), "{entry:?}: {}", taken.entry.status());
            assert_eq!(taken.data.len(), whole as usize, "{entry:?}");
        }
    }
    // The errors of this subsystem are in its log, the latest first: on the I/O queue, about the
    // data pointer.
    let errors = bench.ask(host, log(1, 64), Data::Read(64)).data;
    assert_eq!((errors[0], errors[8], errors[14]), (7, 1, 24));
}

#[test]
fn what_comes_too_early_is_out_of_sequence() {
    let mut bench = TestBench::new(directory());
    let host = bench.connection();
    let early = Status::from(StatusCode::CommandSequenceError);
    let read = FabricsCommand::PropertyGet(PropertyGet { size: PropertySize::Dword, offset: 8 }).emit();
    assert_eq!(bench.ask(host, read, Data::None).entry.status(), early);
    assert_eq!(bench.ask(host, io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status(), early);
    bench.connect(host, DISK, 0, 0xffff).unwrap();
    let identify = admin(AdminOpcode::Identify, 1, 0);
    assert_eq!(bench.ask(host, identify, Data::Read(4096)).entry.status(), early);
    assert_eq!(bench.connect(host, DISK, 0, 0xffff).unwrap_err().0, early, "connected already");
    let version = bench.ask(host, read, Data::None).entry;
    assert_eq!((version.status(), version.dw0), (Status::SUCCESS, property::VERSION_2_0));
    let reserved = SubmissionQueueEntry { cdw10: 2, ..read };
    assert_eq!(bench.ask(host, reserved, Data::None).entry.status().code(), StatusCode::InvalidField);
    let disconnect = FabricsCommand::Disconnect { record_format: 0 }.emit();
    let refused = bench.ask(host, disconnect, Data::None).entry.status();
    assert_eq!(refused, FabricsStatus::InvalidQueueType.into());
    let authenticate = SubmissionQueueEntry { namespace: NamespaceId(5), ..disconnect };
    let refused = bench.ask(host, authenticate, Data::None).entry.status();
    assert_eq!(refused.code(), StatusCode::InvalidCommandOpcode);
    // The same two commands on a queue that is connected and then disconnected.
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    assert_eq!(bench.ask(queue, read, Data::None).entry.status(), FabricsStatus::InvalidQueueType.into());
    assert_eq!(bench.ask(queue, disconnect, Data::None).entry.status(), Status::SUCCESS);
    assert!(bench.is_closed(queue));
    bench.io_queue(DISK, 1, 1).unwrap();
}

#[test]
fn a_refused_host_gets_the_reason_and_may_ask_for_another_subsystem() {
    let mut directory = directory();
    directory.subsystems[0].hosts =
        Hosts::Listed(Vec::from(["nqn.2014-08.org.nvmexpress:uuid:9".parse().unwrap()]));
    let mut bench = TestBench::new(directory);
    let host = bench.connection();
    let (status, _) = bench.connect(host, DISK, 0, 0xffff).unwrap_err();
    assert_eq!(status, FabricsStatus::InvalidHost.into());
    let (status, dw0) = bench.connect(host, "nqn.2026-01.io.farlane:none", 0, 0xffff).unwrap_err();
    assert_eq!((status, dw0), (FabricsStatus::InvalidParameters.into(), 0x1_0100));
    bench.connect(host, Nqn::DISCOVERY, 0, 0xffff).unwrap();
    let said: Vec<_> = bench.events.iter().map(alloc::string::ToString::to_string).collect();
    assert!(said[0].ends_with("the subsystem does not let this host in"), "{said:?}");
    assert!(said[1].ends_with("there is no subsystem nqn.2026-01.io.farlane:none at this port"), "{said:?}");
    assert!(said[2].contains("uses the discovery service"), "{said:?}");
}

#[test]
fn a_reset_closes_io_queues_and_keeps_the_admin_queue() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    let event = bench.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    bench.run();
    bench.set_configuration(host, 0x0046_0000);
    assert!(bench.is_closed(queue));
    let aborted = bench.completed(host, event).expect("the request is not left hanging");
    assert_eq!(aborted.entry.status().code(), StatusCode::CommandAbortRequested);
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    let read = bench.ask(queue, io(IoOpcode::Read, 0, 1), Data::Read(512));
    assert!(read.entry.status().is_success());
    // A shutdown reports its completion.
    bench.set_configuration(host, 0x0046_4001);
    assert_eq!(bench.controller_status(host), 0b1001);
    // A reset of the subsystem resets every controller.
    let reset = PropertySet {
        size: PropertySize::Dword,
        offset: property::SUBSYSTEM_RESET,
        value: property::RESET_SIGNATURE.into(),
    };
    assert!(
        bench.ask(host, FabricsCommand::PropertySet(reset).emit(), Data::None).entry.status().is_success()
    );
    assert!(bench.is_closed(queue));
    assert_eq!(bench.controller_status(host), 1 << 4);
}

#[test]
fn a_lost_admin_queue_takes_the_others_with_it() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    bench.drop_connection(host);
    assert!(bench.is_closed(queue));
    assert!(bench.target.status().is_empty());
    assert!(matches!(bench.events.last(), Some(Event::Ended { why: Close::Lost, .. })), "{:?}", bench.events);
    // The loss of one I/O queue leaves the others connected.
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let controller = bench.target.status()[0].controller.0;
    let queue = bench.io_queue(DISK, 1, controller).unwrap();
    bench.drop_connection(queue);
    assert_eq!(bench.target.status()[0].connections.len(), 1);
    bench.io_queue(DISK, 1, controller).unwrap();
}

#[test]
fn what_a_host_wrote_before_it_was_lost_is_not_overtaken() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    bench.is_held = true;
    bench.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 1)));
    bench.run();
    bench.drop_connection(host);
    // The host is back at once, while the medium still writes the data of before.
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let controller = bench.target.status()[0].controller.0;
    let queue = bench.io_queue(DISK, 1, controller).unwrap();
    let read = bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.release();
    assert_eq!(bench.completed(queue, read).expect("the read has ended").data, pattern(4096, 1));
    // A reset instead of a lost connection.
    bench.is_held = true;
    bench.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 2)));
    bench.run();
    bench.set_configuration(host, 0x0046_0000);
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, controller).unwrap();
    let read = bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.release();
    assert_eq!(bench.completed(queue, read).expect("the read has ended").data, pattern(4096, 2));
    // The loss of one I/O queue alone.
    bench.is_held = true;
    bench.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 3)));
    bench.run();
    bench.drop_connection(queue);
    let queue = bench.io_queue(DISK, 1, controller).unwrap();
    let read = bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.release();
    assert_eq!(bench.completed(queue, read).expect("the read has ended").data, pattern(4096, 3));
}

#[test]
fn a_host_has_a_lost_controller_ended_by_another() {
    let mut bench = TestBench::new(directory());
    let lost = bench.admin_queue(DISK).unwrap();
    bench.enable(lost);
    let page = bench.ask(lost, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096)).data;
    let id = bench.target.status()[0].controller.0;
    let queue = bench.io_queue(DISK, 1, id).unwrap();
    bench.is_held = true;
    bench.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 1)));
    bench.run();
    let other = bench.admin_queue(DISK).unwrap();
    bench.enable(other);
    let double_word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let entry = SubmissionQueueEntry {
        cdw12: double_word(136),
        cdw13: double_word(140),
        ..admin(AdminOpcode::CrossControllerReset, u32::from(id) | u32::from(page[135]) << 16, 0)
    };
    let done = bench.ask(other, entry, Data::None).entry;
    assert!(done.status().is_success());
    assert_eq!(done.dw0, 1, "at once");
    assert!(bench.is_closed(lost) && bench.is_closed(queue) && !bench.is_closed(other));
    let why = |event: &Event| matches!(event, Event::Ended { why: Close::CrossControllerReset, .. });
    assert!(bench.events.iter().any(why), "{:?}", bench.events);
    // The medium's commands complete before the next host reads.
    let controller = bench.target.status()[0].controller.0;
    let queue = bench.io_queue(DISK, 1, controller).unwrap();
    let read = bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    bench.run();
    bench.release();
    assert_eq!(bench.completed(queue, read).expect("the read has ended").data, pattern(4096, 1));
    // That life of the controller is over: ending it again changes nothing.
    assert_eq!(bench.ask(other, entry, Data::None).entry.dw0, 1);
    assert!(!bench.is_closed(other));
}

#[test]
fn a_silent_host_is_given_up() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    bench.pass(Nanos::from_secs(4));
    bench.ask(host, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
    bench.pass(Nanos::from_secs(4));
    assert!(!bench.is_closed(host));
    bench.pass(Nanos::from_secs(2));
    assert!(bench.is_closed(host));
    assert!(matches!(bench.events.last(), Some(Event::Ended { why: Close::KeepAlive, .. })));
    // A host that never says which queue it wants is not waited for either.
    let mute = bench.connection();
    bench.pass(Nanos::from_secs(11));
    assert!(bench.is_closed(mute));
}

#[test]
fn another_reactor_goes_on_where_the_first_has_stopped() {
    let mut first = directory();
    first.subsystems[0].is_here = false;
    let mut bench = TestBench::new(first);
    let host = bench.connection();
    let cookie = bench.send_connect(host, DISK, 0, 0xffff);
    bench.run();
    let moved = bench.moved.take().expect("the subsystem is elsewhere");
    assert_eq!(moved.sent, 128, "the ICResp was sent");
    // The second reactor has never seen the host, and the host notices nothing.
    let mut second = TestBench::new(directory());
    second.adopt(&mut bench, host, moved);
    let connected = second.completed(host, cookie).expect("the Connect is answered by the second");
    assert!(connected.entry.status().is_success());
    second.enable(host);
    let identify = second.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert!(identify.entry.status().is_success());
}

#[test]
fn discovery_reports_offers_and_changes() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(Nqn::DISCOVERY).unwrap();
    bench.enable(host);
    let identify = bench.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert_eq!(identify.data[111], 2, "a discovery controller");
    bench.ask(host, admin(AdminOpcode::SetFeatures, 0x0b, 1 << 31), Data::None);
    let event = bench.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    bench.run();
    let get_log = admin(AdminOpcode::GetLogPage, 0x00ff_0070, 0);
    let log = bench.ask(host, get_log, Data::Read(1024));
    let header = DiscoveryHeader::parse(log.data[..1024].try_into().unwrap()).unwrap();
    assert_eq!((header.generation, header.records), (0, 2));
    let now = bench.now;
    bench.target.set_directory(now, Directory::default());
    bench.run();
    let reported = bench.completed(host, event).expect("an event");
    assert_eq!(reported.entry.dw0, 0x0070_f002);
    let log = bench.ask(host, get_log, Data::Read(1024));
    assert_eq!(log.data[0], 1);
}

#[test]
fn a_host_leaves_the_subsystem_that_is_gone_by_its_name() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let now = bench.now;
    bench.target.set_directory(now, Directory::default());
    bench.run();
    assert!(bench.is_closed(host));
    let said: Vec<_> = bench.events.iter().map(ToString::to_string).collect();
    let left = said.iter().find(|line| line.contains("no longer offered")).expect("an end");
    assert!(left.contains(&alloc::format!("has left {DISK}, controller")), "{left}");
}

#[test]
fn a_target_that_ends_closes_everything() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    let mute = bench.connection();
    let now = bench.now;
    bench.target.shut_down(now);
    bench.run();
    assert!([host, queue, mute].into_iter().all(|one| bench.is_closed(one)));
    assert_eq!(bench.target.connection_count(), 0);
    let said = bench.events.last().unwrap();
    assert!(matches!(said, Event::Turned { why: Close::ShuttingDown, .. }), "{said:?}");
    assert!(bench.events.iter().any(|event| alloc::format!("{event}").starts_with(HOST)));
}

#[test]
fn outputs_stay_small() {
    assert!(size_of::<Output>() <= 256);
}

#[test]
fn the_controllers_of_a_port_reach_a_group_alike() {
    let mut bench = TestBench::new(directory());
    bench.target.set_port_access(bench.now, KEY, PORT, 1, AnaState::Inaccessible);
    bench.target.set_port_access(bench.now, KEY, PortId(2), 1, AnaState::PersistentLoss);
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let queue = bench.io_queue(DISK, 1, 1).unwrap();
    let read =
        |bench: &mut TestBench| bench.ask(queue, io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status();
    assert_eq!(
        read(&mut bench).code(),
        StatusCode::AsymmetricAccessInaccessible,
        "it came after that was said"
    );
    let wanted = admin(AdminOpcode::SetFeatures, 0x0b, 1 << 11);
    assert!(bench.ask(host, wanted, Data::None).entry.status().is_success());
    let event = bench.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    bench.run();
    let log = admin(AdminOpcode::GetLogPage, 0x0c | 15 << 16, 0);
    assert!(bench.ask(host, log, Data::Read(64)).entry.status().is_success());
    bench.target.set_port_access(bench.now, KEY, PORT, 1, AnaState::Optimized);
    bench.run();
    assert_eq!(bench.completed(host, event).expect("the host hears of it").entry.dw0, 0x000c_0302);
    assert!(read(&mut bench).is_success());
    let (one, other) = (ControllerId(1), ControllerId(77));
    assert!(!bench.target.set_controller_access(bench.now, KEY, other, 1, AnaState::Change));
    assert!(bench.target.set_controller_access(bench.now, KEY, one, 1, AnaState::Change));
    bench.run();
    assert_eq!(read(&mut bench).code(), StatusCode::AsymmetricAccessTransition);
}

#[test]
fn a_static_controller_has_what_the_host_before_has_set() {
    let (set, get) = (admin(AdminOpcode::SetFeatures, 0x0b, 0x100), admin(AdminOpcode::GetFeatures, 0x0b, 0));
    for model in [ControllerModel::Static(5..=6), ControllerModel::Dynamic(5..=6)] {
        let is_static = matches!(model, ControllerModel::Static(_));
        let mut directory = directory();
        directory.subsystems[0].model = model;
        let mut bench = TestBench::new(directory);
        let wanted = if is_static { 6 } else { 0xffff };
        let first = bench.connection();
        bench.connect(first, DISK, 0, wanted).unwrap();
        bench.enable(first);
        let identify = bench.ask(first, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
        assert_eq!(identify.data[1802], u8::from(is_static), "FCATT");
        assert!(bench.ask(first, set, Data::None).entry.status().is_success());
        bench.drop_connection(first);
        let second = bench.connection();
        bench.connect(second, DISK, 0, wanted).unwrap();
        bench.enable(second);
        let value = bench.ask(second, get, Data::None).entry.dw0;
        assert_eq!(value, if is_static { 0x100 } else { 0 });
    }
}

/// Everything but the authentication waits until the host has proved who it is.
#[test]
fn an_unauthenticated_host_has_to_authenticate() {
    use nvme_fabrics::authentication::{Credentials, Secret};
    use nvme_fabrics::wire::{AuthenticationCommand, FabricsStatus};
    let mut directory = directory();
    let secret = Secret::generate(None, &mut engine::Entropy::from(engine::Rng::from_seed(1)));
    directory.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), Credentials::new(secret).into())]);
    let mut bench = TestBench::new(directory);
    let host = bench.admin_queue(DISK).unwrap();
    let required = Status::from(FabricsStatus::AuthenticationRequired);
    let get = FabricsCommand::PropertyGet(PropertyGet {
        size: PropertySize::Dword,
        offset: nvme_fabrics::wire::property::STATUS,
    });
    assert_eq!(bench.ask(host, get.emit(), Data::None).entry.status(), required);
    let identify = bench.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert_eq!(identify.entry.status(), required);
    let invalid = Status::from(StatusCode::InvalidField);
    let long = AuthenticationCommand::in_band(4097);
    let send = FabricsCommand::AuthenticationSend(long).emit();
    let data = Data::Write(Buffer::from(alloc::vec![0; 4097]));
    assert_eq!(bench.ask(host, send, data).entry.status(), invalid);
    // Noise is answered with a failure message, and the association ends.
    let noise = AuthenticationCommand::in_band(16);
    let send = FabricsCommand::AuthenticationSend(noise).emit();
    let sent = bench.ask(host, send, Data::Write(Buffer::from(alloc::vec![0xff; 16])));
    assert!(sent.entry.status().is_success());
    let receive = FabricsCommand::AuthenticationReceive(AuthenticationCommand::in_band(64)).emit();
    let received = bench.ask(host, receive, Data::Read(64));
    assert_eq!((received.data[1], received.data[7]), (0xf1, 7), "AUTH_Failure1: incorrect message");
    assert!(bench.is_closed(host) && bench.target.status().is_empty());
}
