//! Media that become longer or shorter while they are used.

use std::fmt;

use nvme::media::MediumId;
use nvme::media::ram::BYTES_MAX;

use super::file::OpenError;
use super::{Media, Medium};

/// Bytes in the smallest block, of which every length is a multiple.
const BLOCK: u64 = 512;

/// Why a medium keeps its length.
#[derive(Debug)]
pub enum ResizeError {
    /// The file can't have it.
    File(OpenError),
    /// Memory has the length that it is given: there is nothing to measure.
    NothingToMeasure,
    /// Memory can't have this length, in bytes.
    Memory(u64),
    /// The medium's length is what it is.
    Fixed,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NothingToMeasure => {
                f.write_str("memory has no length of its own; say how long it is to be")
            }
            Self::Memory(bytes) => {
                write!(f, "memory of {bytes} B: expected a multiple of {BLOCK} B, at most {BYTES_MAX}")
            }
            Self::Fixed => f.write_str("what this namespace is kept on can't be resized"),
        }
    }
}

impl std::error::Error for ResizeError {}

impl Media {
    /// Makes a medium `bytes` long, or measures what it has by now; returns its length in bytes.
    ///
    /// # Errors
    /// When it can't have that length.
    ///
    /// # Panics
    /// When there is no such medium.
    pub fn resize(&mut self, id: MediumId, bytes: Option<u64>) -> Result<u64, ResizeError> {
        let place = self.places[id.0 as usize];
        match (self.media.get_mut(place).unwrap_or(&mut Medium::Gone), bytes) {
            (Medium::File(file), bytes) => file.resize(bytes).map_err(ResizeError::File),
            (Medium::Remote(remote), None) => Ok(remote.measure()),
            (Medium::Ram(_), None) => Err(ResizeError::NothingToMeasure),
            (Medium::Ram(disk), Some(bytes)) => {
                if bytes == 0 || bytes > BYTES_MAX || !bytes.is_multiple_of(BLOCK) {
                    return Err(ResizeError::Memory(bytes));
                }
                disk.resize(bytes);
                Ok(bytes)
            }
            (Medium::Remote(_) | Medium::Nvme(_) | Medium::State(_) | Medium::Gone, _) => {
                Err(ResizeError::Fixed)
            }
        }
    }
}
