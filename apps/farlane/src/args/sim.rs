//! `farlane sim`: what can be said about networks that are not there.

use clap::{Args, Subcommand};

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane sim published
  farlane sim published nvme-tsn --json";

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) action: SimAction,
}

/// What is simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum SimAction {
    /// Do published experiments again and print value beside value
    #[command(after_help = "Example:\n  farlane sim published nvme-5g --json\n\n\
        A calibrated row had a say in the parameters, a predicted one had none.")]
    Published(PublishedArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArgs {
    /// The experiment: nvme-tsn, nvme-5g or niq [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Decides what is random; the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Say where the parameters behind each row come from
    #[arg(long)]
    pub(crate) sources: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
