//! Who ended a command.

/// The origin of the status with which a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The controller, in a completion.
    Controller,
    /// The host, which gave the command up or found its data incomplete. The controller may or may
    /// not have executed the command.
    Host,
}
