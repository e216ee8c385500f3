//! `farlane emulate`: what can be said of a network that is not there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Output, Spin, parse_time};

pub(super) const EXAMPLE: &str = "Example, with a far end on port 4430:
  printf '[link]\\nlatency = \"10ms\"\\nrate = \"1Gbit/s\"\\n' > link.toml
  farlane emulate --listen 127.0.0.1:4431 --connect 127.0.0.1:4430 --link link.toml
  farlane ping tcp://127.0.0.1:4431";

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// Address and port to listen on; port 0 lets the system choose one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Where connections go on to, through the modelled network
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) connect: String,
    /// The file that says what the network is like; docs/emulate.md has all keys
    #[arg(long, value_name = "FILE")]
    pub(crate) link: PathBuf,
    /// What everything random in the model follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How often to show the counters while something passes; 0 shows them at the end only
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) every: Duration,
    /// Print JSON for machines: a line with the address, then one with counters each time, the last with "end": true
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) spin: Spin,
}
