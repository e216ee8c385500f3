//! The options of `farlane tsn`: plans for Time-Sensitive Networking.

use std::time::Duration;

use clap::{Args, Subcommand};
use network_models::Rate;
use network_models::tsn::taprio::Offload;

use super::{Output, parse_time};

pub(super) const EXAMPLES: &str = "Examples:
  farlane tsn plan --rate 1Gbit/s --cycle 500us --hops 3 --frame 96
  farlane tsn plan --rate 100Mbit/s --cycle 2ms --hops 2 \\
    --frame 1518 --frame 1518 --frame 1262 --period 10ms \\
    --clock-error 1us --preemption --device eth0 --device swp2";

#[derive(Debug, Subcommand)]
pub(crate) enum TsnAction {
    /// Propose a gate schedule (802.1Qbv) for one flow.
    ///
    /// The plan has the longest delay that the schedule leaves, and the commands for Linux
    #[command(after_help = EXAMPLES)]
    Plan(PlanArgs),
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
    /// Who opens the gates.
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
