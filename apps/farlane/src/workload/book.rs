//! The knowledge of verified loads about their writes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Most chunks that a verified load may cover: each has a 4-byte note of its last write.
pub(super) const CHUNKS_MAX: u64 = 1 << 28;

/// The known content of a part of a namespace. Jobs that cover the same part with chunks of the
/// same length share a book, also jobs on several threads.
///
/// A command has its chunk for itself, from [`Book::claim`] to [`Book::release`]. Only the thread
/// that claimed a chunk touches the chunk's note.
#[derive(Debug)]
pub(crate) struct Book {
    /// Where the part begins, and the length of a chunk, in bytes.
    base: u64,
    chunk: u64,
    /// Generation of the last write to each chunk; 0 for none.
    notes: Vec<AtomicU32>,
    /// Whether each chunk has a command under way. Reads count too: two reads of a chunk might hide
    /// a write.
    busy: Vec<AtomicBool>,
    generation: AtomicU32,
    /// Jobs that have not ended their load.
    loads: AtomicUsize,
    pub(super) seed: u64,
}

impl Book {
    /// A book of `chunks` chunks.
    pub(super) fn new(base: u64, chunk: u64, chunks: u64, seed: u64) -> Self {
        let chunks = index(chunks);
        // Zeroed memory stays untouched until it is used: most of a large book never is.
        let notes = vec![0; chunks].into_iter().map(AtomicU32::new).collect();
        let busy = vec![false; chunks].into_iter().map(AtomicBool::new).collect();
        let (generation, loads) = (AtomicU32::new(0), AtomicUsize::new(0));
        Self { base, chunk, notes, busy, generation, loads, seed }
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

    /// Whether a command has the chunk at this moment.
    pub(super) fn is_busy(&self, chunk: u64) -> bool {
        self.busy.get(index(chunk)).is_some_and(|busy| busy.load(Ordering::Relaxed))
    }

    /// Takes a chunk for a command. Returns whether no other command has the chunk.
    pub(super) fn claim(&self, chunk: u64) -> bool {
        self.busy.get(index(chunk)).is_none_or(|busy| !busy.swap(true, Ordering::Acquire))
    }

    /// Gives a chunk back whose command has ended and whose note is right.
    pub(super) fn release(&self, chunk: u64) {
        if let Some(busy) = self.busy.get(index(chunk)) {
            busy.store(false, Ordering::Release);
        }
    }

    /// The generation of the next write.
    pub(super) fn next_generation(&self) -> u32 {
        // A note of 0 means that the run has not written the chunk.
        loop {
            match self.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
                0 => {}
                next => return next,
            }
        }
    }

    /// The generation of the last write to a chunk; none for an unknown chunk.
    pub(super) fn note(&self, chunk: u64) -> Option<u32> {
        let note = self.notes.get(index(chunk))?.load(Ordering::Relaxed);
        (note != 0).then_some(note)
    }

    pub(super) fn set_note(&self, chunk: u64, generation: u32) {
        if let Some(note) = self.notes.get(index(chunk)) {
            note.store(generation, Ordering::Relaxed);
        }
    }

    /// Forgets the content of `length` bytes from `offset` on.
    pub(super) fn forget(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).saturating_sub(self.base).div_ceil(self.chunk);
        let start = offset.saturating_sub(self.base) / self.chunk;
        let (start, end) = (index(start.min(self.chunks())), index(end.min(self.chunks())));
        self.notes[start..end.max(start)].iter().for_each(|note| note.store(0, Ordering::Relaxed));
    }

    /// The first chunk from `chunk` on of which something is known.
    pub(super) fn next_known(&self, chunk: u64) -> Option<u64> {
        let rest = self.notes.get(index(chunk)..)?;
        rest.iter().position(|note| note.load(Ordering::Relaxed) != 0).map(|at| chunk + at as u64)
    }

    /// Notes that `jobs` jobs are about to write and check with this book.
    pub(super) fn set_loads(&self, jobs: usize) {
        self.loads.store(jobs, Ordering::Release);
    }

    /// Notes that a job begins its load again.
    pub(super) fn begin_load(&self) {
        self.loads.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a job has ended its load. Returns whether no other job has a load left: all
    /// their notes can then be seen.
    pub(super) fn end_load(&self) -> bool {
        self.loads.fetch_sub(1, Ordering::AcqRel) == 1
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
        let book = Book::new(8192, 4096, 8, 1);
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
        assert!(book.claim(3) && !book.claim(3) && book.is_busy(3) && !book.is_busy(4));
        book.release(3);
        assert!(!book.is_busy(3) && book.claim(3) && !book.is_busy(100) && book.claim(100));
    }

    #[test]
    fn the_last_job_of_a_book_is_one() {
        let book = Book::new(0, 4096, 1, 1);
        book.set_loads(2);
        assert!(!book.end_load());
        book.begin_load();
        assert!(!book.end_load() && book.end_load());
    }

    /// What a thread notes of a chunk that it has claimed is what the next thread reads.
    #[test]
    fn threads_have_a_chunk_one_after_the_other() {
        const EACH: u32 = 20_000;
        let book = Book::new(0, 4096, 1, 1);
        let count = || {
            let mut left = EACH;
            while left > 0 {
                if book.claim(0) {
                    book.set_note(0, book.note(0).unwrap_or(0) + 1);
                    book.release(0);
                    left -= 1;
                } else {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
        assert_eq!(book.note(0), Some(4 * EACH));
    }
}
