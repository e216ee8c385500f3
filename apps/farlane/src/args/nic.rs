//! The options of `farlane measure nic`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use live::drivers::nic::{Place, WireUrl};
use niq::{PACKET_MAX, PACKET_MIN};

use super::{DaemonOptions, Output, Spin, parse_time};

pub(crate) const EXAMPLES: &str = "Examples:\n  \
    farlane measure nic receive shm:/run/user/1000/wire --echo\n  \
    farlane measure nic ping shm:/run/user/1000/wire\n\n\
    A card in a process of its own, which others use over vfio-user:\n  \
    farlane measure nic --vfio-user /run/user/1000/card --wire shm:/run/user/1000/wire\n  \
    farlane measure nic ping vfio-user:/run/user/1000/card";

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(crate) struct NicArgs {
    #[command(subcommand)]
    pub(crate) action: Option<NicAction>,
    #[command(flatten)]
    pub(crate) serve: NicServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NicAction {
    /// Serve a card to another process
    #[command(
        after_help = "Example:\n  farlane measure nic serve --vfio-user /run/user/1000/card --wire shm:/run/user/1000/wire"
    )]
    Serve(NicServeArgs),
    /// Measure the latency of packets by their size, inline and by DMA, beside the machine's floor.
    ///
    /// The other end of the wire runs farlane measure nic receive --echo
    #[command(
        after_help = "Example:\n  farlane measure nic ping shm:/run/user/1000/wire --sizes 60,64,1500 --json"
    )]
    Ping(NicPingArgs),
    /// Measure how many packets pass in a second, by their size.
    ///
    /// The other end of the wire runs farlane measure nic receive --echo
    #[command(after_help = "Example:\n  farlane measure nic bench shm:/run/user/1000/wire --sizes 60,1500")]
    Bench(NicMeasureArgs),
    /// Send packets
    #[command(
        after_help = "Example:\n  farlane measure nic send shm:/run/user/1000/wire --size 60 --count 1000"
    )]
    Send(NicSendArgs),
    /// Receive packets, and send each back if asked to
    #[command(after_help = "Examples:\n  farlane measure nic receive shm:/run/user/1000/wire --echo\n  \
        farlane measure nic receive udp:192.0.2.7:4440 --count 1000 --json")]
    Receive(NicReceiveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NicServeArgs {
    /// Listen on this socket for the process that uses the card
    #[arg(long = "vfio-user", value_name = "SOCKET", required = true)]
    pub(crate) socket: Option<PathBuf>,

    /// Connect the card to this wire: shm:PATH, udp:ADDRESS:PORT, eth:IFACE or loop:.
    ///
    /// Both ends of a wire name the same place; over Ethernet, each names its own interface. With
    /// loop:, the card receives its own packets
    #[arg(long, value_name = "WIRE", required = true)]
    pub(crate) wire: Option<WireUrl>,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which card to use, and how long to wait for its wire's other end.
#[derive(Debug, Args)]
pub(crate) struct CardOptions {
    /// A card that another process serves (vfio-user:SOCKET), or the wire of a card of its own
    /// (shm:PATH, udp:ADDRESS:PORT, eth:IFACE, loop:)
    #[arg(value_name = "CARD")]
    pub(crate) card: Place,

    /// Give up if the wire's other end is not there within this time, or the card takes no packet
    /// for so long; ping and bench also if no packet comes back.
    ///
    /// farlane measure nic receive waits without limit
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) spin: Spin,
}

#[derive(Debug, Args)]
pub(crate) struct NicMeasureArgs {
    #[command(flatten)]
    pub(crate) card: CardOptions,
    /// Measure packets of these lengths in bytes, 14 to 9216.
    ///
    /// A packet of up to 60 bytes is measured twice: in a line, and by DMA
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "16,32,60,64,128,256,512,1500",
          value_parser = parse_packet)]
    pub(crate) sizes: Vec<usize>,
    /// Send this many packets of each length
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct NicPingArgs {
    #[command(flatten)]
    pub(crate) measure: NicMeasureArgs,
    /// Wait this long before each packet. With --spin 0s at both ends, they sleep meanwhile, and
    /// have to be woken
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Draw the sizes and their times to this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) draw: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NicSendArgs {
    #[command(flatten)]
    pub(crate) card: CardOptions,
    /// Send packets of this length in bytes, 14 to 9216
    #[arg(long, value_name = "BYTES", default_value = "60", value_parser = parse_packet)]
    pub(crate) size: usize,
    /// Send this many packets
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct NicReceiveArgs {
    #[command(flatten)]
    pub(crate) card: CardOptions,
    /// Send each packet back to where it came from
    #[arg(long)]
    pub(crate) echo: bool,
    /// End after this many packets [default: go on until interrupted]
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses the length of a packet.
fn parse_packet(text: &str) -> Result<usize, String> {
    let length = text.parse().ok().filter(|length| (PACKET_MIN..=PACKET_MAX).contains(length));
    length.ok_or_else(|| format!("expected {PACKET_MIN} to {PACKET_MAX} bytes"))
}
