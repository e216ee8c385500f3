//! The options of `farlane upgrade`.

use std::path::PathBuf;

use clap::Args;

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane setup upgrade export
  farlane upgrade 4711 --program /usr/local/bin/farlane";

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The daemon: its process, its kind if only one of this kind runs, or its control socket
    #[arg(value_name = "DAEMON")]
    pub(crate) daemon: String,
    /// The program that goes on [default: this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}
