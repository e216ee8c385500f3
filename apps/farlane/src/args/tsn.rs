//! The options of `farlane model tsn`: plans for Time-Sensitive Networking, and their use.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use network_models::tsn::taprio::Offload;
use network_models::{Class, Rate};

use super::{Output, parse_time};

pub(super) const EXAMPLES: &str = "Examples:
  farlane model tsn plan --rate 1Gbit/s --cycle 500us --hops 3 --frame 96
  farlane model tsn plan --rate 100Mbit/s --cycle 2ms --hops 2 \\
    --frame 1518 --frame 1518 --frame 1262 --period 10ms \\
    --clock-error 1us --preemption --device eth0 --device swp2
  farlane model tsn plan --frame 1518 --json > plan.json
  farlane model tsn apply plan.json --interface eth0 --dry-run
  farlane model tsn audit plan.json --interface eth0 --for 10s";

const APPLY_EXAMPLES: &str = "Examples:
  farlane model tsn apply plan.json --interface eth0 --dry-run
  farlane model tsn apply plan.json --interface eth0 --software --launch-times
  farlane model tsn apply --interface eth0 --shaper 3=100Mbit/s
  farlane model tsn apply --interface eth0 --remove";

const AUDIT_EXAMPLES: &str = "Examples:
  farlane model tsn audit plan.json --interface eth0 --for 10s
  farlane model tsn audit plan.json --from left.pcapng --error 1us --shaper 3=100Mbit/s";

#[derive(Debug, Subcommand)]
pub(crate) enum TsnAction {
    /// Propose a gate schedule (802.1Qbv) for one flow.
    ///
    /// The plan has the longest delay that the schedule leaves, and the commands for Linux
    #[command(after_help = EXAMPLES)]
    Plan(PlanArgs),

    /// Give an interface the queueing disciplines that keep a plan.
    ///
    /// These are taprio for gates, mqprio without a PLAN, cbs for shapers and etf for times of
    /// launch. It takes CAP_NET_ADMIN. A plan that the interface can't keep is refused
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),

    /// Audit frame by frame whether the traffic of an interface keeps to a plan.
    ///
    /// The command ends with status 1 if it does not, or if not all frames were seen. A frame's
    /// class is the PCP of its tag, or the first three bits of its DSCP
    #[command(after_help = AUDIT_EXAMPLES)]
    Audit(AuditArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["plan", "shaper", "remove"]).required(true).multiple(true))]
pub(crate) struct ApplyArgs {
    /// The plan, as farlane model tsn plan --json has printed it
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,
    /// Set up this interface
    #[arg(long, value_name = "IFACE")]
    pub(crate) interface: String,
    /// Take the schedule of this hop of the plan; the first is the sender's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) hop: u16,
    /// Print the commands, and do not run them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take all of this from the interface again
    #[arg(long, conflicts_with_all = ["plan", "shaper", "launch_times"])]
    pub(crate) remove: bool,
    /// Let Linux open the gates instead of the network card, regardless of the plan
    #[arg(long)]
    pub(crate) software: bool,
    /// Limit a class to a rate (802.1Qav); may be given again
    #[arg(long, value_name = "CLASS=RATE")]
    pub(crate) shaper: Vec<Shaper>,
    /// Hold frames of the plan's class until their times of launch (--launch of other commands)
    #[arg(long, requires = "plan")]
    pub(crate) launch_times: bool,
    /// Take frames this long before their times of launch, the time that the system needs for it
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_time)]
    pub(crate) delta: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("seen").args(["interface", "from"]).required(true))]
pub(crate) struct AuditArgs {
    /// The plan, as farlane model tsn plan --json has printed it
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Check the frames that leave this interface
    #[arg(long, value_name = "IFACE")]
    pub(crate) interface: Option<String>,
    /// Check the frames of this capture (pcap, pcapng)
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Check the frames that reach the interface instead, at the link's other end
    #[arg(long, requires = "interface")]
    pub(crate) received: bool,
    /// Take the schedule of this hop of the plan; the first is the sender's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) hop: u16,
    /// Look for this long
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) time: Duration,

    /// Allow stamps to be off by this time, either way [default: 50us, or 1us if the card stamps]
    ///
    /// The kernel's stamps are taken when the driver is given a frame, by this machine's clock
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) error: Option<Duration>,
    /// Check that a class keeps to a rate, too; may be given again
    #[arg(long, value_name = "CLASS=RATE")]
    pub(crate) shaper: Vec<Shaper>,
    /// List each frame that was outside of its windows, at most 1000
    #[arg(long)]
    pub(crate) frames: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A class, and the rate that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shaper {
    pub(crate) class: Class,
    pub(crate) rate: Rate,
}

impl FromStr for Shaper {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (class, rate) = text.split_once('=').ok_or("expected CLASS=RATE, for example 3=100Mbit/s")?;
        let number = class.parse().ok().and_then(Class::new);
        let class = number.ok_or_else(|| format!("'{class}' is no class; expected 0 to 7"))?;
        Ok(Self { class, rate: rate.parse().map_err(|error| format!("{rate}: {error}"))? })
    }
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Set the rate of each link
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    pub(crate) rate: Rate,
    /// Start the schedule anew after this time, at most 1s
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_cycle)]
    pub(crate) cycle: Duration,
    /// Set the number of links from the sender to the receiver, one more than the number of
    /// switches
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) hops: u16,
    /// Set the size of a message's frame in bytes, header and check sequence included.
    ///
    /// Give this option again for each further frame of a message, in the order of the frames
    #[arg(long, value_name = "BYTES", default_values_t = [96], value_parser = clap::value_parser!(u32).range(64..=9_022))]
    pub(crate) frame: Vec<u32>,
    /// Set the shortest time from one message to the next [default: the cycle]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) period: Option<Duration>,
    /// Set the flow's priority, 0 to 7; no other traffic uses this priority
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) class: u8,
    /// Set the longest payload of a frame, for all traffic; 9000 for jumbo frames
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(46..=9_000))]
    pub(crate) mtu: u32,
    /// Set the length of each link's twisted pair, in metres
    #[arg(long, value_name = "METRES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) cable: u64,
    /// Set the time that a switch takes to choose the way of a frame
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_time)]
    pub(crate) processing: Duration,
    /// Set how far off each node's clock may be, in either direction
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_time)]
    pub(crate) clock_error: Duration,
    /// Interrupt other traffic's frames (802.1Qbu), which reduces the guard band to a fragment
    #[arg(long)]
    pub(crate) preemption: bool,
    /// Let Linux open the gates instead of the network cards
    #[arg(long)]
    pub(crate) software: bool,
    /// Simulate this many messages; the result is shown beside the bounds.
    ///
    /// The simulation has fewer messages if this many would take very long
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) messages: u64,
    /// Derive all random choices in the simulation from this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Name the sending port of a hop [default: hop1, …]
    ///
    /// Give this option once for each hop. The first name is the sender's
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl PlanArgs {
    /// Whether the network card or Linux opens the gates.
    pub(crate) const fn offload(&self) -> Offload {
        if self.software { Offload::Software } else { Offload::Hardware }
    }
}

/// Parses a cycle that a port can have.
fn parse_cycle(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        cycle if cycle.is_zero() || cycle > Duration::from_secs(1) => {
            Err("expected a cycle such as 500us or 1ms, up to 1s".to_owned())
        }
        cycle => Ok(cycle),
    }
}
