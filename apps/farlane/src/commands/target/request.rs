//! What is asked through the control socket, a line of JSON each way.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::args::AccessState;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// What is offered, and who uses it.
    Status,
    /// Another namespace.
    Add {
        /// The subsystem; the only one, if it is left out.
        nqn: Option<String>,
        /// `PATH[,size=SIZE][,block=512|4096][,readonly]`, the path absolute.
        namespace: Option<String>,
        /// `SIZE[,block=512|4096]`.
        ram: Option<String>,
        /// The group for Asymmetric Namespace Access; 1, if it is left out.
        ana_group: Option<u32>,
    },
    /// One namespace less.
    Remove {
        /// The subsystem; the only one, if it is left out.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace longer or shorter.
    Resize {
        /// The subsystem; the only one, if it is left out.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
        /// Bytes; as many as its file has by now, if it is left out.
        size: Option<u64>,
    },
    /// Another state of a group of namespaces.
    Ana {
        /// The subsystem; the only one, if it is left out.
        nqn: Option<String>,
        /// The group.
        group: u32,
        /// The state.
        state: AccessState,
        /// For the controllers of this port, by what it listens on.
        port: Option<SocketAddr>,
        /// For this controller; with neither, for all.
        controller: Option<u16>,
    },
    /// The file, again.
    Reload,
}
