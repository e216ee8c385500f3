//! Opening a recording whose payloads are read once, when they are used.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use record::Scan;
use record::format::{ALIGNMENT, ChunkError, Entry, Header, Kind};

use super::far::Far;
use super::reading::{ReadError, Recording, Store, find};
use crate::sys::digest::crc32c;

impl Recording {
    /// Reads what a recording says of its chunks, but no payload of a data chunk, so that a long
    /// recording is there at once. [`Recording::payload`] checks each chunk when it is used. There
    /// are no digests.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let in_use = file.try_lock_shared().is_err();
        Self::open_store(Store::File(file), in_use)
    }

    /// The same for a recording in a namespace of another device.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open_far(far: Box<Far>) -> Result<Self, ReadError> {
        Self::open_store(Store::Far(RefCell::new(far)), false)
    }

    fn open_store(store: Store, in_use: bool) -> Result<Self, ReadError> {
        let chunk = find(&store)?.ok_or(ReadError::NoRecording)?;
        let mut bytes = vec![0; chunk as usize];
        let mut heads = Vec::new();
        for slot in 0.. {
            let page = &mut bytes[..ALIGNMENT as usize];
            let length = store.read_at(page, slot * u64::from(chunk))?;
            if length == 0 {
                break;
            }
            let header = Header::parse(&page[..length], crc32c).ok();
            heads.push(header.filter(|header| header.kind == Kind::Data && header.chunk == chunk));
        }
        // A chunk whose write failed was written again in another slot: only one of both is whole.
        let mut times = HashMap::new();
        let place = |header: &Header| (header.recording, header.stream, header.offset);
        for header in heads.iter().flatten() {
            *times.entry(place(header)).or_insert(0_u32) += 1;
        }
        let mut scan = Scan::new(chunk, crc32c);
        for (slot, head) in (0..).zip(&heads) {
            if let Some(header) = head.filter(|header| times[&place(header)] == 1) {
                scan.on_unchecked(slot, &header);
            } else {
                let length = store.read_at(&mut bytes, slot * u64::from(chunk))?;
                scan.on_slot(slot, &bytes[..length]);
            }
        }
        Ok(Self { store, survey: scan.finish(), digests: Vec::new(), in_use })
    }

    /// Reads the chunk of an entry into the start of `block`, which is as long as a chunk, and
    /// checks it. Its payload begins at [`HEADER_LENGTH`](record::format::HEADER_LENGTH) and is as
    /// long as the entry says. A chunk that is bad is a result, not an error.
    ///
    /// # Errors
    /// When the medium can't be read.
    pub fn chunk(&self, entry: &Entry, block: &mut [u8]) -> io::Result<Result<(), ChunkError>> {
        let length = self.store.read_at(block, entry.slot * u64::from(self.survey.chunk))?;
        Ok(Header::parse_chunk(entry.slot, &block[..length], crc32c).and_then(|(header, _)| {
            let is_same =
                (header.stream, header.offset, header.length) == (entry.stream, entry.offset, entry.length);
            if is_same { Ok(()) } else { Err(ChunkError::Field) }
        }))
    }
}
