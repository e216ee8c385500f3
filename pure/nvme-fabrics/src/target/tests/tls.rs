//! Hosts that must encrypt, the uses of a key, and its effect on the discovery log.

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
    let first = connect(&mut target, &queue, Some(&proved)).unwrap();
    // The host connects the queue again: its earlier connection may be lost.
    let second = connect(&mut target, &queue, Some(&proved)).unwrap();
    let association = target.association(admin.association).unwrap();
    assert!(association.admits(second.claim) && !association.admits(first.claim));
    target.close_queue(admin.association, first.claim);
    assert!(target.association(admin.association).unwrap().has_queue(QueueId(1)));
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
    assert!(!is_closed(&Hosts::Any, &terms), "any host may connect");
    assert!(!is_closed(&listed, &terms), "any host can use the name");
    terms.push((nqn(HOST), tls(1).into()));
    assert!(!is_closed(&listed, &terms) && !is_closed(&Hosts::Any, &terms));
    terms.push((nqn(OTHER), tls(2).into()));
    assert!(is_closed(&listed, &terms));
}

/// The access to the discovery service: of a host with a TLS key, one with a secret, one with
/// neither.
#[test]
fn discovery_is_open_or_keyed_or_closed() {
    use crate::authentication::{Credentials, Secret};
    const THIRD: &str = "nqn.2014-08.org.nvmexpress:uuid:3";
    let secret = Secret::generate(None, &mut Entropy::from(Rng::from_seed(7)));
    let with_access = |discovery| {
        let mut directory = directory();
        let terms = [(nqn(HOST), tls(1).into()), (nqn(OTHER), Credentials::new(secret.clone()).into())];
        directory.subsystems[0].terms = terms.into();
        directory.discovery = discovery;
        directory
    };
    let asking = |host: &str| {
        let mut ask = ask(0, 0xffff).to(Nqn::DISCOVERY);
        ask.data.host = nqn(host);
        ask
    };
    let proved = identity(HOST, Nqn::DISCOVERY);
    for access in [DiscoveryAccess::Open, DiscoveryAccess::Keyed, DiscoveryAccess::Closed] {
        let mut target = Target::new(with_access(access), Rng::from_seed(1).into());
        let encrypted = connect(&mut target, &asking(HOST), Some(&proved));
        let plain = [HOST, OTHER, THIRD].map(|host| connect(&mut target, &asking(host), None));
        let admitted = [encrypted]
            .iter()
            .chain(&plain)
            .map(|one| one.as_ref().ok().map(|one| one.is_admitted))
            .collect::<Vec<_>>();
        let expected = match access {
            DiscoveryAccess::Open => [Some(true); 4],
            // The host with a secret must authenticate.
            DiscoveryAccess::Keyed => [Some(true), None, Some(false), None],
            DiscoveryAccess::Closed => [None; 4],
        };
        assert_eq!(admitted, expected, "{access:?}");
        let unproven =
            if access == DiscoveryAccess::Open { 3 } else { usize::from(access == DiscoveryAccess::Keyed) };
        assert_eq!(target.unproven(), unproven);
        let [.., third] = &plain;
        let (code, text) = match access {
            DiscoveryAccess::Open => continue,
            DiscoveryAccess::Keyed => (FabricsStatus::InvalidHost, "demands a key"),
            DiscoveryAccess::Closed => (FabricsStatus::InvalidParameters, "switched off"),
        };
        let refusal = third.as_ref().unwrap_err();
        assert_eq!(refusal.status, code.into());
        assert!(refusal.why.to_string().contains(text), "{}", refusal.why);
    }
    // A reload that closes the service ends its associations.
    let mut target = Target::new(with_access(DiscoveryAccess::Open), Rng::from_seed(1).into());
    let encrypted = connect(&mut target, &asking(HOST), Some(&proved)).unwrap().association;
    let plain = connect(&mut target, &asking(HOST), None).unwrap().association;
    assert_eq!(target.set_directory(with_access(DiscoveryAccess::Keyed)).1, [plain]);
    target.end(plain);
    assert_eq!(target.set_directory(with_access(DiscoveryAccess::Closed)).1, [encrypted]);
}
