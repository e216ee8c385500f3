//! What is asked through the control socket, a line of JSON each way.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    },
    /// One namespace less.
    Remove {
        /// The subsystem; the only one, if it is left out.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// The file, again.
    Reload,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    /// It was done; what there is to tell.
    Done(Value),
    /// It was not, for this reason.
    Failed(String),
}
