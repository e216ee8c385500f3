//! Errors in capturing a running daemon.

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A capture of a running daemon can't be had as it was asked for.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum CaptureError {
    #[error("the daemon has ended in the middle of the capture; {packets} packets of it were written")]
    #[diagnostic(help("the written part is complete: farlane observe trace stats reads it"))]
    Cut { packets: u64 },

    #[error("{option}: a stream of bytes from which some are left out can't be read")]
    #[diagnostic(help("--queue chooses connections of a target, and --snap shortens the kept data"))]
    Streams { option: &'static str },

    #[error("{which} is no control socket, process or kind of a daemon of this user")]
    #[diagnostic(help("farlane observe list shows the daemons and their sockets"))]
    NoDaemon { which: String },

    #[error("{}: no line has all the columns; {name:?} is not in the first one: {there}", path.display())]
    #[diagnostic(help("name the columns as the table's head does, in --columns"))]
    NoColumn { path: PathBuf, name: String, there: String },

    #[error("{}: no packet in it was decoded{unknown}", path.display())]
    #[diagnostic(help(
        "farlane observe trace decodes PCIe packets, NVMe/TCP, RDMA (iWARP, RoCEv2) and tracers' words; docs/trace.md has the link types"
    ))]
    Nothing { path: PathBuf, unknown: String },

    #[error("--json and a capture on standard output: they would mix there")]
    #[diagnostic(help("write the capture to a file, or leave --json out"))]
    TwoOutputs,
}

impl CaptureError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Cut { .. } | Self::Nothing { .. } => Exit::Failed,
            Self::Streams { .. } | Self::NoDaemon { .. } | Self::NoColumn { .. } | Self::TwoOutputs => {
                Exit::Wrong
            }
        }
    }
}
