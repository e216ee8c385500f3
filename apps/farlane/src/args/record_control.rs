//! The commands to a running recorder.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::headings::MONITORING;
use super::{Output, PinArgs};

const CONTROL_EXAMPLES: &str = "Examples:
  farlane record --from udp://0.0.0.0:5004 --to flight.rec --control flight.control
  farlane record ctl flight.control status --json
  farlane record ctl flight.control trigger
  farlane record ctl flight.control stop
  farlane record --from udp://0.0.0.0:5004 --to flight.rec --on-demand --registers regs.sock";

const PIN_EXAMPLES: &str = "Examples:
  farlane record ctl flight.control pin --last 30s
  farlane record ctl flight.control pin --stream 1 --from-offset 10GiB --bytes 2GiB
  farlane record ctl flight.control pin --nothing";

/// The commands to a running recorder.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RecordAction {
    /// Query or control a running recorder
    #[command(after_help = CONTROL_EXAMPLES)]
    Ctl(RecordControlArgs),
}

/// The recorder, and the request.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecordControlArgs {
    /// The control socket of a running farlane record or replay
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[command(subcommand)]
    pub(crate) request: RecordRequest,
}

/// The requests to a recorder.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RecordRequest {
    /// Show the medium, the addresses that are written or read, and the account of bytes
    Status(Output),
    /// Begin, if --on-demand waits for this
    Start(Output),
    /// Write the kept data, and all that follow, if --pre-trigger waits for this
    Trigger(Output),
    /// End: the recorder writes the received data, then the certificate
    Stop(Output),

    /// Keep a part of a ring from being overwritten.
    ///
    /// All of the chunks in which it lies are kept. After a power cut, the part is still pinned if
    /// half a second has passed
    #[command(after_help = PIN_EXAMPLES)]
    Pin(PinArgs),
}

/// The ways to control a recorder.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("asked").multiple(true))]
pub(crate) struct RecorderControl {
    /// Answer farlane record ctl at this socket.
    ///
    /// Only the user who started this process may ask
    #[arg(long, value_name = "PATH", group = "asked", help_heading = MONITORING)]
    pub(crate) control: Option<PathBuf>,

    /// Offer registers by vfio-user at this socket, to a guest or to farlane export.
    ///
    /// pure/record/registers.md describes them
    #[arg(long, value_name = "SOCKET", group = "asked")]
    pub(crate) registers: Option<PathBuf>,

    /// Begin on demand: by farlane record ctl start, or by the registers.
    ///
    /// Each further start begins again; a recorder needs --force to write over the earlier
    /// recording. The process ends when it is interrupted
    #[arg(long, requires = "asked")]
    pub(crate) on_demand: bool,
}
