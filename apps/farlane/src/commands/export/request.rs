//! Requests through the control socket of far ends: a line of JSON asks, a line of JSON answers.

use std::net::SocketAddr;

use daemon::Common;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The requests that far ends answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Reports the offer and its users.
    Status,
    /// Adds a namespace.
    Add {
        /// Address that the far end listens on; may be left out if there is only one far end.
        far_end: Option<SocketAddr>,
        /// File of the namespace, as `--namespace` has it with an absolute path, or URL of the
        /// device that has it.
        namespace: Option<String>,
        /// Memory of the namespace: `SIZE[,block=512|4096][,protection=16|64]`.
        ram: Option<String>,
    },
    /// Removes a namespace.
    Remove {
        /// Address that the far end listens on; may be left out if there is only one far end.
        far_end: Option<SocketAddr>,
        /// Identifier (NSID) of the namespace.
        nsid: u32,
    },
    /// Makes a namespace longer or shorter.
    Resize {
        /// Address that the far end listens on; may be left out if there is only one far end.
        far_end: Option<SocketAddr>,
        /// Identifier (NSID) of the namespace.
        nsid: u32,
        /// New length in bytes; if left out, the length that the namespace's file has by now.
        size: Option<u64>,
    },
    /// Reports the content of a file by which the next start offers the same.
    Offered,
    /// Reads the file again.
    Reload,
}

/// The answer to a request to add or remove a namespace.
#[derive(Serialize, Deserialize)]
pub(super) struct Changed {
    /// URL of the far end.
    pub(super) far_end: String,
    pub(super) nsid: u32,
}

/// The new length of a namespace.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Resized {
    /// URL of the far end.
    pub(super) far_end: String,
    pub(super) nsid: u32,
    pub(super) bytes: u64,
}

impl daemon::Request for Request {
    fn common(&self) -> Option<Common> {
        match self {
            Self::Status => Some(Common::Status),
            Self::Reload => Some(Common::Reload),
            _ => None,
        }
    }
}

/// Whether the listener on `own` has the address `address`: the same, or one of all addresses of
/// this machine.
pub(super) fn is_at(own: SocketAddr, address: SocketAddr) -> bool {
    own == address || (own.ip().is_unspecified() && own.port() == address.port())
}
