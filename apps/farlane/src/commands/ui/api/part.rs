//! The part of a command that a frame is, and the way of a step.

use schemars::JsonSchema;
use serde::Serialize;
use trace::{Step, fields};

/// Which part of which command a frame is, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) step: Option<Step>,
    /// The command's identifier.
    pub(super) id: Option<u16>,
    /// Whether it is an admin command.
    pub(super) is_admin: bool,
}

impl Part {
    /// The object of the search in a frame of a network.
    pub(super) fn wanted(self) -> Option<fields::Wanted> {
        Some(fields::Wanted { step: self.step?, id: self.id? })
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    /// To the device.
    Down,
    /// To the host.
    Up,
}

/// Which way the packets of a step pass.
pub(super) const fn way(step: Step) -> Way {
    match step {
        Step::Capsule
        | Step::Doorbell
        | Step::Entry
        | Step::Listed
        | Step::DataArrived
        | Step::HeadDoorbell => Way::Down,
        Step::Fetch
        | Step::List
        | Step::ReadyToTransfer
        | Step::Data
        | Step::Completion
        | Step::Interrupt => Way::Up,
    }
}
