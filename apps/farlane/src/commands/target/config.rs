//! A target's offer, in the form of its configuration file (TOML).

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assemblies::fabric::Fabric;
use live::client::Provider;
use live::media::MEDIA_MAX;
use live::sys::address::Place;
use nvme::subsystem::{ANA_GROUPS_MAX, NAMESPACE_ID_MAX};
use nvme_fabrics::target::{ControllerModel, HostTerms, Hosts, SUBSYSTEMS_MAX, TLS_KEYS_MAX, is_closed};
use nvme_fabrics::wire::{ControllerId, Nqn};
use serde::Deserialize;
use toml::Spanned;

use super::hosts::{HostTable, hosts};
use super::values::{Cores, ProofMax, Size, Text, Wrong};
use crate::args::{
    AccessState, Backing, Discovery, FarSpec, FormatSpec, MaxTransfer, MediumSpec, NamespaceSpec, RamSpec,
    Served, check_ram,
};
use crate::commands::served::check_media;
use crate::error::Error;
use crate::whole_file;

/// The offer of a target: where it listens, its subsystems, and referrals to other targets.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) ports: Vec<PortSpec>,
    pub(crate) subsystems: Vec<SubsystemSpec>,
    pub(crate) referrals: Vec<(SocketAddr, Nqn)>,
    /// Whether hosts that prove nothing are let in off loopback.
    pub(crate) insecure: bool,
    /// The hosts that may use the discovery service, if the file names them.
    pub(crate) discovery: Option<Discovery>,
    /// The time that a host has to authenticate, if the file sets it.
    pub(crate) prove_within: Option<Duration>,
    /// The number of threads that execute commands, if the file sets it.
    pub(crate) cores: Option<usize>,
    /// Whether more subsystems are meant to be offered than the file has.
    pub(crate) is_partial: bool,
}

impl Offer {
    /// Checks that hosts without authentication are admitted on loopback only, and that there are
    /// not too many media or keys.
    ///
    /// # Errors
    /// When they are admitted elsewhere, without `insecure`, or there are too many.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let count = self.subsystems.iter().map(SubsystemSpec::tls_keys).sum();
        if count > TLS_KEYS_MAX {
            return Err(Error::TooManyTlsKeys { count, most: TLS_KEYS_MAX });
        }
        self.subsystems.iter().try_for_each(|one| one.check(&self.ports, self.insecure))
    }

    /// Bytes of memory that hold data of all subsystems.
    pub(crate) fn memory(&self) -> u64 {
        self.subsystems.iter().map(SubsystemSpec::memory).fold(0, u64::saturating_add)
    }

    /// Number of media that may each have a file of their own open.
    pub(crate) fn media(&self) -> usize {
        self.subsystems.iter().map(SubsystemSpec::media).sum()
    }
}

/// A port of a target: where it listens, its carrier, and the address that it advertises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortSpec {
    pub(crate) listen: SocketAddr,
    pub(crate) fabric: Fabric,
    pub(crate) advertise: Option<SocketAddr>,
}

#[derive(Debug)]
pub(crate) struct SubsystemSpec {
    pub(crate) nqn: Nqn,
    pub(crate) serial: Option<String>,
    /// Where a subsystem of the configuration file keeps its persistent state.
    pub(crate) state: Option<PathBuf>,
    /// Hosts that may connect; every host, if empty.
    pub(crate) hosts: Vec<Nqn>,
    /// The authentication and the permissions of single hosts.
    pub(crate) terms: Vec<(Nqn, HostTerms)>,
    /// Ports of the subsystem, each by the address that it listens on; all ports, if empty.
    pub(crate) ports: Vec<SocketAddr>,
    pub(crate) model: ControllerModel,
    /// Number of groups of namespaces for Asymmetric Namespace Access (ANA); 0 for none.
    pub(crate) ana_groups: u32,
    /// The most data that one command moves.
    pub(crate) max_transfer: MaxTransfer,
    /// How ports reach the groups of namespaces. The last entry that fits counts; a group that no
    /// entry fits is optimized.
    pub(crate) access: Vec<AccessSpec>,
    pub(crate) source: Source,
}

impl SubsystemSpec {
    /// Number of media that may each have a file of their own open.
    fn media(&self) -> usize {
        match &self.source {
            Source::Given(served) => served.media(),
            Source::Listed(listed) => listed.len(),
        }
    }

    /// Bytes of memory that hold data.
    fn memory(&self) -> u64 {
        match &self.source {
            Source::Given(served) => served.memory(),
            Source::Listed(listed) => listed.iter().map(|one| one.backing.memory()).sum(),
        }
    }

    /// Number of all media.
    fn count_media(&self) -> usize {
        match &self.source {
            Source::Given(served) => served.count_media(),
            Source::Listed(listed) => listed.len() + usize::from(self.state.is_some()),
        }
    }

    /// Checks that there are not too many media, and that hosts without authentication are admitted
    /// on loopback only, unless `is_insecure`.
    ///
    /// # Errors
    /// When there are too many, or hosts are admitted elsewhere.
    pub(super) fn check(&self, ports: &[PortSpec], is_insecure: bool) -> Result<(), Error> {
        check_media(self.count_media())?;
        if is_insecure || self.is_closed() {
            return Ok(());
        }
        let is_exposed = |port: &&PortSpec| !port.listen.ip().is_loopback() && self.is_at(port);
        match ports.iter().find(is_exposed) {
            Some(port) => {
                let (address, subsystem) = (port.listen, self.nqn.to_string());
                Err(Error::ExposedSubsystem { address, subsystem })
            }
            None => Ok(()),
        }
    }

    /// Whether hosts reach the subsystem by `port`.
    pub(crate) fn is_at(&self, port: &PortSpec) -> bool {
        self.ports.is_empty() || self.ports.contains(&port.listen)
    }

    /// Which hosts may connect.
    pub(crate) fn allowed(&self) -> Hosts {
        if self.hosts.is_empty() { Hosts::Any } else { Hosts::Listed(self.hosts.clone()) }
    }

    /// Whether every host must authenticate.
    fn is_closed(&self) -> bool {
        is_closed(&self.allowed(), &self.terms)
    }

    pub(super) fn tls_keys(&self) -> usize {
        self.terms.iter().filter(|(_, terms)| terms.tls.is_some()).count()
    }
}

/// How one port, or every port, reaches a group of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessSpec {
    /// The port, by the address that it listens on; none for every port.
    pub(crate) port: Option<SocketAddr>,
    pub(crate) group: u32,
    pub(crate) state: AccessState,
}

/// A namespace that the configuration file lists, or that was added since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: u32,
    pub(crate) ana_group: u32,
    pub(crate) backing: Backing,
}

/// Where the namespaces of a subsystem come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The namespaces of the command line.
    Given(Box<Served>),
    /// The namespaces of the configuration file.
    Listed(Vec<Listed>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    insecure: bool,
    discovery: Option<Discovery>,
    #[serde(rename = "prove-within")]
    prove_within: Option<Text<ProofMax>>,
    cores: Option<Cores>,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    port: Vec<PortTable>,
    #[serde(default)]
    subsystem: Vec<SubsystemTable>,
    #[serde(default)]
    referral: Vec<ReferralTable>,
}

/// Subsystems for a target that runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PutTable {
    subsystem: Vec<SubsystemTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortTable {
    listen: Spanned<Text<Place>>,
    /// The provider, if the port is one of NVMe/RDMA.
    rdma: Option<Text<Provider>>,
    advertise: Option<Text<Place>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferralTable {
    address: Text<Place>,
    #[serde(default)]
    nqn: Option<Text<Nqn>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubsystemTable {
    nqn: Spanned<Text<Nqn>>,
    serial: Option<String>,
    state: Option<Spanned<PathBuf>>,
    #[serde(default)]
    hosts: Vec<Text<Nqn>>,
    #[serde(default)]
    host: Vec<Spanned<HostTable>>,
    #[serde(default)]
    ports: Vec<Spanned<Text<Place>>>,
    controllers: Option<Spanned<ControllersTable>>,
    #[serde(rename = "ana-groups")]
    ana_groups: Option<Spanned<u32>>,
    #[serde(rename = "max-transfer")]
    max_transfer: Option<Text<MaxTransfer>>,
    #[serde(default)]
    ana: Vec<Spanned<AccessTable>>,
    #[serde(default)]
    namespace: Vec<Spanned<NamespaceTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessTable {
    #[serde(default = "first_group")]
    group: u32,
    port: Option<Text<Place>>,
    state: AccessState,
}

const fn first_group() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllersTable {
    first: u16,
    last: u16,
    #[serde(default, rename = "static")]
    is_static: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceTable {
    id: Option<u32>,
    path: Option<PathBuf>,
    url: Option<Text<FarSpec>>,
    ram: Option<Text<Size>>,
    size: Option<Text<Size>>,
    block: Option<u32>,
    protection: Option<u32>,
    metadata: Option<u32>,
    #[serde(default)]
    readonly: bool,
    #[serde(rename = "ana-group")]
    ana_group: Option<u32>,
}

/// Reads the configuration file at `path`.
///
/// # Errors
/// When the file can't be read, or has a wrong value; the error names its line and key.
pub(crate) fn read(path: &Path) -> Result<Offer, Error> {
    let text = whole_file::read(path, texts::LIST_MAX)?;
    parse(&text).map_err(|why| Error::Config { path: path.to_owned(), why })
}

/// The subsystems of a text with nothing but `[[subsystem]]`, for a target with these ports.
///
/// # Errors
/// When the text has a wrong value or another table, or a relative path.
pub(super) fn parse_subsystems(text: &str, ports: &[PortSpec]) -> Result<Vec<SubsystemSpec>, String> {
    let file: PutTable = texts::parse(text)?;
    let mut seen = Seen::default();
    let mut specs = Vec::new();
    for table in file.subsystem {
        let hosts = table.host.iter().flat_map(|host| host.get_ref().paths());
        let media = table.namespace.iter().filter_map(|one| one.get_ref().path.as_ref());
        let state = table.state.iter().map(Spanned::get_ref);
        if let Some(path) = hosts.chain(media).chain(state).find(|path| path.is_relative()) {
            return Err(format!(
                "{}: the target may work in another folder; give an absolute path",
                path.display()
            ));
        }
        specs.push(subsystem(table, ports, &mut seen).map_err(|wrong| wrong.in_text(text))?);
    }
    Ok(specs)
}

/// The namespaces that a file of this text lists for each subsystem.
///
/// # Errors
/// When the text has a wrong value.
pub(crate) fn listed_in(text: &str) -> Result<Vec<(String, Vec<Listed>)>, String> {
    let of = |subsystem: SubsystemSpec| match subsystem.source {
        Source::Given(_) => None,
        Source::Listed(listed) => Some((subsystem.nqn.to_string(), listed)),
    };
    Ok(parse(text)?.subsystems.into_iter().filter_map(of).collect())
}

pub(super) fn parse(text: &str) -> Result<Offer, String> {
    let file: FileTable = texts::parse(text)?;
    offer(file).map_err(|wrong| wrong.in_text(text))
}

fn offer(file: FileTable) -> Result<Offer, Wrong> {
    let prove_within = file.prove_within.map(|Text(ProofMax(time))| time);
    let cores = file.cores.map(|Cores(count)| count);
    let (insecure, discovery) = (file.insecure, file.discovery);
    let is_partial = file.partial;
    let mut offer = Offer { insecure, discovery, prove_within, cores, is_partial, ..Offer::default() };
    for port in file.port {
        let Text(Place(listen)) = *port.listen.get_ref();
        if offer.ports.iter().any(|other| other.listen == listen) {
            return Err(Wrong::at(&port.listen, "listen", format!("{listen} is listened on already")));
        }
        let fabric = port.rdma.map_or(Fabric::Tcp, |Text(provider)| provider.fabric());
        offer.ports.push(PortSpec { listen, fabric, advertise: port.advertise.map(|Text(place)| place.0) });
    }
    if offer.ports.is_empty() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 4420));
        offer.ports.push(PortSpec { listen, fabric: Fabric::Tcp, advertise: None });
    }
    let mut seen = Seen::default();
    for table in file.subsystem {
        let subsystem = subsystem(table, &offer.ports, &mut seen)?;
        offer.subsystems.push(subsystem);
    }
    for referral in file.referral {
        let nqn = referral.nqn.map_or_else(Nqn::discovery, |Text(nqn)| nqn);
        offer.referrals.push((referral.address.0.0, nqn));
    }
    Ok(offer)
}

/// Names and states of the subsystems of a file so far.
#[derive(Default)]
struct Seen {
    names: HashSet<Nqn>,
    states: HashSet<PathBuf>,
}

fn subsystem(table: SubsystemTable, at: &[PortSpec], seen: &mut Seen) -> Result<SubsystemSpec, Wrong> {
    let Text(nqn) = table.nqn.get_ref().clone();
    if nqn.is_discovery() {
        return Err(Wrong::at(&table.nqn, "nqn", "that is the discovery service's own name"));
    }
    if seen.names.len() == SUBSYSTEMS_MAX {
        let why = format!("more than {SUBSYSTEMS_MAX} subsystems; start a second target for the others");
        return Err(Wrong::at(&table.nqn, "nqn", why));
    }
    if !seen.names.insert(nqn.clone()) {
        return Err(Wrong::at(&table.nqn, "nqn", format!("there is a {nqn} already")));
    }
    let mut ports = Vec::new();
    for port in table.ports {
        let Text(Place(listen)) = *port.get_ref();
        if !at.iter().any(|other| other.listen == listen) {
            return Err(Wrong::at(&port, "ports", format!("no [[port]] listens on {listen}")));
        }
        ports.push(listen);
    }
    let model = model(table.controllers)?;
    let listed = namespaces(table.namespace)?;
    let (ana_groups, access) = access(table.ana_groups, &table.ana, &listed, at)?;
    let mut allowed: Vec<Nqn> = table.hosts.into_iter().map(|Text(host)| host).collect();
    let terms = hosts(table.host, &mut allowed)?;
    let listed = listed.into_iter().map(|(one, _)| one).collect();
    let (serial, source) = (table.serial, Source::Listed(listed));
    if let Some(path) = &table.state
        && !seen.states.insert(path.get_ref().clone())
    {
        return Err(Wrong::at(path, "state", "another subsystem keeps its state there"));
    }
    let state = table.state.map(Spanned::into_inner);
    let max_transfer = table.max_transfer.map(|Text(most)| most).unwrap_or_default();
    let hosts = allowed;
    Ok(SubsystemSpec {
        nqn,
        serial,
        state,
        hosts,
        terms,
        ports,
        model,
        ana_groups,
        max_transfer,
        access,
        source,
    })
}

fn model(range: Option<Spanned<ControllersTable>>) -> Result<ControllerModel, Wrong> {
    let Some(range) = range else { return Ok(ControllerModel::default()) };
    let ControllersTable { first, last, is_static } = *range.get_ref();
    if first > last || last > ControllerId::MAX.0 {
        let why = format!("{first} to {last} is no range of 0 to {}", ControllerId::MAX);
        return Err(Wrong::at(&range, "controllers", why));
    }
    Ok(if is_static { ControllerModel::Static(first..=last) } else { ControllerModel::Dynamic(first..=last) })
}

/// The namespaces of a subsystem, each with its place in the file.
fn namespaces(tables: Vec<Spanned<NamespaceTable>>) -> Result<Vec<(Listed, Spanned<()>)>, Wrong> {
    let (mut listed, mut ids) = (Vec::new(), BTreeSet::new());
    for table in tables {
        let next = ids.last().map_or(1, |last| last + 1);
        let id = table.get_ref().id.unwrap_or(next);
        if listed.len() == MEDIA_MAX {
            let why = format!("more than {MEDIA_MAX}; share them out among several subsystems");
            return Err(Wrong::at(&table, "namespace", why));
        }
        if !(1..=NAMESPACE_ID_MAX).contains(&id) || !ids.insert(id) {
            let why = format!("{id} is taken, or not in 1..={NAMESPACE_ID_MAX}; choose another");
            return Err(Wrong::at(&table, "id", why));
        }
        let backing = backing(table.get_ref()).map_err(|(key, why)| Wrong::at(&table, key, why))?;
        let ana_group = table.get_ref().ana_group.unwrap_or_else(first_group);
        listed.push((Listed { id, ana_group, backing }, Spanned::new(table.span(), ())));
    }
    Ok(listed)
}

/// The number of groups of namespaces, and how ports reach each group. Unless the file gives the
/// number, there are as many groups as the file mentions.
fn access(
    groups: Option<Spanned<u32>>,
    tables: &[Spanned<AccessTable>],
    listed: &[(Listed, Spanned<()>)],
    at: &[PortSpec],
) -> Result<(u32, Vec<AccessSpec>), Wrong> {
    let of_namespaces = listed.iter().map(|(one, _)| one.ana_group).filter(|group| *group > first_group());
    let of_ports = tables.iter().map(|table| table.get_ref().group);
    let count = match &groups {
        Some(groups) => *groups.get_ref(),
        None => of_namespaces.chain(of_ports).max().unwrap_or(0).min(ANA_GROUPS_MAX),
    };
    if let Some(groups) = groups.filter(|_| count > ANA_GROUPS_MAX) {
        return Err(Wrong::at(&groups, "ana-groups", format!("expected at most {ANA_GROUPS_MAX}")));
    }
    let is_there = |group: u32| (1..=count).contains(&group) || count == 0 && group == first_group();
    if let Some((one, place)) = listed.iter().find(|(one, _)| !is_there(one.ana_group)) {
        let why = format!("{} is not one of {count} groups, 1 to {ANA_GROUPS_MAX}", one.ana_group);
        return Err(Wrong::at(place, "ana-group", why));
    }
    let mut access = Vec::new();
    for table in tables {
        let AccessTable { group, port, state } = *table.get_ref();
        let port = port.map(|Text(place)| place.0);
        if !(1..=count).contains(&group) {
            let why = format!("{group} is not one of {count} groups, 1 to {ANA_GROUPS_MAX}");
            return Err(Wrong::at(table, "group", why));
        }
        if let Some(port) = port.filter(|port| !at.iter().any(|other| other.listen == *port)) {
            return Err(Wrong::at(table, "port", format!("no [[port]] listens on {port}")));
        }
        access.push(AccessSpec { port, group, state });
    }
    Ok((count, access))
}

fn backing(table: &NamespaceTable) -> Result<Backing, (&'static str, String)> {
    let NamespaceTable { block, protection, metadata, .. } = *table;
    let key = match (block, protection) {
        (Some(_), _) => "block",
        (None, Some(_)) => "protection",
        (None, None) => "metadata",
    };
    let is_formatted = block.or(protection).or(metadata).is_some();
    let block = FormatSpec { block, protection, metadata }.block().map_err(|why| (key, why))?;
    match (&table.path, &table.ram, &table.url) {
        (Some(path), None, None) => {
            let size = table.size.as_ref().map(|Text(Size(size))| *size);
            Ok(Backing::Medium(MediumSpec::File(NamespaceSpec {
                path: path.clone(),
                size,
                block,
                readonly: table.readonly,
            })))
        }
        (None, Some(Text(Size(size))), None) => {
            check_ram(*size, block).map_err(|why| ("ram", why))?;
            Ok(Backing::Ram(RamSpec { size: *size, block }))
        }
        (None, None, Some(Text(far))) => {
            if table.size.is_some() || is_formatted {
                return Err(("url", "the size and the format are those of the other device".to_owned()));
            }
            let mut far = far.clone();
            far.readonly |= table.readonly;
            Ok(Backing::Medium(MediumSpec::Far(Box::new(far))))
        }
        _ => Err(("namespace", "expected path, url or ram, one of them".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::subsystem::BlockSize;

    const GOOD: &str = r#"discovery = "keyed"
prove-within = "20s"
[[port]]
listen = "0.0.0.0:4420"
advertise = "192.0.2.1:4420"

[[referral]]
address = "192.0.2.2:8009"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:one"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:1"]
controllers = { first = 1, last = 9 }
state = "one.state"
[[subsystem.namespace]]
path = "disk.img"
size = "10GiB"
block = 4096
[[subsystem.namespace]]
id = 7
ram = "64MiB"
ana-group = 2
[[subsystem.ana]]
port = "0.0.0.0:4420"
group = 2
state = "non-optimized"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:two"
state = "two.state"
ports = ["0.0.0.0:4420"]
max-transfer = "256KiB"
"#;

    #[test]
    fn a_file_says_what_is_offered() {
        let offer = parse(GOOD).unwrap();
        assert_eq!(offer.subsystems.len(), 2);
        let most = |index: usize| offer.subsystems[index].max_transfer;
        assert_eq!((most(0), most(1)), (MaxTransfer(128 << 10), MaxTransfer(256 << 10)));
        assert_eq!(offer.discovery, Some(Discovery::Keyed));
        assert_eq!(offer.prove_within, Some(Duration::from_secs(20)));
        assert_eq!(offer.referrals[0].1, Nqn::discovery());
        let Source::Listed(listed) = &offer.subsystems[0].source else { panic!("from the file") };
        let spec = NamespaceSpec {
            path: "disk.img".into(),
            size: Some(10 << 30),
            block: BlockSize::Bytes4096,
            readonly: false,
        };
        let ram = RamSpec { size: 64 << 20, block: BlockSize::Bytes512 };
        let [one, seven] = [(1, 1, Backing::Medium(MediumSpec::File(spec))), (7, 2, Backing::Ram(ram))]
            .map(|(id, ana_group, backing)| Listed { id, ana_group, backing });
        assert_eq!(*listed, [one, seven]);
        assert_eq!((offer.subsystems[0].ana_groups, offer.subsystems[1].ana_groups), (2, 0));
        let port = Some("0.0.0.0:4420".parse().unwrap());
        let access = AccessSpec { port, group: 2, state: AccessState::NonOptimized };
        assert_eq!(offer.subsystems[0].access, [access]);
        assert_eq!(offer.subsystems[0].model, ControllerModel::Dynamic(1..=9));
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_key() {
        for (good, bad, line, key) in [
            ("\"keyed\"", "\"perhaps\"", "1", "discovery"),
            ("20s", "1h", "2", "prove-within"),
            ("ram = \"64MiB\"", "ram = \"lots\"", "21", "ram"),
            ("id = 7", "id = 1", "19", "id"),
            ("farlane:two", "farlane:one", "29", "nqn"),
            ("nqn.2026-01.io.farlane:two", "two", "29", "nqn"),
            ("ports = [\"0.0.0.0:4420\"]", "ports = [\"0.0.0.0:1\"]", "31", "ports"),
            ("ana-group = 2", "ana-group = 200", "19", "ana-group"),
            ("group = 2\nstate", "group = 0\nstate", "23", "group"),
            ("port = \"0.0.0.0:4420\"", "port = \"0.0.0.0:1\"", "23", "port"),
            ("non-optimized", "fast", "26", "state"),
            ("block = 4096", "block = 100", "15", "block"),
            ("size = ", "colour = ", "17", "colour"),
            ("last = 9", "last = 0", "13", "controllers"),
            ("two.state", "one.state", "30", "state"),
            ("256KiB", "100KiB", "32", "max-transfer"),
        ] {
            let error = parse(&GOOD.replace(good, bad)).unwrap_err();
            assert!(error.contains(&format!("line {line}")) && error.contains(key), "{bad}: {error}");
        }
    }
}
