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

/// Authenticates a queue. Returns the last progress that the target reported.
fn authenticate(target: &mut Target, key: AssociationKey, queue: QueueId, mut host: Host) -> Progress {
    let mut last = Progress::default();
    loop {
        match host.step() {
            Step::Send(message) => {
                last = target.authentication_send(START, key, queue, &message).unwrap();
            }
            Step::Receive => {
                let (message, progress) =
                    target.authentication_receive(START, key, queue, ALLOCATION).unwrap();
                assert_eq!(message.len(), 4096, "the answer is padded, as Linux does it");
                host.on_message(&message);
                last = progress;
            }
            Step::Done(_) => return last,
        }
    }
}

#[test]
fn every_queue_authenticates_before_it_is_used() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    assert_eq!(admin.response.authentication, ConnectResponse::AUTHENTICATE);
    assert_eq!(admin.response.dw0(), 0x0002_0001, "as Linux decodes it: bit 17");
    let key = admin.association;
    let required = Status::from(FabricsStatus::AuthenticationRequired);
    assert_eq!(target.admit(key, QueueId::ADMIN), Err(required));
    assert_eq!(set(&mut target, key, property::CONFIGURATION, ENABLE), Err(required));
    let progress = authenticate(&mut target, key, QueueId::ADMIN, host(1));
    assert!(progress.news.unwrap().unwrap().both && !progress.is_over);
    enable(&mut target, key);

    let io = ask(1, admin.response.controller.0).of(&mut target).unwrap();
    assert_eq!(io.response.authentication, ConnectResponse::AUTHENTICATE);
    assert_eq!(target.admit(key, QueueId(1)), Err(required));
    authenticate(&mut target, key, QueueId(1), host(1));
    assert_eq!(target.admit(key, QueueId(1)), Ok(()));
    // Again, while the queue is in use.
    let again = authenticate(&mut target, key, QueueId(1), host(1));
    assert!(again.news.unwrap().is_ok());
    assert_eq!(target.admit(key, QueueId(1)), Ok(()));
    // A queue that is connected anew authenticates anew.
    target.close_queue(key, QueueId(1));
    ask(1, admin.response.controller.0).of(&mut target).unwrap();
    assert_eq!(target.admit(key, QueueId(1)), Err(required));
    // A reset of the controller leaves the Admin Queue as it is.
    assert_eq!(set(&mut target, key, property::CONFIGURATION, 0), Ok(Change::Reset));
    assert_eq!(target.admit(key, QueueId::ADMIN), Ok(()));
    assert_eq!(target.admit(key, QueueId(1)), Err(required));
}

#[test]
fn a_wrong_secret_admits_nobody() {
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let progress = authenticate(&mut target, admin.association, QueueId::ADMIN, host(2));
    assert!(progress.is_over);
    assert!(target.admit(admin.association, QueueId::ADMIN).is_err());
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    let mut host = host(2);
    let mut news = Vec::new();
    for _ in 0..4 {
        match host.step() {
            Step::Send(message) => {
                let sent = target.authentication_send(START, admin.association, QueueId::ADMIN, &message);
                news.extend(sent.unwrap().news);
            }
            Step::Receive => {
                let queue = QueueId::ADMIN;
                let answer =
                    target.authentication_receive(START, admin.association, queue, ALLOCATION).unwrap();
                host.on_message(&answer.0);
            }
            Step::Done(_) => break,
        }
    }
    assert_eq!(news, [Err(Failure::HostSecret)]);
}

#[test]
fn commands_with_wrong_fields_are_refused() {
    let mut target = demanding(1);
    let key = ask(0, 0xffff).of(&mut target).unwrap().association;
    let invalid = Err(Status::from(StatusCode::InvalidField));
    let wrong = [
        AuthenticationCommand { security_protocol: 0xea, ..ALLOCATION },
        AuthenticationCommand { specific: [1, 0], ..ALLOCATION },
        AuthenticationCommand::in_band(0),
    ];
    for command in wrong {
        assert_eq!(target.authentication_length(key, command), invalid.map(|()| 0));
        let received = target.authentication_receive(START, key, QueueId::ADMIN, command);
        assert_eq!(received.map(|_| ()), invalid);
    }
    let long = AuthenticationCommand::in_band(u32::try_from(MESSAGE_BYTES_MAX).unwrap() + 1);
    assert_eq!(target.authentication_length(key, long), invalid.map(|()| 0));
    // A buffer that is too short changes nothing.
    let Step::Send(negotiate) = host(1).step() else { panic!("it negotiates") };
    target.authentication_send(START, key, QueueId::ADMIN, &negotiate).unwrap();
    let short = AuthenticationCommand::in_band(47);
    assert_eq!(target.authentication_receive(START, key, QueueId::ADMIN, short).map(|_| ()), invalid);
    assert!(target.authentication_receive(START, key, QueueId::ADMIN, ALLOCATION).is_ok());
    // A host that has no secret here cannot authenticate.
    let mut other = ask(0, 0xffff);
    other.data.host = nqn(OTHER);
    let other = other.of(&mut target).unwrap();
    assert_eq!(other.response.authentication, 0);
    let refused = target.authentication_send(START, other.association, QueueId::ADMIN, &negotiate);
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
    // An I/O queue goes alone: whoever connects it may be an impostor.
    let mut target = demanding(1);
    let admin = ask(0, 0xffff).of(&mut target).unwrap();
    authenticate(&mut target, admin.association, QueueId::ADMIN, host(1));
    enable(&mut target, admin.association);
    ask(1, admin.response.controller.0).of(&mut target).unwrap();
    let late = START + Nanos::from_secs(5);
    target.touch(START + Nanos::from_secs(4), admin.association);
    assert_eq!(target.overdue_queues(late), [(admin.association, QueueId(1))]);
    target.close_queue(admin.association, QueueId(1));
    assert_eq!(target.expired(late), []);
    assert!(target.poll_timeout().is_some_and(|at| at > late));
}

#[test]
fn a_changed_secret_ends_the_association() {
    let mut target = demanding(1);
    let key = ask(0, 0xffff).of(&mut target).unwrap().association;
    authenticate(&mut target, key, QueueId::ADMIN, host(1));
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
