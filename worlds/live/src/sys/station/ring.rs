//! Frames that the kernel puts into memory of this process (packet(7), `TPACKET_V2`), so that a
//! look at an idle interface is no system call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::ProtFlags;

use super::TAG;
use crate::sys::option::set_option;
use crate::sys::pages::Pages;

/// Bytes of all slots together, which hold one frame each.
const RING_BYTES: usize = 8 << 20;
/// The fewest slots, however long the frames.
const SLOTS_MIN: usize = 64;
/// The shortest block. The kernel takes the ring from its memory in blocks, which hold whole slots.
const BLOCK_MIN: usize = 64 << 10;
/// The room before a frame's bytes in its slot, rounded up: headers, and padding that aligns the
/// bytes.
const BEFORE: usize = 128;

/// A frame in the ring.
pub(super) struct Slot<'a> {
    /// Its bytes from the addresses on, without a tag that the adapter or the kernel took out.
    pub(super) bytes: &'a [u8],
    /// That tag: its EtherType, then priority and the number of the VLAN.
    pub(super) tag: Option<[u16; 2]>,
    /// Whether the frame was longer than its slot.
    pub(super) is_cut: bool,
}

/// The ring of a socket.
#[derive(Debug)]
pub(super) struct Ring {
    pages: Pages,
    slot_bytes: usize,
    slots: usize,
    /// The slot that is filled next.
    next: usize,
}

impl Ring {
    /// Has the kernel put the frames of `socket` into a ring: frames of `longest` bytes are whole.
    ///
    /// # Errors
    /// When the kernel has not enough memory.
    pub(super) fn of(socket: &OwnedFd, longest: usize) -> io::Result<Self> {
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        let slot_bytes = (longest + BEFORE).next_power_of_two();
        let slots = (RING_BYTES / slot_bytes).max(SLOTS_MIN);
        let block = slot_bytes.max(BLOCK_MIN);
        let [size, blocks, frame, frames] = [block, slots * slot_bytes / block, slot_bytes, slots]
            .map(|count| libc::c_uint::try_from(count).unwrap_or(0));
        let request = libc::tpacket_req {
            tp_block_size: size,
            tp_block_nr: blocks,
            tp_frame_size: frame,
            tp_frame_nr: frames,
        };
        let length = libc::socklen_t::try_from(size_of_val(&request)).unwrap_or(0);
        // SAFETY: the option's value is the request that outlives the call.
        let result = unsafe {
            let (level, option) = (libc::SOL_PACKET, libc::PACKET_RX_RING);
            libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const request).cast(), length)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let pages = Pages::of_file(socket, 0, slots * slot_bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { pages, slot_bytes, slots, next: 0 })
    }

    /// Hands the next frame to `each`, if there is one, and returns the result of `each`. The
    /// frame's slot is free again then.
    pub(super) fn take<R>(&mut self, each: impl FnOnce(Slot<'_>) -> R) -> Option<R> {
        let base = self.next * self.slot_bytes;
        let header = self.pages.place(base, size_of::<libc::tpacket2_hdr>())?;
        let at = std::mem::offset_of!(libc::tpacket2_hdr, tp_status);
        // SAFETY: the word is in a header that is mapped as long as `self`, and aligned because
        // slots are. The kernel accesses it as a word, too.
        let status = unsafe { AtomicU32::from_ptr(header.add(at).as_ptr().cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the header is mapped, and the kernel has handed it over. Any bytes are valid.
        let header = unsafe { header.cast::<libc::tpacket2_hdr>().read() };
        let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let is_inside = start + length <= self.slot_bytes;
        let place = self.pages.place(base + start, length).filter(|_| is_inside);
        let bytes = match place {
            // SAFETY: the place is in a slot that the kernel has handed over. The kernel does not
            // write there until the slot's status is changed, below, when no code has the bytes.
            Some(place) => unsafe { std::slice::from_raw_parts(place.as_ptr(), length) },
            // The kernel broke its word.
            None => &[],
        };
        let is_tagged = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let has_type = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let kind = if has_type { header.tp_vlan_tpid } else { TAG };
        let tag = is_tagged.then_some([kind, header.tp_vlan_tci]);
        let result = each(Slot { bytes, tag, is_cut: header.tp_len > header.tp_snaplen });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        Some(result)
    }
}
