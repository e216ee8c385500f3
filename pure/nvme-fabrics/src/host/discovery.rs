//! Reads a Discovery log entry by entry, again until it did not change meanwhile.

use alloc::vec::Vec;

use nvme::host::command::get_log_page;
use nvme::wire::{NamespaceId, SubmissionQueueEntry};

use crate::wire::{DISCOVERY_LOG_PAGE, DiscoveryEntry, DiscoveryHeader, WireError};

/// Maximum number of entries that are read.
pub const RECORDS_MAX: u64 = 4096;
/// Maximum number of readings of the log: it is read again when it changed meanwhile.
const RESTARTS_MAX: u32 = 10;
/// Entries that one command reads: 8 KiB, which every controller moves. The smallest limit that
/// MDTS can name is two pages of 4 KiB.
const RECORDS_AT_ONCE: u64 = 8;

/// The reader's next request.
#[derive(Debug)]
pub enum Step {
    /// Execute this admin command, and pass the bytes that it reads to [`Reader::next`].
    Read {
        /// The command to execute.
        entry: SubmissionQueueEntry,
        /// Number of bytes that the command reads.
        length: u32,
    },
    /// The whole log.
    Done(Vec<DiscoveryEntry>),
}

/// Why a log cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The log has an invalid field.
    Wire(WireError),
    /// A read returned fewer bytes than required.
    Short,
    /// The log changes faster than it can be read.
    Restless,
    /// The log has more entries than [`RECORDS_MAX`]. Holds their number.
    TooLong(u64),
}

impl core::fmt::Display for ReadError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Wire(error) => write!(f, "the Discovery log is broken: {error}"),
            Self::Short => f.write_str("the Discovery log ends too early"),
            Self::Restless => f.write_str("the Discovery log changes faster than it can be read"),
            Self::TooLong(records) => {
                write!(f, "the Discovery log has {records} entries, {RECORDS_MAX} at most are read")
            }
        }
    }
}

impl core::error::Error for ReadError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Records,
    /// Reading the header again, to check that the generation is still the same.
    Check,
}

/// Reads a Discovery log by commands that the caller executes.
#[derive(Debug)]
pub struct Reader {
    stage: Stage,
    generation: u64,
    records: u64,
    entries: Vec<DiscoveryEntry>,
    restarts: u32,
}

impl Reader {
    /// A reader, and its first command.
    pub fn start() -> (Self, Step) {
        let reader =
            Self { stage: Stage::Header, generation: 0, records: 0, entries: Vec::new(), restarts: 0 };
        (reader, header())
    }

    /// The step after a command that returned `bytes`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Step, ReadError> {
        match self.stage {
            Stage::Records => {
                for raw in bytes.chunks(DiscoveryEntry::LENGTH) {
                    let raw = raw.try_into().map_err(|_| ReadError::Short)?;
                    self.entries.push(DiscoveryEntry::parse(raw).map_err(ReadError::Wire)?);
                }
                if bytes.is_empty() {
                    return Err(ReadError::Short);
                }
                Ok(self.more())
            }
            Stage::Header | Stage::Check => {
                let raw = bytes.first_chunk().ok_or(ReadError::Short)?;
                let header = DiscoveryHeader::parse(raw).map_err(ReadError::Wire)?;
                if self.stage == Stage::Check && header.generation == self.generation {
                    return Ok(Step::Done(core::mem::take(&mut self.entries)));
                }
                if header.records > RECORDS_MAX {
                    return Err(ReadError::TooLong(header.records));
                }
                self.restarts += 1;
                if self.restarts > RESTARTS_MAX {
                    return Err(ReadError::Restless);
                }
                (self.generation, self.records) = (header.generation, header.records);
                self.entries.clear();
                Ok(self.more())
            }
        }
    }

    fn more(&mut self) -> Step {
        let read = self.entries.len() as u64;
        if read >= self.records {
            self.stage = Stage::Check;
            return header();
        }
        self.stage = Stage::Records;
        let count = (self.records - read).min(RECORDS_AT_ONCE);
        let offset = DiscoveryHeader::LENGTH as u64 + read * DiscoveryEntry::LENGTH as u64;
        let length = u32::try_from(count * DiscoveryEntry::LENGTH as u64).expect("a few entries");
        Step::Read { entry: get_log_page(NamespaceId::ALL, DISCOVERY_LOG_PAGE, offset, length), length }
    }
}

fn header() -> Step {
    let length = u32::try_from(DiscoveryHeader::LENGTH).expect("1 KiB");
    Step::Read { entry: get_log_page(NamespaceId::ALL, DISCOVERY_LOG_PAGE, 0, length), length }
}

#[cfg(test)]
mod tests {
    use nvme::host::transfer_limit;
    use nvme::wire::identify::IdentifyController;

    use super::*;

    #[test]
    fn every_controller_moves_the_data_of_a_command() {
        let (mut reader, _) = Reader::start();
        let header = DiscoveryHeader { generation: 1, records: RECORDS_MAX, record_format: 0 };
        let Ok(Step::Read { length, .. }) = reader.next(&header.emit()) else { panic!("a read") };
        let least = IdentifyController { maximum_data_transfer_size: 1, ..IdentifyController::default() };
        assert_eq!(length, transfer_limit(&least, 0, u32::MAX));
    }
}
