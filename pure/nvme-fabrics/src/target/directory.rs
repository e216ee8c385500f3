//! What a target offers: subsystems, ports, whom it lets in, whom it knows.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::wire::{
    ControllerChoice, ControllerId, DiscoveryEntry, EntryFlags, Nqn, PortId, SecureChannel, SecurityType,
    SubsystemType, TransportAddress, TransportRequirements,
};

/// Subsystems of a target, at most.
pub const SUBSYSTEMS_MAX: usize = 1024;
/// Ports of a target, at most.
pub const PORTS_MAX: usize = 64;
/// Referrals of a target, at most.
pub const REFERRALS_MAX: usize = 256;
/// Admin Max SQ Size (ASQSZ), in entries, as the discovery log gives it.
const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// Names a subsystem for as long as it is offered, whatever else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubsystemKey(pub u32);

/// Who may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Everybody who reaches it.
    #[default]
    Any,
    /// These.
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
    /// One is made for each host that connects, with an identifier of these.
    Dynamic(RangeInclusive<u16>),
    /// These are there always, for one host each at a time; hosts ask for one of them by its identifier.
    Static(RangeInclusive<u16>),
}

impl Default for ControllerModel {
    /// Dynamic, with any identifier.
    fn default() -> Self {
        Self::Dynamic(1..=ControllerId::MAX.0)
    }
}

/// A subsystem that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Names it here.
    pub key: SubsystemKey,
    /// Its NQN.
    pub name: Nqn,
    /// Who may connect to it, and hears of it.
    pub hosts: Hosts,
    /// Which controllers it has.
    pub model: ControllerModel,
    /// Through which ports it is reached.
    pub ports: Vec<PortId>,
    /// Whether its commands are carried out here, rather than by another reactor.
    pub is_here: bool,
}

/// Where the target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port ID (PORTID).
    pub id: PortId,
    /// What hosts are told of it.
    pub address: TransportAddress,
    /// Whether it listens on every address: hosts are then told the one that they came to.
    pub is_any: bool,
}

impl Port {
    /// Where a host reaches this port that has come to `local`.
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
    /// Where it is.
    pub address: TransportAddress,
    /// Its NQN.
    pub name: Nqn,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Subsystems, [`SUBSYSTEMS_MAX`] at most.
    pub subsystems: Vec<Subsystem>,
    /// Ports, [`PORTS_MAX`] at most.
    pub ports: Vec<Port>,
    /// Referrals, [`REFERRALS_MAX`] at most.
    pub referrals: Vec<Referral>,
    /// Generation Counter (GENCTR) of the discovery log.
    pub generation: u64,
}

impl Directory {
    /// The subsystem called `name`, where a host that came through `port` can reach it.
    pub fn find(&self, name: &Nqn, port: PortId) -> Option<&Subsystem> {
        self.subsystems.iter().find(|one| one.name == *name && one.ports.contains(&port))
    }

    /// The subsystem with that key.
    pub fn by_key(&self, key: SubsystemKey) -> Option<&Subsystem> {
        self.subsystems.iter().find(|one| one.key == key)
    }

    /// Whether the log says the same to everybody.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let alike = |one: &Subsystem, other: &Subsystem| {
            (&one.name, &one.hosts, &one.ports) == (&other.name, &other.hosts, &other.ports)
                && core::mem::discriminant(&one.model) == core::mem::discriminant(&other.model)
        };
        self.ports == other.ports
            && self.referrals == other.referrals
            && self.subsystems.len() == other.subsystems.len()
            && self.subsystems.iter().zip(&other.subsystems).all(|(one, other)| alike(one, other))
    }

    /// The discovery log for `host`, which came to `local` by `port`: the discovery service itself at each port, what
    /// the host may use, then referrals.
    pub fn log(&self, host: &Nqn, local: Option<&TransportAddress>) -> Vec<DiscoveryEntry> {
        let mut log = Vec::new();
        let flags = EntryFlags::DUPLICATE.and(EntryFlags::PERSISTENT);
        let dynamic = u16::from(ControllerChoice::Dynamic);
        for port in &self.ports {
            let entry = self.entry(port.address_for(local), port.id, SubsystemType::CurrentDiscovery);
            log.push(DiscoveryEntry { flags, ..entry(Nqn::discovery(), dynamic) });
        }
        for subsystem in self.subsystems.iter().filter(|one| one.hosts.allow(host)) {
            for port in self.ports.iter().filter(|port| subsystem.ports.contains(&port.id)) {
                let choice = match subsystem.model {
                    ControllerModel::Dynamic(_) => dynamic,
                    ControllerModel::Static(_) => ControllerChoice::AnyStatic.into(),
                };
                let entry = self.entry(port.address_for(local), port.id, SubsystemType::Nvm);
                log.push(entry(subsystem.name.clone(), choice));
            }
        }
        for referral in &self.referrals {
            let entry = self.entry(referral.address.clone(), PortId(0), SubsystemType::Referral);
            log.push(entry(referral.name.clone(), dynamic));
        }
        log
    }

    fn entry(
        &self,
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
}
