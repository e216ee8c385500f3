//! The options of `farlane setup completions` and `farlane setup man`, which packages are made
//! with.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::Output;

pub(super) const COMPLETIONS_EXAMPLES: &str = "Examples:
  farlane setup completions bash > ~/.local/share/bash-completion/completions/farlane
  farlane setup completions zsh > ~/.zfunc/_farlane
  farlane setup completions fish > ~/.config/fish/completions/farlane.fish";

pub(super) const MAN_EXAMPLES: &str = "Examples:
  farlane setup man --to /usr/local/share/man/man1
  farlane setup man export | man --local-file -";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to write completions for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Print the page of this command, such as export or key new [default: the page of farlane]
    #[arg(value_name = "COMMAND", conflicts_with = "to")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this folder, one file for each page
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,
    /// Print the names of the files as JSON
    #[command(flatten)]
    pub(crate) output: Output,
}
