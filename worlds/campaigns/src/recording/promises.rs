//! The promises of a recorder: which chunks its media have, which of them are durable, and the
//! contents of a ring.

use std::collections::BTreeMap;

use engine::Buffer;
use record::format::{HEADER_LENGTH, Header, Holding, Kind};
use record::{Fault, Input};

use crate::digest::crc32c;

/// A chunk that the medium has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) stream: u32,
    pub(super) offset: u64,
    pub(super) end: u64,
}

/// A write that is under way.
#[derive(Debug)]
enum Write {
    Data(u64, Taken),
    /// The contents of a ring, with its sequence number.
    Holding(u64),
    Other,
}

/// How much is promised.
#[derive(Clone, Debug, Default)]
struct State {
    /// Chunks by the byte of the medium at which they begin.
    chunks: BTreeMap<u64, Taken>,
    /// Bytes of all chunks that there ever were.
    bytes: u64,
    /// Sequence number of the newest chunk with the contents of a ring.
    holding: Option<u64>,
}

/// The promises of a recorder.
#[derive(Debug, Default)]
pub(super) struct Promises {
    under_way: BTreeMap<u64, Write>,
    /// The state after the writes that ended well.
    taken: State,
    /// The state that the sync under way makes durable.
    syncing: State,
    /// The state that survives a power cut.
    kept: State,
    /// The ring's accounts of its contents, by sequence number; none older than the durable one.
    said: BTreeMap<u64, Holding>,
}

impl Promises {
    /// A write begins. Returns the chunk of the medium that it overwrites.
    pub(super) fn on_write(&mut self, name: u64, offset: u64, data: &Buffer) -> Option<Taken> {
        // An overwritten chunk is promised no more.
        let before = self.taken.chunks.remove(&offset);
        self.syncing.chunks.remove(&offset);
        self.kept.chunks.remove(&offset);
        let write = match Header::parse(data, crc32c) {
            Ok(header) if header.kind == Kind::Data => {
                let (stream, offset_in, end) = (header.stream, header.offset, header.end());
                Write::Data(offset, Taken { stream, offset: offset_in, end })
            }
            Ok(header) if header.kind == Kind::Holding => {
                let payload = &data[HEADER_LENGTH..][..header.length as usize];
                self.said.insert(header.sequence, Holding::parse(payload).expect("it was just written"));
                Write::Holding(header.sequence)
            }
            _ => Write::Other,
        };
        self.under_way.insert(name, write);
        before
    }

    /// A sync begins.
    pub(super) fn on_sync(&mut self) {
        self.syncing = self.taken.clone();
    }

    /// A call has ended.
    pub(super) fn on_ended(&mut self, input: Input) {
        match input {
            Input::Written { name, result } => match self.under_way.remove(&name) {
                Some(Write::Data(offset, taken)) if result.is_ok() => {
                    self.taken.chunks.insert(offset, taken);
                    self.taken.bytes += taken.end - taken.offset;
                }
                Some(Write::Holding(sequence)) if result.is_ok() => self.taken.holding = Some(sequence),
                _ => {}
            },
            Input::Digested { .. } => {}
            Input::Synced(Ok(())) => {
                self.kept.chunks.append(&mut self.syncing.chunks);
                (self.kept.bytes, self.kept.holding) = (self.syncing.bytes, self.syncing.holding);
                if let Some(durable) = self.kept.holding {
                    self.said = self.said.split_off(&durable);
                }
            }
            Input::Synced(Err(Fault::Full | Fault::Failed)) => {
                // All data that were not durable may be gone.
                self.syncing = State::default();
                self.taken = self.kept.clone();
            }
        }
    }

    /// Bytes that survive a power cut, or did until a ring overwrote them.
    pub(super) fn durable_bytes(&self, is_ring: bool) -> u64 {
        let now = self.kept.chunks.values().map(|taken| taken.end - taken.offset).sum();
        if is_ring { self.kept.bytes } else { now }
    }

    /// Chunks that are there after a power cut, where the recorder's own account of a ring is
    /// `holding`. A chunk that is only pinned is there if every account that the medium may have
    /// says so.
    pub(super) fn kept(&self, holding: &Holding) -> Vec<Taken> {
        let is_pinned = |said: &Holding, taken: &Taken| {
            let known = Holding { floors: holding.floors.clone(), pins: said.pins.clone() };
            known.holds(taken.stream, taken.offset, taken.end)
        };
        let is_kept = |taken: &&Taken| {
            taken.offset >= holding.floor(taken.stream)
                || self.kept.holding.is_some()
                    && is_pinned(holding, taken)
                    && self.said.values().all(|said| is_pinned(said, taken))
        };
        self.kept.chunks.values().filter(is_kept).copied().collect()
    }
}
