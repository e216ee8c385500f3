//! Hosts that must authenticate.

use super::*;
use crate::authentication::{Credentials, Failure, Group, Host, MESSAGE_BYTES_MAX, Names, Secret, Step};
use crate::wire::{AuthenticationCommand, ConnectResponse};
use engine::{Entropy, Rng};

const ALLOCATION: AuthenticationCommand = AuthenticationCommand::in_band(4096);

fn credentials(seed: u64) -> Credentials {
    let mut entropy = Entropy::from(Rng::from_seed(seed));
    let controller = Some(Secret::generate(None, &mut entropy));
    let groups = Vec::from([Group::Null]);
    Credentials { controller, groups, ..Credentials::new(Secret::generate(None, &mut entropy)) }
}

fn demanding(seed: u64) -> Target {
    with(|directory| directory.subsystems[0].terms = Vec::from([(nqn(HOST), credentials(seed).into())]))
}

fn host(seed: u64) -> Host {
    let names = Names { host: nqn(HOST), subsystem: nqn(DISK) };
    Host::new(names, credentials(seed), 7, Rng::from_seed(seed).into())
}

fn receive(
    target: &mut Target,
    of: &Connected,
    command: AuthenticationCommand,
) -> Result<(Vec<u8>, Progress), Status> {
    match target.authentication_receive(START, of.association, of.claim, command)? {
        Received::Message(message, progress) => Ok((message, progress)),
        Received::Waits => panic!("the target does all work itself"),
    }
}

fn admits(target: &Target, of: &Connected) -> bool {
    target.association(of.association).unwrap().admits(of.claim)
}

/// Authenticates a queue. Returns the last progress that the target reported.
fn authenticate(target: &mut Target, of: &Connected, mut host: Host) -> Progress {
    let (key, queue) = (of.association, of.claim);
    let mut last = Progress::default();
    loop {
        match host.step() {
            Step::Send(message) => {
                last = target.authentication_send(START, key, queue, &message).unwrap();
            }
            Step::Receive => {
                let (message, progress) = receive(target, of, ALLOCATION).unwrap();
                assert_eq!(message.len(), 4096, "the answer is padded, as Linux does it");
                host.on_message(&message);
                last = progress;
            }
            Step::Done(_) => return last,
        }
    }
}

/// The names of a host are sent in the clear: an association without its proof reveals nothing
/// about it.
#[test]
fn only_a_proven_host_finds_its_last_controller() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    authenticate(&mut target, &admin, host(1));
    target.end(admin.association);
    let had = admin.response.controller;
    // Unproven hosts with the host's names connect and leave, more of them than are remembered.
    for _ in 0..300 {
        let held = [(); 2].map(|()| ask(0, 0xffff).of(&mut target).unwrap());
        for one in held {
            target.end(one.association);
        }
    }
    let again = ask(0, 0xffff).of(&mut target).unwrap();
    assert_eq!(again.response.controller, had);
}

#[test]
fn every_queue_authenticates_before_it_is_used() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    assert_eq!(admin.response.authentication, ConnectResponse::AUTHENTICATE);
    assert_eq!(admin.response.dw0(), 0x0002_0001, "as Linux decodes it: bit 17");
    let key = admin.association;
    let required = Status::from(FabricsStatus::AuthenticationRequired);
    assert!(!admits(&target, &admin) && !target.association(key).unwrap().is_proven());
    assert_eq!(set(&mut target, key, property::CONFIGURATION, ENABLE), Err(required));
    let progress = authenticate(&mut target, &admin, host(1));
    assert!(progress.news.unwrap().unwrap().both && !progress.is_over);
    assert!(target.association(key).unwrap().is_proven());
    enable(&mut target, key);

    let id = admin.response.controller.0;
    let io = ask(1, id).of(&mut target).unwrap();
    assert_eq!(io.response.authentication, ConnectResponse::AUTHENTICATE);
    assert!(!admits(&target, &io));
    authenticate(&mut target, &io, host(1));
    assert!(admits(&target, &io));
    // Again, while the queue is in use.
    let again = authenticate(&mut target, &io, host(1));
    assert!(again.news.unwrap().is_ok() && again.is_admitted && !again.is_new);
    assert!(admits(&target, &io));
    // A queue that is connected again authenticates again.
    target.close_queue(key, io.claim);
    let io = ask(1, id).of(&mut target).unwrap();
    assert!(!admits(&target, &io));
    authenticate(&mut target, &io, host(1));
    // A reset of the controller leaves the Admin Queue as it is.
    assert_eq!(set(&mut target, key, property::CONFIGURATION, 0), Ok(Change::Reset));
    assert!(admits(&target, &admin) && !admits(&target, &io));
}

/// An attacker that knows the host's name and identifier may connect its queues first, as they are
/// sent in the clear.
#[test]
fn a_queue_belongs_to_the_connection_that_proved_last_who_its_host_is() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    authenticate(&mut target, &admin, host(1));
    let key = admin.association;
    enable(&mut target, key);
    for queue in 1..=64 {
        let mut connect = || ask(queue, admin.response.controller.0).of(&mut target).unwrap();
        let squatters: Vec<_> = (0..3).map(|_| connect()).collect();
        let own = connect();
        let late = connect();
        assert!(!target.association(key).unwrap().has_queue(QueueId(queue)));
        assert!(authenticate(&mut target, &squatters[0], host(2)).is_over, "a wrong secret");
        let progress = authenticate(&mut target, &own, host(1));
        assert!(progress.is_admitted && progress.is_new);
        assert!(admits(&target, &own));
        for one in &squatters {
            assert!(!admits(&target, one));
            target.close_queue(key, one.claim);
            assert!(admits(&target, &own), "an attacker can close only its own queue");
        }
        assert!(authenticate(&mut target, &late, host(2)).is_over);
        target.close_queue(key, late.claim);
        assert!(admits(&target, &own));
        // The host's next connection to the queue takes it from the one before.
        let next = ask(queue, admin.response.controller.0).of(&mut target).unwrap();
        assert!(admits(&target, &own));
        assert!(authenticate(&mut target, &next, host(1)).is_new);
        assert!(admits(&target, &next) && !admits(&target, &own));
        target.close_queue(key, own.claim);
        assert!(admits(&target, &next));
    }
    assert_eq!(target.association(key).unwrap().queue_count(), 65);
}

/// An attacker connects Admin Queues in the name of a host, and proves nothing.
#[test]
fn strangers_take_no_controller_of_a_proven_host() {
    for model in [ControllerModel::Dynamic(1..=2), ControllerModel::Static(1..=2)] {
        let mut target = with(|directory| {
            directory.subsystems[0].terms = Vec::from([(nqn(HOST), credentials(1).into())]);
            directory.subsystems[0].model = model.clone();
        });
        let any = if matches!(model, ControllerModel::Dynamic(_)) { 0xffff } else { 0xfffe };
        let strangers: Vec<_> = (0..50).map(|_| ask(0, any).of(&mut target).unwrap()).collect();
        let [one, other] = [0; 2].map(|_| {
            let admin = ask(0, any).of(&mut target).unwrap();
            let progress = authenticate(&mut target, &admin, host(1));
            if progress.is_crowded {
                // Another connection was promised the same controller, and has proved first.
                target.end(admin.association);
                let again = ask(0, any).of(&mut target).unwrap();
                assert!(authenticate(&mut target, &again, host(1)).is_admitted);
                return again;
            }
            admin
        });
        let ids = [one, other].map(|one| one.response.controller.0);
        assert!(ids == [1, 2] || ids == [2, 1], "{ids:?}");
        let (busy, _) = refused(ask(0, any), &mut target);
        assert_eq!(busy, FabricsStatus::ControllerBusy.into());
        // An attacker's I/O queue finds no unproven controller.
        assert!(strangers.iter().all(|one| !target.association(one.association).unwrap().is_proven()));
        for one in strangers {
            target.end(one.association);
        }
        enable(&mut target, one.association);
        let io = ask(1, one.response.controller.0).of(&mut target).unwrap();
        assert_eq!(io.association, one.association);
    }
}

/// As in the live world, where another thread does the exponentiations.
#[test]
fn exponentiations_are_done_elsewhere_one_at_a_time() {
    let groups = Vec::from([Group::Ffdhe2048]);
    let both = |seed| Credentials { groups: groups.clone(), ..credentials(seed) };
    let mut target =
        with(|directory| directory.subsystems[0].terms = Vec::from([(nqn(HOST), both(1).into())]));
    target.work_outside(1000);
    let names = || Names { host: nqn(HOST), subsystem: nqn(DISK) };
    for (seed, right) in [(1, true), (2, false), (1, true)] {
        let mut host = Host::new(names(), both(seed), 7, Rng::from_seed(seed).into());
        let admin = ask(0, 0xffff).of(&mut target).unwrap();
        let (key, claim) = (admin.association, admin.claim);
        let mut progress = Progress::default();
        let end = loop {
            match host.step() {
                Step::Send(message) => {
                    progress = target.authentication_send(START, key, claim, &message).unwrap();
                }
                Step::Receive => {
                    match target.authentication_receive(START, key, claim, ALLOCATION).unwrap() {
                        Received::Message(message, reported) => {
                            host.on_message(&message);
                            progress = reported;
                        }
                        Received::Waits => {
                            assert!(progress.is_waiting);
                            assert_eq!(target.next_work().map(|at| at <= START), Some(true));
                            let (id, work) = target.poll_work(START).unwrap();
                            assert!(target.poll_work(START).is_none() && target.next_work().is_none());
                            let waiting = target.authentication_receive(START, key, claim, ALLOCATION);
                            assert_eq!(waiting, Ok(Received::Waits));
                            let done = target.on_worked(START, id, work.compute(), Nanos::ZERO);
                            assert_eq!((done[0].0, done[0].1), (key, claim));
                        }
                    }
                }
                Step::Done(end) => break end,
            }
        };
        assert_eq!((end.is_ok(), progress.is_admitted), (right, right));
    }
    // The controller's keys were generated once.
    assert_eq!(target.work_status().done, 4);
    assert_eq!(target.work_status().waiting, 0);
}

#[test]
fn a_wrong_secret_admits_no_host() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let progress = authenticate(&mut target, &admin, host(2));
    assert!(progress.is_over && !progress.is_admitted);
    assert!(!admits(&target, &admin));
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let mut host = host(2);
    let mut news = Vec::new();
    for _ in 0..4 {
        match host.step() {
            Step::Send(message) => {
                let sent = target.authentication_send(START, admin.association, admin.claim, &message);
                news.extend(sent.unwrap().news);
            }
            Step::Receive => host.on_message(&receive(&mut target, &admin, ALLOCATION).unwrap().0),
            Step::Done(_) => break,
        }
    }
    assert_eq!(news, [Err(Failure::HostSecret)]);
}

#[test]
fn commands_with_wrong_fields_are_refused() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let (key, claim) = (admin.association, admin.claim);
    let invalid = Err(Status::from(StatusCode::InvalidField));
    let wrong = [
        AuthenticationCommand { security_protocol: 0xea, ..ALLOCATION },
        AuthenticationCommand { specific: [1, 0], ..ALLOCATION },
        AuthenticationCommand::in_band(0),
    ];
    for command in wrong {
        assert_eq!(target.authentication_length(key, command), invalid.map(|()| 0));
        assert_eq!(receive(&mut target, &admin, command).map(|_| ()), invalid);
    }
    let long = AuthenticationCommand::in_band(u32::try_from(MESSAGE_BYTES_MAX).unwrap() + 1);
    assert_eq!(target.authentication_length(key, long), invalid.map(|()| 0));
    // A buffer that is too short has no effect.
    let Step::Send(negotiate) = host(1).step() else { panic!("it negotiates") };
    target.authentication_send(START, key, claim, &negotiate).unwrap();
    let short = AuthenticationCommand::in_band(47);
    assert_eq!(receive(&mut target, &admin, short).map(|_| ()), invalid);
    assert!(receive(&mut target, &admin, ALLOCATION).is_ok());
    // A host that has no secret here cannot authenticate.
    let mut other = ask(0, 0xffff);
    other.data.host = nqn(OTHER);
    let other = other.of(&mut target).unwrap();
    assert_eq!(other.response.authentication, 0);
    let refused = target.authentication_send(START, other.association, other.claim, &negotiate);
    assert_eq!(refused, Err(StatusCode::InvalidCommandOpcode.into()));
}

#[test]
fn a_host_that_does_not_authenticate_is_forgotten() {
    let mut target = demanding(1);
    let mut connect = ask(0, 0xffff);
    connect.command.keep_alive_timeout = 0;
    let key = connect.of(&mut target).unwrap().association;
    let late = START + crate::authentication::AUTHENTICATION_MAX;
    assert_eq!(target.poll_timeout(), Some(late));
    assert!(target.association(key).unwrap().authentication_is_overdue(late));
    assert_eq!(target.expired(late), [key]);
    // An I/O queue ends alone: its host may be an impostor.
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    authenticate(&mut target, &admin, host(1));
    enable(&mut target, admin.association);
    let io = ask(1, admin.response.controller.0).of(&mut target).unwrap();
    let late = START + Nanos::from_secs(5);
    target.touch(START + Nanos::from_secs(4), admin.association);
    assert_eq!(target.overdue_queues(late), [(admin.association, io.claim)]);
    target.close_queue(admin.association, io.claim);
    assert_eq!(target.expired(late), []);
    assert!(target.poll_timeout().is_some_and(|at| at > late));
}

#[test]
fn a_changed_secret_ends_the_association() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let key = admin.association;
    authenticate(&mut target, &admin, host(1));
    let same = target.directory().clone();
    assert_eq!(target.set_directory(same.clone()).1, []);
    let mut moved = same.clone();
    moved.subsystems[0].terms[0].1 = Credentials { origin: "another file".into(), ..credentials(1) }.into();
    assert_eq!(target.set_directory(moved).1, [], "the same secret in another place");
    let mut changed = same.clone();
    changed.subsystems[0].terms[0].1 = Credentials { host: credentials(2).host, ..credentials(1) }.into();
    assert_eq!(target.set_directory(changed).1, [key]);
    let mut trusting = same;
    trusting.subsystems[0].terms.clear();
    assert_eq!(target.set_directory(trusting).1, [key]);
}
