//! Chunks on their way to the medium.

use engine::{Buffer, Crc32c};

use crate::format::{ALIGNMENT, HEADER_LENGTH, Header, Kind};

/// The state of a chunk on its way to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The world is to write it, or writes it.
    UnderWay,
    /// There was no room for the whole chunk; how much fits is yet to be tried.
    Parked,
    /// It is on the medium.
    Stored,
    /// It is not on the medium, and will not be.
    Lost,
}

/// A chunk on its way to the medium.
#[derive(Debug)]
pub(super) struct Flight {
    /// The chunk's header; `None` for the zeroes of a slot that is kept free.
    pub(super) header: Option<Header>,
    pub(super) slot: u64,
    pub(super) buffer: Buffer,
    pub(super) state: State,
    /// How often the medium has failed to take it.
    pub(super) failures: u32,
}

impl Flight {
    /// The data's header, where the chunk has data.
    pub(super) fn data(&self) -> Option<&Header> {
        self.header.as_ref().filter(|header| header.kind == Kind::Data)
    }

    /// Writes the header into the buffer.
    ///
    /// # Panics
    /// When the buffer has another holder.
    pub(super) fn seal(&mut self, crc: Crc32c) {
        let Some(header) = &mut self.header else { return };
        header.slot = self.slot;
        let bytes = self.buffer.try_mut().expect("the world has dropped its part of the buffer");
        header.emit(bytes, crc);
    }

    /// The number of bytes to write: the chunk up to its last byte, in whole pages.
    pub(super) fn length(&self) -> usize {
        match &self.header {
            None => self.buffer.len(),
            Some(header) => (HEADER_LENGTH + header.length as usize).next_multiple_of(ALIGNMENT as usize),
        }
    }

    /// The number of pages to write.
    pub(super) fn pages(&self) -> usize {
        self.length() / ALIGNMENT as usize
    }
}

/// The search for how many pages of a chunk fit a full medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The chunk's sequence number.
    pub(super) name: u64,
    /// The length of its payload, before anything was cut off.
    pub(super) whole: u32,
    /// This many pages fit.
    fits: usize,
    /// This many pages do not fit.
    fails: usize,
    /// The number of pages being tried.
    tried: usize,
}

/// How a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try to write a payload of this many bytes.
    Try(u32),
    /// The payload of this many bytes is on the medium.
    Stored(u32),
    /// Nothing fits.
    Nothing,
}

impl Search {
    pub(super) fn new(name: u64, flight: &Flight) -> Self {
        let whole = flight.header.map_or(0, |header| header.length);
        Self { name, whole, fits: 0, fails: flight.pages(), tried: 0 }
    }

    /// Takes in whether the last attempt succeeded, and says how to go on. An attempt that failed
    /// may have changed the first pages, so the search always ends with an attempt that succeeds.
    pub(super) fn next(&mut self, succeeded: Option<bool>) -> Next {
        match succeeded {
            Some(true) => self.fits = self.fits.max(self.tried),
            Some(false) => self.fails = self.fails.min(self.tried),
            None => {}
        }
        // An attempt that succeeded before and fails now: another process took the room.
        self.fits = self.fits.min(self.fails.saturating_sub(1));
        let is_found = self.fails - self.fits <= 1;
        if is_found && self.fits == 0 {
            return Next::Nothing;
        }
        if is_found && succeeded == Some(true) && self.tried == self.fits {
            return Next::Stored(self.payload(self.fits));
        }
        self.tried = if is_found { self.fits } else { usize::midpoint(self.fits, self.fails) };
        Next::Try(self.payload(self.tried))
    }

    fn payload(&self, pages: usize) -> u32 {
        let bytes = pages * ALIGNMENT as usize - HEADER_LENGTH;
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.whole)
    }
}
