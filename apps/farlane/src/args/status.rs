//! `farlane status`, and how what runs can be asked.

use std::path::PathBuf;

use clap::Args;

use super::Output;

pub(crate) const EXAMPLE: &str = "Example:\n  \
    farlane attach tcp://127.0.0.1:4430 --vfio-user /run/user/1000/ssd.sock --control /run/user/1000/ssd.control\n  \
    farlane status /run/user/1000/ssd.control";

#[derive(Debug, Default, Args)]
pub(crate) struct Control {
    /// A socket at which farlane status asks how things are; only this user may
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The control socket of a farlane export, attach or target that runs
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}
