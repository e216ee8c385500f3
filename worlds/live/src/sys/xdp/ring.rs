//! The rings by which a process and the kernel hand each other places of an AF_XDP socket's memory
//! (`linux/if_xdp.h`). One side produces, the other consumes.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::ProtFlags;

use crate::sys::pages::Pages;

/// A ring of entries of type `T`, which are the kernel's structures of integers.
#[derive(Debug)]
pub(super) struct Ring<T> {
    pages: Pages,
    producer: NonNull<u8>,
    consumer: NonNull<u8>,
    flags: NonNull<u8>,
    entries: NonNull<T>,
    count: u32,
    /// Where this side is.
    own: u32,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `count` entries, a power of two, that `socket` has at `place`.
    ///
    /// # Errors
    /// When the system refuses, or says that the ring's parts are elsewhere than they can be.
    pub(super) fn map(
        socket: &OwnedFd,
        place: u64,
        parts: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Self> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let [producer, consumer, flags, entries] = [parts.producer, parts.consumer, parts.flags, parts.desc]
            .map(|offset| usize::try_from(offset).unwrap_or(usize::MAX));
        let entries_bytes = count as usize * size_of::<T>();
        let length = entries.checked_add(entries_bytes).ok_or_else(wrong)?;
        let pages = Pages::of_file(socket, place, length, ProtFlags::READ | ProtFlags::WRITE)?;
        let word = |offset: usize| {
            pages
                .place(offset, size_of::<u32>())
                .filter(|_| offset.is_multiple_of(size_of::<u32>()))
                .ok_or_else(wrong)
        };
        let (producer, consumer, flags) = (word(producer)?, word(consumer)?, word(flags)?);
        let is_aligned = entries.is_multiple_of(align_of::<T>());
        let entries = pages.place(entries, entries_bytes).filter(|_| is_aligned).ok_or_else(wrong)?;
        let entries = entries.cast();
        Ok(Self { pages, producer, consumer, flags, entries, count, own: 0 })
    }

    fn word(&self, place: NonNull<u8>) -> &AtomicU32 {
        debug_assert!(self.pages.len() > 0);
        // SAFETY: the places were checked to be aligned and in the pages, which are mapped as long
        // as `self`. The kernel accesses them as words, too.
        unsafe { AtomicU32::from_ptr(place.cast().as_ptr()) }
    }

    const fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: the index is below `count`, and `count` entries are mapped.
        unsafe { self.entries.add((number & (self.count - 1)) as usize) }
    }

    /// Whether the kernel sleeps until it is called.
    pub(super) fn wants_call(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// How many entries this side may still produce before the other has consumed more.
    pub(super) fn room(&self) -> u32 {
        self.count - self.unconsumed()
    }

    /// How many of the entries that this side has produced the other has not consumed.
    pub(super) fn unconsumed(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire)).min(self.count)
    }

    /// Produces an entry. [`Ring::publish`] shows it to the other side.
    ///
    /// # Panics
    /// When there is no room.
    pub(super) fn produce(&mut self, entry: T) {
        debug_assert!(self.room() > 0, "the producer has asked for room");
        // SAFETY: the entry is mapped, and the other side does not read it before it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Shows produced entries to the other side.
    pub(super) fn publish(&self) {
        self.word(self.producer).store(self.own, Ordering::Release);
    }

    /// Takes the next entry that the other side has produced.
    pub(super) fn consume(&mut self) -> Option<T> {
        if self.word(self.producer).load(Ordering::Acquire) == self.own {
            return None;
        }
        // SAFETY: the other side has published the entry, and does not write it before it is
        // released. Any bytes are valid.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Gives the room of consumed entries to the other side.
    pub(super) fn release(&self) {
        self.word(self.consumer).store(self.own, Ordering::Release);
    }
}
