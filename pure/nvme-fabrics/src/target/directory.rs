//! The offer of a target: its subsystems, ports and referrals, and the hosts that it allows.

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use nvme::subsystem::Permit;

use crate::authentication::Credentials;
use crate::tls::TlsCredentials;
use crate::wire::{
    ControllerChoice, ControllerId, DiscoveryEntry, EntryFlags, Nqn, PortId, SecureChannel, SecurityType,
    SubsystemType, TransportAddress, TransportRequirements, TransportType,
};

/// Maximum number of subsystems of a target.
pub const SUBSYSTEMS_MAX: usize = 1 << 14;
/// Maximum number of ports of a target.
pub const PORTS_MAX: usize = 64;
/// Maximum number of referrals of a target.
pub const REFERRALS_MAX: usize = 256;
/// Maximum number of TLS keys of a target, one for each host of each subsystem. Each handshake is
/// compared with all of them.
pub const TLS_KEYS_MAX: usize = 256;
/// Admin Max SQ Size (ASQSZ) in the discovery log, in entries.
const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// Names a subsystem for as long as it is offered, regardless of other changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubsystemKey(pub u32);

/// Which hosts may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Every host that can reach the subsystem.
    #[default]
    Any,
    /// Only the hosts with these NQNs.
    Listed(Vec<Nqn>),
}

impl Hosts {
    /// Whether `host` may connect.
    pub fn allow(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(hosts) => hosts.contains(host),
        }
    }
}

/// Which controllers a subsystem has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerModel {
    /// The target makes a controller for each host that connects, with an identifier in this range.
    Dynamic(RangeInclusive<u16>),
    /// The controllers with these identifiers always exist, each for one host at a time. Hosts
    /// request one by its identifier, or any free one.
    Static(RangeInclusive<u16>),
}

impl Default for ControllerModel {
    /// Dynamic, with any identifier.
    fn default() -> Self {
        Self::Dynamic(1..=ControllerId::MAX.0)
    }
}

/// The terms of a subsystem for a host: its requirements and permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTerms {
    /// The target's credentials for authenticating the host; `None` if it need not authenticate.
    pub credentials: Option<Credentials>,
    /// The host's key for TLS; `None` if it need not encrypt.
    pub tls: Option<TlsCredentials>,
    /// The permissions of the host.
    pub permit: Permit,
}

impl HostTerms {
    /// Whether a host that was admitted on `other` terms has met the requirements of these.
    pub(super) fn demand_the_same(&self, other: &Self) -> bool {
        (&self.credentials, &self.tls) == (&other.credentials, &other.tls)
    }
}

impl From<Credentials> for HostTerms {
    /// The host must authenticate.
    fn from(credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..Self::default() }
    }
}

impl From<TlsCredentials> for HostTerms {
    /// The host must encrypt.
    fn from(tls: TlsCredentials) -> Self {
        Self { tls: Some(tls), ..Self::default() }
    }
}

/// A subsystem that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Names the subsystem within the target.
    pub key: SubsystemKey,
    /// NQN of the subsystem.
    pub name: Nqn,
    /// Hosts that may connect to the subsystem and see it in the discovery log.
    pub hosts: Hosts,
    /// The subsystem's terms for single hosts. A host that is not listed needs only its name, and
    /// has all permissions.
    pub terms: Vec<(Nqn, HostTerms)>,
    /// Which controllers the subsystem has.
    pub model: ControllerModel,
    /// Ports through which the subsystem is reached.
    pub ports: Vec<PortId>,
    /// Whether commands are executed here rather than by another reactor.
    pub is_here: bool,
}

impl Subsystem {
    /// The subsystem's terms for `host`, if there are any.
    pub fn terms_of(&self, host: &Nqn) -> Option<&HostTerms> {
        self.terms.iter().find(|(name, _)| name == host).map(|(_, terms)| terms)
    }

    /// The key of `host` for TLS, if that host must encrypt.
    pub fn tls_of(&self, host: &Nqn) -> Option<&TlsCredentials> {
        self.terms_of(host)?.tls.as_ref()
    }

    /// Whether every host finds the same of both subsystems in the discovery log.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        (&self.name, &self.hosts, &self.ports) == (&other.name, &other.hosts, &other.ports)
            && core::mem::discriminant(&self.model) == core::mem::discriminant(&other.model)
            && self.encrypting().eq(other.encrypting())
    }

    /// The hosts that must encrypt.
    fn encrypting(&self) -> impl Iterator<Item = &Nqn> {
        self.terms.iter().filter(|(_, terms)| terms.tls.is_some()).map(|(host, _)| host)
    }
}

/// Whether every host of a subsystem that allows `hosts` on `terms` must prove its identity.
pub fn is_closed(hosts: &Hosts, terms: &[(Nqn, HostTerms)]) -> bool {
    let Hosts::Listed(hosts) = hosts else { return false };
    let proves = |terms: &HostTerms| terms.credentials.is_some() || terms.tls.is_some();
    hosts.iter().all(|host| terms.iter().any(|(name, terms)| name == host && proves(terms)))
}

/// A port on which the target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port ID (PORTID).
    pub id: PortId,
    /// The address that hosts learn.
    pub address: TransportAddress,
    /// Whether the port listens on every address. Each host then learns the address that it
    /// connected to.
    pub is_any: bool,
}

impl Port {
    /// Whether the port's transport has a secure channel: NVMe/TCP has TLS, RDMA has none.
    fn may_encrypt(&self) -> bool {
        self.address.transport == TransportType::Tcp
    }

    /// The address of this port for a host that connected to `local`.
    fn address_for(&self, local: Option<&TransportAddress>) -> TransportAddress {
        match local {
            Some(local) if self.is_any => TransportAddress {
                family: local.family,
                address: local.address.clone(),
                ..self.address.clone()
            },
            _ => self.address.clone(),
        }
    }
}

/// A discovery service elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Address of the discovery service.
    pub address: TransportAddress,
    /// NQN of the discovery service.
    pub name: Nqn,
}

/// The access to the discovery service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DiscoveryAccess {
    /// Every host. Unproven hosts share the places of unproven associations.
    #[default]
    Open,
    /// Hosts that prove their identity, by the TLS key or the secret that they have for a
    /// subsystem.
    Keyed,
    /// No host: there is no discovery service.
    Closed,
}

/// The complete offer of a target, and the hosts that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The subsystems, at most [`SUBSYSTEMS_MAX`].
    pub subsystems: Vec<Subsystem>,
    /// The ports, at most [`PORTS_MAX`].
    pub ports: Vec<Port>,
    /// The referrals, at most [`REFERRALS_MAX`].
    pub referrals: Vec<Referral>,
    /// The access to the discovery service.
    pub discovery: DiscoveryAccess,
    /// Whether more is meant to be offered than is there at present. A host that is refused
    /// meanwhile learns that a later attempt may succeed; without this, Linux gives the controller
    /// up.
    pub is_partial: bool,
    /// Generation Counter (GENCTR) of the discovery log.
    pub generation: u64,
}

impl Directory {
    /// The credentials of `host`, of the first subsystem that has any.
    pub(super) fn credentials_of(&self, host: &Nqn) -> Option<&Credentials> {
        self.subsystems.iter().find_map(|one| one.terms_of(host)?.credentials.as_ref())
    }

    /// Whether every host gets the same discovery log from both directories.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.ports == other.ports
            && self.referrals == other.referrals
            && self.subsystems.len() == other.subsystems.len()
            && self.subsystems.iter().zip(&other.subsystems).all(|(one, other)| one.looks_like(other))
    }

    /// The discovery log for `host`, which connected to `local`: the discovery service itself at
    /// each port, then the subsystems that the host may use, then the referrals.
    pub fn log(&self, host: &Nqn, local: Option<&TransportAddress>) -> Vec<DiscoveryEntry> {
        self.part_of_log(host, local, 0..u64::MAX).0
    }

    /// The entries of [`Directory::log`] whose numbers are in `wanted`, and the number of all
    /// entries. The other entries are counted and not made.
    pub(super) fn part_of_log(
        &self,
        host: &Nqn,
        local: Option<&TransportAddress>,
        wanted: Range<u64>,
    ) -> (Vec<DiscoveryEntry>, u64) {
        let mut log = Part { wanted, ..Part::default() };
        let flags = EntryFlags::DUPLICATE.and(EntryFlags::PERSISTENT);
        let may_encrypt = self.subsystems.iter().any(|one| one.tls_of(host).is_some());
        let dynamic = u16::from(ControllerChoice::Dynamic);
        for port in &self.ports {
            log.push(|| {
                let entry = entry(port.address_for(local), port.id, SubsystemType::CurrentDiscovery);
                let is_secure = may_encrypt && port.may_encrypt();
                let security = if is_secure { SecurityType::Tls13 } else { SecurityType::None };
                DiscoveryEntry { flags, security, ..entry(Nqn::discovery(), dynamic) }
            });
        }
        for subsystem in self.subsystems.iter().filter(|one| one.hosts.allow(host)) {
            // A host that must encrypt cannot use a port without encryption.
            let reaches = |port: &&Port| subsystem.tls_of(host).is_none() || port.may_encrypt();
            let ports = self.ports.iter().filter(|port| subsystem.ports.contains(&port.id));
            for port in ports.filter(reaches) {
                log.push(|| {
                    let choice = match subsystem.model {
                        ControllerModel::Dynamic(_) => dynamic,
                        ControllerModel::Static(_) => ControllerChoice::AnyStatic.into(),
                    };
                    let entry = entry(port.address_for(local), port.id, SubsystemType::Nvm);
                    let mut entry = entry(subsystem.name.clone(), choice);
                    if subsystem.tls_of(host).is_some() {
                        entry.requirements.secure_channel = SecureChannel::Required;
                        entry.security = SecurityType::Tls13;
                    }
                    entry
                });
            }
        }
        for referral in &self.referrals {
            log.push(|| {
                let entry = entry(referral.address.clone(), PortId(0), SubsystemType::Referral);
                entry(referral.name.clone(), dynamic)
            });
        }
        (log.entries, log.count)
    }
}

/// A part of a discovery log.
#[derive(Default)]
struct Part {
    /// The numbers of the entries that are wanted.
    wanted: Range<u64>,
    entries: Vec<DiscoveryEntry>,
    /// How many entries there were so far.
    count: u64,
}

impl Part {
    fn push(&mut self, make: impl FnOnce() -> DiscoveryEntry) {
        if self.wanted.contains(&self.count) {
            self.entries.push(make());
        }
        self.count += 1;
    }
}

/// Makes the entries for an address, without any secure channel.
fn entry(
    address: TransportAddress,
    port: PortId,
    subsystem_type: SubsystemType,
) -> impl Fn(Nqn, u16) -> DiscoveryEntry {
    move |subsystem, controller| DiscoveryEntry {
        address: address.clone(),
        subsystem_type,
        requirements: TransportRequirements {
            secure_channel: SecureChannel::NotRequired,
            flow_control_can_be_disabled: true,
        },
        port,
        controller,
        admin_queue_size: ADMIN_QUEUE_ENTRIES,
        flags: EntryFlags::default(),
        subsystem,
        security: SecurityType::None,
    }
}
