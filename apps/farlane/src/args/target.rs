//! `farlane target`: what can be said of a target of NVMe/TCP, and to one that runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nvme::subsystem::{ANA_GROUPS_MAX, AnaState};
use nvme_fabrics::wire::Nqn;
use serde::{Deserialize, Serialize};

use super::{MediumSpec, Output, RamSpec, Served, Spin, parse_size};

pub(super) const EXAMPLES: &str = "Examples:
  farlane target --nqn nqn.2026-01.io.farlane:disk --ram 1GiB
  farlane target --listen 0.0.0.0:4420 --nqn nqn.2026-01.io.farlane:disk --namespace disk.img,size=10GiB
  farlane target --nqn nqn.2026-01.io.farlane:far --namespace tcp://192.0.2.3:4430
  farlane target --config target.toml
  farlane target status
  farlane target resize --nsid 1 --size 20GiB

On the host:
  nvme connect -t tcp -a ADDRESS -s 4420 -n nqn.2026-01.io.farlane:disk";

const RESIZE_EXAMPLES: &str = "Examples:
  truncate -s 20G disk.img && farlane target resize --nsid 1
  farlane target resize --nqn nqn.2026-01.io.farlane:disk --nsid 2 --size 2GiB";

const ANA_EXAMPLES: &str = "Examples:
  farlane target ana --port 0.0.0.0:4420 --state inaccessible
  farlane target ana --nqn nqn.2026-01.io.farlane:disk --group 2 --state non-optimized --json";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = clap::ArgGroup::new("media").args(["namespace", "ram", "vfio", "pool", "config"]).required(true).multiple(true))]
pub(crate) struct OfferArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TargetAction>,
    /// Address and port to listen on; may be given again. Whoever reaches it may use what is
    /// offered, unless --host names who may
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4420", value_parser = super::parse_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// What hosts are told to connect to, where that is not what --listen says: the outer side of
    /// an address translation
    #[arg(long, value_name = "ADDR", value_parser = super::parse_address)]
    pub(crate) advertise: Vec<SocketAddr>,
    /// Name of the subsystem
    #[arg(long, value_name = "NQN", required_unless_present = "config")]
    pub(crate) nqn: Option<Nqn>,
    /// A host that may connect, by its NQN; may be given again [default: every host]
    #[arg(long, value_name = "NQN")]
    pub(crate) host: Vec<Nqn>,
    #[command(flatten)]
    pub(crate) served: Served,
    /// Groups of namespaces for Asymmetric Namespace Access, whose states farlane target ana sets
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(ANA_GROUPS_MAX)))]
    pub(crate) ana_groups: u32,
    /// Offer what this file says: several subsystems, ports, hosts, referrals
    #[arg(long, value_name = "FILE", conflicts_with_all = ["namespace", "ram", "vfio", "pool", "nqn", "host", "serial", "state", "listen", "advertise", "ana_groups"])]
    pub(crate) config: Option<PathBuf>,
    /// Threads that carry out commands; a subsystem is one thread's. With --cpu, they have the
    /// processors from that one on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_cores)]
    pub(crate) cores: usize,
    /// Memory that is held for hosts at most, of what they have not read and what they write; each
    /// has a fair share, and waits when it has that [default: an eighth of this machine's memory,
    /// 4GiB at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_max)]
    pub(crate) memory_max: Option<u64>,
    /// Announce the discovery service by multicast DNS (_nvme-disc._tcp), on the interfaces of the
    /// addresses that it listens on; farlane discover --mdns finds it
    #[arg(long)]
    pub(crate) mdns: bool,
    /// Port of multicast DNS
    #[arg(long, value_name = "PORT", default_value_t = live::mdns::PORT, hide = true)]
    pub(crate) mdns_port: u16,
    /// The socket for farlane target status, add, remove, resize, ana and reload [default:
    /// farlane-target.sock in $XDG_RUNTIME_DIR, or in /run]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Print the addresses that were bound as JSON on the first lines of standard output
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) spin: Spin,
}

/// What is asked of a target that runs.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetAction {
    /// Show what is offered, and who uses it
    Status(TargetStatusArgs),
    /// Add a namespace to a subsystem; hosts hear of it at once
    Add(AddArgs),
    /// Take a namespace from a subsystem; hosts hear of it at once
    Remove(RemoveArgs),
    /// Make a namespace longer or shorter, or serve what its file has by now; hosts hear of it at
    /// once
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ResizeArgs),
    /// Say how a port, or a controller, reaches a group of namespaces (Asymmetric Namespace
    /// Access); hosts hear of it at once
    #[command(after_help = ANA_EXAMPLES)]
    Ana(AnaArgs),
    /// Read the --config file again; connections to what stays are kept
    Reload(ControlArgs),
}

/// How a controller reaches a group of namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessState {
    /// Well
    Optimized,
    /// Less well: hosts go another way if they can
    NonOptimized,
    /// Not now: hosts go another way, or wait
    Inaccessible,
    /// Never again
    PersistentLoss,
    /// About to be something else: hosts wait
    Change,
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

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The socket of the target [default: farlane-target.sock in $XDG_RUNTIME_DIR, or in /run]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TargetStatusArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("medium").args(["namespace", "ram"]).required(true))]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The subsystem [default: the only one]
    #[arg(long, value_name = "NQN")]
    pub(crate) nqn: Option<Nqn>,
    /// A file or block device to serve, or a namespace of another device: tcp://HOST:PORT[,nsid=N],
    /// or nvme-tcp://HOST:PORT/NQN[,nsid=N]
    #[arg(long, value_name = "PATH[,size=SIZE][,block=512|4096][,readonly]")]
    pub(crate) namespace: Option<MediumSpec>,
    /// Memory to serve
    #[arg(long, value_name = "SIZE[,block=512|4096]")]
    pub(crate) ram: Option<RamSpec>,
    /// Its group for Asymmetric Namespace Access [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ana_group: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The subsystem [default: the only one]
    #[arg(long, value_name = "NQN")]
    pub(crate) nqn: Option<Nqn>,
    /// Identifier of the namespace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nsid: u32,
    /// Its new size; a file gets it too [default: what its file or block device has by now]
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct AnaArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The subsystem [default: the only one]
    #[arg(long, value_name = "NQN")]
    pub(crate) nqn: Option<Nqn>,
    /// The group of namespaces
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) group: u32,
    /// How it is reached from now on
    #[arg(long, value_name = "STATE")]
    pub(crate) state: AccessState,
    /// For the controllers of this port, by the address that it listens on [default: every port]
    #[arg(long, value_name = "ADDR", conflicts_with = "controller", value_parser = super::parse_address)]
    pub(crate) port: Option<SocketAddr>,
    /// For this controller only, as long as it exists
    #[arg(long, value_name = "CNTLID")]
    pub(crate) controller: Option<u16>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The subsystem [default: the only one]
    #[arg(long, value_name = "NQN")]
    pub(crate) nqn: Option<Nqn>,
    /// Identifier of the namespace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nsid: u32,
}

/// Threads of a target.
const CORES_MAX: usize = 64;

/// The least that lets a host have commands of the greatest length.
const MEMORY_MIN: u64 = 4 << 20;

fn parse_memory_max(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MEMORY_MIN => Err("expected at least 4MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_cores(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CORES_MAX).contains(count));
    count.ok_or_else(|| format!("expected 1 to {CORES_MAX}"))
}
