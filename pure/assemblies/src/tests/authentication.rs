//! Hosts and targets that authenticate each other, joined in memory.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Nanos, Pool, Rng, next_wake};
use nvme::host::Data;
use nvme::media::{Completion, MediumId, ram::RamDisk};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::authentication::{self, Authenticated, Credentials, Explanation, Group, Hash, Secret};
use nvme_fabrics::host::multipath::{self, Request};
use nvme_fabrics::host::{self, Failure};
use nvme_fabrics::target::{ControllerModel, Directory, Hosts, Port, Subsystem, SubsystemKey};
use nvme_fabrics::wire::{HostId, Nqn, PortId, QueueId};

use crate::fabric::Fabric;
use crate::initiator::{self, Initiator};
use crate::target::{self, Accepted, ConnectionId, Target};

const DISK: &str = "nqn.2026-01.io.farlane:disk";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:1";
const KEY: SubsystemKey = SubsystemKey(0);
const PORT: PortId = PortId(1);
const BYTES: u64 = 1 << 20;
/// Longest time that a test waits for an expected event.
const PATIENCE: Nanos = Nanos::from_secs(300);

fn nqn(name: &str) -> Nqn {
    name.parse().unwrap()
}

fn credentials(seed: u64, both: bool) -> Credentials {
    let mut entropy = Entropy::from(Rng::from_seed(seed));
    let host = Secret::generate(Some(Hash::Sha384), &mut entropy);
    let controller = both.then(|| Secret::generate(None, &mut entropy));
    Credentials { controller, origin: "the test".into(), ..Credentials::new(host) }
}

fn directory(of_target: Option<Credentials>) -> Directory {
    let address = "192.0.2.1:4420".parse::<core::net::SocketAddr>().unwrap().into();
    let subsystem = Subsystem {
        key: KEY,
        name: nqn(DISK),
        hosts: Hosts::Any,
        terms: of_target.into_iter().map(|one| (nqn(HOST), one.into())).collect(),
        model: ControllerModel::default(),
        ports: Vec::from([PORT]),
        is_here: true,
    };
    let port = Port { id: PORT, address, is_any: false };
    Directory { subsystems: Vec::from([subsystem]), ports: Vec::from([port]), ..Directory::default() }
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) initiator: Initiator,
    pub(super) target: Target,
    disk: RamDisk,
    /// The target's name of each of the host's connections.
    lines: BTreeMap<initiator::ConnectionId, ConnectionId>,
    next: u32,
    /// The host's bytes go nowhere.
    is_cut: bool,
    events: Vec<String>,
    pub(super) is_up: bool,
    ended: Option<Option<Failure>>,
    completed: usize,
}

impl Pair {
    pub(super) fn new(of_host: Option<Credentials>, of_target: Option<Credentials>) -> Self {
        let now = Instant::from_nanos(1);
        let pool = Rc::new(RefCell::new(Pool::default()));
        let connection = nvme_tcp::controller::Config::new(Rc::clone(&pool));
        let rng = Entropy::from(Rng::from_seed(1));
        let directory = directory(of_target);
        let mut target = Target::new(now, target::Config { connection: connection.into(), directory, rng });
        target.add_subsystem(
            now,
            KEY,
            nvme::subsystem::Config::new("RIG").with_namespace(MediumId(0), BYTES),
        );
        let authentication = of_host.map(|credentials| {
            let entropy = Entropy::from(Rng::from_seed(2));
            host::Authentication { credentials, entropy }
        });
        let association = host::Config {
            io_queues: 2,
            authentication,
            ..host::Config::new(nqn(DISK), nqn(HOST), HostId([1; 16]))
        };
        let config = initiator::Config {
            multipath: multipath::Config::default(),
            connection: nvme_tcp::host::Config::new(pool).into(),
        };
        let mut pair = Self {
            now,
            initiator: Initiator::new(config, Vec::from([association])),
            target,
            disk: RamDisk::new(BYTES),
            lines: BTreeMap::new(),
            next: 0,
            is_cut: false,
            events: Vec::new(),
            is_up: false,
            ended: None,
            completed: 0,
        };
        pair.initiator.start(now);
        pair
    }

    fn on_initiator_output(&mut self, output: initiator::Output) {
        match output {
            initiator::Output::Dial(id) => {
                let connection = ConnectionId(self.next);
                self.next += 1;
                self.lines.insert(id, connection);
                let peer = "198.51.100.1:50000".parse().unwrap();
                let local = "192.0.2.1:4420".parse().unwrap();
                let accepted = Accepted {
                    connection,
                    port: PORT,
                    fabric: Fabric::Tcp,
                    peer,
                    local,
                    proved: None,
                    resume: None,
                    pair: None,
                };
                self.target.handle_input(self.now, target::Input::Accepted(accepted));
                self.initiator.handle_input(self.now, initiator::Input::Connected(id));
            }
            initiator::Output::Close { connection, .. } => {
                if let Some(id) = self.lines.remove(&connection) {
                    self.target.handle_input(self.now, target::Input::Closed(id));
                }
            }
            initiator::Output::PathUp(_) => self.is_up = true,
            initiator::Output::PathLost(..) => self.is_up = false,
            initiator::Output::PathEnded(_, why) => self.ended = Some(why),
            initiator::Output::Completed(completed) => {
                assert!(completed.entry.status().is_success(), "{:?}", completed.entry);
                self.completed += 1;
            }
            _ => {}
        }
    }

    fn on_target_output(&mut self, output: target::Output) {
        match output {
            target::Output::Close(id) | target::Output::Drop(id) => {
                self.exchange();
                let found = self.lines.iter().find(|(_, one)| **one == id).map(|(one, _)| *one);
                self.target.handle_input(self.now, target::Input::Closed(id));
                if let Some(host) = found {
                    self.lines.remove(&host);
                    self.initiator.handle_input(self.now, initiator::Input::Closed(host));
                }
            }
            target::Output::Media { subsystem, request, .. } => {
                let mut done = Vec::new();
                self.disk.submit(request, &mut |completion: Completion| done.push(completion));
                for completion in done {
                    self.target.handle_input(self.now, target::Input::Media { subsystem, completion });
                }
            }
            target::Output::Event(event) => self.events.push(event.to_string()),
            _ => {}
        }
    }

    /// Moves all bytes in both directions. Returns whether there were any.
    fn exchange(&mut self) -> bool {
        let mut moved = false;
        for (of_host, of_target) in self.lines.clone() {
            let taken = |outbox: Option<Vec<u8>>| outbox.filter(|bytes| !bytes.is_empty());
            let all = |outbox: &nvme_tcp::Outbox| outbox.slices().flatten().copied().collect::<Vec<u8>>();
            let out = taken(self.initiator.outbox(of_host).map(all));
            if let Some(bytes) = out {
                moved = true;
                self.initiator.sent(of_host, bytes.len());
                if !self.is_cut {
                    let input = target::Input::Received { connection: of_target, bytes: Buffer::from(bytes) };
                    self.target.handle_input(self.now, input);
                }
            }
            if let Some(bytes) = taken(self.target.outbox(of_target).map(all)) {
                moved = true;
                self.target.sent(self.now, of_target, bytes.len());
                let mut bytes = &bytes[..];
                while let Some(place) = self.initiator.landing(of_host).filter(|_| !bytes.is_empty()) {
                    let count = place.len().min(bytes.len());
                    place[..count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    let input = initiator::Input::Landed { connection: of_host, count };
                    self.initiator.handle_input(self.now, input);
                }
                let bytes = Buffer::copy_from_slice(bytes);
                let input = initiator::Input::Received { connection: of_host, bytes };
                self.initiator.handle_input(self.now, input);
            }
        }
        moved
    }

    /// Goes on until `done`.
    pub(super) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let limit = self.now + PATIENCE;
        while !done(self) {
            assert!(self.now < limit, "waited in vain; {:#?}", self.events);
            let mut moved = self.exchange();
            while let Some(output) = self.initiator.poll_output() {
                self.on_initiator_output(output);
                moved = true;
            }
            while let Some(output) = self.target.poll_output() {
                self.on_target_output(output);
                moved = true;
            }
            if !moved {
                let wakes = [next_wake(&self.initiator, self.now), next_wake(&self.target, self.now)];
                self.now = wakes.into_iter().flatten().min().unwrap_or(limit);
                self.initiator.handle_timeout(self.now);
                self.target.handle_timeout(self.now);
            }
        }
    }

    fn agreed(&self) -> Option<Authenticated> {
        self.initiator.multipath().paths().next()?.identity?.authenticated
    }

    pub(super) fn read_on_every_queue(&mut self) {
        let before = self.completed;
        for queue in 0..4_u16 {
            let entry = SubmissionQueueEntry {
                opcode: IoOpcode::Read.into(),
                namespace: NamespaceId(1),
                ..SubmissionQueueEntry::default()
            };
            let request = Request { cookie: queue.into(), entry, data: Data::Read(512), queue };
            self.initiator.submit(self.now, request).unwrap();
        }
        self.until(|pair| pair.completed == before + 4);
    }

    fn saw(&self, text: &str) -> bool {
        self.events.iter().any(|event| event.contains(text))
    }
}

fn why(failure: authentication::Failure) -> Option<Option<Failure>> {
    Some(Some(Failure::Authentication { queue: QueueId::ADMIN, why: failure }))
}

#[test]
fn both_ends_prove_who_they_are_and_data_move() {
    for both in [false, true] {
        let same = credentials(1, both);
        let mut pair = Pair::new(Some(same.clone()), Some(same));
        pair.until(|pair| pair.is_up);
        let agreed = Authenticated { hash: Hash::Sha256, group: Group::Ffdhe2048, both };
        assert_eq!(pair.agreed(), Some(agreed));
        pair.read_on_every_queue();
        let news: Vec<&String> = pair.events.iter().filter(|event| event.contains("authenticated")).collect();
        assert_eq!(news.len(), 3, "{news:?}");
    }
}

#[test]
fn a_wrong_secret_ends_the_path_with_a_reason_at_both_ends() {
    let (right, wrong) = (credentials(1, true), credentials(2, true));
    let of_host = Credentials { host: wrong.host.clone(), ..right.clone() };
    let mut pair = Pair::new(Some(of_host), Some(right.clone()));
    pair.until(|pair| pair.ended.is_some());
    assert_eq!(pair.ended, why(authentication::Failure::Refused(Explanation::Failed)));
    assert!(pair.saw("another secret than the target has for it"), "{:#?}", pair.events);
    assert!(pair.saw("its secret here: the test"), "{:#?}", pair.events);
    assert!(!pair.is_up && pair.target.status().is_empty());

    let of_host = Credentials { controller: wrong.controller, ..right.clone() };
    let mut pair = Pair::new(Some(of_host), Some(right));
    pair.until(|pair| pair.ended.is_some());
    assert_eq!(pair.ended, why(authentication::Failure::ControllerSecret));
}

#[test]
fn a_host_without_a_secret_gets_the_reason() {
    let mut pair = Pair::new(None, Some(credentials(1, false)));
    pair.until(|pair| pair.ended.is_some());
    assert_eq!(pair.ended, why(authentication::Failure::NoHostSecret));
    // The target does not know the host. An impostor of the target could say the same.
    let mut pair = Pair::new(Some(credentials(1, true)), None);
    pair.until(|pair| pair.ended.is_some());
    assert_eq!(pair.ended, why(authentication::Failure::NotDemanded));
    let mut pair = Pair::new(Some(credentials(1, false)), None);
    pair.until(|pair| pair.is_up);
    assert_eq!(pair.agreed(), None);
}

#[test]
fn a_live_association_authenticates_again() {
    let same = credentials(1, true);
    let mut pair = Pair::new(Some(same.clone()), Some(same));
    pair.until(|pair| pair.is_up);
    assert!(pair.initiator.authenticate_again(pair.now));
    pair.read_on_every_queue();
    pair.until(|pair| pair.events.iter().filter(|event| event.contains("authenticated")).count() == 6);
    assert!(pair.is_up && pair.ended.is_none());
}

#[test]
fn a_secret_that_is_replaced_ends_the_association_for_good() {
    let same = credentials(1, false);
    let mut pair = Pair::new(Some(same.clone()), Some(same));
    pair.until(|pair| pair.is_up);
    pair.target.set_directory(pair.now, directory(Some(credentials(2, false))));
    pair.until(|pair| pair.ended.is_some());
    assert_eq!(pair.ended, why(authentication::Failure::Refused(Explanation::Failed)));
}

#[test]
fn a_host_that_stops_half_way_is_forgotten() {
    let same = credentials(1, true);
    // Before the Admin Queue, the first and the second I/O queue are proved.
    for events in [0, 2, 4] {
        let mut pair = Pair::new(Some(same.clone()), Some(same.clone()));
        pair.until(|pair| pair.events.len() >= events && pair.target.strangers().count == 1);
        pair.is_cut = true;
        pair.until(|pair| pair.target.connection_count() == 0);
        assert!(pair.saw("in time") || pair.saw("fell silent"), "{:#?}", pair.events);
        assert!(pair.target.status().is_empty());
    }
}
