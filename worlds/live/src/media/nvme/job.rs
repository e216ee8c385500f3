//! A request, and the commands of which it is made.

use engine::Buffer;
use nvme::media::{IoId, MediaError};
use nvme::wire::{Status, StatusCode};

/// A request under way.
#[derive(Debug)]
pub(in crate::media) struct Job {
    pub(in crate::media) id: IoId,
    /// The index of the namespace.
    pub(in crate::media) extent: usize,
    /// Where in the namespace it begins, in bytes; of a flush, the first namespace's index.
    pub(in crate::media) begin: u64,
    /// What comes next, in the same terms.
    pub(in crate::media) at: u64,
    pub(in crate::media) end: u64,
    /// Commands that have not completed.
    pub(in crate::media) outstanding: u32,
    pub(in crate::media) error: Option<MediaError>,
    pub(in crate::media) goal: Goal,
}

#[derive(Debug)]
pub(in crate::media) enum Goal {
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
pub(in crate::media) enum Zeroing {
    /// Write Zeroes.
    Command,
    /// Write Zeroes was refused, as something that the controller does not know.
    Refused,
    /// Writes of zeroes.
    ByWriting,
}

impl Job {
    /// Whether nothing of this stage remains to be submitted or awaited.
    pub(in crate::media) const fn is_over(&self) -> bool {
        self.outstanding == 0 && self.at >= self.end
    }

    /// One of its commands failed: no more are sent.
    pub(in crate::media) fn fail(&mut self, status: Status) {
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
    pub(in crate::media) fn give_up(&mut self, error: MediaError) {
        self.at = self.end;
        self.error.get_or_insert(error);
    }

    /// The same range again, towards another goal.
    pub(in crate::media) fn restart(&mut self, goal: Goal) {
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
