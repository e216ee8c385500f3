//! Hosts that connect to a target, use it, reset it, leave it.

mod memory;
mod rig;

use alloc::vec::Vec;

use engine::{Buffer, Nanos};
use nvme::host::Data;
use nvme::subsystem::AnaState;
use nvme::wire::{AdminOpcode, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::target::{ControllerModel, Directory, Hosts};
use nvme_fabrics::wire::{
    ControllerId, DiscoveryHeader, FabricsCommand, FabricsStatus, Nqn, PortId, PropertyGet, PropertySet,
    PropertySize, property,
};

use super::{Close, Event, Output};
use rig::{DISK, HOST, KEY, PORT, Rig, directory};

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
        let mut rig = Rig::new(directory());
        rig.without_flow_control = without_flow_control;
        let host = rig.admin_queue(DISK).unwrap();
        rig.enable(host);
        let identify = rig.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
        assert_eq!(&identify.data[768..768 + DISK.len()], DISK.as_bytes());
        assert_eq!(identify.data[78..80], [1, 0], "CNTLID is the one of the Connect response");
        let queues = rig.ask(host, admin(AdminOpcode::SetFeatures, 7, 0x0003_0003), Data::None);
        assert!(queues.entry.status().is_success());
        let queue = rig.io_queue(DISK, 1, 1).unwrap();
        // One write in the capsule, one with an R2T.
        for (lba, length) in [(0, 4096), (64, 128 << 10)] {
            let blocks = u32::try_from(length / 512).unwrap();
            let data = pattern(length, 3);
            let written = rig.ask(queue, io(IoOpcode::Write, lba, blocks), Data::Write(data.clone()));
            assert!(written.entry.status().is_success(), "{:?}", written.entry.status());
            let length = u32::try_from(length).unwrap();
            let read = rig.ask(queue, io(IoOpcode::Read, lba, blocks), Data::Read(length));
            assert!(read.entry.status().is_success());
            assert_eq!(read.data, data);
        }
        // A data pointer that does not fit the command is the host's mistake.
        let short = rig.ask(queue, io(IoOpcode::Read, 0, 8), Data::Read(512));
        assert_eq!(short.entry.status().code(), StatusCode::DataSglLengthInvalid);
        let far = rig.ask(queue, io(IoOpcode::Read, 1 << 40, 1), Data::Read(512));
        assert_eq!(far.entry.status().code(), StatusCode::LbaOutOfRange);
        assert_eq!(rig.target.status()[0].connections.len(), 2);
    }
}

/// Admin commands end at once, with their data. A host whose SGL is shorter than the data must hear
/// of it nevertheless.
#[test]
fn data_beyond_the_sgl_are_refused_on_every_queue() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    let discovery = rig.admin_queue(Nqn::DISCOVERY).unwrap();
    rig.enable(discovery);
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
        let refused = rig.ask(queue, entry, Data::Read(short));
        let code = refused.entry.status().code();
        assert_eq!(code, StatusCode::DataSglLengthInvalid, "{entry:?} with {short} B");
        assert_eq!((refused.entry.dw0, refused.data.len()), (0, 0), "{entry:?} with {short} B");
        // SGLs as long as the data, and longer.
        for room in [whole, whole + 512] {
            let taken = rig.ask(queue, entry, Data::Read(room));
            assert!(taken.entry.status().is_success(), "{entry:?}: {}", taken.entry.status());
            assert_eq!(taken.data.len(), whole as usize, "{entry:?}");
        }
    }
    // The errors of this subsystem are in its log, the latest first: on the I/O queue, about the
    // data pointer.
    let errors = rig.ask(host, log(1, 64), Data::Read(64)).data;
    assert_eq!((errors[0], errors[8], errors[14]), (7, 1, 24));
}

#[test]
fn what_comes_too_early_is_out_of_sequence() {
    let mut rig = Rig::new(directory());
    let host = rig.connection();
    let early = Status::from(StatusCode::CommandSequenceError);
    let read = FabricsCommand::PropertyGet(PropertyGet { size: PropertySize::Dword, offset: 8 }).emit();
    assert_eq!(rig.ask(host, read, Data::None).entry.status(), early);
    assert_eq!(rig.ask(host, io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status(), early);
    rig.connect(host, DISK, 0, 0xffff).unwrap();
    let identify = admin(AdminOpcode::Identify, 1, 0);
    assert_eq!(rig.ask(host, identify, Data::Read(4096)).entry.status(), early);
    assert_eq!(rig.connect(host, DISK, 0, 0xffff).unwrap_err().0, early, "connected already");
    let version = rig.ask(host, read, Data::None).entry;
    assert_eq!((version.status(), version.dw0), (Status::SUCCESS, property::VERSION_2_0));
    let reserved = SubmissionQueueEntry { cdw10: 2, ..read };
    assert_eq!(rig.ask(host, reserved, Data::None).entry.status().code(), StatusCode::InvalidField);
    let disconnect = FabricsCommand::Disconnect { record_format: 0 }.emit();
    let refused = rig.ask(host, disconnect, Data::None).entry.status();
    assert_eq!(refused, FabricsStatus::InvalidQueueType.into());
    let authenticate = SubmissionQueueEntry { namespace: NamespaceId(5), ..disconnect };
    let refused = rig.ask(host, authenticate, Data::None).entry.status();
    assert_eq!(refused.code(), StatusCode::InvalidCommandOpcode);
    // The same two commands on a queue that is connected and then disconnected.
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    assert_eq!(rig.ask(queue, read, Data::None).entry.status(), FabricsStatus::InvalidQueueType.into());
    assert_eq!(rig.ask(queue, disconnect, Data::None).entry.status(), Status::SUCCESS);
    assert!(rig.is_closed(queue));
    rig.io_queue(DISK, 1, 1).unwrap();
}

#[test]
fn a_refused_host_is_told_why_and_may_ask_for_something_else() {
    let mut directory = directory();
    directory.subsystems[0].hosts =
        Hosts::Listed(Vec::from(["nqn.2014-08.org.nvmexpress:uuid:9".parse().unwrap()]));
    let mut rig = Rig::new(directory);
    let host = rig.connection();
    let (status, _) = rig.connect(host, DISK, 0, 0xffff).unwrap_err();
    assert_eq!(status, FabricsStatus::InvalidHost.into());
    let (status, dw0) = rig.connect(host, "nqn.2026-01.io.farlane:none", 0, 0xffff).unwrap_err();
    assert_eq!((status, dw0), (FabricsStatus::InvalidParameters.into(), 0x1_0100));
    rig.connect(host, Nqn::DISCOVERY, 0, 0xffff).unwrap();
    let said: Vec<_> = rig.events.iter().map(alloc::string::ToString::to_string).collect();
    assert!(said[0].ends_with("the subsystem does not let this host in"), "{said:?}");
    assert!(said[1].ends_with("there is no subsystem nqn.2026-01.io.farlane:none at this port"), "{said:?}");
    assert!(said[2].contains("uses the discovery service"), "{said:?}");
}

#[test]
fn a_reset_closes_io_queues_and_keeps_the_admin_queue() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    let event = rig.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    rig.run();
    rig.set_configuration(host, 0x0046_0000);
    assert!(rig.is_closed(queue));
    let aborted = rig.completed(host, event).expect("the request is not left hanging");
    assert_eq!(aborted.entry.status().code(), StatusCode::CommandAbortRequested);
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    let read = rig.ask(queue, io(IoOpcode::Read, 0, 1), Data::Read(512));
    assert!(read.entry.status().is_success());
    // A shutdown reports its completion.
    rig.set_configuration(host, 0x0046_4001);
    assert_eq!(rig.controller_status(host), 0b1001);
    // A reset of the subsystem resets every controller.
    let reset = PropertySet {
        size: PropertySize::Dword,
        offset: property::SUBSYSTEM_RESET,
        value: property::RESET_SIGNATURE.into(),
    };
    assert!(rig.ask(host, FabricsCommand::PropertySet(reset).emit(), Data::None).entry.status().is_success());
    assert!(rig.is_closed(queue));
    assert_eq!(rig.controller_status(host), 1 << 4);
}

#[test]
fn a_lost_admin_queue_takes_the_others_with_it() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    rig.drop_connection(host);
    assert!(rig.is_closed(queue));
    assert!(rig.target.status().is_empty());
    assert!(matches!(rig.events.last(), Some(Event::Ended { why: Close::Lost, .. })), "{:?}", rig.events);
    // The loss of one I/O queue leaves the others connected.
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let controller = rig.target.status()[0].controller.0;
    let queue = rig.io_queue(DISK, 1, controller).unwrap();
    rig.drop_connection(queue);
    assert_eq!(rig.target.status()[0].connections.len(), 1);
    rig.io_queue(DISK, 1, controller).unwrap();
}

#[test]
fn what_a_host_wrote_before_it_was_lost_is_not_overtaken() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    rig.is_held = true;
    rig.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 1)));
    rig.run();
    rig.drop_connection(host);
    // The host is back at once, while the medium still writes the data of before.
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let controller = rig.target.status()[0].controller.0;
    let queue = rig.io_queue(DISK, 1, controller).unwrap();
    let read = rig.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    rig.run();
    rig.release();
    assert_eq!(rig.completed(queue, read).expect("the read has ended").data, pattern(4096, 1));
    // A reset instead of a lost connection.
    rig.is_held = true;
    rig.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 2)));
    rig.run();
    rig.set_configuration(host, 0x0046_0000);
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, controller).unwrap();
    let read = rig.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    rig.run();
    rig.release();
    assert_eq!(rig.completed(queue, read).expect("the read has ended").data, pattern(4096, 2));
    // The loss of one I/O queue alone.
    rig.is_held = true;
    rig.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 3)));
    rig.run();
    rig.drop_connection(queue);
    let queue = rig.io_queue(DISK, 1, controller).unwrap();
    let read = rig.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    rig.run();
    rig.release();
    assert_eq!(rig.completed(queue, read).expect("the read has ended").data, pattern(4096, 3));
}

#[test]
fn a_host_has_a_lost_controller_ended_by_another() {
    let mut rig = Rig::new(directory());
    let lost = rig.admin_queue(DISK).unwrap();
    rig.enable(lost);
    let page = rig.ask(lost, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096)).data;
    let id = rig.target.status()[0].controller.0;
    let queue = rig.io_queue(DISK, 1, id).unwrap();
    rig.is_held = true;
    rig.submit(queue, io(IoOpcode::Write, 0, 8), Data::Write(pattern(4096, 1)));
    rig.run();
    let other = rig.admin_queue(DISK).unwrap();
    rig.enable(other);
    let double_word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let entry = SubmissionQueueEntry {
        cdw12: double_word(136),
        cdw13: double_word(140),
        ..admin(AdminOpcode::CrossControllerReset, u32::from(id) | u32::from(page[135]) << 16, 0)
    };
    let done = rig.ask(other, entry, Data::None).entry;
    assert!(done.status().is_success());
    assert_eq!(done.dw0, 1, "at once");
    assert!(rig.is_closed(lost) && rig.is_closed(queue) && !rig.is_closed(other));
    let why = |event: &Event| matches!(event, Event::Ended { why: Close::CrossControllerReset, .. });
    assert!(rig.events.iter().any(why), "{:?}", rig.events);
    // What the medium has begun completes before anybody reads.
    let controller = rig.target.status()[0].controller.0;
    let queue = rig.io_queue(DISK, 1, controller).unwrap();
    let read = rig.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    rig.run();
    rig.release();
    assert_eq!(rig.completed(queue, read).expect("the read has ended").data, pattern(4096, 1));
    // That life of the controller is over: ending it again changes nothing.
    assert_eq!(rig.ask(other, entry, Data::None).entry.dw0, 1);
    assert!(!rig.is_closed(other));
}

#[test]
fn a_silent_host_is_given_up() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    rig.pass(Nanos::from_secs(4));
    rig.ask(host, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
    rig.pass(Nanos::from_secs(4));
    assert!(!rig.is_closed(host));
    rig.pass(Nanos::from_secs(2));
    assert!(rig.is_closed(host));
    assert!(matches!(rig.events.last(), Some(Event::Ended { why: Close::KeepAlive, .. })));
    // A host that never says which queue it wants is not waited for either.
    let mute = rig.connection();
    rig.pass(Nanos::from_secs(11));
    assert!(rig.is_closed(mute));
}

#[test]
fn another_reactor_goes_on_where_the_first_has_stopped() {
    let mut first = directory();
    first.subsystems[0].is_here = false;
    let mut rig = Rig::new(first);
    let host = rig.connection();
    let cookie = rig.send_connect(host, DISK, 0, 0xffff);
    rig.run();
    let moved = rig.moved.take().expect("the subsystem is elsewhere");
    assert_eq!(moved.sent, 128, "the ICResp was sent");
    // The second reactor has never seen the host, and the host notices nothing.
    let mut second = Rig::new(directory());
    second.adopt(&mut rig, host, moved);
    let connected = second.completed(host, cookie).expect("the Connect is answered by the second");
    assert!(connected.entry.status().is_success());
    second.enable(host);
    let identify = second.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert!(identify.entry.status().is_success());
}

#[test]
fn discovery_tells_of_what_is_offered_and_of_changes() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(Nqn::DISCOVERY).unwrap();
    rig.enable(host);
    let identify = rig.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert_eq!(identify.data[111], 2, "a discovery controller");
    rig.ask(host, admin(AdminOpcode::SetFeatures, 0x0b, 1 << 31), Data::None);
    let event = rig.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    rig.run();
    let get_log = admin(AdminOpcode::GetLogPage, 0x00ff_0070, 0);
    let log = rig.ask(host, get_log, Data::Read(1024));
    let header = DiscoveryHeader::parse(log.data[..1024].try_into().unwrap()).unwrap();
    assert_eq!((header.generation, header.records), (0, 2));
    let now = rig.now;
    rig.target.set_directory(now, Directory::default());
    rig.run();
    let told = rig.completed(host, event).expect("an event");
    assert_eq!(told.entry.dw0, 0x0070_f002);
    let log = rig.ask(host, get_log, Data::Read(1024));
    assert_eq!(log.data[0], 1);
}

#[test]
fn a_target_that_ends_closes_everything() {
    let mut rig = Rig::new(directory());
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    let mute = rig.connection();
    let now = rig.now;
    rig.target.shut_down(now);
    rig.run();
    assert!([host, queue, mute].into_iter().all(|one| rig.is_closed(one)));
    assert_eq!(rig.target.connection_count(), 0);
    let said = rig.events.last().unwrap();
    assert!(matches!(said, Event::Turned { why: Close::ShuttingDown, .. }), "{said:?}");
    assert!(rig.events.iter().any(|event| alloc::format!("{event}").starts_with(HOST)));
}

#[test]
fn outputs_stay_small() {
    assert!(size_of::<Output>() <= 256);
}

#[test]
fn the_controllers_of_a_port_reach_a_group_alike() {
    let mut rig = Rig::new(directory());
    rig.target.set_port_access(rig.now, KEY, PORT, 1, AnaState::Inaccessible);
    rig.target.set_port_access(rig.now, KEY, PortId(2), 1, AnaState::PersistentLoss);
    let host = rig.admin_queue(DISK).unwrap();
    rig.enable(host);
    let queue = rig.io_queue(DISK, 1, 1).unwrap();
    let read = |rig: &mut Rig| rig.ask(queue, io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status();
    assert_eq!(
        read(&mut rig).code(),
        StatusCode::AsymmetricAccessInaccessible,
        "it came after that was said"
    );
    let wanted = admin(AdminOpcode::SetFeatures, 0x0b, 1 << 11);
    assert!(rig.ask(host, wanted, Data::None).entry.status().is_success());
    let event = rig.submit(host, admin(AdminOpcode::AsynchronousEventRequest, 0, 0), Data::None);
    rig.run();
    let log = admin(AdminOpcode::GetLogPage, 0x0c | 15 << 16, 0);
    assert!(rig.ask(host, log, Data::Read(64)).entry.status().is_success());
    rig.target.set_port_access(rig.now, KEY, PORT, 1, AnaState::Optimized);
    rig.run();
    assert_eq!(rig.completed(host, event).expect("the host hears of it").entry.dw0, 0x000c_0302);
    assert!(read(&mut rig).is_success());
    let (one, other) = (ControllerId(1), ControllerId(77));
    assert!(!rig.target.set_controller_access(rig.now, KEY, other, 1, AnaState::Change));
    assert!(rig.target.set_controller_access(rig.now, KEY, one, 1, AnaState::Change));
    rig.run();
    assert_eq!(read(&mut rig).code(), StatusCode::AsymmetricAccessTransition);
}

#[test]
fn a_static_controller_has_what_the_host_before_has_set() {
    let (set, get) = (admin(AdminOpcode::SetFeatures, 0x0b, 0x100), admin(AdminOpcode::GetFeatures, 0x0b, 0));
    for model in [ControllerModel::Static(5..=6), ControllerModel::Dynamic(5..=6)] {
        let is_static = matches!(model, ControllerModel::Static(_));
        let mut directory = directory();
        directory.subsystems[0].model = model;
        let mut rig = Rig::new(directory);
        let wanted = if is_static { 6 } else { 0xffff };
        let first = rig.connection();
        rig.connect(first, DISK, 0, wanted).unwrap();
        rig.enable(first);
        let identify = rig.ask(first, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
        assert_eq!(identify.data[1802], u8::from(is_static), "FCATT");
        assert!(rig.ask(first, set, Data::None).entry.status().is_success());
        rig.drop_connection(first);
        let second = rig.connection();
        rig.connect(second, DISK, 0, wanted).unwrap();
        rig.enable(second);
        let value = rig.ask(second, get, Data::None).entry.dw0;
        assert_eq!(value, if is_static { 0x100 } else { 0 });
    }
}
