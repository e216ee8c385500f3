//! The options of `farlane target`, and the commands to a running target.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use assemblies::fabric::Fabric;
use clap::{Args, Subcommand, ValueEnum};
use live::carrier::identity::permit;
use live::client::Provider;
use nvme::subsystem::{ANA_GROUPS_MAX, Permit};
use nvme::wire::AnaState;
use nvme_fabrics::target::DiscoveryAccess;
use nvme_fabrics::wire::Nqn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::headings::MONITORING;
use super::{
    AddedMedium, ControlArgs, DaemonStatusArgs, MetricsArgs, Output, PrecedenceArgs, RemovedNamespace,
    ResizedNamespace, Sandbox, SaveArgs, Served, Spin, TargetSecrets, parse_size,
};

pub(super) const EXAMPLES: &str = "Examples:
  farlane target --nqn nqn.2026-01.io.farlane:disk --ram 1GiB
  farlane setup key tls host.tls
  farlane target --listen 0.0.0.0:4420 --nqn nqn.2026-01.io.farlane:disk \\
    --namespace disk.img,size=10GiB --host HOSTNQN --tls-key-file host.tls
  farlane target --nqn nqn.2026-01.io.farlane:far --namespace tcp://192.0.2.3:4430
  farlane target --config target.toml
  farlane target status
  farlane target resize --nsid 1 --size 20GiB

On the host:
  nvme connect -t tcp -a ADDRESS -s 4420 -n nqn.2026-01.io.farlane:disk --tls";

const RESIZE_EXAMPLES: &str = "Examples:
  truncate -s 20G disk.img && farlane target resize --nsid 1
  farlane target resize --nqn nqn.2026-01.io.farlane:disk --nsid 2 --size 2GiB";

const SAVE_EXAMPLES: &str = "Examples:
  farlane target save
  farlane target save --control /run/farlane-target-disk/control --to new.toml --json";

const ANA_EXAMPLES: &str = "Examples:
  farlane target ana --port 0.0.0.0:4420 --state inaccessible
  farlane target ana --nqn nqn.2026-01.io.farlane:disk --group 2 --state non-optimized --json";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = clap::ArgGroup::new("media").args(["namespace", "ram", "vfio", "pool", "config"]).required(true).multiple(true))]
pub(crate) struct OfferArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TargetAction>,

    /// Listen on this address and port for NVMe/TCP; may be given again [default: 127.0.0.1:4420,
    /// unless --rdma is given].
    ///
    /// Off loopback, every host must authenticate (--host with --tls-key-file or
    /// --dhchap-secret-file), unless --insecure is given
    #[arg(long, value_name = "ADDR", value_parser = super::parse_address)]
    pub(crate) listen: Vec<SocketAddr>,

    /// Listen on this address and port for NVMe/RDMA; may be given again.
    ///
    /// PROVIDER names the carrier of RDMA. iwarp, the default, carries it over TCP connections.
    /// roce carries it over UDP datagrams (RoCEv2). Neither needs an RDMA card. A port of roce
    /// takes UDP port 4791 of one address of this machine, and the port of ADDR is a name that
    /// hosts give. verbs has the RDMA device at ADDR carry it, such as a card; libibverbs drives
    /// the device. RDMA has no TLS: off loopback, hosts must authenticate by DH-HMAC-CHAP
    /// (--dhchap-secret-file)
    #[arg(long, value_name = "[PROVIDER,]ADDR")]
    pub(crate) rdma: Vec<RdmaPort>,

    /// Give hosts this address to connect to, instead of that of the port; may be given again.
    ///
    /// Use this option behind an address translation, with the outer address. The first --advertise
    /// belongs to the first --listen, and so on. When all of --listen have one, the next belongs to
    /// the first --rdma
    #[arg(long, value_name = "ADDR", value_parser = super::parse_address)]
    pub(crate) advertise: Vec<SocketAddr>,
    /// Give the subsystem this name
    #[arg(long, value_name = "NQN", required_unless_present = "config")]
    pub(crate) nqn: Option<Nqn>,

    /// Allow the host with this NQN to connect; may be given again [default: every host]
    ///
    /// Append ,nsid=1+3 to show the host these namespaces only, and ,readonly to let it read only.
    /// Such a host can't format or manage namespaces, either. ,iops=5000 and ,bandwidth=100MiB
    /// limit the host's commands and bytes in a second
    #[arg(long, value_name = "NQN[,nsid=N[+N]][,readonly][,iops=N][,bandwidth=SIZE]")]
    pub(crate) host: Vec<HostSpec>,
    #[command(flatten)]
    pub(crate) secrets: TargetSecrets,
    /// Let in hosts off loopback without authentication
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) watch: MetricsArgs,
    #[command(flatten)]
    pub(crate) precedence: PrecedenceArgs,
    #[command(flatten)]
    pub(crate) sandbox: Sandbox,
    #[command(flatten)]
    pub(crate) served: Served,
    /// Offer this many groups of namespaces for Asymmetric Namespace Access.
    ///
    /// farlane target ana sets the states of these groups
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(ANA_GROUPS_MAX)))]
    pub(crate) ana_groups: u32,
    /// Offer the subsystems, ports, hosts and referrals that this file describes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["namespace", "ram", "vfio", "pool", "nqn", "host", "dhchap_secret_file", "dhchap_controller_secret_file", "tls_key_file", "serial", "max_transfer", "state", "listen", "rdma", "advertise", "ana_groups"])]
    pub(crate) config: Option<PathBuf>,

    /// Carry out commands on this many threads [default: one for each processor; with --cpu, 1].
    ///
    /// The I/O queues of each subsystem are spread over the threads. A thread without work sleeps.
    /// With --cpu N, the threads run on processors N, N+1 and so on
    #[arg(long, value_name = "N", value_parser = parse_cores)]
    pub(crate) cores: Option<usize>,

    /// Hold at most this much data for hosts [default: an eighth of this machine's memory, 4GiB at
    /// most]
    ///
    /// The limit counts data that hosts have not read yet, and data that hosts write. Each host has
    /// a fair share of the limit. A host that uses its whole share waits
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_max)]
    pub(crate) memory_max: Option<u64>,

    /// Choose the hosts that may use the discovery service [default: open].
    ///
    /// Hosts that use it without a key share the places of connections without authentication
    #[arg(long, value_name = "ACCESS")]
    pub(crate) discovery: Option<Discovery>,

    /// Close a connection whose host has not authenticated within this time [default: 5s]
    ///
    /// The time runs from the beginning of the connection until the host has authenticated, or
    /// until its Connect has succeeded if that suffices. Long ways need more time: a host takes ten
    /// round trips at most
    #[arg(long, value_name = "TIME", value_parser = parse_proof_max)]
    pub(crate) prove_within: Option<Duration>,

    /// Announce the discovery service by multicast DNS (_nvme-disc._tcp).
    ///
    /// The announcement goes out on the interfaces of the addresses that the target listens on.
    /// farlane use discover --mdns finds the service
    #[arg(long)]
    pub(crate) mdns: bool,
    /// Use this port for multicast DNS
    #[arg(long, value_name = "PORT", default_value_t = live::drivers::mdns::PORT, hide = true)]
    pub(crate) mdns_port: u16,
    /// Listen on this socket for farlane target status, add, remove, resize, ana and reload
    /// [default: one in this user's folder; docs/operate.md says which]
    #[arg(long, value_name = "PATH", help_heading = MONITORING)]
    pub(crate) control: Option<PathBuf>,
    /// Print the addresses that were bound as JSON on the first lines of standard output
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) spin: Spin,
}

impl OfferArgs {
    /// The addresses to listen on, and the fabric of each.
    pub(crate) fn ports(&self) -> Vec<(SocketAddr, Fabric)> {
        let tcp = self.listen.iter().map(|listen| (*listen, Fabric::Tcp));
        let rdma = self.rdma.iter().map(|port| (port.listen, port.provider.fabric()));
        let ports: Vec<_> = tcp.chain(rdma).collect();
        if ports.is_empty() { vec![(SocketAddr::from(([127, 0, 0, 1], 4420)), Fabric::Tcp)] } else { ports }
    }
}

/// The hosts that may use the discovery service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Discovery {
    /// Every host
    Open,
    /// Hosts that authenticate by the TLS key or the secret that they have for a subsystem
    Keyed,
    /// No host: there is no discovery service
    Closed,
}

impl From<Discovery> for DiscoveryAccess {
    fn from(discovery: Discovery) -> Self {
        match discovery {
            Discovery::Open => Self::Open,
            Discovery::Keyed => Self::Keyed,
            Discovery::Closed => Self::Closed,
        }
    }
}

/// A port of NVMe/RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RdmaPort {
    pub(crate) provider: Provider,
    pub(crate) listen: SocketAddr,
}

impl FromStr for RdmaPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (provider, address) = match text.split_once(',') {
            Some((provider, address)) => (provider.parse()?, address),
            None => (Provider::default(), text),
        };
        Ok(Self { provider, listen: super::parse_address(address)? })
    }
}

/// A host that may connect, and its permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostSpec {
    pub(crate) nqn: Nqn,
    pub(crate) permit: Permit,
}

impl FromStr for HostSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let nqn = name.parse().map_err(|error| format!("'{name}': {error}"))?;
        let mut made = Permit::default();
        for part in parts {
            if !permit::take(&mut made, part)? {
                return Err(format!("'{part}' is not one of: {}", permit::PARTS));
            }
        }
        Ok(Self { nqn, permit: made })
    }
}

/// The requests to a running target.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetAction {
    /// Show a target's offers, and the hosts that use them
    Status(DaemonStatusArgs),
    /// Add a namespace to a subsystem; hosts are notified at once
    Add(AddArgs),
    /// Remove a namespace from a subsystem; hosts are notified at once
    Remove(RemoveArgs),
    /// Change the size of a namespace; hosts are notified at once.
    ///
    /// Without --size, the namespace gets the current size of its file or block device
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
    /// Set how a port or a controller reaches a group of namespaces (Asymmetric Namespace Access).
    ///
    /// Hosts are notified at once
    #[command(after_help = ANA_EXAMPLES)]
    Ana(AnaArgs),

    /// Offer the subsystems of a file, too, or change those that have their names.
    ///
    /// No other subsystem is touched, so the cost does not depend on their number. The file has
    /// [[subsystem]] tables as the --config file has, and nothing else; its paths are absolute
    Put(PutArgs),
    /// Offer a subsystem no longer: its hosts are disconnected, and its files are let go.
    ///
    /// No other subsystem is touched
    Drop(DropArgs),

    /// Write the changes made at run time to the --config file; its comments stay.
    ///
    /// These are subsystems that were put or dropped, namespaces that were added, removed or
    /// resized, and the states of groups. This command changes the file, with its own rights; the
    /// target does not
    #[command(after_help = SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// Read the --config file again; connections to remaining subsystems are kept
    Reload(ControlArgs),
}

/// How a controller reaches a group of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessState {
    /// Hosts reach the group well
    Optimized,
    /// Hosts reach the group less well, and use another path if they can
    NonOptimized,
    /// Hosts cannot reach the group now, and use another path or wait
    Inaccessible,
    /// Hosts can never reach the group again
    PersistentLoss,
    /// The state is about to change, and hosts wait
    Change,
}

impl AccessState {
    /// The state's name on the command line and in files.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl From<AccessState> for status::AccessState {
    fn from(state: AccessState) -> Self {
        match state {
            AccessState::Optimized => Self::Optimized,
            AccessState::NonOptimized => Self::NonOptimized,
            AccessState::Inaccessible => Self::Inaccessible,
            AccessState::PersistentLoss => Self::PersistentLoss,
            AccessState::Change => Self::Change,
        }
    }
}

impl From<AccessState> for AnaState {
    fn from(state: AccessState) -> Self {
        match state {
            AccessState::Optimized => Self::Optimized,
            AccessState::NonOptimized => Self::NonOptimized,
            AccessState::Inaccessible => Self::Inaccessible,
            AccessState::PersistentLoss => Self::PersistentLoss,
            AccessState::Change => Self::Change,
        }
    }
}

/// The subsystem of a target that a request concerns.
#[derive(Debug, Args)]
pub(crate) struct SubsystemArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// Use the subsystem with this name [default: the only one]
    #[arg(long, value_name = "NQN")]
    nqn: Option<Nqn>,
}

impl SubsystemArgs {
    /// The subsystem's name, as requests have it.
    pub(crate) fn name(&self) -> Option<String> {
        self.nqn.as_ref().map(ToString::to_string)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) place: SubsystemArgs,
    #[command(flatten)]
    pub(crate) added: AddedMedium,
    /// Put the namespace into this group for Asymmetric Namespace Access [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ana_group: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The file with the subsystems, or - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    /// The name of the subsystem
    #[arg(value_name = "NQN")]
    pub(crate) nqn: Nqn,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    #[command(flatten)]
    pub(crate) place: SubsystemArgs,
    #[command(flatten)]
    pub(crate) resized: ResizedNamespace,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct AnaArgs {
    #[command(flatten)]
    pub(crate) place: SubsystemArgs,
    /// Set the state of this group of namespaces
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) group: u32,
    /// Set this state
    #[arg(long, value_name = "STATE")]
    pub(crate) state: AccessState,
    /// Set the state for the controllers of the port that listens on this address [default:
    /// every port]
    #[arg(long, value_name = "ADDR", conflicts_with = "controller", value_parser = super::parse_address)]
    pub(crate) port: Option<SocketAddr>,
    /// Set the state for the controller with this identifier only, as long as the controller exists
    #[arg(long, value_name = "CNTLID")]
    pub(crate) controller: Option<u16>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) place: SubsystemArgs,
    #[command(flatten)]
    pub(crate) removed: RemovedNamespace,
}

/// The most threads of a target.
const CORES_MAX: usize = 64;

/// The least memory that lets a host have commands of the greatest length.
const MEMORY_MIN: u64 = 4 << 20;

fn parse_memory_max(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MEMORY_MIN => Err("expected at least 4MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The shortest and the longest time in which hosts must authenticate.
const PROOF_MAX_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(120);

/// Parses the time in which hosts must authenticate.
pub(crate) fn parse_proof_max(text: &str) -> Result<Duration, String> {
    let time = super::parse_time(text)?;
    PROOF_MAX_RANGE.contains(&time).then_some(time).ok_or_else(|| "expected 100ms to 2min".to_owned())
}

impl OfferArgs {
    /// Number of threads to start, where a configuration file wants `wanted`.
    pub(crate) fn cores(&self, wanted: Option<usize>) -> usize {
        let all = || live::reactor::processors().unwrap_or(1).clamp(1, CORES_MAX);
        let usual = || if self.spin.cpu.is_some() { 1 } else { all() };
        self.cores.unwrap_or_else(|| usual().max(wanted.unwrap_or(1)))
    }
}

/// Parses the number of threads of a target.
pub(crate) fn parse_cores(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CORES_MAX).contains(count));
    count.ok_or_else(|| format!("expected 1 to {CORES_MAX}"))
}
