//! Frames of a network interface, by a ring of blocks that the kernel fills and this process
//! empties (packet(7), `TPACKET_V3`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use engine::Nanos;
use rustix::mm::ProtFlags;

use super::datagrams::Stamp;
use super::option::set_option;
use super::pages::Pages;

/// Length of a block in bytes.
const BLOCK: usize = 1 << 20;
/// How many blocks there are.
const BLOCKS: usize = 16;
/// The frame size that the kernel's checks require. Each frame in a block has its own length.
const FRAME: usize = 2048;
/// A block that is not full is handed over after this time, in milliseconds.
pub(crate) const RETIRE_MILLIS: u32 = 10;
/// Where the address stands behind a frame's header.
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

/// A frame, as long as it is in the ring.
pub(crate) struct Frame<'a> {
    /// Its bytes, without a VLAN tag that the adapter took out.
    pub(crate) bytes: &'a [u8],
    /// That tag (IEEE 802.1Q), which belongs behind the first 12 bytes.
    pub(crate) vlan: Option<[u8; 4]>,
    /// Whether the frame was longer.
    pub(crate) is_cut: bool,
    /// Whether this host sent it.
    pub(crate) is_outgoing: bool,
    /// When it came.
    pub(crate) stamp: Stamp,
}

/// The block that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Frames that are left in it.
    left: u32,
    /// The place of the next in the block.
    next: usize,
}

/// A ring of an interface.
pub(crate) struct PacketRing {
    socket: OwnedFd,
    pages: Pages,
    /// The number of the block that is emptied, or is next.
    block: usize,
    open: Option<Open>,
    /// The kind of the interface (`ARPHRD_…`).
    pub(crate) hardware: u16,
    /// The number of the interface.
    index: u32,
    /// The interface has gone down, and no frame has come since.
    is_down: bool,
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PacketRing {
    /// Opens a ring for all frames of an interface.
    ///
    /// # Errors
    /// When there is no such interface, or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        // No frames until it is bound.
        // SAFETY: the call has no pointers.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and no other code has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        let stamps = libc::SOF_TIMESTAMPING_RAW_HARDWARE.cast_signed();
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, stamps)?;
        ask_for_ring(&socket)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let pages = Pages::of_file(&socket, 0, BLOCK * BLOCKS, access)?;
        let hardware = bind(&socket, index)?;
        Ok(Self { socket, pages, block: 0, open: None, hardware, index, is_down: false })
    }

    /// Asks for no more frames that the interface sends. Frames that are in the ring already stay.
    ///
    /// # Errors
    /// When the kernel is older than 4.20.
    pub(crate) fn ignore_outgoing(&self) -> io::Result<()> {
        set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
    }

    /// The next frame, if there is one.
    pub(crate) fn next(&mut self) -> Option<Frame<'_>> {
        if let Some(Open { left: 0, .. }) = self.open {
            self.open = None;
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % BLOCKS;
        }
        if self.open.is_none() {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                // An interface that goes down leaves an error. Until it is read, the socket counts
                // as readable, and a thread that waits for frames would not sleep any more.
                let error = rustix::net::sockopt::socket_error(&self.socket);
                self.is_down |= error == Ok(Err(rustix::io::Errno::NETDOWN));
                return None;
            }
            self.is_down = false;
            let descriptor = self.read::<libc::tpacket_block_desc>(0)?;
            // SAFETY: the union has one member.
            let header = unsafe { descriptor.hdr.bh1 };
            self.open = Some(Open { left: header.num_pkts, next: header.offset_to_first_pkt as usize });
            if header.num_pkts == 0 {
                return self.next();
            }
        }
        let Open { left, next } = self.open?;
        let Some(header) = self.read::<libc::tpacket3_hdr>(next) else {
            // The kernel broke its word: the rest of the block is left.
            self.open = Some(Open { left: 0, next });
            return None;
        };
        self.open = Some(Open { left: left - 1, next: next + header.tp_next_offset as usize });
        let address = self.read::<libc::sockaddr_ll>(next + ADDRESS_AT)?;
        let (start, length) = (next + usize::from(header.tp_mac), header.tp_snaplen as usize);
        let place = self.place(start, length)?;
        // SAFETY: the place is in a block that the kernel has handed over. The kernel does not
        // write there until the block's status is changed, which needs `self` when the frame
        // is gone.
        let bytes = unsafe { std::slice::from_raw_parts(place, length) };
        Some(Frame {
            bytes,
            vlan: vlan(&header),
            is_cut: header.tp_len > header.tp_snaplen,
            is_outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            stamp: stamp(&header),
        })
    }

    /// Whether the interface has gone down, and no frame has come since.
    pub(crate) const fn is_down(&self) -> bool {
        self.is_down
    }

    /// Whether the interface was deleted: no frame will come any more. One that is only down may
    /// come back.
    pub(crate) fn is_gone(&self) -> bool {
        use rustix::io::Errno;
        let name = || rustix::net::netdevice::index_to_name(&self.socket, self.index);
        self.is_down && matches!(name(), Err(Errno::NODEV | Errno::NXIO))
    }

    /// How many frames were dropped since this was asked last, because the ring was full.
    pub(crate) fn dropped(&self) -> u32 {
        let mut statistics = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = socket_length(&statistics);
        // SAFETY: the option's value is at most as long as `statistics`, which outlive the call.
        let result = unsafe {
            let value = (&raw mut statistics).cast();
            let option = libc::PACKET_STATISTICS;
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, option, value, &raw mut length)
        };
        if result == 0 { statistics.tp_drops } else { 0 }
    }

    /// The status of the block, by which it changes hands.
    fn status(&self) -> &AtomicU32 {
        let at = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        let place = self.place(at, size_of::<u32>()).expect("a block is longer than its header");
        // SAFETY: the place is mapped as long as `self`, and aligned because blocks are pages and
        // the offset is a multiple of 4. The kernel accesses it as a word, too.
        unsafe { AtomicU32::from_ptr(place.cast_mut().cast()) }
    }

    /// Reads a header in the block.
    fn read<T>(&self, at: usize) -> Option<T> {
        let place = self.place(at, size_of::<T>())?;
        // SAFETY: the place is mapped and in a block that the kernel has handed over. `T` is one
        // of the kernel's structures of integers, of which any bytes are valid.
        Some(unsafe { place.cast::<T>().read_unaligned() })
    }

    /// The place of `length` bytes in the block, if they are inside it.
    fn place(&self, at: usize, length: usize) -> Option<*const u8> {
        let is_inside = at.checked_add(length).is_some_and(|end| end <= BLOCK);
        let place = self.pages.place(self.block * BLOCK + at, length).filter(|_| is_inside);
        place.map(|place| place.as_ptr().cast_const())
    }
}

fn socket_length<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("a value for the kernel is short")
}

fn ask_for_ring(socket: &OwnedFd) -> io::Result<()> {
    let [block, blocks, frame] = [BLOCK, BLOCKS, FRAME].map(|size| u32::try_from(size).unwrap_or(0));
    let request = libc::tpacket_req3 {
        tp_block_size: block,
        tp_block_nr: blocks,
        tp_frame_size: frame,
        tp_frame_nr: block / frame * blocks,
        tp_retire_blk_tov: RETIRE_MILLIS,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    // SAFETY: the option's value is the request that outlives the call.
    let result = unsafe {
        let (value, length) = ((&raw const request).cast(), socket_length(&request));
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the frames of an interface come. Returns its kind.
fn bind(socket: &OwnedFd, index: u32) -> io::Result<u16> {
    // SAFETY: an address of all zeroes is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET.cast_unsigned().try_into().unwrap_or(0);
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    address.sll_ifindex = index.cast_signed();
    let mut length = socket_length(&address);
    // SAFETY: the address outlives the call, and has the given length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the address outlives the call, and has room for the given length.
    if unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address.sll_hatype)
}

fn stamp(header: &libc::tpacket3_hdr) -> Stamp {
    let time = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
    match header.tp_status & libc::TP_STATUS_TS_RAW_HARDWARE {
        0 => Stamp::Kernel(Nanos::new(time)),
        _ => Stamp::Hardware(Nanos::new(time)),
    }
}

fn vlan(header: &libc::tpacket3_hdr) -> Option<[u8; 4]> {
    let is_there = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    let has_type = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if has_type { header.hv1.tp_vlan_tpid } else { 0x8100 };
    let [a, b] = kind.to_be_bytes();
    let [.., c, d] = header.hv1.tp_vlan_tci.to_be_bytes();
    is_there.then_some([a, b, c, d])
}
