//! Why the answer of a daemon is not a status that this version can read.

use std::fmt;

use crate::SCHEMA_VERSION;

/// Why the answer of a daemon is not a status that this version can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The answer has no kind, so that it is no status.
    NoStatus,
    /// The answer has another schema version.
    Version {
        /// The daemon that answered.
        daemon: Daemon,
        /// The version, as it was found.
        version: String,
    },
    /// The kind is unknown.
    Kind {
        /// The daemon that answered.
        daemon: Daemon,
        /// The kind.
        kind: String,
    },
    /// A field is missing, or has another type.
    Field {
        /// The daemon that answered.
        daemon: Daemon,
        /// The kind of the daemon.
        kind: String,
        /// The error in the field.
        error: String,
    },
}

/// The daemon that answered, as far as the answer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    pub(crate) pid: Option<u64>,
    pub(crate) farlane: Option<String>,
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => write!(f, "the process")?,
        }
        match &self.farlane {
            Some(version) => write!(f, " (farlane {version})"),
            None => write!(f, " (farlane of unknown version)"),
        }
    }
}

/// Version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStatus => write!(f, "the answer is no status of a daemon: it has no kind"),
            Self::Version { daemon, version } => write!(
                f,
                "{daemon} reports a status of schema version {version}, and this farlane {OURS} reads version \
                 {SCHEMA_VERSION}: ask it with the farlane that started it"
            ),
            Self::Kind { daemon, kind } => write!(
                f,
                "{daemon} is a daemon of kind {kind:?}, which this farlane {OURS} does not know: ask it with the \
                 farlane that started it"
            ),
            Self::Field { daemon, kind, error } => write!(
                f,
                "{daemon} reports a status of kind {kind:?} that this farlane {OURS} cannot read: {error}: ask it with \
                 the farlane that started it"
            ),
        }
    }
}

impl std::error::Error for Unreadable {}
