//! How the program ends: the one table of its exit statuses.

use std::process::ExitCode;

/// The exit status of a process. The manual pages and docs/operate.md have this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done,
    /// The world failed: the same command may succeed later.
    Failed,
    /// Something else must be asked for: the same command fails again.
    Wrong,
    /// A panic: Farlane itself is wrong.
    Fault,
    /// SIGINT, as a shell reports it.
    Interrupted,
    /// SIGTERM came a second time, before an orderly end.
    Terminated,
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] =
        [Self::Done, Self::Failed, Self::Wrong, Self::Fault, Self::Interrupted, Self::Terminated];

    /// The number that the system hands on.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Wrong => 2,
            Self::Fault => 101,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The meaning of the number, in words.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "The command succeeded, or a service ended in good order after SIGTERM or SIGINT.",
            Self::Failed => {
                "The command failed: an address is in use, a far end cannot be reached, a medium fails. \
                 The same command may succeed later."
            }
            Self::Wrong => {
                "The arguments or a file that they name are wrong, contradict each other, or do not suit \
                 the device. The same command fails again."
            }
            Self::Fault => "Farlane has a fault, and prints its place. Please report it.",
            Self::Interrupted => {
                "The command was interrupted (SIGINT), or SIGINT came a second time before a service had \
                 ended."
            }
            Self::Terminated => "SIGTERM came a second time before a service had ended.",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
