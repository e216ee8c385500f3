//! Opening a recording whose payloads are read once, when they are used.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use record::Scan;
use record::format::{
    ALIGNMENT, CERTIFICATE_SLOT, Certificate, ChunkError, Entry, HEADER_LENGTH, Header, Index, Kind,
    STREAMS_MAX, SUPERBLOCK_SLOT,
};

use super::reading::{ReadError, Recording, Store, find};
use super::reads::{self, Block, Ends, Piece};
use super::striped::Part;
use crate::sys::digest::crc32c;

impl Recording {
    /// Reads a recording's descriptions of its chunks, but no payload of a data chunk, so that a
    /// long recording is there at once: the entries of the index are believed until a chunk is
    /// used, and then checked. Without an index, every header is read. There are no digests.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_parts(vec![Part::open(path, false)?])
    }

    /// The same for a recording that lies on these media.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open_parts(parts: Vec<Part>) -> Result<Self, ReadError> {
        let (store, in_use) = Part::join(parts)?;
        Self::open_store(store, in_use)
    }

    pub(super) fn open_store(store: Store, in_use: bool) -> Result<Self, ReadError> {
        let chunk = find(&store)?.ok_or(ReadError::NoRecording)?;
        let mut scan = Scan::new(chunk, crc32c);
        let slots = store.bytes()?.div_ceil(u64::from(chunk));
        let mut listed = if in_use { None } else { Listed::read(&store, chunk, slots)? };
        if let Some(listed) = &mut listed {
            scan.on_entries(std::mem::take(&mut listed.entries));
        }
        let is_named = |slot: &u64| {
            let word = listed.as_ref().and_then(|listed| listed.slots.get(&(slot / 64)));
            word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
        };
        // A certificate says where the recording ends. A medium may be much longer.
        let end = listed.as_ref().map_or(slots, |listed| listed.end.min(slots));
        read_heads(&store, store.slots(chunk, end).filter(|slot| !is_named(slot)), &mut scan)?;
        // A chunk whose write failed was written again in another slot: only one of both is whole.
        let mut bytes = vec![0; chunk as usize];
        for slot in scan.take_doubled() {
            let length = store.read_slot(&mut bytes, slot * u64::from(chunk))?;
            scan.on_slot(slot, &bytes[..length]);
        }
        Ok(Self { store, survey: scan.finish(), digests: Vec::new(), in_use })
    }

    /// Reads the chunks of `entries`, many at a time, and hands each over in order. `spare` gives
    /// blocks with room for a chunk. A chunk's payload begins at
    /// [`HEADER_LENGTH`](record::format::HEADER_LENGTH) of its block, and is as long as the entry
    /// says. A chunk that is bad is a result, not an error.
    pub fn chunks(
        &self,
        entries: &[Entry],
        spare: &mut dyn FnMut() -> Block,
        take: &mut dyn FnMut(Entry, io::Result<Result<Block, ChunkError>>) -> ControlFlow<()>,
    ) {
        let chunk = u64::from(self.survey.chunk);
        let piece = |entry: &Entry| {
            let length = (HEADER_LENGTH + entry.length as usize).next_multiple_of(ALIGNMENT as usize);
            Piece { offset: entry.slot * chunk, length: length.min(self.survey.chunk as usize) }
        };
        let mut ahead = entries.iter();
        let take = &mut |block: io::Result<Block>| {
            let Some(entry) = ahead.next() else { return ControlFlow::Break(()) };
            take(*entry, block.map(|block| check(entry, &block).map(|()| block)))
        };
        reads::read(&self.store, entries.iter().map(piece), &mut Ends { spare, take });
    }
}

fn check(entry: &Entry, block: &[u8]) -> Result<(), ChunkError> {
    let (header, _) = Header::parse_chunk(entry.slot, block, crc32c)?;
    let is_same = (header.stream, header.offset, header.length) == (entry.stream, entry.offset, entry.length);
    if is_same { Ok(()) } else { Err(ChunkError::Field) }
}

/// Shows `scan` what `slots` have: the headers of data chunks, and all other chunks whole.
fn read_heads(store: &Store, slots: impl Iterator<Item = u64>, scan: &mut Scan) -> io::Result<()> {
    let chunk = scan.chunk();
    let (mut others, mut failed) = (Vec::new(), None);
    let used = RefCell::new(Vec::new());
    let page = |slot: u64| Piece { offset: slot * u64::from(chunk), length: ALIGNMENT as usize };
    // A recorder that writes meanwhile may fill holes: each slot is asked for once.
    let asked = RefCell::new(VecDeque::new());
    let slots = slots.inspect(|slot| asked.borrow_mut().push_back(*slot));
    let take = &mut |block: io::Result<Block>| {
        let slot = asked.borrow_mut().pop_front();
        let (Some(slot), Ok(block)) = (slot, block.map_err(|error| failed = Some(error))) else {
            return ControlFlow::Break(());
        };
        match Header::parse(&block, crc32c) {
            Ok(header) if header.kind == Kind::Data && header.chunk == chunk => {
                scan.on_unchecked(slot, &header);
            }
            // An empty slot has no payload to use.
            Err(ChunkError::Empty) => {}
            _ => others.push(slot),
        }
        used.borrow_mut().push(block);
        ControlFlow::Continue(())
    };
    let spare = &mut || used.borrow_mut().pop().unwrap_or_else(|| Block::of(ALIGNMENT as usize));
    reads::read(store, slots.map(page), &mut Ends { spare, take });
    failed.map_or(Ok(()), Err)?;
    let mut bytes = vec![0; chunk as usize];
    for slot in others {
        let length = store.read_slot(&mut bytes, slot * u64::from(chunk))?;
        scan.on_slot(slot, &bytes[..length]);
    }
    Ok(())
}

/// The entries in the index of an ended recording. The user of an entry checks the chunk.
struct Listed {
    entries: Vec<Entry>,
    /// The bits of 64 slots each, by the number of the first one divided by 64: which of them an
    /// entry names.
    slots: HashMap<u64, u64>,
    /// The slot behind the recording's last, as the certificate says.
    end: u64,
}

impl Listed {
    /// Reads the whole index; `None` if there is none, or if it is damaged. `slots` is the number
    /// of slots of the medium.
    fn read(store: &Store, chunk: u32, slots: u64) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; chunk as usize];
        let mut read = |slot: u64| -> io::Result<Option<(Header, Vec<u8>)>> {
            let length = store.read_slot(&mut bytes, slot * u64::from(chunk))?;
            let parsed = Header::parse_chunk(slot, &bytes[..length], crc32c).ok();
            Ok(parsed.map(|(header, payload)| (header, payload.to_vec())))
        };
        let Some((start, payload)) = read(CERTIFICATE_SLOT)? else { return Ok(None) };
        let first = read(SUPERBLOCK_SLOT)?.filter(|(header, _)| header.recording == start.recording);
        let certificate = Certificate::parse(&payload).filter(|_| start.kind == Kind::Certificate);
        let (Some(_), Some(certificate)) = (first, certificate) else { return Ok(None) };
        let mut listed = Self { entries: Vec::new(), slots: HashMap::new(), end: certificate.slots };
        let mut at = certificate.index;
        while at != 0 {
            if at >= slots {
                return Ok(None);
            }
            let index = read(at)?.filter(|(header, _)| {
                header.kind == Kind::Index && header.recording == start.recording && header.chunk == chunk
            });
            let Some(index) = index.and_then(|(_, payload)| Index::parse(&payload)) else { return Ok(None) };
            if !index.entries.iter().all(|entry| listed.add(entry, slots)) || index.previous >= at {
                return Ok(None);
            }
            at = index.previous;
        }
        Ok(Some(listed))
    }

    /// Takes in an entry. Whether it may be true: its slot is there, and has no other.
    fn add(&mut self, entry: &Entry, slots: u64) -> bool {
        if entry.slot >= slots {
            return false;
        }
        let (word, bit) = (self.slots.entry(entry.slot / 64).or_insert(0), 1 << (entry.slot % 64));
        let is_new = *word & bit == 0 && (entry.stream as usize) < STREAMS_MAX;
        *word |= bit;
        self.entries.push(*entry);
        is_new
    }
}
