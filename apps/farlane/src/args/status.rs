//! The options of `farlane observe status`, and of the processes that it asks.

use std::path::PathBuf;

use clap::Args;

use super::headings::MONITORING;
use super::{Output, Printing};

pub(crate) const EXAMPLE: &str = "Example:\n  \
    farlane attach tcp://127.0.0.1:4430 --vfio-user /run/user/1000/ssd.sock \\\n    \
    --control /run/user/1000/ssd.control\n  \
    farlane observe status /run/user/1000/ssd.control\n  \
    farlane observe status";

pub(crate) const LIST_EXAMPLE: &str = "Examples:\n  farlane observe list\n  farlane observe list -o json";

#[derive(Debug, Default, Args)]
pub(crate) struct Control {
    /// Answer farlane observe status at this socket [default: one in this user's folder, see
    /// docs/operate.md].
    ///
    /// Only the user who started this process may ask. farlane observe list finds the default
    /// sockets
    #[arg(long, value_name = "PATH", help_heading = MONITORING)]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The control socket of a running farlane export, attach, device or target.
    ///
    /// Without a path, all that farlane observe list shows are asked
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) printing: Printing,
}
