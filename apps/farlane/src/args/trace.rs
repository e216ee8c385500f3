//! The options of `farlane trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

pub(crate) const EXAMPLES: &str = "Examples:\n  \
    farlane bench tcp://127.0.0.1:4430 --runtime 1s --trace bench.pcapng\n  \
    farlane trace stats bench.pcapng\n  \
    farlane trace chain bench.pcapng --command 12\n  \
    farlane trace show bench.pcapng --level command";

#[derive(Debug, Subcommand)]
pub(crate) enum TraceAction {
    /// Count a capture's packets and NVMe commands, and say how long commands took
    #[command(after_help = "Example:\n  farlane trace stats bench.pcapng --json")]
    Stats(CaptureArgs),
    /// Say where the time of one command went, or of all of a kind, step by step
    #[command(after_help = "Examples:\n  farlane trace chain bench.pcapng\n  \
        farlane trace chain bench.pcapng --command 12 --json")]
    Chain(ChainArgs),
    /// Print a capture, one line for each packet, transaction or command
    #[command(after_help = "Example:\n  farlane trace show bench.pcapng --level command")]
    Show(ShowArgs),
    /// Print or install a dissector, by which Wireshark and tshark decode captures and the tunnel
    #[command(after_help = "Examples:\n  farlane trace dissector --install\n  \
        farlane trace dissector > farlane.lua && tshark -X lua_script:farlane.lua -r bench.pcapng")]
    Dissector(DissectorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// The capture: pcapng of --trace, or pcap or pcapng of NetTLP
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct DissectorArgs {
    /// Write it where Wireshark looks for your plugins, and tell where
    #[arg(long)]
    pub(crate) install: bool,
    /// Write it into this folder instead
    #[arg(long, value_name = "FOLDER", requires = "install")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Show the command with this number; the first of the capture is 1 [default: all, by kind]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) command: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// What gets a line
    #[arg(long, default_value = "tlp")]
    pub(crate) level: Level,
}

/// What gets a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Each packet
    Tlp,
    /// Each request with its completions
    Transaction,
    /// Each NVMe command
    Command,
}
