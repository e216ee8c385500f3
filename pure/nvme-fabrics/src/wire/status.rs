//! Status codes that only fabrics commands end with.

use core::fmt;

use nvme::wire::{Status, StatusCode};

/// The Status Code Type of every [`FabricsStatus`]: command specific.
const COMMAND_SPECIFIC: u8 = 1;

/// A status that only fabrics commands end with, NVMe Base 2.0. For other commands the same values
/// mean other things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricsStatus {
    /// Connect Incompatible Format (80h): the record format is not supported.
    IncompatibleFormat,
    /// Connect Controller Busy (81h): the controller is in use by a host.
    ControllerBusy,
    /// Connect Invalid Parameters (82h): DW0 of the response names the parameter.
    InvalidParameters,
    /// Connect Restart Discovery (83h): the subsystem is elsewhere now.
    RestartDiscovery,
    /// Connect Invalid Host (84h): the host may not use the subsystem.
    InvalidHost,
    /// Invalid Queue Type (85h): the command belongs on the other kind of queue.
    InvalidQueueType,
    /// Discover Restart (90h): the log changed while it was read.
    DiscoverRestart,
    /// Authentication Required (91h): the host must authenticate first.
    AuthenticationRequired,
}

impl FabricsStatus {
    /// Every status that is specific to fabrics commands.
    pub const ALL: [Self; 8] = [
        Self::IncompatibleFormat,
        Self::ControllerBusy,
        Self::InvalidParameters,
        Self::RestartDiscovery,
        Self::InvalidHost,
        Self::InvalidQueueType,
        Self::DiscoverRestart,
        Self::AuthenticationRequired,
    ];

    /// Status Code (SC).
    pub const fn code(self) -> u8 {
        match self {
            Self::IncompatibleFormat => 0x80,
            Self::ControllerBusy => 0x81,
            Self::InvalidParameters => 0x82,
            Self::RestartDiscovery => 0x83,
            Self::InvalidHost => 0x84,
            Self::InvalidQueueType => 0x85,
            Self::DiscoverRestart => 0x90,
            Self::AuthenticationRequired => 0x91,
        }
    }

    /// The meaning of a fabrics command's status, if it is specific to fabrics commands.
    pub fn of(status: Status) -> Option<Self> {
        let code = status.code();
        (code.kind() == COMMAND_SPECIFIC)
            .then(|| Self::ALL.into_iter().find(|one| one.code() == code.code()))
            .flatten()
    }

    /// Whether the same command may succeed when it is sent again.
    pub const fn may_retry(self) -> bool {
        matches!(self, Self::ControllerBusy | Self::RestartDiscovery | Self::DiscoverRestart)
    }
}

impl From<FabricsStatus> for Status {
    fn from(status: FabricsStatus) -> Self {
        Self::new(StatusCode::new(COMMAND_SPECIFIC, status.code())).with_do_not_retry(!status.may_retry())
    }
}

impl fmt::Display for FabricsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IncompatibleFormat => "Connect Incompatible Format",
            Self::ControllerBusy => "Connect Controller Busy",
            Self::InvalidParameters => "Connect Invalid Parameters",
            Self::RestartDiscovery => "Connect Restart Discovery",
            Self::InvalidHost => "Connect Invalid Host",
            Self::InvalidQueueType => "Invalid Queue Type",
            Self::DiscoverRestart => "Discover Restart",
            Self::AuthenticationRequired => "Authentication Required",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_known_again() {
        for status in FabricsStatus::ALL {
            assert_eq!(FabricsStatus::of(status.into()), Some(status));
        }
        // As Linux prints the values: Connect Invalid Parameters and Connect Invalid Host with DNR.
        assert_eq!(Status::from(FabricsStatus::InvalidParameters).raw(), 0x4182);
        assert_eq!(Status::from(FabricsStatus::InvalidHost).raw(), 0x4184);
        assert_eq!(Status::from(FabricsStatus::ControllerBusy).raw(), 0x0181);
        assert_eq!(FabricsStatus::of(Status::SUCCESS), None);
    }
}
