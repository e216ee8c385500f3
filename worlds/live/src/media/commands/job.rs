//! A request, and the commands of which it is made.

use engine::Buffer;
use nvme::media::{IoId, MediaError};
use nvme::wire::{Status, StatusCode};

/// A request under way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: IoId,
    /// The index of the namespace.
    pub(super) extent: usize,
    /// Where in the namespace it begins, in bytes; of a flush, the first namespace's index.
    pub(super) begin: u64,
    /// What comes next, in the same terms.
    pub(super) at: u64,
    pub(super) end: u64,
    /// Commands that have not completed.
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
    /// Ask for the space to be given back, of what is zeroes already.
    Deallocate,
    Flush,
}

/// How a range becomes zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroing {
    /// Write Zeroes.
    Command,
    /// Write Zeroes was refused, as something that the controller does not know.
    Refused,
    /// Writes of zeroes.
    ByWriting,
}

impl Job {
    /// Whether nothing of this stage remains to be submitted or awaited.
    pub(super) const fn is_over(&self) -> bool {
        self.outstanding == 0 && self.at >= self.end
    }

    /// One of its commands failed: no more are sent.
    pub(super) fn fail(&mut self, status: Status) {
        self.at = self.end;
        let code = status.code();
        match &mut self.goal {
            // A hint: the range reads as zeroes in any case.
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

    /// It can't be gone on with: no more commands are sent.
    pub(super) fn give_up(&mut self, error: MediaError) {
        self.at = self.end;
        self.error.get_or_insert(error);
    }

    /// The same range again, towards another goal.
    pub(super) fn restart(&mut self, goal: Goal) {
        self.goal = goal;
        self.at = self.begin;
    }
}

/// What a failed command says of the medium.
fn error_of(code: StatusCode, reading: bool) -> MediaError {
    match code {
        StatusCode::LbaOutOfRange | StatusCode::InvalidNamespaceOrFormat => MediaError::OutOfRange,
        StatusCode::CapacityExceeded => MediaError::NoSpace,
        StatusCode::NamespaceWriteProtected | StatusCode::WriteToReadOnlyRange => MediaError::ReadOnly,
        _ if reading => MediaError::Read,
        _ => MediaError::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
