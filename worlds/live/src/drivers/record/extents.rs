//! Where a medium has data: a file may be much longer than the bytes ever written to it.

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The slots of a medium that may have something, in order. Slots that lie in a hole of a file are
/// left out.
pub(super) struct Slots<'a> {
    /// A file; `None` for a medium that does not report where it has data.
    file: Option<BorrowedFd<'a>>,
    /// The length of a slot in bytes.
    chunk: u64,
    next: u64,
    /// No slot before this one lies in a hole.
    known: u64,
    end: u64,
}

impl<'a> Slots<'a> {
    /// The slots before the number `end`, with `chunk` bytes each.
    pub(super) const fn new(file: Option<BorrowedFd<'a>>, chunk: u32, end: u64) -> Self {
        Self { file, chunk: chunk as u64, next: 0, known: 0, end }
    }

    /// Finds the next slot with data, and how far the data behind it reach. A file system that
    /// does not know is one without holes.
    fn look(&mut self, file: BorrowedFd<'_>) {
        let from = self.next.saturating_mul(self.chunk);
        match seek(file, SeekFrom::Data(from)) {
            Ok(data) => {
                self.next = self.next.max(data / self.chunk);
                let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(u64::MAX);
                self.known = hole.div_ceil(self.chunk).max(self.next + 1);
            }
            Err(Errno::NXIO) => self.next = self.end,
            Err(_) => self.file = None,
        }
    }
}

impl Iterator for Slots<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if let Some(file) = self.file.filter(|_| self.next >= self.known && self.next < self.end) {
            self.look(file);
        }
        let slot = self.next;
        (slot < self.end).then(|| {
            self.next += 1;
            slot
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const CHUNK: u32 = 64 << 10;

    #[test]
    fn holes_are_left_out_however_long_they_are() {
        let file = tempfile::tempfile().unwrap();
        let end = (1_u64 << 42) / u64::from(CHUNK);
        file.set_len(1 << 42).unwrap();
        let written = [0, 1, 7, 1_000, end - 1];
        for slot in written {
            file.write_all_at(&[1; 10], slot * u64::from(CHUNK)).unwrap();
        }
        let slots: Vec<_> = Slots::new(Some(file.as_fd()), CHUNK, end).collect();
        assert!(written.iter().all(|slot| slots.contains(slot)), "{slots:?}");
        assert!(slots.len() < 100 && slots.is_sorted_by(|one, next| one < next), "{slots:?}");
        assert_eq!(Slots::new(Some(file.as_fd()), CHUNK, 7).max(), Some(1), "none behind the end");
    }

    #[test]
    fn a_medium_without_a_map_has_all_slots() {
        assert!(Slots::new(None, CHUNK, 5).eq(0..5));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Slots::new(Some(file.as_fd()), CHUNK, 9).next(), None, "an empty file");
    }
}
