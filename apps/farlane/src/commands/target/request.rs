//! Requests through the control socket: a line of JSON asks, a line of JSON answers.

use std::net::SocketAddr;

use daemon::Common;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::args::AccessState;

/// The requests that the control socket answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Reports the offer and its users.
    Status,
    /// Adds a namespace.
    Add {
        /// NQN of the subsystem; may be left out if there is only one.
        nqn: Option<String>,
        /// File of the namespace, `PATH[,size=SIZE][,block=512|4096][,protection=16|64][,readonly]`
        /// with an absolute path, or URL of the device that has it.
        namespace: Option<String>,
        /// Memory of the namespace: `SIZE[,block=512|4096][,protection=16|64]`.
        ram: Option<String>,
        /// Group for Asymmetric Namespace Access (ANA); 1, if left out.
        ana_group: Option<u32>,
    },
    /// Removes a namespace.
    Remove {
        /// NQN of the subsystem; may be left out if there is only one.
        nqn: Option<String>,
        /// Identifier (NSID) of the namespace.
        nsid: u32,
    },
    /// Makes a namespace longer or shorter.
    Resize {
        /// NQN of the subsystem; may be left out if there is only one.
        nqn: Option<String>,
        /// Identifier (NSID) of the namespace.
        nsid: u32,
        /// New length in bytes; if left out, the length that the namespace's file has by now.
        size: Option<u64>,
    },
    /// Sets the ANA state of a group of namespaces.
    Ana {
        /// NQN of the subsystem; may be left out if there is only one.
        nqn: Option<String>,
        /// Number of the group.
        group: u32,
        /// New state of the group.
        state: AccessState,
        /// Sets the state only for controllers of the port that listens on this address.
        port: Option<SocketAddr>,
        /// Sets the state only for this controller. With neither a port nor a controller, sets it
        /// for all.
        controller: Option<u16>,
    },
    /// Offers subsystems, each in the place of the one with its name if there is one. No other
    /// subsystem is touched.
    Put {
        /// `[[subsystem]]` tables of a configuration file, with absolute paths.
        text: String,
    },
    /// Offers a subsystem no longer.
    Drop {
        /// NQN of the subsystem.
        nqn: String,
    },
    /// Reports the content of a configuration file by which the next start offers the same.
    Offered,
    /// Reads the configuration file again.
    Reload,
}

/// The answer to a request to add or remove a namespace.
#[derive(Serialize, Deserialize)]
pub(super) struct Changed {
    /// NQN of the subsystem.
    pub(super) nqn: String,
    pub(super) nsid: u32,
}

/// The new length of a namespace.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Resized {
    /// NQN of the subsystem.
    pub(super) nqn: String,
    pub(super) nsid: u32,
    pub(super) bytes: u64,
}

/// The new ANA state of a group of namespaces.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct AccessSet {
    /// NQN of the subsystem.
    pub(super) nqn: String,
    pub(super) group: u32,
    pub(super) state: AccessState,
    #[serde(flatten)]
    pub(super) of: AccessOf,
}

/// The controllers whose state was set.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum AccessOf {
    /// One controller.
    Controller { controller: u16 },
    /// Those of one port, or of all.
    Port {
        /// The port's address; none for all ports.
        port: Option<SocketAddr>,
    },
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
