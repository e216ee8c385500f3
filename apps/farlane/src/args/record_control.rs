//! The commands to a running recorder.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

const CONTROL_EXAMPLES: &str = "Examples:
  farlane record --from udp://0.0.0.0:5004 --to flight.rec --control flight.control
  farlane record ctl flight.control status --json
  farlane record ctl flight.control stop";

/// What to do with a running recorder.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordAction {
    /// Ask a running recorder, or tell it what to do
    #[command(after_help = CONTROL_EXAMPLES)]
    Ctl(RecordControlArgs),
}

/// Which recorder, and what it is asked.
#[derive(Debug, Args)]
pub(crate) struct RecordControlArgs {
    /// The control socket of a running farlane record
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[command(subcommand)]
    pub(crate) request: RecordRequest,
}

/// What a recorder is asked.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordRequest {
    /// Show the medium, the addresses that are written, and the account of bytes
    Status(Output),
    /// End the recording: what came is written, then the certificate
    Stop(Output),
}

/// How a recorder is asked.
#[derive(Debug, Args)]
pub(crate) struct RecorderControl {
    /// Answer farlane record ctl at this socket.
    ///
    /// Only the user who started this process may ask
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}
