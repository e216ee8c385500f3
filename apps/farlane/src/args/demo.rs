//! `farlane demo`: what can be said of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Lookahead, Output, parse_positive_size, parse_time};

pub(super) const EXAMPLES: &str = "Examples:
  farlane demo --file /usr/bin/gcc --size 16MiB
  farlane demo --link scenarios/5g.toml --size 4MiB
  farlane demo --link scenarios/5g.toml --size 4MiB --no-lookahead";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The file to write and read back [default: farlane's own binary]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// How much to write: the file is repeated until it is this long
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_positive_size)]
    pub(crate) size: u64,
    /// How long each measurement may take
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) runtime: Duration,
    /// Keep the demo's namespace in this directory, which needs room for twice --size
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Put the network that this file describes between the ends, and show what the simulation says
    /// of it beside what it does: a link file, or a scenario with a [link]; docs/emulate.md has all
    /// keys
    #[arg(long, value_name = "FILE")]
    pub(crate) link: Option<PathBuf>,
    /// What everything random in the network of --link follows from
    #[arg(long, value_name = "N", default_value_t = 1, requires = "link")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) lookahead: Lookahead,
    #[command(flatten)]
    pub(crate) output: Output,
}
