//! The origin of a command's result.

use serde::{Deserialize, Serialize};

/// The origin of the status with which a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The controller, in a completion.
    Controller,
    /// The host, which gave up the command or found its data incomplete. The controller may or may
    /// not have executed the command.
    Host,
}
