//! The knowledge of verified loads about their writes.

/// Most chunks that a verified load may cover: each has a 4-byte note of its last write.
pub(super) const CHUNKS_MAX: u64 = 1 << 28;

/// The known content of a part of a namespace. Jobs that cover the same part with chunks of the
/// same length share a book.
#[derive(Debug)]
pub(crate) struct Book {
    /// Where the part begins, and the length of a chunk, in bytes.
    base: u64,
    chunk: u64,
    /// Generation of the last write to each chunk; 0 for none.
    notes: Vec<u32>,
    /// Whether each chunk has a command under way. Reads count too: two reads of a chunk might hide
    /// a write.
    busy: Vec<bool>,
    generation: u32,
    pub(super) seed: u64,
}

impl Book {
    /// A book of `chunks` chunks.
    pub(super) fn new(base: u64, chunk: u64, chunks: u64, seed: u64) -> Self {
        let chunks = index(chunks);
        Self { base, chunk, notes: vec![0; chunks], busy: vec![false; chunks], generation: 0, seed }
    }

    /// Whether this is the book of `chunks` chunks with the length `chunk` from `base` on.
    pub(super) fn covers(&self, base: u64, chunk: u64, chunks: u64) -> bool {
        (self.base, self.chunk, self.chunks()) == (base, chunk, chunks)
    }

    pub(super) fn chunks(&self) -> u64 {
        self.notes.len() as u64
    }

    /// The chunk that begins at `offset` of the namespace.
    pub(super) fn chunk_at(&self, offset: u64) -> u64 {
        (offset - self.base) / self.chunk
    }

    /// Where a chunk is, in bytes, and its length.
    pub(super) fn place(&self, chunk: u64) -> (u64, u64) {
        (self.base + chunk * self.chunk, self.chunk)
    }

    pub(super) fn is_busy(&self, chunk: u64) -> bool {
        self.busy.get(index(chunk)).copied().unwrap_or(false)
    }

    pub(super) fn set_busy(&mut self, chunk: u64, is_busy: bool) {
        if let Some(busy) = self.busy.get_mut(index(chunk)) {
            *busy = is_busy;
        }
    }

    /// The generation of the next write.
    pub(super) const fn next_generation(&mut self) -> u32 {
        // A note of 0 means that the run has not written the chunk.
        self.generation = match self.generation.wrapping_add(1) {
            0 => 1,
            next => next,
        };
        self.generation
    }

    /// The generation of the last write to a chunk; none for an unknown chunk.
    pub(super) fn note(&self, chunk: u64) -> Option<u32> {
        self.notes.get(index(chunk)).copied().filter(|generation| *generation != 0)
    }

    pub(super) fn set_note(&mut self, chunk: u64, generation: u32) {
        if let Some(note) = self.notes.get_mut(index(chunk)) {
            *note = generation;
        }
    }

    /// Forgets the content of `length` bytes from `offset` on.
    pub(super) fn forget(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).saturating_sub(self.base).div_ceil(self.chunk);
        let start = offset.saturating_sub(self.base) / self.chunk;
        let (start, end) = (index(start.min(self.chunks())), index(end.min(self.chunks())));
        self.notes[start..end.max(start)].fill(0);
    }

    /// The first chunk from `chunk` on of which something is known.
    pub(super) fn next_known(&self, chunk: u64) -> Option<u64> {
        let rest = self.notes.get(index(chunk)..)?;
        rest.iter().position(|note| *note != 0).map(|at| chunk + at as u64)
    }
}

fn index(chunk: u64) -> usize {
    usize::try_from(chunk).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_knows_what_was_written_and_forgets() {
        let mut book = Book::new(8192, 4096, 8, 1);
        let generation = book.next_generation();
        for chunk in 0..8 {
            book.set_note(chunk, generation);
        }
        assert_eq!((book.chunk_at(12_288), book.place(1)), (1, (12_288, 4096)));
        book.forget(0, 8193);
        assert_eq!((book.note(0), book.note(1), book.next_known(0)), (None, Some(1), Some(1)));
        book.forget(12_288, 8192);
        assert_eq!((book.note(2), book.next_known(0)), (None, Some(3)));
        book.forget(0, u64::MAX);
        assert_eq!(book.next_known(0), None);
        book.set_busy(3, true);
        assert!(book.is_busy(3) && !book.is_busy(4) && !book.is_busy(100));
    }
}
