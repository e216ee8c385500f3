//! A lane beside the kernel's network stack for frames of one kind: an AF_XDP socket at queue 0 of
//! an interface.
//!
//! A short program at the interface picks the frames. They go into memory of this process without a
//! call, straight from the adapter where its driver can do that. All else takes its usual way, and
//! so do frames of ours that come by another queue. Sent frames go around the queueing disciplines,
//! so a lane does not suit frames that have a priority or a time of launch.

mod program;
mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use program::Program;
use ring::Ring;
use rustix::net::sockopt;

use super::pages::Pages;
use super::station::{Head, Mac};

/// Bytes of a chunk, which holds one frame. The kernel takes pages at most.
const CHUNK: usize = 4096;
/// The bytes that the kernel keeps free before a frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// The longest frame that goes over a lane, in bytes from its addresses on.
const FRAME_MAX: usize = CHUNK - HEADROOM;
/// Bytes of a frame's addresses and EtherType.
const HEAD: usize = 14;
/// The most bytes behind the EtherType of a frame that goes over a lane.
pub(crate) const PAYLOAD_MAX: usize = FRAME_MAX - HEAD;
/// Chunks for frames that come, and as many for frames that leave: entries of each ring.
const ENTRIES: u32 = 1024;
/// The most frames received in one look.
const FRAMES_MAX: usize = 64;
/// The most calls for one batch: the kernel sends a limited number of frames in each
/// (`TX_BATCH_SIZE`).
const CALLS_MAX: usize = 8;
/// Bytes of frames that may be on their way through the kernel.
const KERNEL_BYTES: usize = 8 << 20;

/// The frames that a lane is for. Others are left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The station.
    pub(crate) mac: Mac,
    /// Their EtherType.
    pub(crate) ether_type: u16,
    /// Kinds of datagrams in them.
    pub(crate) kinds: RangeInclusive<u8>,
    /// The names by which a datagram calls its receiver.
    pub(crate) receiver: Receiver,
}

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The receiver of this name.
    Named([u8; 8]),
    /// All receivers whose names begin so.
    Begins([u8; 2]),
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(crate) struct Lane {
    // Dropped first, so that frames take their usual way again before their socket goes.
    _program: Program,
    socket: OwnedFd,
    memory: Pages,
    received: Ring<libc::xdp_desc>,
    /// Chunks for received frames.
    empty: Ring<u64>,
    /// Chunks that go back to that ring once it has room: the kernel shows a received frame before
    /// it gives up the place of its chunk.
    emptied: Vec<u64>,
    sending: Ring<libc::xdp_desc>,
    /// Chunks of sent frames.
    sent: Ring<u64>,
    /// Chunks that nothing is in.
    free: Vec<u64>,
    is_copied: bool,
}

impl Lane {
    /// Opens a lane at the interface with number `index`.
    ///
    /// # Errors
    /// When another process has the queue or a program at the interface (`EBUSY`), this process has
    /// not the rights, or kernel or driver have no AF_XDP.
    pub(crate) fn open(index: u32, wanted: &Wanted) -> io::Result<Self> {
        // SAFETY: the call has no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and no other code has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        if sockopt::set_socket_send_buffer_size_force(&socket, KERNEL_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(&socket, KERNEL_BYTES)?;
        }
        let memory = Pages::anonymous(CHUNK * 2 * ENTRIES as usize)?;
        register(&socket, &memory)?;
        for ring in
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
        {
            set(&socket, ring, &ENTRIES)?;
        }
        let parts: libc::xdp_mmap_offsets = get(&socket, libc::XDP_MMAP_OFFSETS)?;
        let place = |offset: libc::off_t| offset.cast_unsigned();
        let received = Ring::map(&socket, place(libc::XDP_PGOFF_RX_RING), &parts.rx, ENTRIES)?;
        let sending = Ring::map(&socket, place(libc::XDP_PGOFF_TX_RING), &parts.tx, ENTRIES)?;
        let mut empty = Ring::map(&socket, libc::XDP_UMEM_PGOFF_FILL_RING, &parts.fr, ENTRIES)?;
        let sent = Ring::map(&socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &parts.cr, ENTRIES)?;
        let chunks = |range: std::ops::Range<u32>| range.map(|index| u64::from(index) * CHUNK as u64);
        chunks(0..ENTRIES).for_each(|chunk| empty.produce(chunk));
        empty.publish();
        bind(&socket, index)?;
        let options: libc::xdp_options = get(&socket, libc::XDP_OPTIONS)?;
        let is_copied = options.flags & libc::XDP_OPTIONS_ZEROCOPY == 0;
        let program = Program::attach(index, wanted, &socket)?;
        let free = chunks(ENTRIES..2 * ENTRIES).collect();
        let emptied = Vec::new();
        Ok(Self {
            _program: program,
            socket,
            memory,
            received,
            empty,
            emptied,
            sending,
            sent,
            free,
            is_copied,
        })
    }

    /// Hands the sender of a frame, and the bytes behind its EtherType, to `each`, for frames that
    /// have come, or some of them; returns whether there were any.
    pub(crate) fn look(&mut self, mut each: impl FnMut(Mac, &[u8])) -> bool {
        let mut seen = 0;
        while seen < FRAMES_MAX
            && let Some(came) = self.received.consume()
        {
            seen += 1;
            let at = usize::try_from(came.addr).unwrap_or(usize::MAX);
            // A place that the kernel has broken its word for is given back all the same.
            if let Some(place) = self.memory.place(at, came.len as usize) {
                // SAFETY: the place is mapped, and the kernel has handed it over. It does not write
                // there until the chunk is in the ring of empty ones, which is below.
                let frame = unsafe { std::slice::from_raw_parts(place.as_ptr(), came.len as usize) };
                if let Some((head, bytes)) = frame.split_first_chunk::<HEAD>() {
                    let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *head;
                    each([a, b, c, d, e, f], bytes);
                }
            }
            self.emptied.push(came.addr - came.addr % CHUNK as u64);
        }
        if seen > 0 {
            self.received.release();
        }
        if !self.emptied.is_empty() {
            let room = usize::try_from(self.empty.room()).unwrap_or(0).min(self.emptied.len());
            self.emptied.drain(..room).for_each(|chunk| self.empty.produce(chunk));
            self.empty.publish();
        }
        if self.empty.wants_call() {
            let _ = self.call(false);
        }
        // Frames that an earlier call has left.
        if self.sending.unconsumed() > 0 {
            let _ = self.call(true);
        }
        seen > 0
    }

    /// Sends each piece behind its head. Returns how many pieces there was room for; pieces that
    /// the network loses count as sent.
    pub(crate) fn send_all<'a>(&mut self, pieces: impl Iterator<Item = (&'a Head, &'a [u8])>) -> usize {
        self.free.extend(std::iter::from_fn(|| self.sent.consume()));
        self.sent.release();
        let mut taken = 0;
        for (head, piece) in pieces {
            let head = head.bytes();
            let length = head.len() + piece.len();
            // No frame is longer than the interface's, which was compared when the lane was opened.
            if length <= FRAME_MAX {
                if self.sending.room() == 0 {
                    break;
                }
                let Some(chunk) = self.free.pop() else { break };
                let at = usize::try_from(chunk).unwrap_or(usize::MAX);
                let Some(place) = self.memory.place(at, CHUNK) else { break };
                // SAFETY: the chunk is mapped and has room for both parts, and no other code uses
                // it: it is in neither of the rings.
                unsafe {
                    place.as_ptr().copy_from_nonoverlapping(head.as_ptr(), head.len());
                    let behind = place.as_ptr().add(head.len());
                    behind.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                }
                let len = u32::try_from(length).expect("a frame is shorter than a page");
                self.sending.produce(libc::xdp_desc { addr: chunk, len, options: 0 });
            }
            taken += 1;
        }
        self.sending.publish();
        for _ in 0..CALLS_MAX {
            let is_done = self.sending.unconsumed() == 0 || !self.sending.wants_call();
            if is_done || self.call(true).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
                break;
            }
        }
        taken
    }

    /// Calls the kernel to send, or to receive.
    fn call(&self, sends: bool) -> io::Result<()> {
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: both calls have no bytes.
        let result = unsafe {
            match sends {
                true => libc::sendto(socket, std::ptr::null(), 0, flags, std::ptr::null(), 0),
                false => {
                    let nothing = std::ptr::null_mut();
                    libc::recvfrom(socket, nothing, 0, flags, nothing.cast(), nothing.cast())
                }
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_copied { "AF_XDP, frames are copied" } else { "AF_XDP, zero-copy" })
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Gives the kernel the memory in which frames are.
fn register(socket: &OwnedFd, memory: &Pages) -> io::Result<()> {
    let request = libc::xdp_umem_reg {
        addr: memory.base().as_ptr().addr() as u64,
        len: memory.len() as u64,
        chunk_size: u32::try_from(CHUNK).unwrap_or(0),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(socket, libc::XDP_UMEM_REG, &request)
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP.cast_unsigned().try_into().unwrap_or(0),
        // The kernel copies where the driver can't do without.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the address outlives the call, and has the given length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the option's value outlives the call, and has the given length. Memory that it names
    // stays mapped as long as the lane.
    let result = unsafe {
        let value = (&raw const *value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get<T>(socket: &OwnedFd, option: libc::c_int) -> io::Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value is one of the kernel's structures of integers, for which zeroes are valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `length` bytes to the value, which outlives the call.
    let result = unsafe {
        let place = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, place, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Linux before 5.4 returns less, and can do less.
    let is_whole = usize::try_from(length).is_ok_and(|length| length == size_of::<T>());
    if is_whole { Ok(value) } else { Err(io::ErrorKind::Unsupported.into()) }
}
