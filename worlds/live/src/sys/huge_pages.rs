//! A heap on huge pages, for blocks that the kernel and devices transfer.

use rustix::mm::{Advice, madvise};

/// Prepares the heap of this process for `blocks` blocks of `length` bytes each. They come to lie
/// on huge pages where the kernel has them. The heap keeps their memory once they are freed, and
/// uses none before. Threads that are running already have heaps of their own, unless [`one_heap`]
/// was called before they were started.
///
/// A transfer past the page cache pins the pages of its block: 32 for 128 KiB, or one that is huge.
/// Pinning is a fifth of a recorder's processor time.
///
/// Where the C library or the kernel cannot do it, blocks lie on ordinary pages.
pub fn prepare(blocks: usize, length: usize) {
    let bytes = blocks.saturating_mul(length.saturating_add(SLACK));
    let Some(mut room) = one_heap().then(|| reserve(bytes)).flatten() else { return };
    let before = room.as_ptr().align_offset(PAGE);
    let Some(length) = bytes.checked_sub(before) else { return };
    // SAFETY: `before` and the `length` bytes behind it lie within the memory that `room` reserves.
    // The advice changes the kind of their pages, and not their contents.
    let advised = unsafe { madvise(room.as_mut_ptr().add(before).cast(), length, Advice::LinuxHugepage) };
    // Without the advice, the pages are ordinary ones.
    let _ = advised;
    // The blocks to come are cut from the memory given back here.
}

/// The overhead of a block: alignment, and the allocator's own.
const SLACK: usize = 8192;
const PAGE: usize = 4096;

fn reserve(bytes: usize) -> Option<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).ok().map(|()| room)
}

/// Lets one heap hold blocks of all lengths, and keep freed ones. It serves this thread and those
/// that are started later. Returns whether the C library can do that.
#[cfg(target_env = "gnu")]
pub fn one_heap() -> bool {
    let options = [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_MAX, 0), (libc::M_TRIM_THRESHOLD, -1)];
    // SAFETY: mallopt may be called at any time, and its changes concern later calls.
    options.into_iter().all(|(option, value)| unsafe { libc::mallopt(option, value) } == 1)
}

/// Returns false: this C library has no such choice.
#[cfg(not(target_env = "gnu"))]
pub fn one_heap() -> bool {
    false
}
