//! The words and options of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::csi::CsiArgs;
use super::values::{SizedPool, parse_bytes, parse_label, parse_pool, parse_sized_pool, parse_tunnels};
use crate::agent::Tunnels;
use crate::api::client::Place;
use crate::channel::{Controllers, DEFAULT_LISTEN};
use crate::store;

use crate::wire::{Data, Mode, Transport};

const EXAMPLES: &str = "Examples:
  farlane fleet up --pool fast=/srv/fast,size=100GiB
  farlane fleet volume create data --size 10GiB
  farlane fleet attach data --node here
  farlane fleet get attachment
  farlane fleet detach data-here";

/// Compose far SSDs from many machines.
#[derive(Debug, Parser)]
#[command(name = "farlane fleet", bin_name = "farlane fleet", version, after_help = EXAMPLES)]
#[command(arg_required_else_help = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) access: Access,
    /// Print JSON for machines instead of text for people
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Log more; twice: everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

/// How the controllers are reached.
#[derive(Clone, Debug, Args)]
pub(super) struct Access {
    /// Ask these controllers: unix:PATH, or KEY@HOST:PORT[,HOST:PORT...] [default: the control
    /// socket of a controller on this machine]
    #[arg(long, global = true, value_name = "PLACE", env = "FARLANE_FLEET")]
    pub(super) controllers: Option<Place>,
    /// Prove the key in this file over the network [default: this user's key]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Wait at most this long for controllers, and for the effect of a command
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a fleet on this machine: a controller with a file as its store, and an agent
    #[command(after_help = "Example:\n  farlane fleet up --pool fast=/srv/fast,size=100GiB")]
    Up(UpArgs),
    /// Run a controller
    #[command(after_help = "Examples:
  farlane fleet controller --store file:/var/lib/farlane-fleet/store
  farlane fleet controller --store etcd://10.0.0.1:2379,10.0.0.2:2379/prod --listen 0.0.0.0:4410")]
    Controller(ControllerArgs),
    /// Run the agent of this machine. SIGHUP restarts its target, as the program that is installed
    #[command(after_help = "Example:\n  farlane fleet agent --pool fast=/srv/fast --listen 0.0.0.0:4420")]
    Agent(AgentArgs),
    /// Make a token with which one machine joins, once
    #[command(after_help = "Example:\n  farlane fleet token node-7")]
    Token(TokenArgs),
    /// Enrol this machine with a token
    #[command(after_help = "Example:\n  farlane fleet join TOKEN --address 192.0.2.7:4420")]
    Join(JoinArgs),

    /// Show objects: a kind, or one object
    #[command(
        after_help = "Examples:\n  farlane fleet get volume\n  farlane fleet get attachment data-here --json"
    )]
    Get(GetArgs),
    /// Show each change of objects as it happens
    #[command(after_help = "Example:\n  farlane fleet watch --json")]
    Watch(WatchArgs),
    /// Show whether the fleet is well: the controller, the store, the machines
    #[command(after_help = "Example:\n  farlane fleet status")]
    Status,
    /// Show what machines have and the store does not know
    #[command(after_help = "Example:\n  farlane fleet orphans")]
    Orphans,
    /// Show why a volume is in its pool: predictions, the second best, the reasons against others
    #[command(after_help = "Example:\n  farlane fleet explain data")]
    Explain(NameArgs),

    /// Make, extend and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Take and delete snapshots of volumes
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Let a host use a volume, and wait until its owner lets it in
    #[command(after_help = "Example:\n  farlane fleet attach data --node node-7")]
    Attach(AttachArgs),
    /// Let a host use a volume no longer, and wait until its owner has struck it off
    #[command(after_help = "Example:\n  farlane fleet detach data-node-7")]
    Detach(DetachArgs),
    /// Make and delete pools
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Make and delete classes
    #[command(subcommand)]
    Class(ClassCommand),
    /// Make and delete links
    #[command(subcommand)]
    Link(LinkCommand),
    /// Cordon and forget machines
    #[command(subcommand)]
    Node(NodeCommand),

    /// Take what the owners of volumes know for the truth, after the store was restored
    #[command(after_help = "Example:\n  farlane fleet recover")]
    Recover,
    /// Run the driver for Kubernetes (Container Storage Interface)
    #[command(
        after_help = "Example:\n  farlane fleet csi controller --controllers KEY@c1:4410 --key csi.pem"
    )]
    Csi(CsiArgs),
    /// Print the description of the REST interface (OpenAPI)
    #[command(after_help = "Example:\n  farlane fleet openapi > fleet.json")]
    Openapi,
}

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Keep everything in this folder [default: $XDG_STATE_HOME/farlane-fleet, or
    /// /var/lib/farlane-fleet for root]
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<PathBuf>,
    /// The name of this machine
    #[arg(long, value_name = "NAME", default_value = "here")]
    pub(super) node: String,
    /// Offer a pool: NAME=FOLDER, with its size
    #[arg(long = "pool", value_name = "NAME=FOLDER,size=SIZE", value_parser = parse_sized_pool)]
    pub(super) pools: Vec<SizedPool>,
    /// Serve hosts at this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4420")]
    pub(super) listen: SocketAddr,
    /// The socket for users of this machine [default: fleet.sock in this user's folder of control
    /// sockets]
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<PathBuf>,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    /// Keep objects here: file:PATH, or etcd://HOST:PORT[,HOST:PORT...]/CLUSTER
    #[arg(long, value_name = "PLACE")]
    pub(super) store: store::Place,
    /// Trust the certificate authority in this file (PEM) for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub(super) etcd_ca: Option<PathBuf>,
    /// Show the certificate in this file (PEM) to etcd
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    pub(super) etcd_cert: Option<PathBuf>,
    /// Prove the key in this file (PEM) to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub(super) etcd_key: Option<PathBuf>,
    /// Listen here for agents and users
    #[arg(long, value_name = "ADDR", default_values_t = [DEFAULT_LISTEN])]
    pub(super) listen: Vec<SocketAddr>,
    /// The addresses of all controllers, as machines of the fleet reach them
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(super) advertise: Vec<String>,
    /// The key that all controllers of the fleet have; made if there is none [default: key.pem
    /// beside a file store, else this user's key]
    #[arg(long, value_name = "FILE")]
    pub(super) identity: Option<PathBuf>,
    /// The socket for users of this machine [default: fleet.sock in this user's folder of control
    /// sockets]
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<PathBuf>,
    /// The users of the network and their roles (TOML: [[user]] name, key, role = "viewer",
    /// "operator" or "admin")
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<PathBuf>,
    /// Append each change, and the user that made it, to this file
    #[arg(long, value_name = "FILE")]
    pub(super) audit: Option<PathBuf>,
}

/// Options of a machine's agent.
#[derive(Clone, Debug, Args)]
pub(super) struct MachineArgs {
    /// Make block devices by this part of the machine
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub(super) devices: Devices,
    /// Let hosts come by tunnel at this address and these ports, one for each volume [default: the
    /// first address of --listen, 4440-4695]
    #[arg(long, value_name = "IP:FIRST-LAST", value_parser = parse_tunnels)]
    pub(super) tunnels: Option<Tunnels>,
    /// Encrypt the way between hosts and the disks of this machine (TLS)
    #[arg(long)]
    pub(super) encrypt: bool,
}

/// How hosts get block devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Devices {
    /// The first of the others that this machine has
    Auto,
    /// The kernel's initiator of NVMe/TCP
    Kernel,
    /// The user-space block driver
    Ublk,
    /// None: a file for programs in user space says how to connect
    User,
    /// SSDs of virtual machines, by sockets of farlane attach (tunnels only)
    Guest,
}

#[derive(Debug, Args)]
pub(super) struct AgentArgs {
    /// Keep everything in this folder, which farlane fleet join has filled [default:
    /// $XDG_STATE_HOME/farlane-fleet, or /var/lib/farlane-fleet for root]
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<PathBuf>,
    /// Offer this folder as the pool NAME. Controllers choose no other folders
    #[arg(long = "pool", value_name = "NAME=FOLDER", value_parser = parse_pool)]
    pub(super) pools: Vec<(String, PathBuf)>,
    /// Serve hosts at this address
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:4420")]
    pub(super) listen: Vec<SocketAddr>,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// The name that the machine will have
    pub(super) node: String,
    /// How long the token can be used
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(super) lifetime: Duration,
}

#[derive(Debug, Args)]
pub(super) struct JoinArgs {
    /// The token, as farlane fleet token prints it
    pub(super) token: JoinToken,
    /// The addresses at which hosts reach this machine's disks
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',')]
    pub(super) addresses: Vec<String>,
    /// Words about the machine, which links refer to
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(super) labels: Vec<(String, String)>,
    /// Keep everything in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<PathBuf>,
}

/// A token as its text: NODE:SECRET@CONTROLLERS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinToken {
    pub(super) node: String,
    pub(super) secret: crate::wire::Hex<16>,
    pub(super) controllers: Controllers,
}

impl std::str::FromStr for JoinToken {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected NODE:SECRET@KEY@HOST:PORT, as farlane fleet token prints it".to_owned();
        let (who, controllers) = text.split_once('@').ok_or_else(wrong)?;
        let (node, secret) = who.split_once(':').ok_or_else(wrong)?;
        let secret = secret.parse().map_err(|_| wrong())?;
        let controllers = controllers.parse().map_err(|_| wrong())?;
        Ok(Self { node: node.to_owned(), secret, controllers })
    }
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// node, pool, volume, snapshot, class, link, attachment, token or fleet
    pub(super) kind: String,
    /// The object [default: all]
    pub(super) name: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Only objects of this kind
    pub(super) kind: Option<String>,
    /// End as soon as this object has this phase: NAME=PHASE
    #[arg(long, value_name = "NAME=PHASE")]
    pub(super) until: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct NameArgs {
    /// The object
    pub(super) name: String,
}

/// Whether a command waits for its effect.
#[derive(Debug, Args)]
pub(super) struct Waiting {
    /// Return at once instead of waiting until it is so
    #[arg(long)]
    pub(super) no_wait: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum VolumeCommand {
    /// Make a volume
    #[command(after_help = "Examples:
  farlane fleet volume create data --size 10GiB --class fast --near node-7
  farlane fleet volume create copy --from snapshot/monday")]
    Create(VolumeCreate),
    /// Extend a volume, also while it is used
    #[command(after_help = "Example:\n  farlane fleet volume resize data --size 20GiB")]
    Resize(VolumeResize),
    /// Delete a volume and its data
    #[command(after_help = "Example:\n  farlane fleet volume delete data")]
    Delete(Deletion),
}

#[derive(Debug, Args)]
pub(super) struct VolumeCreate {
    /// The name: a-z, 0-9 and -
    pub(super) name: String,
    /// The size [default: that of --from]
    #[arg(long, value_parser = parse_bytes, required_unless_present = "from")]
    pub(super) size: Option<u64>,
    /// Begin with this data, in its pool: snapshot/NAME or volume/NAME
    #[arg(long, value_name = "SOURCE")]
    pub(super) from: Option<Data>,
    /// The class that the volume is to hold
    #[arg(long)]
    pub(super) class: Option<String>,
    /// The pool [default: the one from which the best service is predicted]
    #[arg(long)]
    pub(super) pool: Option<String>,
    /// The host that will use the volume
    #[arg(long, value_name = "NODE")]
    pub(super) near: Option<String>,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Subcommand)]
pub(super) enum SnapshotCommand {
    /// Keep the data of a volume as it is now
    #[command(after_help = "Example:\n  farlane fleet snapshot create monday --volume data")]
    Create(SnapshotCreate),
    /// Delete a snapshot
    #[command(after_help = "Example:\n  farlane fleet snapshot delete monday")]
    Delete(Deletion),
}

#[derive(Debug, Args)]
pub(super) struct SnapshotCreate {
    /// The name: a-z, 0-9 and -
    pub(super) name: String,
    /// The volume
    #[arg(long)]
    pub(super) volume: String,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Args)]
pub(super) struct VolumeResize {
    /// The volume
    pub(super) name: String,
    /// The new size, which is larger
    #[arg(long, value_parser = parse_bytes)]
    pub(super) size: u64,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Args)]
pub(super) struct Deletion {
    /// The object
    pub(super) name: String,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Args)]
pub(super) struct AttachArgs {
    /// The volume
    pub(super) volume: String,
    /// The host
    #[arg(long)]
    pub(super) node: String,
    /// The name of the attachment [default: VOLUME-NODE]
    #[arg(long)]
    pub(super) name: Option<String>,
    /// What the host may do beside others
    #[arg(long, default_value = "exclusive")]
    pub(super) mode: Mode,
    /// What carries the host's commands
    #[arg(long, default_value = "nvme-tcp")]
    pub(super) transport: Transport,
    /// For whom the attachment is, in words
    #[arg(long, default_value = "")]
    pub(super) owner: String,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Args)]
pub(super) struct DetachArgs {
    /// The attachment
    pub(super) name: String,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

#[derive(Debug, Subcommand)]
pub(super) enum PoolCommand {
    /// Make a pool of a folder that the machine's agent offers
    #[command(
        after_help = "Example:\n  farlane fleet pool create fast --node node-7 --path /srv/fast --size 1TiB"
    )]
    Create(PoolCreate),
    /// Delete a pool that has no volumes
    #[command(after_help = "Example:\n  farlane fleet pool delete fast")]
    Delete(NameArgs),
}

#[derive(Debug, Args)]
pub(super) struct PoolCreate {
    /// The name
    pub(super) name: String,
    /// The machine
    #[arg(long)]
    pub(super) node: String,
    /// The folder there
    #[arg(long)]
    pub(super) path: String,
    /// The space that volumes may take in all
    #[arg(long, value_parser = parse_bytes)]
    pub(super) size: u64,
    /// The folder's file system shares blocks between files (reflinks)
    #[arg(long)]
    pub(super) clones: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClassCommand {
    /// Make or change a class
    #[command(after_help = "Example:\n  farlane fleet class create fast --p99 300us --bandwidth 1GiB")]
    Create(ClassCreate),
    /// Delete a class that no volume has
    #[command(after_help = "Example:\n  farlane fleet class delete fast")]
    Delete(NameArgs),
}

#[derive(Debug, Args)]
pub(super) struct ClassCreate {
    /// The name
    pub(super) name: String,
    /// The time within which 99 of 100 reads of 4 KiB are to end
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(super) p99: Option<Duration>,
    /// The wanted bandwidth in bytes a second
    #[arg(long, value_parser = parse_bytes, default_value = "0")]
    pub(super) bandwidth: u64,
}

#[derive(Debug, Subcommand)]
pub(super) enum LinkCommand {
    /// Say which scenario models the way between machines
    #[command(
        after_help = "Example:\n  farlane fleet link create radio --between site=edge --and site=core --scenario scenarios/5g.toml"
    )]
    Create(LinkCreate),
    /// Delete a link
    #[command(after_help = "Example:\n  farlane fleet link delete radio")]
    Delete(NameArgs),
}

#[derive(Debug, Args)]
pub(super) struct LinkCreate {
    /// The name
    pub(super) name: String,
    /// The labels of machines at one end
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    pub(super) between: Vec<(String, String)>,
    /// The labels of machines at the other end
    #[arg(long = "and", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    pub(super) and: Vec<(String, String)>,
    /// The scenario's file
    #[arg(long, value_name = "FILE")]
    pub(super) scenario: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum NodeCommand {
    /// Place no new volumes on a machine
    #[command(after_help = "Example:\n  farlane fleet node cordon node-7 --reason 'new fans'")]
    Cordon(CordonArgs),
    /// End a cordon
    #[command(after_help = "Example:\n  farlane fleet node uncordon node-7")]
    Uncordon(UncordonArgs),
    /// Forget a machine that has no pools and no attachments
    #[command(after_help = "Example:\n  farlane fleet node forget node-7")]
    Forget(NameArgs),
}

#[derive(Debug, Args)]
pub(super) struct CordonArgs {
    /// The machine
    pub(super) name: String,
    /// The user or program that ends the cordon
    #[arg(long, default_value = "operator")]
    pub(super) owner: String,
    /// The reason, in words
    #[arg(long, default_value = "")]
    pub(super) reason: String,
}

#[derive(Debug, Args)]
pub(super) struct UncordonArgs {
    /// The machine
    pub(super) name: String,
    /// The user or program that made the cordon
    #[arg(long, default_value = "operator")]
    pub(super) owner: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The commands that the page of fleets and the README show.
    #[test]
    fn commands_in_the_documentation_are_taken() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut count = 0;
        for page in ["docs/fleet.md", "README.md"] {
            let text = std::fs::read_to_string(root.join(page)).unwrap().replace("\\\n", " ");
            let blocks = text.split("```").skip(1).step_by(2);
            for line in blocks.flat_map(str::lines).filter(|line| line.contains("farlane fleet ")) {
                let command = line.split("farlane fleet ").nth(1).unwrap();
                let command = command.split('#').next().unwrap().trim_end_matches([' ', '&']);
                let token =
                    format!("n:{}@{}@c1:4410", "0".repeat(32), live::carrier::identity::Fingerprint([1; 32]));
                let command = command.replace("TOKEN", &token);
                let words = std::iter::once("farlane fleet").chain(command.split_whitespace());
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{page}: {line}\n{error}");
                }
                count += 1;
            }
        }
        assert!(count > 10, "{count} commands");
    }

    #[test]
    fn pools_have_names_folders_and_sizes() {
        let pool = parse_sized_pool("fast=/a,b=c,size=1MiB").unwrap();
        assert_eq!((pool.name.as_str(), pool.bytes), ("fast", 1 << 20));
        assert!(parse_sized_pool("fast=/a").unwrap_err().contains("size=SIZE"));
        assert!(parse_bytes("many").is_err());
    }

    #[test]
    fn tokens_name_node_and_controllers() {
        let key = live::carrier::identity::Fingerprint([1; 32]);
        let text = format!("node-7:{}@{key}@a:1", "0".repeat(32));
        let token: JoinToken = text.parse().unwrap();
        assert_eq!((token.node.as_str(), token.controllers.addresses.len()), ("node-7", 1));
        assert!("x".parse::<JoinToken>().is_err());
    }
}
