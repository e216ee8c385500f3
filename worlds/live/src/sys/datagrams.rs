//! Many datagrams by one system call, each with its sender, its time, and how many the kernel has
//! dropped before it.

use std::io;
use std::os::fd::AsRawFd;

use engine::Nanos;

/// The most datagrams of one call.
pub(crate) const BATCH_MAX: usize = 64;
/// Room for the bytes of a datagram beyond its own place. No datagram is longer.
const REST: usize = 65_536;
/// Words of 8 bytes for an address of IPv4 or IPv6.
const NAME_WORDS: usize = 4;
/// Words of 8 bytes for time stamps and the count of dropped packets.
const CONTROL_WORDS: usize = 16;
/// The option that returns the state of a socket's memory (`asm-generic/socket.h`), and the number
/// of the word with the packets that were dropped (`SK_MEMINFO_DROPS`).
const SO_MEMINFO: libc::c_int = 55;
const MEMORY_WORDS: usize = 9;
const MEMORY_DROPS: usize = 8;

/// A clock's time that came with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// The kernel did not say.
    None,
    /// Real time when the kernel took the datagram.
    Kernel(Nanos),
    /// The network adapter's clock when the datagram arrived.
    Hardware(Nanos),
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Its length in bytes.
    pub(crate) length: usize,
    /// A number that distinguishes senders.
    pub(crate) sender: u64,
    /// When it came.
    pub(crate) stamp: Stamp,
    /// How many packets this socket has dropped up to then, modulo 2^32; `None` if none.
    pub(crate) dropped: Option<u32>,
}

/// Memory for calls that receive many datagrams.
pub(crate) struct Batch {
    names: Vec<[u64; NAME_WORDS]>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    rest: Vec<u8>,
    arrived: Vec<Arrived>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            names: vec![[0; NAME_WORDS]; BATCH_MAX],
            controls: vec![[0; CONTROL_WORDS]; BATCH_MAX],
            rest: vec![0; REST * BATCH_MAX],
            arrived: Vec::with_capacity(BATCH_MAX),
        }
    }

    /// Receives without waiting, one datagram for each place of `slot` bytes in `room`, behind the
    /// first `head` bytes of the place. Returns how many there are; [`Batch::arrived`] has them.
    ///
    /// # Errors
    /// When there is nothing to receive, or the socket fails.
    pub(crate) fn receive(
        &mut self,
        socket: &impl AsRawFd,
        room: &mut [u8],
        head: usize,
        slot: usize,
    ) -> io::Result<usize> {
        self.arrived.clear();
        // SAFETY: a message header of all zeroes is valid and names no buffers.
        let mut headers: [libc::mmsghdr; BATCH_MAX] = unsafe { std::mem::zeroed() };
        let mut slices = [[libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2]; BATCH_MAX];
        let places = room.chunks_exact_mut(slot).map(|place| &mut place[head..]);
        let places = places.zip(self.rest.chunks_exact_mut(REST));
        let named = self.names.iter_mut().zip(&mut self.controls);
        let mut count = 0;
        for (((place, rest), (name, control)), (slices, header)) in
            places.zip(named).zip(slices.iter_mut().zip(&mut headers))
        {
            *slices = [slice(place), slice(rest)];
            header.msg_hdr.msg_iov = slices.as_mut_ptr();
            header.msg_hdr.msg_iovlen = slices.len();
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = socket_length::<[u64; NAME_WORDS]>();
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of_val(control);
            count += 1;
        }
        // SAFETY: each header names its own parts of `room`, `rest`, `names` and `controls`, which
        // are borrowed for the call, with their lengths.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (header, name) in headers[..count].iter().zip(&self.names) {
            let (stamp, dropped) = control_of(&header.msg_hdr);
            let words = (header.msg_hdr.msg_namelen as usize).div_ceil(8).min(NAME_WORDS);
            let (length, sender) =
                (header.msg_len as usize, fold(&name[..words], header.msg_hdr.msg_namelen));
            self.arrived.push(Arrived { length, sender, stamp, dropped });
        }
        Ok(count)
    }

    /// The datagrams of the last call, each with its bytes beyond its place of `inside` bytes.
    pub(crate) fn arrived(&self, inside: usize) -> impl Iterator<Item = (&Arrived, &[u8])> {
        let rests = self.rest.chunks_exact(REST);
        self.arrived
            .iter()
            .zip(rests)
            .map(move |(one, rest)| (one, &rest[..one.length.saturating_sub(inside)]))
    }
}

fn socket_length<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a value for the kernel is short")
}

fn slice(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// One number for an address: words of an address of IPv4 have no meaning behind its 16 bytes, of
/// which the last 8 are zero.
fn fold(name: &[u64], length: libc::socklen_t) -> u64 {
    let words = if length == 16 { &name[..1] } else { name };
    // A multiplicative hash by the golden ratio; it need not resist attackers.
    words.iter().fold(0, |sum: u64, word| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The kernel's data with a message: its time, and the count of dropped packets.
fn control_of(message: &libc::msghdr) -> (Stamp, Option<u32>) {
    let (mut stamp, mut dropped) = (Stamp::None, None);
    // SAFETY: the kernel has filled the control buffer that `message` names, and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the pointer is null, or points to a header within the control buffer, which
    // is aligned.
    while let Some(found) = unsafe { header.as_ref() } {
        // SAFETY: `header` is within the message's control buffer.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (found.cmsg_level, found.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                // SAFETY: a message of this type has three `timespec`: software's, an old one,
                // and hardware's.
                let times = unsafe { data.cast::<[libc::timespec; 3]>().read_unaligned() };
                let [software, hardware] = [times[0], times[2]].map(nanoseconds);
                stamp = match (software, hardware) {
                    (_, Some(time)) => Stamp::Hardware(time),
                    (Some(time), None) => Stamp::Kernel(time),
                    (None, None) => stamp,
                };
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: a message of this type has an integer of 32 bits.
                dropped = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            _ => {}
        }
        // SAFETY: `header` is within the message's control buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    (stamp, dropped)
}

/// Time since 1970, unless it is zero.
fn nanoseconds(time: libc::timespec) -> Option<Nanos> {
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    let time = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    (time > 0).then(|| Nanos::new(time))
}

/// Has the kernel pass the data that [`Batch::receive`] reports: stamps (the adapter's, where these
/// are switched on), and the number of dropped packets.
///
/// # Errors
/// When the system has no such options.
pub(crate) fn enable(socket: &impl AsRawFd) -> io::Result<()> {
    let stamps = libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_RX_HARDWARE
        | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    super::option::set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps.cast_signed())?;
    super::option::set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// How many packets a socket has dropped, modulo 2^32.
///
/// # Errors
/// When the system does not say.
pub(crate) fn dropped(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut words = [0_u32; MEMORY_WORDS];
    let mut length = socket_length::<[u32; MEMORY_WORDS]>();
    // SAFETY: the option's value is at most as long as `words`, which outlive the call.
    let result = unsafe {
        let value = (&raw mut words).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, value, &raw mut length)
    };
    if result == 0 { Ok(words[MEMORY_DROPS]) } else { Err(io::Error::last_os_error()) }
}

/// Joins a group for the datagrams of one source, at the interface with number `index`; 0 lets the
/// system choose.
///
/// # Errors
/// When the system refuses.
pub(crate) fn join_source(
    socket: &impl AsRawFd,
    index: u32,
    group: std::net::IpAddr,
    source: std::net::IpAddr,
) -> io::Result<()> {
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let address = |ip| {
        let address = socket2::SockAddr::from(std::net::SocketAddr::new(ip, 0));
        // SAFETY: the storage of a socket address has the layout of `sockaddr_storage`.
        unsafe { address.as_ptr().cast::<libc::sockaddr_storage>().read_unaligned() }
    };
    let request = libc::group_source_req {
        gsr_interface: index,
        gsr_group: address(group),
        gsr_source: address(source),
    };
    let length = socket_length::<libc::group_source_req>();
    // SAFETY: the option's value is the request that outlives the call.
    let result = unsafe {
        let value = (&raw const request).cast();
        libc::setsockopt(socket.as_raw_fd(), level, libc::MCAST_JOIN_SOURCE_GROUP, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
