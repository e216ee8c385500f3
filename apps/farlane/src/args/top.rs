//! The options of `farlane observe top`.

use std::time::Duration;

use clap::Args;

use super::parse_runtime;

pub(super) const EXAMPLES: &str = "Examples:
  farlane observe top
  farlane observe top --once --every 5s";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Look this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_runtime)]
    pub(crate) every: Duration,
    /// Look twice, print the load between the looks, and end.
    ///
    /// The command does the same when standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON for machines instead of text for people, once
    #[command(flatten)]
    pub(crate) output: super::Output,
}
