//! The options of `farlane setup check`.

use std::path::PathBuf;

use clap::Args;

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane setup check /etc/farlane/target/disk.toml
  farlane setup check box.toml link.toml scenario.toml --json";

#[derive(Debug, Args)]
pub(crate) struct CheckFileArgs {
    /// The files: offers of a target, options of daemons, models of networks, or scenarios
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}
