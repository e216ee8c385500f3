//! The options of `farlane observe lspci`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use live::client::FarUrl;

use super::{ConfigCacheOption, Output, Transport, parse_time};

#[derive(Debug, Args)]
pub(crate) struct LspciArgs {
    /// The far ends, each behind one downstream port: tcp://HOST:PORT,
    /// quic://HOST:PORT?key=FINGERPRINT, udp://HOST:PORT, eth:IFACE/MAC or shm:PATH
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<FarUrl>,
    /// Draw the tree of buses
    #[arg(short = 't', long)]
    pub(crate) tree: bool,
    /// Show more details of each function
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Give up if the far end is not there, or not back after a loss, within this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Write the PCIe packets that pass the host's port to this file, for farlane observe trace
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config_cache: ConfigCacheOption,
    #[command(flatten)]
    pub(crate) transport: Transport,
    #[command(flatten)]
    pub(crate) output: Output,
}
