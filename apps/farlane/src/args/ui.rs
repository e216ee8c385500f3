//! The options of `farlane observe ui`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{Output, parse_address};

pub(super) const EXAMPLES: &str = "Examples:
  farlane observe ui bench.pcapng --open
  farlane observe ui direct.pcapng tunnelled.pcapng
  farlane observe ui scenarios/5g.toml
  farlane observe ui --json

The page shows captures, compares two of them, plays scenarios beside them, and watches this user's daemons. It needs \
no network but the one to the browser. Its address has a secret, which is new each time, and every browser that knows the address may read the page.";

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Captures to look into, and scenarios (.toml) to play; may be left out.
    ///
    /// Captures have the forms that farlane observe trace reads
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Listen here.
    ///
    /// With port 0, the system chooses a port. Off loopback, the page's contents pass the network
    /// in the clear
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = parse_address)]
    pub(crate) listen: SocketAddr,
    /// Open the page in the desktop's browser (xdg-open)
    #[arg(long)]
    pub(crate) open: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
