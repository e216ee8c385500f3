//! Why a running daemon gave no usable answer.

use std::path::PathBuf;

use miette::Diagnostic;
use status::Unreadable;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A running daemon was asked, and gave no usable answer.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum DaemonError {
    #[error("the daemon was not started with --config: there is no file to save to")]
    #[diagnostic(help("start it with --config FILE, which farlane setup check checks"))]
    NoFileToSave,

    #[error("{why}")]
    #[diagnostic(help("farlane observe status shows the daemon's state"))]
    Asked { why: String },

    #[error("{}: {why}", socket.display())]
    #[diagnostic(help("farlane --version shows the version of a program"))]
    Unreadable { socket: PathBuf, why: Unreadable },

    #[error("process {process} was not replaced: {why}")]
    #[diagnostic(help("the log of the daemon has the reason: the new process writes there, too"))]
    Upgrade { process: i32, why: String },

    #[error("{count} running daemons are meant by {daemon:?}: expected one")]
    #[diagnostic(help(
        "give its process, or its control socket: farlane observe list shows the socket of each daemon"
    ))]
    NotOne { daemon: String, count: usize },

    #[error("{}: expected a daemon of kind {expected}, and it is one of kind {found}", socket.display())]
    #[diagnostic(help("farlane observe list shows the kind and the control socket of each daemon"))]
    OtherKind { socket: PathBuf, expected: &'static str, found: &'static str },
}

impl DaemonError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::NoFileToSave | Self::OtherKind { .. } | Self::NotOne { .. } => Exit::Wrong,
            Self::Asked { .. } | Self::Unreadable { .. } | Self::Upgrade { .. } => Exit::Failed,
        }
    }
}
