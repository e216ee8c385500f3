//! Several hosts at one far box.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::format;
use std::string::{String, ToString};

use nvme::subsystem::Permit;
use nvme::wire::StatusCode;
use tunnel::Fingerprint;

use super::*;
use crate::far::{Admitted, Seats};

/// The connections of a host have numbers from this one on, times its place.
const CONNECTIONS: u32 = 16;
const HOLD: Nanos = Nanos::from_millis(200);
const NSID: NamespaceId = NamespaceId(1);
/// CMIC: there may be two or more controllers.
const CONTROLLERS: u8 = 1 << 1;

/// Hosts at one far box.
struct Several {
    hosts: Vec<Host>,
    far: Seats,
    disks: Vec<RamDisk>,
    /// Whether the medium keeps its answers to itself.
    is_slow: bool,
    held: VecDeque<media::Completion>,
    now: Instant,
    /// What the far box refused.
    refused: Vec<String>,
}

struct Host {
    near: Near,
    key: Option<Fingerprint>,
    events: Vec<Event>,
    /// No connection of the host comes through.
    is_away: bool,
    cookie: u64,
}

fn session(name: &str, instance: u8) -> tunnel::session::Config {
    let redial = (Nanos::from_millis(1), Nanos::from_millis(4));
    let mut session = tunnel::session::Config { hold: HOLD, redial, ..tunnel::session::Config::default() };
    session.identity.instance = tunnel::frame::InstanceId([instance; 16]);
    session.identity.name = name.to_string();
    session
}

impl Host {
    fn new(number: u8, key: Option<Fingerprint>) -> Self {
        let name = format!("host {number}");
        let config = near::Config { arena_bytes: 1 << 20, ..near::Config::default() };
        let near = Near::over_tunnels(config, [session(&name, number)].into(), Rng::from_seed(number.into()));
        Self { near, key, events: Vec::new(), is_away: false, cookie: 0 }
    }
}

impl Several {
    /// `count` hosts without keys at a far box with `seats` places.
    fn new(count: u8, seats: u16) -> Self {
        Self::with((1..=count).map(|number| Host::new(number, None)).collect(), seats, function_config())
    }

    fn with(hosts: Vec<Host>, seats: u16, function: function::Config) -> Self {
        let now = Instant::from_nanos(1_000);
        let disks = function.controller.core.namespaces.iter().map(|_| RamDisk::new(DISK_BYTES)).collect();
        let far = Seats::new(now, session("far", 99), function, Rng::from_seed(7), seats);
        Self { hosts, far, disks, is_slow: false, held: VecDeque::new(), now, refused: Vec::new() }
    }

    fn ready(count: u8) -> Self {
        let mut several = Self::new(count, count.into());
        several.until(|several| several.hosts.iter().all(|host| ready(&host.events)));
        several
    }

    #[track_caller]
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if is_so(self) {
                return;
            }
            self.now = self.now + Nanos::from_micros(2);
            self.step();
        }
        let events: Vec<_> = self.hosts.iter().map(|host| &host.events).collect();
        panic!("nothing came of it: {events:?}, {:?}", self.refused);
    }

    fn run_for(&mut self, length: Nanos) {
        let end = self.now + length;
        while self.now < end {
            self.now = self.now + Nanos::from_micros(20);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        for index in 0..self.hosts.len() {
            self.step_host(index);
        }
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        self.drain_far();
    }

    fn step_host(&mut self, index: usize) {
        let (now, host) = (self.now, &mut self.hosts[index]);
        if host.near.poll_timeout().is_some_and(|at| at <= now) {
            host.near.handle_timeout(now);
        }
        let base = u32::try_from(index).unwrap() * CONNECTIONS;
        let name = |connection: ConnectionIndex| ConnectionId(base + u32::from(connection.0));
        let mut inputs = Vec::new();
        while let Some(output) = host.near.poll_output() {
            match output {
                near::Output::Connect(one) if host.is_away => {
                    host.near.handle_input(now, near::Input::Disconnected(one));
                }
                near::Output::Connect(one) => {
                    host.near.handle_input(now, near::Input::Connected(one));
                    let address = core::net::Ipv4Addr::from_bits(0x0a00_0000 + base).into();
                    inputs.push(downstream::Input::Accepted(name(one), address));
                    inputs.extend(host.key.map(|key| downstream::Input::Identified(name(one), key)));
                }
                near::Output::Transmit(one, bytes) => {
                    inputs.push(downstream::Input::Received(name(one), bytes));
                }
                near::Output::Close(one) => inputs.push(downstream::Input::Disconnected(name(one))),
                near::Output::Packet(packet) => panic!("there is no direct link for {packet:?}"),
                near::Output::Event(event) => host.events.push(event),
            }
        }
        for input in inputs {
            self.far.handle_input(now, far::Input::Network(input));
            self.drain_far();
        }
    }

    fn drain_far(&mut self) {
        let now = self.now;
        loop {
            while let Some(completion) = (!self.is_slow).then(|| self.held.pop_front()).flatten() {
                self.far.handle_input(now, far::Input::Device(completion));
            }
            let Some(output) = self.far.poll_output() else { break };
            match output {
                far::Output::Transmit(connection, bytes) => {
                    self.give(connection, |number| near::Input::Received(number, bytes));
                }
                far::Output::Close(connection) => self.give(connection, near::Input::Disconnected),
                far::Output::Device(far::Storage::Media(request)) => {
                    let disk = &mut self.disks[request.medium.0 as usize];
                    disk.submit(request, &mut |completion| self.held.push_back(completion));
                }
                far::Output::Event(_, tunnel::Event::HandshakeFailed(error)) => {
                    self.refused.push(error.to_string());
                }
                far::Output::Event(..) | far::Output::Device(far::Storage::Notify(_)) => {}
            }
        }
    }

    /// Gives a host an input of one of its connections.
    fn give(&mut self, connection: ConnectionId, input: impl FnOnce(ConnectionIndex) -> near::Input) {
        let number = ConnectionIndex(u8::try_from(connection.0 % CONNECTIONS).unwrap());
        let host = &mut self.hosts[(connection.0 / CONNECTIONS) as usize];
        if !host.is_away {
            host.near.handle_input(self.now, input(number));
        }
    }

    /// The host loses its connection. While it is away, no other comes through.
    fn cut(&mut self, index: usize, is_away: bool) {
        let connection = ConnectionIndex::main_of(PORT);
        let id = ConnectionId(u32::try_from(index).unwrap() * CONNECTIONS + u32::from(connection.0));
        self.hosts[index].is_away = is_away;
        self.hosts[index].near.handle_input(self.now, near::Input::Disconnected(connection));
        self.far.handle_input(self.now, far::Input::Network(downstream::Input::Disconnected(id)));
        self.drain_far();
    }

    /// Submits a command of a host with its data, and returns its name.
    fn submit(&mut self, index: usize, entry: nvme::wire::SubmissionQueueEntry, bytes: &[u8]) -> u64 {
        let host = &mut self.hosts[index];
        host.cookie += 1;
        let (controller, cookie) = (ControllerIndex(0), host.cookie);
        let region = host.near.driver(controller).unwrap().data_region();
        let address = region.base + (cookie % 16) * 8192;
        host.near.memory_mut().write(address, bytes).unwrap();
        let length = u32::try_from(bytes.len()).unwrap();
        let data = (length > 0).then_some(Data { address, length });
        let submission = Submission { queue: QueueId(1), entry, data, cookie };
        host.near.submit(self.now, controller, submission).unwrap();
        cookie
    }

    fn end_of(&self, index: usize, wanted: u64) -> Option<StatusCode> {
        self.hosts[index].events.iter().find_map(|event| match event {
            Event::Completed { completed, .. } if completed.cookie == wanted => Some(completed.status.code()),
            _ => None,
        })
    }

    #[track_caller]
    fn execute(&mut self, index: usize, entry: nvme::wire::SubmissionQueueEntry, bytes: &[u8]) -> StatusCode {
        let cookie = self.submit(index, entry, bytes);
        self.until(|several| several.end_of(index, cookie).is_some());
        self.end_of(index, cookie).unwrap()
    }

    /// Writes eight blocks that are all `byte`.
    fn write(&mut self, index: usize, first: u64, byte: u8) -> StatusCode {
        self.execute(index, on_blocks(IoOpcode::Write, first), &[byte; 4096])
    }

    #[track_caller]
    fn read(&mut self, index: usize, first: u64) -> Vec<u8> {
        assert_eq!(
            self.execute(index, on_blocks(IoOpcode::Read, first), &[0xee; 4096]),
            StatusCode::SuccessfulCompletion
        );
        let host = &self.hosts[index];
        let region = host.near.driver(ControllerIndex(0)).unwrap().data_region();
        host.near.memory().slice(region.base + (host.cookie % 16) * 8192, 4096).unwrap().to_vec()
    }

    fn reserve(&mut self, index: usize, opcode: IoOpcode, cdw10: u32, keys: [u64; 2]) -> StatusCode {
        let entry = nvme::wire::SubmissionQueueEntry {
            opcode: opcode.into(),
            namespace: NSID,
            cdw10,
            ..Default::default()
        };
        let bytes: Vec<u8> = keys.into_iter().flat_map(u64::to_le_bytes).collect();
        self.execute(index, entry, &bytes)
    }

    fn seat_of(&self, index: usize) -> &Far {
        let instance = tunnel::frame::InstanceId([u8::try_from(index + 1).unwrap(); 16]);
        let is_its =
            |seat: &&Far| seat.downstream().session().peer().is_some_and(|peer| peer.instance == instance);
        self.far.seats().iter().find(is_its).expect("the host has a place")
    }
}

fn on_blocks(opcode: IoOpcode, first: u64) -> nvme::wire::SubmissionQueueEntry {
    nvme::host::command::on_blocks(opcode, NSID, first, 8)
}

const fn key(number: u8) -> Fingerprint {
    Fingerprint([number; 32])
}

fn admitted(number: u8, permit: Permit) -> Admitted {
    Admitted { key: key(number), permit }
}

#[test]
fn hosts_share_the_ssd_through_controllers_of_their_own() {
    let mut several = Several::ready(3);
    let identity = |host: &Host| {
        let controller = host.near.driver(ControllerIndex(0)).unwrap().identity().unwrap().controller.clone();
        (controller.controller_id, controller.multi_path & CONTROLLERS, controller.serial_number.to_string())
    };
    let found: Vec<_> = several.hosts.iter().map(identity).collect();
    let serial = &found[0].2;
    assert!(found.iter().all(|(_, shared, one)| *shared == CONTROLLERS && one == serial), "{found:?}");
    let ids: BTreeMap<_, _> = found.iter().map(|(id, ..)| (*id, ())).collect();
    assert_eq!(ids.len(), 3, "{found:?}");
    for round in 0..20 {
        let submitted: Vec<_> = (0..3)
            .map(|host| {
                let byte = [u8::try_from(round * 3 + host).unwrap(); 4096];
                several.submit(host, on_blocks(IoOpcode::Write, host as u64 * 8), &byte)
            })
            .collect();
        several.until(|several| (0..3).all(|host| several.end_of(host, submitted[host]).is_some()));
        for reader in 0..3 {
            for writer in 0..3 {
                let expected = u8::try_from(round * 3 + writer).unwrap();
                assert_eq!(several.read(reader, writer as u64 * 8), [expected; 4096]);
            }
        }
    }
    // All of them together have the commands of all.
    let commands = several.far.seats().iter().map(|seat| seat.function().controller().statistics().commands);
    assert!(commands.min() > Some(80));
}

#[test]
fn one_host_too_many_is_refused_with_the_number_and_the_remedy() {
    let mut several = Several::new(3, 2);
    several.until(|several| several.hosts.iter().filter(|host| ready(&host.events)).count() == 2);
    several.until(|several| !several.refused.is_empty());
    let text = &several.refused[0];
    assert!(text.contains("2 hosts use this far end") && text.contains("--hosts 3"), "{text}");
    // A host that leaves makes room.
    let leaving = several.hosts.iter().position(|host| ready(&host.events)).unwrap();
    several.hosts[leaving].near.close(several.now, "done");
    several.until(|several| several.hosts.iter().all(|host| ready(&host.events)));
}

#[test]
fn a_cut_is_resumed_in_the_same_place_and_others_go_on() {
    let mut several = Several::ready(2);
    let before = several.seat_of(0).function().controller().id();
    let mut last = None;
    for round in 0..20_u8 {
        let cookie = several.submit(0, on_blocks(IoOpcode::Write, 0), &[round; 4096]);
        for _ in 0..round {
            several.now = several.now + Nanos::from_micros(2);
            several.step();
        }
        several.cut(0, false);
        last = Some(several.write(1, 8, round));
        several.until(|several| several.end_of(0, cookie) == Some(StatusCode::SuccessfulCompletion));
    }
    assert_eq!(last, Some(StatusCode::SuccessfulCompletion));
    assert_eq!(several.seat_of(0).function().controller().id(), before);
    assert_eq!((several.read(1, 0), several.read(0, 8)), ([19; 4096].into(), [19; 4096].into()));
    let resets = |event: &Event| matches!(event, Event::Resetting { .. });
    assert!(!several.hosts.iter().any(|host| host.events.iter().any(resets)));
}

#[test]
fn the_end_of_a_host_does_not_touch_the_commands_of_another() {
    let mut several = Several::ready(2);
    several.is_slow = true;
    let [mine, other] = [0, 1].map(|host| {
        several.submit(
            host,
            on_blocks(IoOpcode::Write, host as u64 * 8),
            &[u8::try_from(host).unwrap() + 1; 4096],
        )
    });
    several.until(|several| several.held.len() == 2);
    // The host is gone for longer than it is held.
    several.cut(0, true);
    several.run_for(HOLD * 2);
    assert_eq!(several.far.seats().iter().filter(|seat| seat.downstream().owner().is_some()).count(), 0);
    assert_eq!(
        several.far.seats().iter().filter(|seat| seat.downstream().session().peer().is_some()).count(),
        1
    );
    assert_eq!(several.end_of(1, other), None);
    several.is_slow = false;
    several.until(|several| several.end_of(1, other).is_some());
    assert_eq!(
        (several.end_of(0, mine), several.end_of(1, other)),
        (None, Some(StatusCode::SuccessfulCompletion))
    );
    // It comes back to the place, and its driver brings the controller up.
    several.hosts[0].is_away = false;
    several.until(|several| several.end_of(0, mine).is_some());
    assert_eq!(several.read(0, 8), [2; 4096]);
}

#[test]
fn a_write_of_a_host_that_is_gone_does_not_undo_one_of_another() {
    let mut several = Several::ready(2);
    several.is_slow = true;
    several.submit(0, on_blocks(IoOpcode::Write, 0), &[1; 4096]);
    several.until(|several| several.held.len() == 1);
    several.cut(0, true);
    several.run_for(HOLD * 2);
    // The medium has the blocks of the write that is in progress: another waits for its end.
    let later = several.submit(1, on_blocks(IoOpcode::Write, 0), &[2; 4096]);
    several.run_for(Nanos::from_millis(1));
    assert_eq!((several.held.len(), several.end_of(1, later)), (1, None));
    several.is_slow = false;
    several.until(|several| several.end_of(1, later) == Some(StatusCode::SuccessfulCompletion));
    assert_eq!(several.read(1, 0), [2; 4096]);
}

#[test]
fn reservations_hold_between_hosts_and_outlive_sessions() {
    let hosts = [1, 2].map(|number| Host::new(number, Some(key(number)))).into();
    let mut several = Several::with(hosts, 2, function_config());
    let list = [1, 2].map(|number| admitted(number, Permit::default())).to_vec();
    several.far.admit(several.now, Some(list));
    several.until(|several| several.hosts.iter().all(|host| ready(&host.events)));
    let ok = StatusCode::SuccessfulCompletion;
    let conflict = StatusCode::ReservationConflict;
    assert_eq!(several.reserve(0, IoOpcode::ReservationRegister, 0, [0, 0xa]), ok);
    assert_eq!(several.reserve(0, IoOpcode::ReservationAcquire, 1 << 8, [0xa, 0]), ok);
    assert_eq!((several.write(0, 0, 1), several.write(1, 0, 2)), (ok, conflict));
    assert_eq!(several.read(1, 0), [1; 4096]);
    // The holder is gone for longer than it is held: what it has reserved stays so.
    several.cut(0, true);
    several.run_for(HOLD * 2);
    assert_eq!(several.write(1, 0, 2), conflict);
    several.hosts[0].is_away = false;
    let again = several.submit(0, on_blocks(IoOpcode::Write, 8), &[3; 4096]);
    several.until(|several| several.end_of(0, again).is_some());
    assert_eq!(several.end_of(0, again), Some(ok), "its key makes it the holder again");
    // Another preempts it.
    assert_eq!(several.reserve(1, IoOpcode::ReservationRegister, 0, [0, 0xb]), ok);
    assert_eq!(several.reserve(1, IoOpcode::ReservationAcquire, 1 << 8 | 1, [0xb, 0xa]), ok);
    assert_eq!((several.write(1, 0, 4), several.write(0, 0, 5)), (ok, conflict));
    assert_eq!(several.read(0, 0), [4; 4096]);
}

#[test]
fn a_host_sees_the_namespaces_that_its_permit_names() {
    let mut function = function_config();
    function.controller.core = nvme::subsystem::Config::new("TEST")
        .with_namespace(MediumId(0), DISK_BYTES)
        .with_namespace(MediumId(1), DISK_BYTES)
        .with_namespace(MediumId(2), DISK_BYTES);
    let hosts = [1, 2].map(|number| Host::new(number, Some(key(number)))).into();
    let mut several = Several::with(hosts, 2, function);
    let only = |ids: [u32; 2]| Permit { namespaces: Some(ids.map(NamespaceId).into()), ..Permit::default() };
    several.far.admit(several.now, Some([admitted(1, only([1, 2])), admitted(2, only([1, 3]))].into()));
    several.until(|several| several.hosts.iter().all(|host| ready(&host.events)));
    let seen = several.hosts.iter().map(|host| {
        let identity = host.near.driver(ControllerIndex(0)).unwrap().identity().unwrap();
        identity.namespaces.iter().map(|one| one.id.0).collect::<Vec<_>>()
    });
    assert_eq!(seen.collect::<Vec<_>>(), [[1, 2], [1, 3]]);
    let mut entry = on_blocks(IoOpcode::Read, 0);
    entry.namespace = NamespaceId(3);
    assert_eq!(several.execute(0, entry, &[0; 4096]), StatusCode::InvalidField);
    assert_eq!(several.execute(1, entry, &[0; 4096]), StatusCode::SuccessfulCompletion);
}

#[test]
fn a_host_with_a_place_cannot_take_the_place_of_another_key() {
    let hosts = [(1, 1), (2, 1), (3, 2)].map(|(number, of)| Host::new(number, Some(key(of)))).into();
    let mut several = Several::with(hosts, 2, function_config());
    several.hosts[2].is_away = true;
    several.far.admit(several.now, Some([1, 2].map(|number| admitted(number, Permit::default())).into()));
    several.until(|several| !several.refused.is_empty());
    assert!(several.refused[0].contains("has a place here already"), "{:?}", several.refused);
    several.hosts[2].is_away = false;
    several.until(|several| ready(&several.hosts[2].events));
    assert_eq!(several.hosts[..2].iter().filter(|host| ready(&host.events)).count(), 1);
}

#[test]
fn a_host_whose_key_is_struck_off_leaves_and_others_stay() {
    let hosts = [1, 2].map(|number| Host::new(number, Some(key(number)))).into();
    let mut several = Several::with(hosts, 2, function_config());
    several.far.admit(several.now, Some([1, 2].map(|number| admitted(number, Permit::default())).into()));
    several.until(|several| several.hosts.iter().all(|host| ready(&host.events)));
    several.far.admit(several.now, Some([admitted(2, Permit::default())].into()));
    let is_down = |event: &Event| matches!(event, Event::Link { event: tunnel::Event::LinkDown { .. }, .. });
    several.until(|several| several.hosts[0].events.iter().any(is_down));
    assert!(!several.hosts[1].events.iter().any(is_down));
    assert_eq!(several.write(1, 0, 1), StatusCode::SuccessfulCompletion);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = || {
        let mut several = Several::ready(4);
        for host in 0..4 {
            several.write(host, host as u64, 1);
        }
        several.now
    };
    assert_eq!(run(), run());
}
