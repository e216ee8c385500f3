//! Connections whose hosts have not proved who they are: what they may have, and what they cannot
//! take from hosts.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Entropy, Nanos, Rng};
use nvme::host::Data;
use nvme::wire::{AdminOpcode, IoOpcode, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::authentication::{Credentials, Group, Host, Names, Secret, Step};
use nvme_fabrics::target::{ControllerModel, DISCOVERY_IDLE_MAX, DiscoveryAccess};
use nvme_fabrics::wire::{AuthenticationCommand, FabricsCommand, FabricsStatus, Nqn};
use nvme_tcp::host::Completed;

use super::test_bench::{DISK, HOST, TestBench, directory};
use super::{admin, io};
use crate::target::{Close, Event, Input, PROOF_MAX};

const SECOND: Nanos = Nanos::from_secs(1);
/// DW0 of a Connect whose host must authenticate.
const AUTHENTICATE: u32 = 1 << 17;

fn credentials(seed: u64, group: Group) -> Credentials {
    let secret = Secret::generate(None, &mut Entropy::from(Rng::from_seed(seed)));
    Credentials { groups: Vec::from([group]), ..Credentials::new(secret) }
}

/// A target whose host has a secret.
fn keyed(group: Group) -> TestBench {
    let mut directory = directory();
    directory.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), credentials(1, group).into())]);
    TestBench::new(directory)
}

/// Authenticates a queue by the secret of `seed`. Returns whether the controller accepts it.
fn authenticate(bench: &mut TestBench, host: usize, subsystem: &str, (seed, group): (u64, Group)) -> bool {
    prove(subsystem, credentials(seed, group), |entry, data| bench.ask(host, entry, data))
}

/// Authenticates a queue by commands that `ask` sends. Returns whether both ends accept it.
pub(super) fn prove(
    subsystem: &str,
    credentials: Credentials,
    mut ask: impl FnMut(SubmissionQueueEntry, Data) -> Completed,
) -> bool {
    let names = Names { host: HOST.parse().unwrap(), subsystem: subsystem.parse().unwrap() };
    let mut proof = Host::new(names, credentials, 7, Rng::from_seed(3).into());
    loop {
        match proof.step() {
            Step::Send(message) => {
                let length = u32::try_from(message.len()).unwrap();
                let command = AuthenticationCommand::in_band(length);
                let entry = FabricsCommand::AuthenticationSend(command).emit();
                let sent = ask(entry, Data::Write(Buffer::from(message)));
                assert!(sent.entry.status().is_success());
            }
            Step::Receive => {
                let entry =
                    FabricsCommand::AuthenticationReceive(AuthenticationCommand::in_band(4096)).emit();
                let received = ask(entry, Data::Read(4096));
                assert!(received.entry.status().is_success());
                proof.on_message(&received.data);
            }
            Step::Done(result) => return result.is_ok(),
        }
    }
}

const RIGHT: (u64, Group) = (1, Group::Null);
const WRONG: (u64, Group) = (2, Group::Null);

/// A proven host with its controller enabled: its Admin Queue and the controller.
fn proven(bench: &mut TestBench) -> (usize, u16) {
    let host = bench.connection();
    let dw0 = bench.connect(host, DISK, 0, 0xffff).unwrap();
    assert!(authenticate(bench, host, DISK, RIGHT));
    bench.enable(host);
    (host, u16::try_from(dw0 & 0xffff).unwrap())
}

fn reads(bench: &mut TestBench, queue: usize) -> bool {
    bench.ask(queue, io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status().is_success()
}

#[test]
fn a_queue_is_its_hosts_even_if_another_host_connects_it_first() {
    let mut bench = keyed(Group::Null);
    let (host, id) = proven(&mut bench);
    for number in [1, 2, 33, 64] {
        let squatters: Vec<_> = (0..3).map(|_| bench.io_queue(DISK, number, id).unwrap()).collect();
        let own = bench.connection();
        assert_eq!(bench.connect(own, DISK, number, id).unwrap() & AUTHENTICATE, AUTHENTICATE);
        assert!(!authenticate(&mut bench, squatters[0], DISK, WRONG));
        assert!(authenticate(&mut bench, own, DISK, RIGHT));
        assert!(reads(&mut bench, own));
        let read = bench.ask(squatters[1], io(IoOpcode::Read, 0, 1), Data::Read(512)).entry.status();
        assert_eq!(read, FabricsStatus::AuthenticationRequired.into());
        bench.drop_connection(squatters[1]);
        assert!(reads(&mut bench, own), "a stranger that goes takes nothing along");
        // The host connects the queue again, as after a loss that the target has not noticed.
        let again = bench.io_queue(DISK, number, id).unwrap();
        assert!(reads(&mut bench, own));
        assert!(authenticate(&mut bench, again, DISK, RIGHT));
        assert!(bench.is_closed(own) && reads(&mut bench, again));
        let replaced = |event: &Event| matches!(event, Event::QueueGone { why: Close::Replaced, .. });
        assert!(bench.events.iter().any(replaced), "{:?}", bench.events);
    }
    // The association goes with its strangers.
    let squatter = bench.io_queue(DISK, 5, id).unwrap();
    bench.set_configuration(host, 0x0046_0000);
    assert!(bench.is_closed(squatter));
    bench.enable(host);
    let squatter = bench.io_queue(DISK, 5, id).unwrap();
    bench.drop_connection(host);
    assert!(bench.is_closed(squatter));
    assert_eq!((bench.target.connection_count(), bench.target.strangers().count), (0, 0));
}

#[test]
fn a_queue_that_need_not_be_proved_may_be_tried_again() {
    let mut bench = TestBench::new(directory());
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    let own = bench.io_queue(DISK, 1, 1).unwrap();
    let (status, _) = bench.io_queue(DISK, 1, 1).unwrap_err();
    assert_eq!(status, Status::from(StatusCode::CommandSequenceError).with_do_not_retry(false));
    assert!(reads(&mut bench, own));
}

#[test]
fn an_unproven_association_has_no_controller() {
    let mut bench = keyed(Group::Null);
    bench.keep_alive = 0;
    let strangers: Vec<_> = (0..20).map(|_| bench.admin_queue(DISK).unwrap()).collect();
    let of = |bench: &TestBench| bench.target.subsystem(super::KEY).unwrap().controllers().count();
    assert_eq!((of(&bench), bench.target.status().len()), (0, 0));
    let (host, id) = proven(&mut bench);
    assert_eq!((of(&bench), bench.target.status().len()), (1, 1));
    assert_eq!(bench.target.strangers().count, 20);
    let identify = bench.ask(host, admin(AdminOpcode::Identify, 1, 0), Data::Read(4096));
    assert_eq!(identify.data[78..80], id.to_le_bytes(), "the controller that was promised");
    // None of the strangers proves anything in time; the host stays.
    bench.pass(PROOF_MAX);
    assert!(strangers.iter().all(|one| bench.is_closed(*one)) && !bench.is_closed(host));
    assert_eq!(bench.target.strangers().dropped, [("late", 20)]);
    assert_eq!(bench.target.connection_count(), 1);
}

#[test]
fn strangers_have_their_places_and_a_host_is_admitted_beside_them() {
    let mut bench = keyed(Group::Null);
    bench.target.set_strangers_max(16);
    // All come from one address, which has half of the places.
    let silent: Vec<_> = (0..40).map(|_| bench.connection()).collect();
    assert_eq!(bench.target.strangers().count, 8);
    assert_eq!(silent.iter().filter(|one| !bench.is_closed(**one)).count(), 8);
    let (host, id) = proven(&mut bench);
    for _ in 0..40 {
        bench.connection();
    }
    let queue = bench.io_queue(DISK, 1, id).unwrap();
    for _ in 0..7 {
        bench.connection();
    }
    assert!(authenticate(&mut bench, queue, DISK, RIGHT));
    assert!(reads(&mut bench, queue) && !bench.is_closed(host));
    let status = bench.target.strangers();
    assert_eq!((status.count, status.most), (7, 16));
    let reported = |event: &&Event| matches!(event, Event::Crowded { .. });
    assert_eq!(bench.events.iter().filter(reported).count(), 1, "it is reported once");
}

#[test]
fn exponentiations_are_the_worlds_while_hosts_are_served() {
    let mut bench = keyed(Group::Ffdhe2048);
    bench.keep_alive = 0;
    bench.target.work_outside(1000);
    let (right, wrong) = ((1, Group::Ffdhe2048), (2, Group::Ffdhe2048));
    let host = bench.connection();
    bench.connect(host, DISK, 0, 0xffff).unwrap();
    assert!(authenticate(&mut bench, host, DISK, right));
    bench.enable(host);
    let stranger = bench.connection();
    bench.connect(stranger, DISK, 0, 0xffff).unwrap();
    assert!(!authenticate(&mut bench, stranger, DISK, wrong));
    assert!(bench.is_closed(stranger));
    assert_eq!(bench.target.strangers().work.done, 3, "the controller's keys, and two shared keys");
    // Again, on a queue that is in use.
    assert!(authenticate(&mut bench, host, DISK, right));
    assert_eq!(bench.controller_status(host), 1);
    assert_eq!(bench.target.strangers().refused, [("not_authenticated", 1)]);
    // The world takes long: the stranger's time stands still, and that of others does not.
    bench.works_itself = false;
    let slow = bench.connection();
    bench.connect(slow, DISK, 0, 0xffff).unwrap();
    let names = Names { host: HOST.parse().unwrap(), subsystem: DISK.parse().unwrap() };
    let mut proof = Host::new(names, credentials(1, Group::Ffdhe2048), 7, Rng::from_seed(3).into());
    let receive = FabricsCommand::AuthenticationReceive(AuthenticationCommand::in_band(4096)).emit();
    let mut waiting = None;
    while waiting.is_none() {
        match proof.step() {
            Step::Send(message) => {
                let length = u32::try_from(message.len()).unwrap();
                let entry = FabricsCommand::AuthenticationSend(AuthenticationCommand::in_band(length)).emit();
                bench.ask(slow, entry, Data::Write(Buffer::from(message)));
            }
            Step::Receive => {
                let cookie = bench.submit(slow, receive, Data::Read(4096));
                bench.run();
                match bench.completed(slow, cookie) {
                    Some(received) => proof.on_message(&received.data),
                    None => waiting = Some(cookie),
                }
            }
            Step::Done(result) => panic!("{result:?}"),
        }
    }
    let silent = bench.connection();
    bench.pass(PROOF_MAX);
    assert!(bench.is_closed(silent) && !bench.is_closed(slow));
    assert_eq!(bench.controller_status(host), 1);
    bench.work();
    let received = bench.completed(slow, waiting.unwrap()).expect("the answer");
    proof.on_message(&received.data);
    assert_eq!(
        proof.step(),
        Step::Done(Ok(nvme_fabrics::authentication::Authenticated {
            hash: nvme_fabrics::authentication::Hash::Sha256,
            group: Group::Ffdhe2048,
            both: false,
        }))
    );
    bench.enable(slow);
    // The result of work for a connection that is gone changes nothing.
    bench.pass(SECOND);
    assert_eq!(bench.target.strangers().work.waiting, 0);
}

#[test]
fn discovery_without_a_key_has_few_places_and_few_commands() {
    let mut bench = TestBench::new(directory());
    bench.target.set_strangers_max(64);
    bench.keep_alive = 0;
    let first = bench.admin_queue(Nqn::DISCOVERY).unwrap();
    for _ in 0..100 {
        bench.admin_queue(Nqn::DISCOVERY).unwrap();
    }
    let status = bench.target.strangers();
    assert_eq!((status.discovery, status.discovery_most), (8, 32), "of one address");
    assert!(bench.is_closed(first));
    let (_, count) = status.dropped[0];
    assert_eq!(count, 101 - 8);
    // A host connects all the same.
    let host = bench.admin_queue(DISK).unwrap();
    bench.enable(host);
    // Many commands at once, and then 16 in a second.
    let busy = bench.admin_queue(Nqn::DISCOVERY).unwrap();
    bench.enable(busy);
    let log = admin(AdminOpcode::GetLogPage, 0x00ff_0070, 0);
    let count = |bench: &mut TestBench| {
        let mut done = 0;
        loop {
            let cookie = bench.submit(busy, log, Data::Read(1024));
            bench.run();
            if bench.completed(busy, cookie).is_none() {
                return done;
            }
            done += 1;
        }
    };
    let at_once = count(&mut bench);
    assert!((100..=130).contains(&at_once), "{at_once}");
    bench.pass(SECOND);
    let later = count(&mut bench);
    assert!(later <= 17, "{later}");
    // Silence is bounded without a Keep Alive Timeout, too.
    bench.pass(DISCOVERY_IDLE_MAX + SECOND);
    assert_eq!(bench.target.strangers().count, 0);
    assert!(!bench.is_closed(host));
}

#[test]
fn keyed_discovery_is_by_the_secret_of_a_subsystem() {
    let mut directory = directory();
    directory.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), credentials(1, Group::Null).into())]);
    directory.discovery = DiscoveryAccess::Keyed;
    let mut bench = TestBench::new(directory.clone());
    let host = bench.connection();
    assert_eq!(bench.connect(host, Nqn::DISCOVERY, 0, 0xffff).unwrap() & AUTHENTICATE, AUTHENTICATE);
    assert!(authenticate(&mut bench, host, Nqn::DISCOVERY, RIGHT));
    bench.enable(host);
    let log = bench.ask(host, admin(AdminOpcode::GetLogPage, 0x00ff_0070, 0), Data::Read(1024));
    assert!(log.entry.status().is_success());
    assert_eq!(bench.target.strangers().count, 0, "it has proved who it is");
    directory.discovery = DiscoveryAccess::Closed;
    let now = bench.now;
    bench.target.set_directory(now, directory);
    bench.run();
    assert!(bench.is_closed(host));
}

/// A controller that several were promised is that of the first that proves who it is.
#[test]
fn who_proves_too_late_may_try_again() {
    let mut directory = directory();
    directory.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), credentials(1, Group::Null).into())]);
    directory.subsystems[0].model = ControllerModel::Dynamic(1..=1);
    let mut bench = TestBench::new(directory);
    let [one, other] = [0; 2].map(|_| {
        let host = bench.connection();
        bench.connect(host, DISK, 0, 0xffff).unwrap();
        host
    });
    assert!(authenticate(&mut bench, other, DISK, RIGHT));
    authenticate(&mut bench, one, DISK, RIGHT);
    assert!(bench.is_closed(one) && !bench.is_closed(other));
    assert_eq!(bench.target.status().len(), 1);
    bench.drop_connection(other);
    proven(&mut bench);
    let now = bench.now;
    bench.target.handle_input(now, Input::Closed(TestBench::id(99)));
}
