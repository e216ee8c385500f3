//! Copies of memory that others write at any time: another process, or a device.
//!
//! To Rust such a write is a race with any ordinary access of ours, and a race has no meaning at
//! all. So whole words are copied as atomics, and everything else by an instruction of the
//! processor that the compiler knows nothing about.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a word.
const WORD: usize = 8;
/// Up to this many bytes, a copy word by word is the fastest.
const WORDS_MAX: usize = 256;
/// Bytes of a cache line.
const LINE: usize = 64;
/// From this many bytes on, [`stream`] passes the caches.
const STREAM_MIN: usize = 512;

fn is_in_words(place: NonNull<u8>, length: usize) -> bool {
    length <= WORDS_MAX && length.is_multiple_of(WORD) && place.addr().get().is_multiple_of(WORD)
}

/// Copies the bytes at `place` into `bytes`. A polling reader sees all of an aligned word or none
/// of it, up to 256 bytes of whole words. A word is read before the words in front of it: a last
/// word that marks the others as complete is read before them.
///
/// # Safety
/// `place` must be valid for reads of as many bytes as `bytes` has, in memory that this process
/// reaches only through this module and atomics.
#[inline]
pub(crate) unsafe fn read(place: NonNull<u8>, bytes: &mut [u8]) {
    // The bytes were written before the signal to read them.
    fence(Ordering::Acquire);
    if is_in_words(place, bytes.len()) {
        for (index, word) in bytes.as_chunks_mut::<WORD>().0.iter_mut().enumerate().rev() {
            // SAFETY: the word lies within the bytes that the caller vouches for, and is aligned.
            let place = unsafe { AtomicU64::from_ptr(place.as_ptr().add(index * WORD).cast()) };
            *word = place.load(Ordering::Acquire).to_ne_bytes();
        }
        return;
    }
    // SAFETY: the caller vouches for `place`; `bytes` is memory of ours, which it can't overlap.
    unsafe { copy(place.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
}

/// Copies `bytes` to `place`, after everything that was written before. A polling reader sees all
/// of an aligned word or none of it, up to 256 bytes of whole words.
///
/// # Safety
/// `place` must be valid for writes of as many bytes as `bytes` has, in memory that this process
/// reaches only through this module and atomics.
#[inline]
pub(crate) unsafe fn write(bytes: &[u8], place: NonNull<u8>) {
    fence(Ordering::Release);
    if is_in_words(place, bytes.len()) {
        for (index, word) in bytes.as_chunks::<WORD>().0.iter().enumerate() {
            // SAFETY: the word lies within the bytes that the caller vouches for, and is aligned.
            let place = unsafe { AtomicU64::from_ptr(place.as_ptr().add(index * WORD).cast()) };
            place.store(u64::from_ne_bytes(*word), Ordering::Release);
        }
        return;
    }
    // SAFETY: the caller vouches for `place`; `bytes` is memory of ours, which it can't overlap.
    unsafe { copy(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
}

/// Copies `bytes` to `place`, past the caches. Other processors then need not give up their copies
/// of each line in turn, which takes longer than the copy. What this processor writes afterwards is
/// seen after `bytes`. Short pieces go through the caches, as by [`write`].
///
/// # Safety
/// As for [`write`].
#[inline]
pub(crate) unsafe fn stream(bytes: &[u8], place: NonNull<u8>) {
    let before = place.align_offset(LINE);
    if cfg!(not(target_arch = "x86_64")) || bytes.len() < STREAM_MIN {
        // SAFETY: the caller vouches for `place`.
        return unsafe { write(bytes, place) };
    }
    let (head, rest) = bytes.split_at(before);
    let (lines, tail) = rest.split_at(rest.len() - rest.len() % LINE);
    // SAFETY: the parts lie one behind another within the bytes that the caller vouches for, and
    // the middle one begins with a line.
    unsafe {
        write(head, place);
        let place = place.add(head.len());
        stream_lines(lines.as_ptr(), place.as_ptr(), lines.len());
        write(tail, place.add(lines.len()));
    }
}

/// Copies `length` bytes, at least one line and in whole lines, to the line at `to`, past the
/// caches. The bytes do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn stream_lines(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the instructions read and write just these bytes; `to` is aligned as they demand.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {length}, 64",
            "jnz 2b",
            // Such stores are in no order with others.
            "sfence",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            length = inout(reg) length => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Copies `length` bytes that do not overlap.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn stream_lines(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller vouches for the bytes.
    unsafe { copy(from, to, length) };
}

/// Copies `length` bytes that do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the instruction reads and writes just these bytes. The direction flag is clear, as
    // the ABI demands. After a page fault the processor goes on where it stopped.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies `length` bytes that do not overlap.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    for index in 0..length {
        // SAFETY: the byte is one of those that the caller vouches for.
        unsafe { to.add(index).write_volatile(from.add(index).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pages::Pages;

    #[test]
    fn bytes_come_back_whatever_their_length_and_place() {
        let pages = Pages::anonymous(0x4000).unwrap();
        for (offset, length) in [
            (0, 0),
            (0, 8),
            (8, 256),
            (8, 264),
            (0, 4096),
            (1, 8),
            (3, 7),
            (4, 12),
            (0x1001, 0x2000),
            (0, 512),
            (63, 513),
            (1, 511),
        ] {
            let place = pages.place(offset, length).unwrap();
            let bytes: Vec<u8> = (1..=251).cycle().take(length).collect();
            let mut back = vec![0; length];
            // SAFETY: the place is within pages that only this test uses.
            unsafe {
                write(&bytes, place);
                read(place, &mut back);
            }
            assert_eq!(back, bytes, "{length} bytes at {offset}");
            let bytes: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            // SAFETY: as above.
            unsafe {
                stream(&bytes, place);
                read(place, &mut back);
            }
            assert_eq!(back, bytes, "{length} streamed bytes at {offset}");
        }
    }

    #[test]
    fn a_word_is_never_seen_in_parts() {
        let pages = Pages::anonymous(0x1000).unwrap();
        let place = pages.place(0, 64).unwrap().as_ptr().addr();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(50);
        let at = |address: usize| NonNull::new(pages.base().as_ptr().with_addr(address)).unwrap();
        std::thread::scope(|scope| {
            let base = SendPlace(at(place));
            scope.spawn(move || {
                let base = base;
                for value in (0..=255_u8).cycle() {
                    // SAFETY: the pages outlive the scope, and are reached through this module.
                    unsafe { write(&[value; 64], base.0) };
                    if std::time::Instant::now() > end {
                        return;
                    }
                }
            });
            let mut bytes = [0; 64];
            while std::time::Instant::now() < end {
                // SAFETY: as above.
                unsafe { read(at(place), &mut bytes) };
                for word in bytes.as_chunks::<WORD>().0 {
                    assert!(word.iter().all(|byte| *byte == word[0]), "{word:?}");
                }
            }
        });
    }

    /// A place that another thread may use, too.
    #[derive(Clone, Copy)]
    struct SendPlace(NonNull<u8>);

    // SAFETY: the place is reached through atomics only.
    unsafe impl Send for SendPlace {}
}
