//! A request, and its progress through the commands that carry it out.

use engine::Buffer;
use nvme::media::{IoId, MediaError};
use nvme::wire::{Status, StatusCode};

/// A request under way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: IoId,
    /// The index of the namespace.
    pub(super) extent: usize,
    /// Where the request begins in the namespace, in bytes. For a flush: the index of the first
    /// namespace.
    pub(super) begin: u64,
    /// Where the next command begins, in the unit of `begin`.
    pub(super) at: u64,
    pub(super) end: u64,
    /// The number of commands submitted and not completed.
    pub(super) outstanding: u32,
    pub(super) error: Option<MediaError>,
    pub(super) goal: Goal,
}

#[derive(Debug)]
pub(super) enum Goal {
    Read,
    Write {
        data: Buffer,
        durable: bool,
    },
    Zero {
        how: Zeroing,
        deallocate: bool,
        durable: bool,
    },
    /// Asks the device to give back the space of a range that is zeroes already.
    Deallocate,
    Flush,
}

/// How a range becomes zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroing {
    /// By the command Write Zeroes.
    Command,
    /// Write Zeroes was refused as a command that the controller does not know.
    Refused,
    /// By writes of zeroes.
    ByWriting,
}

impl Job {
    /// Whether nothing of the job's current stage remains to be submitted or awaited.
    pub(super) const fn is_over(&self) -> bool {
        self.outstanding == 0 && self.at >= self.end
    }

    /// A command of the job has failed: no more commands are sent.
    pub(super) fn fail(&mut self, status: Status) {
        self.at = self.end;
        let code = status.code();
        match &mut self.goal {
            // Deallocation is only a hint: the range reads as zeroes in any case.
            Goal::Deallocate => {}
            Goal::Zero { how: how @ (Zeroing::Command | Zeroing::Refused), .. }
                if matches!(code, StatusCode::InvalidCommandOpcode | StatusCode::InvalidField) =>
            {
                *how = Zeroing::Refused;
            }
            goal => {
                self.error.get_or_insert(error_of(code, matches!(goal, Goal::Read)));
            }
        }
    }

    /// Ends the job early with `error`: no more commands are sent.
    pub(super) fn give_up(&mut self, error: MediaError) {
        self.at = self.end;
        self.error.get_or_insert(error);
    }

    /// Starts over at the beginning of the range, towards another goal.
    pub(super) fn restart(&mut self, goal: Goal) {
        self.goal = goal;
        self.at = self.begin;
    }
}

/// The medium's error for a failed command.
fn error_of(code: StatusCode, reading: bool) -> MediaError {
    match code {
        StatusCode::LbaOutOfRange | StatusCode::InvalidNamespaceOrFormat => MediaError::OutOfRange,
        StatusCode::CapacityExceeded => MediaError::NoSpace,
        StatusCode::NamespaceWriteProtected | StatusCode::WriteToReadOnlyRange => MediaError::ReadOnly,
        StatusCode::UnrecoveredReadError if reading => MediaError::Read,
        _ if reading => MediaError::ReadFailed,
        _ => MediaError::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_medium_has_lost_differ_from_reads_that_fail() {
        assert_eq!(error_of(StatusCode::UnrecoveredReadError, true), MediaError::Read);
        assert_eq!(error_of(StatusCode::InternalError, true), MediaError::ReadFailed);
        assert_eq!(error_of(StatusCode::NamespaceNotReady, true), MediaError::ReadFailed);
        assert_eq!(error_of(StatusCode::InternalError, false), MediaError::Write);
    }

    #[test]
    fn a_command_that_is_not_known_is_not_sent_again() {
        let goal = Goal::Zero { how: Zeroing::Command, deallocate: false, durable: false };
        let mut job =
            Job { id: IoId(0), extent: 0, begin: 5, at: 6, end: 9, outstanding: 1, error: None, goal };
        job.fail(Status::from(StatusCode::InvalidCommandOpcode));
        assert!(matches!(job.goal, Goal::Zero { how: Zeroing::Refused, .. }));
        assert_eq!((job.at, job.error), (9, None));
        job.fail(Status::from(StatusCode::WriteFault));
        assert_eq!(job.error, Some(MediaError::Write));
    }
}
