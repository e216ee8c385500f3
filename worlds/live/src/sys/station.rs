//! Frames of one EtherType, sent and received at an interface (packet(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use engine::Nanos;
use rustix::net::sockopt;

use super::option::set_option;
use super::outgoing::{self, About};

/// How many bytes of frames may wait in the kernel.
const KERNEL_BYTES: usize = 8 << 20;
/// Words of 8 bytes for what the kernel tells of a frame.
const CONTROL_WORDS: usize = 8;
/// Bytes of a frame's addresses, and of its EtherType behind them.
const ADDRESSES: usize = 12;
const TYPE: usize = 2;
/// The EtherType of a tag (IEEE 802.1Q).
const TAG: u16 = 0x8100;
/// The membership by which an interface takes frames for one more station (`PACKET_MR_UNICAST`).
const MEMBER_UNICAST: libc::c_ushort = 3;
/// The most bytes of a frame's head behind its tag: a tag of redundancy, and the EtherType.
pub(crate) const BEHIND_MAX: usize = 8;

/// The address of a station (IEEE 802, EUI-48).
pub(crate) type Mac = [u8; 6];

/// The tag of a frame (IEEE 802.1Q): priority, and the number of the VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) priority: u8,
    pub(crate) vlan: u16,
}

impl Tag {
    const fn word(self) -> u16 {
        (self.priority as u16) << 13 | self.vlan & 0xfff
    }
}

/// A frame that came: who sent it, in which VLAN, and the number of bytes behind its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) from: Mac,
    pub(crate) vlan: Option<u16>,
    pub(crate) length: usize,
}

/// A frame that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departing<'a> {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) tag: Option<Tag>,
    /// What is between the tag and the bytes: at most [`BEHIND_MAX`] bytes, the last two of which
    /// are the EtherType of the bytes.
    pub(crate) head: &'a [u8],
}

/// What became of a look at the socket.
#[derive(Debug)]
pub(crate) enum Came {
    Frame(Frame),
    /// A frame for another station, or one that is too short.
    Other,
    Nothing,
}

/// A socket for the frames of one EtherType at one interface.
#[derive(Debug)]
pub(crate) struct Station {
    socket: OwnedFd,
    mac: Mac,
    index: u32,
    mtu: usize,
}

impl Station {
    /// Opens the socket.
    ///
    /// # Errors
    /// When there is no such interface, or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str, ether_type: u16) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // No frames until it is bound.
        // SAFETY: the call has no pointers.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        // Privileged processes get the full size, others what the system allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, KERNEL_BYTES)?;
        }
        filter(&socket, ether_type)?;
        let address = bind(&socket, index)?;
        if address.sll_hatype != libc::ARPHRD_ETHER && address.sll_hatype != libc::ARPHRD_LOOPBACK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the interface is not Ethernet's"));
        }
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        let mtu = mtu(&socket, interface)?;
        Ok(Self { socket, mac: [a, b, c, d, e, f], index, mtu })
    }

    /// Takes frames for the station `mac`, and no longer those for its own address.
    ///
    /// # Errors
    /// When the interface does not take frames for others.
    pub(crate) fn answer_as(&mut self, mac: Mac) -> io::Result<()> {
        // SAFETY: a request of all zeroes is valid.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = self.index.cast_signed();
        request.mr_type = MEMBER_UNICAST;
        request.mr_alen = 6;
        request.mr_address[..6].copy_from_slice(&mac);
        let length = libc::socklen_t::try_from(size_of_val(&request)).unwrap_or(0);
        // SAFETY: the option's value is the request that outlives the call.
        let result = unsafe {
            let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
            libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const request).cast(), length)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.mac = mac;
        Ok(())
    }

    /// The station's own address.
    pub(crate) const fn mac(&self) -> Mac {
        self.mac
    }

    /// The number of the interface.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// The most bytes of a frame behind its head, when the socket was opened.
    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Sends `bytes` in `frame`, at `launch` if a time is given, for which
    /// [`outgoing::enable_launch`] asks.
    ///
    /// # Errors
    /// When the interface is down or gone, takes no such frame, or takes none now (`WouldBlock`).
    pub(crate) fn send(&self, frame: &Departing<'_>, bytes: &[u8], launch: Option<Nanos>) -> io::Result<()> {
        let mut head = [0; ADDRESSES + 4 + BEHIND_MAX];
        head[..6].copy_from_slice(&frame.to);
        head[6..12].copy_from_slice(&frame.from);
        let mut length = ADDRESSES;
        for word in frame.tag.map(|tag| [TAG, tag.word()]).into_iter().flatten() {
            head[length..length + 2].copy_from_slice(&word.to_be_bytes());
            length += 2;
        }
        let whole = length + frame.head.len();
        head[length..whole].copy_from_slice(frame.head);
        outgoing::send(&self.socket, &[&head[..whole], bytes], About { launch, ..About::default() })
    }

    /// Receives a frame; the bytes behind its head go to `room`.
    ///
    /// # Errors
    /// When the interface is down or gone.
    pub(crate) fn receive(&self, room: &mut [u8]) -> io::Result<Came> {
        let mut head = [0_u8; ADDRESSES + TYPE];
        let mut control = [0_u64; CONTROL_WORDS];
        let mut parts = [slice(&head), slice(room)];
        parts[0].iov_base = head.as_mut_ptr().cast();
        parts[1].iov_base = room.as_mut_ptr().cast();
        // SAFETY: a message header of all zeroes is valid and names no buffers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the header names parts of memory that outlive the call, with their lengths.
        let came = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(came) = usize::try_from(came) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(Came::Nothing) } else { Err(error) };
        };
        let [a, b, c, d, e, f, from @ ..] = head;
        let [g, h, i, j, k, l, ..] = from;
        let length = came.checked_sub(head.len()).filter(|length| *length <= room.len());
        let (Some(length), true) = (length, [a, b, c, d, e, f] == self.mac) else { return Ok(Came::Other) };
        Ok(Came::Frame(Frame { from: [g, h, i, j, k, l], vlan: vlan(&message), length }))
    }
}

impl AsFd for Station {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Station {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

const fn slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// The number of the VLAN that the kernel told with a frame.
fn vlan(message: &libc::msghdr) -> Option<u16> {
    // SAFETY: the kernel has filled the control buffer that `message` names, and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the pointer is null, or points to a header within the control buffer, which
    // is aligned.
    while let Some(found) = unsafe { header.as_ref() } {
        if (found.cmsg_level, found.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            // SAFETY: a message of this type has one `tpacket_auxdata`.
            let told = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
            let is_tagged = told.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return is_tagged.then_some(told.tp_vlan_tci & 0xfff);
        }
        // SAFETY: `header` is within the message's control buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Lets only frames of a type come that others have sent (`linux/filter.h`).
///
/// A socket that asks the kernel for this type alone is not told of the VLAN.
fn filter(socket: &OwnedFd, ether_type: u16) -> io::Result<()> {
    /// Loads half a word or a word at a place; the places from this one on are facts of the frame.
    const LOAD: [u16; 2] = [0x28, 0x20];
    const FACTS: u32 = (-0x1000_i32).cast_unsigned();
    const TYPE: u32 = FACTS;
    const DIRECTION: u32 = FACTS + 4;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD[0], 0, 0, TYPE),
        step(JUMP_IF_EQUAL, 0, 3, u32::from(ether_type)),
        step(LOAD[1], 0, 0, DIRECTION),
        step(JUMP_IF_EQUAL, 1, 0, u32::from(libc::PACKET_OUTGOING)),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: 6, filter: steps.as_mut_ptr() };
    let length = libc::socklen_t::try_from(size_of_val(&program)).unwrap_or(0);
    // SAFETY: the option's value is the program, whose steps outlive the call.
    let result = unsafe {
        let value = (&raw const program).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets frames come. Returns the socket's address, which has that of the station.
fn bind(socket: &OwnedFd, index: u32) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: an address of all zeroes is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET.cast_unsigned().try_into().unwrap_or(0);
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    address.sll_ifindex = index.cast_signed();
    let mut length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the address outlives the call, and has the length that is told.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the address outlives the call, and has room for the length that is told.
    if unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address)
}

/// The most bytes of a frame of the interface.
fn mtu(socket: &OwnedFd, interface: &str) -> io::Result<usize> {
    // SAFETY: a request of all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte.cast_signed();
    }
    // SAFETY: the request outlives the call, and the kernel writes a number into its union.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written the number.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}
