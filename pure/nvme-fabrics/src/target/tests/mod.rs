//! Every way to connect, to be refused, and to be forgotten; the discovery log, and its events.

mod authentication;
mod tls;

use alloc::vec::Vec;

use engine::{Instant, Nanos};
use nvme::wire::{AdminOpcode, CommandId, Status, StatusCode, SubmissionQueueEntry};

use super::*;
use crate::wire::{
    ConnectAttributes, ConnectCommand, ConnectData, DiscoveryEntry, DiscoveryHeader, FabricsStatus, HostId,
    Nqn, Parameter, PortId, PropertyGet, PropertySet, PropertySize, QueueId, SubsystemType, TransportType,
    property,
};

const START: Instant = Instant::from_nanos(1_000_000_000);
const PORT: PortId = PortId(1);
const DISK: &str = "nqn.2026-01.io.farlane:disk";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:1";
const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:2";
/// Linux's value of CC.
const ENABLE: u64 = 0x0046_0001;

fn nqn(name: &str) -> Nqn {
    name.parse().unwrap()
}

fn subsystem(key: u32, name: &str) -> Subsystem {
    Subsystem {
        key: SubsystemKey(key),
        name: nqn(name),
        hosts: Hosts::Any,
        terms: Vec::new(),
        model: ControllerModel::default(),
        ports: Vec::from([PORT]),
        is_here: true,
    }
}

fn directory() -> Directory {
    let address = "192.0.2.1:4420".parse::<core::net::SocketAddr>().unwrap().into();
    let port = Port { id: PORT, address, is_any: false };
    let subsystems = Vec::from([subsystem(0, DISK)]);
    Directory { subsystems, ports: Vec::from([port]), ..Directory::default() }
}

fn with(change: impl FnOnce(&mut Directory)) -> Target {
    let mut directory = directory();
    change(&mut directory);
    Target::new(directory, engine::Rng::from_seed(1).into())
}

/// A host that has connected through a port, without TLS.
fn through(port: PortId) -> Arrival<'static> {
    let origin = Origin::of([198, 51, 100, 1].into());
    Arrival { port, local: None, proved: None, origin, is_known: false }
}

/// A Connect as a host sends it.
#[derive(Clone)]
struct Ask {
    command: ConnectCommand,
    data: ConnectData,
}

fn ask(queue: u16, controller: u16) -> Ask {
    let command = ConnectCommand {
        record_format: 0,
        queue: QueueId(queue),
        submission_queue_size: 31,
        attributes: ConnectAttributes::default(),
        keep_alive_timeout: 5000,
    };
    let data = ConnectData { host_id: HostId([1; 16]), controller, subsystem: nqn(DISK), host: nqn(HOST) };
    Ask { command, data }
}

impl Ask {
    fn of(self, target: &mut Target) -> Result<Connected, Refusal> {
        match target.connect(START, through(PORT), &self.command, &self.data.emit())? {
            Outcome::Connected(connected) => Ok(connected),
            Outcome::Elsewhere(key) => panic!("{key:?} is here"),
        }
    }
    fn to(mut self, name: &str) -> Self {
        self.data.subsystem = nqn(name);
        self
    }
}

fn set(target: &mut Target, key: AssociationKey, offset: u32, value: u64) -> Result<Change, Status> {
    let set = PropertySet { size: PropertySize::Dword, offset, value };
    target.property_set(START, key, QueueId::ADMIN, set)
}

fn status(target: &Target, key: AssociationKey) -> u64 {
    let get = PropertyGet { size: PropertySize::Dword, offset: property::STATUS };
    target.property_get(key, QueueId::ADMIN, get).unwrap()
}

fn enable(target: &mut Target, key: AssociationKey) {
    assert_eq!(set(target, key, property::CONFIGURATION, ENABLE), Ok(Change::Enable));
    assert_eq!(status(target, key), 0);
    target.set_ready(key);
    assert_eq!(status(target, key), 1);
}

fn refused(ask: Ask, target: &mut Target) -> (Status, u32) {
    let refusal = ask.of(target).unwrap_err();
    (refusal.status, refusal.dw0)
}

fn invalid(parameter: Parameter) -> (Status, u32) {
    (FabricsStatus::InvalidParameters.into(), parameter.dw0())
}

/// The refusal of an I/O queue whose association has ended.
fn gone() -> (Status, u32) {
    let (status, dw0) = invalid(Parameter::CONTROLLER);
    (status.with_do_not_retry(false), dw0)
}

#[test]
fn a_host_connects_an_admin_queue_and_io_queues() {
    let mut target = with(|_| ());
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    assert_eq!((admin.subsystem, admin.entries, admin.response.controller.0), (Some(SubsystemKey(0)), 32, 1));
    // I/O queues can be connected only once the controller is enabled.
    let (early, _) = refused(ask(1, 1), &mut target);
    assert_eq!(early, StatusCode::CommandSequenceError.into());
    enable(&mut target, admin.association);
    for queue in 1..=64 {
        let mut ask = ask(queue, 1);
        ask.command.submission_queue_size = 1023;
        let io = ask.of(&mut target).unwrap();
        assert_eq!((io.association, io.entries), (admin.association, 1024));
    }
    assert_eq!(target.association(admin.association).unwrap().queue_count(), 65);
    // Another host gets another controller.
    let mut other = ask(0, 0xffff);
    other.data.host = nqn(OTHER);
    assert_eq!(other.of(&mut target).unwrap().response.controller.0, 2);
}

#[test]
fn a_target_that_is_not_complete_refuses_nothing_for_good() {
    let unknown = || {
        let mut ask = ask(0, 0xffff);
        ask.data.subsystem = nqn("nqn.2026-01.io.farlane:none");
        ask
    };
    let mut target = with(|directory| directory.is_partial = true);
    let (status, dw0) = invalid(Parameter::SUBSYSTEM);
    assert_eq!(refused(unknown(), &mut target), (status.with_do_not_retry(false), dw0));
    assert!(ask(0, 0xffff).of(&mut target).is_ok());
    let complete = Directory { is_partial: false, ..target.directory().clone() };
    target.set_directory(complete);
    assert_eq!(refused(unknown(), &mut target), (status, dw0));
}

#[test]
fn every_wrong_connect_is_refused_by_its_name() {
    let listed = |directory: &mut Directory| {
        directory.subsystems[0].hosts = Hosts::Listed(Vec::from([nqn(HOST)]));
    };
    let mut target = with(listed);
    let mut change = |change: &dyn Fn(&mut Ask), queue, controller| {
        let mut ask = ask(queue, controller);
        change(&mut ask);
        refused(ask, &mut target)
    };
    let incompatible = (FabricsStatus::IncompatibleFormat.into(), 0);
    assert_eq!(change(&|ask| ask.command.record_format = 1, 0, 0xffff), incompatible);
    for size in [0, 1024, 0xffff] {
        let wrong = change(&|ask| ask.command.submission_queue_size = size, 0, 0xffff);
        assert_eq!(wrong, invalid(Parameter::SUBMISSION_QUEUE_SIZE));
    }
    let unknown = change(&|ask| ask.data.subsystem = nqn("nqn.2026-01.io.farlane:none"), 0, 0xffff);
    assert_eq!(unknown, invalid(Parameter::SUBSYSTEM));
    let stranger = change(&|ask| ask.data.host = nqn(OTHER), 0, 0xffff);
    assert_eq!(stranger, (FabricsStatus::InvalidHost.into(), 0));
    // A dynamic subsystem has no controllers to request by identifier.
    for controller in [0, 1, 0xfffe, 0xfff0] {
        assert_eq!(change(&|_| (), 0, controller), invalid(Parameter::CONTROLLER));
    }
    assert_eq!(change(&|_| (), 1, 1), gone());
    let discovery = |ask: &mut Ask| ask.data.subsystem = Nqn::discovery();
    assert_eq!(change(&discovery, 1, 1), invalid(Parameter::QUEUE));
    assert_eq!(change(&discovery, 0, 1), invalid(Parameter::CONTROLLER));
    // The subsystem cannot be reached through another port.
    let ask = ask(0, 0xffff);
    let elsewhere = target.connect(START, through(PortId(9)), &ask.command, &ask.data.emit());
    assert_eq!(elsewhere.unwrap_err().dw0, Parameter::SUBSYSTEM.dw0());
    let mut data = ask.data.emit();
    data[256] = 0;
    let nameless = target.connect(START, through(PORT), &ask.command, &data).unwrap_err();
    assert_eq!((nameless.status, nameless.dw0), invalid(Parameter::SUBSYSTEM));
}

#[test]
fn an_io_queue_is_its_hosts_once_and_as_many_as_were_granted() {
    let mut target = with(|_| ());
    let key = ask(0, 0xffff).of(&mut target).unwrap().association;
    enable(&mut target, key);
    target.set_io_queues(key, 2);
    let first = ask(1, 1).of(&mut target).unwrap();
    // The host may try again: its earlier connection may be lost, without the target's knowledge
    // yet.
    let twice = Status::from(StatusCode::CommandSequenceError).with_do_not_retry(false);
    assert_eq!(refused(ask(1, 1), &mut target).0, twice);
    assert_eq!(refused(ask(3, 1), &mut target), invalid(Parameter::QUEUE));
    assert_eq!(refused(ask(2, 2), &mut target), gone());
    let mut other = ask(2, 1);
    other.data.host = nqn(OTHER);
    assert_eq!(refused(other, &mut target), invalid(Parameter::HOST));
    // The admin queue has named the host's identifier; others, such as SPDK, ignore this one.
    let mut other = ask(2, 1);
    other.data.host_id = HostId([2; 16]);
    other.of(&mut target).unwrap();
    assert_eq!(target.association(key).unwrap().host_id(), HostId([1; 16]));
    // A lost queue can be connected again.
    target.close_queue(key, first.claim);
    ask(1, 1).of(&mut target).unwrap();
}

#[test]
fn a_host_that_comes_back_finds_its_last_controller() {
    let mut target = with(|_| ());
    let connect = |target: &mut Target, host: &str| {
        let mut asked = ask(0, 0xffff);
        asked.data.host = nqn(host);
        let connected = asked.of(target).unwrap();
        (connected.association, connected.response.controller)
    };
    let (key, first) = connect(&mut target, HOST);
    let (other, second) = connect(&mut target, OTHER);
    assert_ne!(first, second);
    // While it has its controller, another connection of the host gets another.
    let (more, third) = connect(&mut target, HOST);
    assert!(third != first && third != second);
    target.end(key);
    target.end(more);
    target.end(other);
    let (_, again) = connect(&mut target, HOST);
    assert_eq!(again, third, "the latest");
    assert_eq!(connect(&mut target, OTHER).1, second);
    assert_eq!(connect(&mut target, HOST).1, first);
}

#[test]
fn static_controllers_are_asked_for_and_are_one_hosts() {
    let mut target = with(|directory| directory.subsystems[0].model = ControllerModel::Static(5..=6));
    assert_eq!(refused(ask(0, 0xffff), &mut target), invalid(Parameter::CONTROLLER));
    assert_eq!(refused(ask(0, 4), &mut target), invalid(Parameter::CONTROLLER));
    assert_eq!(ask(0, 6).of(&mut target).unwrap().response.controller.0, 6);
    assert_eq!(refused(ask(0, 6), &mut target).0, FabricsStatus::ControllerBusy.into());
    let any = ask(0, 0xfffe).of(&mut target).unwrap();
    assert_eq!(any.response.controller.0, 5);
    assert_eq!(refused(ask(0, 0xfffe), &mut target).0, FabricsStatus::ControllerBusy.into());
    target.end(any.association);
    assert_eq!(ask(0, 5).of(&mut target).unwrap().response.controller.0, 5);
}

#[test]
fn no_host_is_silent_for_longer_than_the_greatest_keep_alive_timeout() {
    use nvme::subsystem::KEEP_ALIVE_MAX_MILLISECONDS as MOST;
    let mut target = with(|_| ());
    for name in [DISK, Nqn::DISCOVERY] {
        let mut asked = ask(0, 0xffff);
        asked.data.subsystem = nqn(name);
        asked.command.keep_alive_timeout = MOST + 1;
        let refusal = asked.clone().of(&mut target).unwrap_err();
        assert_eq!(refusal.status, StatusCode::KeepAliveTimeoutInvalid.into());
        assert_eq!(refusal.why, Why::KeepAlive(MOST + 1));
        asked.command.keep_alive_timeout = MOST;
        asked.of(&mut target).unwrap();
    }
    let longer = SubmissionQueueEntry {
        opcode: nvme::wire::AdminOpcode::SetFeatures.into(),
        cdw10: 0x0f,
        cdw11: MOST + 1,
        ..SubmissionQueueEntry::default()
    };
    let mut discovery = ask(0, 0xffff);
    discovery.data.subsystem = nqn(Nqn::DISCOVERY);
    let key = discovery.of(&mut target).unwrap().association;
    let reply = target.discover(START, key, &longer);
    assert!(matches!(reply, Reply::Failed(status) if status == StatusCode::KeepAliveTimeoutInvalid.into()));
}

#[test]
fn a_reset_keeps_the_association_and_a_shutdown_ends_it_in_time() {
    let mut target = with(|_| ());
    let mut forever = ask(0, 0xffff);
    forever.command.keep_alive_timeout = 0;
    let key = forever.of(&mut target).unwrap().association;
    enable(&mut target, key);
    ask(1, 1).of(&mut target).unwrap();
    assert_eq!(target.poll_timeout(), Some(START + DISABLED_MAX));
    assert!(target.expired(START + DISABLED_MAX).is_empty(), "it was enabled in time");
    assert_eq!(target.poll_timeout(), None);
    assert_eq!(set(&mut target, key, property::CONFIGURATION, ENABLE & !1), Ok(Change::Reset));
    assert_eq!(status(&target, key), 0);
    let association = target.association(key).unwrap();
    assert!(association.has_queue(QueueId::ADMIN) && !association.has_queue(QueueId(1)));
    enable(&mut target, key);
    assert_eq!(set(&mut target, key, property::CONFIGURATION, ENABLE | 1 << 14), Ok(Change::ShutDown));
    assert_eq!(status(&target, key), 0b0101);
    target.set_shut_down(START, key);
    assert_eq!(status(&target, key), 0b1001);
    assert_eq!(target.poll_timeout(), Some(START + DISABLED_MAX));
    assert_eq!(target.expired(START + DISABLED_MAX), [key]);
}

#[test]
fn properties_are_those_of_the_specification() {
    let mut target = with(|_| ());
    let key = ask(0, 0xffff).of(&mut target).unwrap().association;
    let get = |offset, size| PropertyGet { size, offset };
    let read = |target: &Target, get| target.property_get(key, QueueId::ADMIN, get);
    // MQES 1023, CQR, TO 15 s; NSSRS, CSS (the NVM command set, and all), CRMS.
    let capabilities = read(&target, get(property::CAPABILITIES, PropertySize::Quad));
    assert_eq!(capabilities, Ok(0x0800_0830_1e01_03ff));
    assert_eq!(read(&target, get(property::VERSION, PropertySize::Dword)), Ok(0x0002_0000));
    // All command sets are selected, as TrueNAS's client does; 111b has no I/O commands.
    let mut other = with(|_| ());
    for (css, is_fatal) in [(0b110, 0), (0b111, 2)] {
        let key = ask(0, 0xffff).of(&mut other).unwrap().association;
        let _ = set(&mut other, key, property::CONFIGURATION, ENABLE | css << 4);
        assert_eq!(status(&other, key) & 2, is_fatal, "{css:#b}");
    }
    assert_eq!(read(&target, get(property::READY_TIMEOUTS, PropertySize::Dword)), Ok(30));
    for (offset, size) in [
        (property::CAPABILITIES, PropertySize::Dword),
        (property::STATUS, PropertySize::Quad),
        (0x28, PropertySize::Quad),
        (0x1000, PropertySize::Dword),
    ] {
        assert_eq!(read(&target, get(offset, size)), Err(StatusCode::InvalidField.into()), "{offset:#x}");
    }
    let on_io = target.property_get(key, QueueId(1), get(property::STATUS, PropertySize::Dword));
    assert_eq!(on_io, Err(FabricsStatus::InvalidQueueType.into()));
    assert_eq!(set(&mut target, key, property::VERSION, 0), Err(StatusCode::InvalidField.into()));
    // Unsupported settings are a fatal error: another command set, entries of other sizes.
    assert_eq!(set(&mut target, key, property::CONFIGURATION, ENABLE | 1 << 4), Ok(Change::Nothing));
    assert_eq!(status(&target, key), 0b10);
    assert_eq!(set(&mut target, key, property::CONFIGURATION, 0), Ok(Change::Reset));
    assert_eq!(set(&mut target, key, property::CONFIGURATION, 1), Ok(Change::Nothing));
    assert_eq!(status(&target, key), 0b10);
    // A reset of the subsystem resets each controller.
    let reset = u64::from(property::RESET_SIGNATURE);
    assert_eq!(set(&mut target, key, property::SUBSYSTEM_RESET, 1), Ok(Change::Nothing));
    assert_eq!(set(&mut target, key, property::SUBSYSTEM_RESET, reset), Ok(Change::ResetSubsystem));
    target.set_subsystem_reset(START, SubsystemKey(0));
    assert_eq!(status(&target, key), 1 << 4);
    set(&mut target, key, property::STATUS, 1 << 4).unwrap();
    assert_eq!(status(&target, key), 0);
}

#[test]
fn a_host_that_falls_silent_is_forgotten() {
    let mut target = with(|_| ());
    let key = ask(0, 0xffff).of(&mut target).unwrap().association;
    enable(&mut target, key);
    let second = Nanos::from_secs(1);
    assert_eq!(target.poll_timeout(), Some(START + Nanos::from_secs(5)));
    target.touch(START + second, key);
    assert!(target.expired(START + Nanos::from_secs(5)).is_empty());
    assert_eq!(target.poll_timeout(), Some(START + Nanos::from_secs(6)));
    target.set_keep_alive(START + second, key, 1950);
    assert_eq!(target.poll_timeout(), Some(START + Nanos::from_secs(3)), "rounded up to 100 ms");
    assert_eq!(target.expired(START + Nanos::from_secs(3)), [key]);
    assert_eq!(status(&target, key), 0b11, "Controller Fatal Status");
    let ended = target.end(key).unwrap();
    assert!(ended.keep_alive_has_expired(START + Nanos::from_secs(3)));
    assert_eq!(target.association(key).map(Association::queue_count), None);
}

fn command(opcode: AdminOpcode, cdw10: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), cdw10, ..SubmissionQueueEntry::default() }
}

fn log(target: &mut Target, key: AssociationKey) -> (DiscoveryHeader, Vec<DiscoveryEntry>) {
    let mut bytes = Vec::new();
    // In pieces, as Linux reads a long log.
    for piece in 0..5 {
        let entry = SubmissionQueueEntry {
            cdw12: piece * 1024,
            ..command(AdminOpcode::GetLogPage, 0xff << 16 | 0x70)
        };
        match target.discover(START, key, &entry) {
            Reply::Data(data) => bytes.extend_from_slice(&data),
            Reply::Failed(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let (pages, _) = bytes.as_chunks::<1024>();
    let header = DiscoveryHeader::parse(&pages[0]).unwrap();
    let count = usize::try_from(header.records).unwrap();
    (header, pages[1..=count].iter().map(|page| DiscoveryEntry::parse(page).unwrap()).collect())
}

#[test]
fn the_log_shows_a_host_what_it_may_use() {
    let mut target = with(|directory| {
        let mut private = subsystem(1, "nqn.2026-01.io.farlane:private");
        private.hosts = Hosts::Listed(Vec::from([nqn(OTHER)]));
        directory.subsystems.push(private);
        let address = "[2001:db8::1]:8009".parse::<core::net::SocketAddr>().unwrap().into();
        directory.referrals.push(Referral { address, name: Nqn::discovery() });
    });
    let key = ask(0, 0xffff).to(Nqn::DISCOVERY).of(&mut target).unwrap().association;
    assert_eq!(target.association(key).unwrap().subsystem(), None);
    // CC as nvme-cli sets it.
    enable(&mut target, key);
    let (header, entries) = log(&mut target, key);
    assert_eq!((header.generation, header.records), (0, 3));
    let kinds: Vec<_> = entries.iter().map(|entry| entry.subsystem_type).collect();
    assert_eq!(kinds, [SubsystemType::CurrentDiscovery, SubsystemType::Nvm, SubsystemType::Referral]);
    assert_eq!(entries[1].subsystem, nqn(DISK));
    assert_eq!(entries[1].address.address, "192.0.2.1");
    let mut other = ask(0, 0xffff).to(Nqn::DISCOVERY);
    other.data.host = nqn(OTHER);
    let other = other.of(&mut target).unwrap().association;
    enable(&mut target, other);
    assert_eq!(log(&mut target, other).0.records, 4);
}

/// Linux's host leaves a controller over RDMA without keyed SGL data blocks, also for discovery.
#[test]
fn a_discovery_controller_has_the_data_blocks_of_its_transport() {
    for (transport, sgl_support) in [
        (TransportType::Tcp, 1 | 1 << 18 | 1 << 20 | 1 << 21),
        (TransportType::Rdma, 1 | 1 << 2 | 1 << 18 | 1 << 20),
    ] {
        let mut target = with(|directory| {
            for port in &mut directory.ports {
                port.address.transport = transport;
            }
        });
        let key = ask(0, 0xffff).to(Nqn::DISCOVERY).of(&mut target).unwrap().association;
        enable(&mut target, key);
        let identify = command(AdminOpcode::Identify, 1);
        let Reply::Data(page) = target.discover(START, key, &identify) else { panic!("a page") };
        assert_eq!(u32::from_le_bytes(*page[536..].first_chunk().unwrap()), sgl_support);
    }
}

#[test]
fn a_discovery_controller_refuses_each_thing_with_its_status() {
    let mut target = with(|_| ());
    let key = ask(0, 0xffff).to(Nqn::DISCOVERY).of(&mut target).unwrap().association;
    enable(&mut target, key);
    let identify = |cns| command(AdminOpcode::Identify, cns);
    // A header, and a page for each record.
    let length = 1024 * (1 + u32::try_from(log(&mut target, key).1.len()).unwrap());
    let log = |page: u32, dwords: u32| command(AdminOpcode::GetLogPage, page | (dwords - 1) << 16);
    let feature = |cdw10| command(AdminOpcode::GetFeatures, cdw10);
    let opcode = |opcode| SubmissionQueueEntry { opcode, ..SubmissionQueueEntry::default() };
    let field = StatusCode::InvalidField;
    let cases = [
        (identify(0), field),
        (identify(2), field),
        (identify(0xff), field),
        (SubmissionQueueEntry { flags: 1, ..identify(1) }, field),
        (SubmissionQueueEntry { flags: 2, ..identify(1) }, field),
        (SubmissionQueueEntry { flags: 3, ..identify(1) }, field),
        (log(1, 16), StatusCode::InvalidLogPage),
        (log(0xc0, 16), StatusCode::InvalidLogPage),
        (SubmissionQueueEntry { cdw11: 0x10, ..log(0x70, 1) }, field),
        (SubmissionQueueEntry { cdw12: 2, ..log(0x70, 16) }, field),
        (SubmissionQueueEntry { cdw12: length + 4, ..log(0x70, 16) }, field),
        (SubmissionQueueEntry { cdw13: 1, ..log(0x70, 16) }, field),
        (SubmissionQueueEntry { cdw14: 1 << 23, ..log(0x70, 16) }, field),
        (feature(0), field),
        (feature(2), field),
        (feature(0x0b | 7 << 8), field),
        (command(AdminOpcode::SetFeatures, 7), field),
        (command(AdminOpcode::SetFeatures, 1 << 31 | 0x0b), StatusCode::FeatureNotSaveable),
        (opcode(0x0d), StatusCode::InvalidCommandOpcode),
        (opcode(0x03), StatusCode::InvalidCommandOpcode),
        (opcode(0xff), StatusCode::InvalidCommandOpcode),
    ];
    for (entry, code) in cases {
        assert_eq!(target.discover(START, key, &entry), Reply::Failed(code.into()), "{entry:?}");
    }
    // Bytes beyond the end of the log read as zeros, and the end of the log is a valid offset.
    let Reply::Data(long) = target.discover(START, key, &log(0x70, 4096)) else { panic!("a log") };
    let end = usize::try_from(length).unwrap();
    assert!(long.len() == 16_384 && long[end..].iter().all(|byte| *byte == 0));
    let last = SubmissionQueueEntry { cdw12: length, ..log(0x70, 1) };
    assert_eq!(target.discover(START, key, &last), Reply::Data(Vec::from([0; 4])));
}

#[test]
fn a_change_of_the_log_is_reported_once_until_it_is_read() {
    let mut target = with(|_| ());
    let key = ask(0, 0xffff).to(Nqn::DISCOVERY).of(&mut target).unwrap().association;
    enable(&mut target, key);
    let enable_event = SubmissionQueueEntry { cdw11: 1 << 31, ..command(AdminOpcode::SetFeatures, 0x0b) };
    assert_eq!(target.discover(START, key, &enable_event), Reply::Done(0));
    for id in 1..=4 {
        let request = SubmissionQueueEntry {
            command_id: CommandId(id),
            ..command(AdminOpcode::AsynchronousEventRequest, 0)
        };
        assert_eq!(target.discover(START, key, &request), Reply::Held);
    }
    let fifth = target.discover(START, key, &command(AdminOpcode::AsynchronousEventRequest, 0));
    assert_eq!(fifth, Reply::Failed(StatusCode::AsynchronousEventRequestLimitExceeded.into()));
    let grow = |key| {
        let mut directory = directory();
        directory.subsystems.push(subsystem(key, &alloc::format!("nqn.2026-01.io.farlane:{key}")));
        directory
    };
    assert_eq!(target.set_directory(directory()), (Vec::new(), Vec::new()), "nothing has changed");
    assert_eq!(target.set_directory(grow(7)).0, [key]);
    assert_eq!(target.take_event(key), Some((CommandId(1), 0x0070_f002)));
    assert_eq!(target.take_event(key), None);
    assert!(target.set_directory(grow(8)).0.is_empty(), "the host has not read the log yet");
    let supported = target.discover(START, key, &command(AdminOpcode::GetLogPage, 0xff << 16));
    assert!(matches!(supported, Reply::Data(_)));
    assert_eq!(target.take_event(key), None, "the host has read another log");
    assert_eq!(log(&mut target, key).0.generation, 2);
    assert_eq!(target.take_event(key), Some((CommandId(2), 0x0070_f002)));
    // The associations of a removed subsystem end.
    let nvm = ask(0, 0xffff).of(&mut target).unwrap().association;
    assert_eq!(target.set_directory(Directory::default()).1, [nvm]);
}

#[test]
fn an_idle_discovery_controller_goes() {
    let mut target = with(|_| ());
    let mut once = ask(0, 0xffff).to(Nqn::DISCOVERY);
    once.command.keep_alive_timeout = 0;
    let key = once.of(&mut target).unwrap().association;
    enable(&mut target, key);
    target.touch(START + Nanos::from_secs(100), key);
    assert!(target.expired(START + DISCOVERY_IDLE_MAX).is_empty());
    assert_eq!(target.expired(START + Nanos::from_secs(220)), [key]);
}

#[test]
fn another_reactors_subsystem_is_elsewhere() {
    let mut target = with(|directory| directory.subsystems[0].is_here = false);
    let ask = ask(0, 0xffff);
    let outcome = target.connect(START, through(PORT), &ask.command, &ask.data.emit());
    assert_eq!(outcome, Ok(Outcome::Elsewhere(SubsystemKey(0))));
}
