//! Hosts that must encrypt, what a key is good for, and what the discovery log says of it.

use alloc::string::ToString;

use engine::{Entropy, Rng};

use super::*;
use crate::authentication::Hash;
use crate::tls::{Identity, IdentityVersion, TlsCredentials, TlsKey};
use crate::wire::{SecureChannel, SecurityType};

fn tls(seed: u64) -> TlsCredentials {
    let key = TlsKey::generate(Hash::Sha256, &mut Entropy::from(Rng::from_seed(seed)));
    TlsCredentials { key, origin: "host.tls".into() }
}

fn encrypting(seed: u64) -> Target {
    with(|directory| directory.subsystems[0].terms = Vec::from([(nqn(HOST), tls(seed).into())]))
}

fn identity(host: &str, subsystem: &str) -> Identity {
    let (version, hash) = (IdentityVersion::One, Hash::Sha256);
    Identity { version, hash, host: nqn(host), subsystem: nqn(subsystem) }
}

fn connect(target: &mut Target, ask: &Ask, proved: Option<&Identity>) -> Result<Connected, Refusal> {
    let arrival = Arrival { proved, ..through(PORT) };
    match target.connect(START, arrival, &ask.command, &ask.data.emit())? {
        Outcome::Connected(connected) => Ok(connected),
        Outcome::Elsewhere(_) => panic!("the subsystem is here"),
    }
}

#[test]
fn a_host_with_a_key_must_encrypt_each_of_its_queues() {
    let mut target = encrypting(1);
    let plain = connect(&mut target, &ask(0, 0xffff), None).unwrap_err();
    assert_eq!(plain.status, FabricsStatus::InvalidHost.into());
    assert!(plain.why.to_string().contains("without TLS"), "{}", plain.why);
    let proved = identity(HOST, DISK);
    let admin = connect(&mut target, &ask(0, 0xffff), Some(&proved)).unwrap();
    assert_eq!(admin.response.authentication, 0, "TLS is no DH-HMAC-CHAP");
    enable(&mut target, admin.association);
    let queue = ask(1, admin.response.controller.0);
    assert!(connect(&mut target, &queue, None).is_err());
    assert!(connect(&mut target, &queue, Some(&proved)).is_ok());
}

#[test]
fn a_key_is_good_for_its_host_and_its_subsystem_alone() {
    let mut target = encrypting(1);
    for (host, subsystem) in [(OTHER, DISK), (HOST, Nqn::DISCOVERY), (HOST, "nqn.2026-01.io.farlane:other")] {
        let refusal = connect(&mut target, &ask(0, 0xffff), Some(&identity(host, subsystem))).unwrap_err();
        assert_eq!(refusal.status, FabricsStatus::InvalidHost.into());
        assert!(refusal.why.to_string().contains(host), "{}", refusal.why);
    }
}

#[test]
fn a_changed_key_ends_the_association_and_its_file_does_not() {
    let mut target = encrypting(1);
    let admin = connect(&mut target, &ask(0, 0xffff), Some(&identity(HOST, DISK))).unwrap();
    let with_terms = |terms| {
        let mut directory = directory();
        directory.subsystems[0].terms = Vec::from([(nqn(HOST), terms)]);
        directory
    };
    let moved = TlsCredentials { origin: "another file".into(), ..tls(1) };
    assert_eq!(target.set_directory(with_terms(moved.into())).1, []);
    assert_eq!(target.set_directory(with_terms(tls(2).into())).1, [admin.association]);
}

#[test]
fn the_discovery_log_says_who_must_encrypt() {
    let mut directory = directory();
    directory.subsystems[0].terms = Vec::from([(nqn(HOST), tls(1).into())]);
    let security = |host| {
        let log = directory.log(&nqn(host), None);
        log.iter().map(|one| (one.requirements.secure_channel, one.security)).collect::<Vec<_>>()
    };
    let plain = (SecureChannel::NotRequired, SecurityType::None);
    let possible = (SecureChannel::NotRequired, SecurityType::Tls13);
    let required = (SecureChannel::Required, SecurityType::Tls13);
    assert_eq!(security(HOST), [possible, required]);
    assert_eq!(security(OTHER), [plain, plain]);
}

#[test]
fn a_subsystem_is_closed_when_each_of_its_hosts_proves_who_it_is() {
    let listed = Hosts::Listed(Vec::from([nqn(HOST), nqn(OTHER)]));
    let mut terms = Vec::new();
    assert!(!is_closed(&Hosts::Any, &terms), "whoever comes");
    assert!(!is_closed(&listed, &terms), "whoever gives itself the name");
    terms.push((nqn(HOST), tls(1).into()));
    assert!(!is_closed(&listed, &terms) && !is_closed(&Hosts::Any, &terms));
    terms.push((nqn(OTHER), tls(2).into()));
    assert!(is_closed(&listed, &terms));
}
