//! The offer of a daemon as its control socket sends it, and as the command that saves it reads it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::args::{AccessState, Backing};

/// The offer of far ends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Exported {
    /// The file that the process was started with.
    pub(crate) config: Option<PathBuf>,
    /// Whether the command line offers namespaces beside the file.
    pub(crate) is_given_beside: bool,
    pub(crate) far_ends: Vec<FarEnd>,
}

/// The offer of a far end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FarEnd {
    /// Whether the SSD keeps its state, and with it the identifiers of namespaces.
    pub(crate) keeps_state: bool,
    pub(crate) namespaces: Vec<OfferedNamespace>,
}

/// The offer of a target.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Subsystems {
    /// The file that the process was started with.
    #[serde(default)]
    pub(crate) config: Option<PathBuf>,
    pub(crate) subsystems: Vec<Subsystem>,
    /// Names of subsystems that were dropped at run time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped: Vec<String>,
}

/// A subsystem of a target.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) namespaces: Vec<OfferedNamespace>,
    pub(crate) ana: Vec<Access>,
    /// The text with the `[[subsystem]]` table by which it was put at run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// How one port, or every port, reaches a group of namespaces.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) group: u32,
    /// The port, by the address that it listens on; none for every port.
    pub(crate) port: Option<SocketAddr>,
    pub(crate) state: AccessState,
}

/// A namespace: in a file, of a device, or in memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferedNamespace {
    pub(crate) nsid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ram: Option<String>,
    /// The group for Asymmetric Namespace Access, of a target's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ana_group: Option<u32>,
}

impl OfferedNamespace {
    /// The namespace `nsid` of `backing`.
    pub(crate) fn of(nsid: u32, backing: &Backing) -> Self {
        let (namespace, ram) = match backing {
            Backing::Medium(spec) => (Some(spec.to_string()), None),
            Backing::Ram(spec) => (None, Some(spec.to_string())),
        };
        Self { nsid, namespace, ram, ana_group: None }
    }

    /// The medium or the memory behind the namespace.
    ///
    /// # Errors
    /// When the report names neither, or both.
    pub(crate) fn backing(&self) -> Result<Backing, String> {
        Backing::asked(self.namespace.as_deref(), self.ram.as_deref())
    }
}
