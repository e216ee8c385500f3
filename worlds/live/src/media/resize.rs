//! Media that become longer or shorter while they are in use.

use std::fmt;

use nvme::media::MediumId;
use nvme::media::ram::BYTES_MAX;

use super::file::OpenError;
use super::{Media, Medium};

/// Bytes in the smallest block. Every length of a medium in memory is a multiple of it.
const BLOCK: u64 = 512;

/// Why a medium can't be resized or measured.
#[derive(Debug)]
pub enum ResizeError {
    /// The file or block device can't have the length.
    File(OpenError),
    /// A medium in memory has the length that it was given: there is nothing to measure.
    NothingToMeasure,
    /// A medium in memory can't have this length, in bytes.
    Memory(u64),
    /// A medium in memory would be longer than the machine's memory.
    Machine {
        /// The length that was asked for, in bytes.
        asked: u64,
        /// The machine's memory, in bytes.
        machine: u64,
    },
    /// The machine has no memory left.
    NoMemory,
    /// The length of this kind of medium can't be changed.
    Fixed,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NothingToMeasure => f.write_str("memory has no length of its own; give the new length"),
            Self::Memory(bytes) => {
                write!(f, "memory of {bytes} B: expected a multiple of {BLOCK} B, at most {BYTES_MAX}")
            }
            Self::Machine { asked, machine } => write!(
                f,
                "memory of {asked} B: expected at most {machine} B, the memory of this machine; a file may be longer"
            ),
            Self::NoMemory => f.write_str("the machine has no memory left; free some and try again"),
            Self::Fixed => f.write_str("the medium of this namespace can't be resized"),
        }
    }
}

impl std::error::Error for ResizeError {}

impl Media {
    /// Makes a medium `bytes` long, or without `bytes` measures how long its file or device is by
    /// now. Returns its length in bytes.
    ///
    /// # Errors
    /// When the medium can't have that length.
    ///
    /// # Panics
    /// When no medium of this name was ever added.
    pub fn resize(&mut self, id: MediumId, bytes: Option<u64>) -> Result<u64, ResizeError> {
        let result = self.resize_medium(id, bytes);
        if let Ok(bytes) = result {
            self.note_resized_for_lanes(id, bytes);
        }
        result
    }

    fn resize_medium(&mut self, id: MediumId, bytes: Option<u64>) -> Result<u64, ResizeError> {
        let place = self.places[id.0 as usize];
        match (self.media.get_mut(place).unwrap_or(&mut Medium::Gone), bytes) {
            (Medium::File(file), bytes) => file.resize(bytes).map_err(ResizeError::File),
            (Medium::Remote(remote), None) => Ok(remote.measure()),
            (Medium::Ram(_) | Medium::SharedRam(_), None) => Err(ResizeError::NothingToMeasure),
            (medium @ (Medium::Ram(_) | Medium::SharedRam(_)), Some(bytes)) => {
                if bytes == 0 || bytes > BYTES_MAX || !bytes.is_multiple_of(BLOCK) {
                    return Err(ResizeError::Memory(bytes));
                }
                if let Some(machine) = crate::sys::memory::total().filter(|machine| bytes > *machine) {
                    return Err(ResizeError::Machine { asked: bytes, machine });
                }
                match medium {
                    Medium::SharedRam(ram) => ram.resize(bytes).map_err(|_| ResizeError::NoMemory)?,
                    Medium::Ram(disk) => disk.resize(bytes),
                    _ => {}
                }
                Ok(bytes)
            }
            (Medium::Remote(_) | Medium::Nvme(_) | Medium::State(_) | Medium::Gone, _) => {
                Err(ResizeError::Fixed)
            }
        }
    }
}
