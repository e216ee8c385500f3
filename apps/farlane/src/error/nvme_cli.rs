//! Errors of commands that nvme-cli has, too.

use miette::Diagnostic;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A command that nvme-cli has, too, can't fulfil its request.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum NvmeError {
    #[error("there are no bytes to print: {why}")]
    #[diagnostic(help("-o normal and -o json print the answer"))]
    NoBytes { why: String },

    #[error("{what} is not possible at {url}: {why}")]
    #[diagnostic(help("{remedy}"))]
    NotHere { what: &'static str, url: String, why: &'static str, remedy: &'static str },

    #[error("the controller has no {what}")]
    #[diagnostic(help("farlane nvme id-ctrl URL -H shows its features"))]
    Lacking { what: &'static str },

    #[error("{url}: {why}")]
    #[diagnostic(help(
        "--traddr takes the address alone, --trsvcid the port, --nqn the name of the subsystem"
    ))]
    NoPlace { url: String, why: String },

    #[error("the namespace at {url} holds no recording")]
    #[diagnostic(help(
        "farlane record --to {url} makes one; farlane nvme verify {url} is the verify of nvme-cli"
    ))]
    NoRecording { url: String },

    #[error("the controller does not answer a read of its register at {offset:#x}")]
    #[diagnostic(help("farlane nvme show-regs URL reads the registers that every controller has"))]
    Unread { offset: u32 },

    #[error(
        "no register begins at {offset:#x}: expected a multiple of 4 below 0x1000, where doorbells begin"
    )]
    #[diagnostic(help("farlane nvme show-regs URL lists the registers"))]
    NoRegister { offset: u32 },

    #[error("the log changes faster than it can be read")]
    #[diagnostic(help("read it again"))]
    Restless,
}

impl NvmeError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::NoBytes { .. } | Self::NotHere { .. } | Self::NoPlace { .. } | Self::NoRegister { .. } => {
                Exit::Wrong
            }
            Self::NoRecording { .. } | Self::Lacking { .. } | Self::Unread { .. } | Self::Restless => {
                Exit::Failed
            }
        }
    }
}
