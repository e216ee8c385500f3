//! Frames, sent and received at an interface (packet(7)): a [`Station`] has those of one EtherType,
//! a [`Cable`] has all.

mod cable;
mod ring;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use engine::{Instant, Nanos};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::option::set_option;
use super::outgoing::{self, About};
pub(crate) use cable::Cable;
use ring::{Ring, Slot};

/// The most frames received in one look.
const FRAMES_MAX: usize = 64;
/// How often an idle socket is asked for the state of its interface.
const CHECK_EVERY: Nanos = Nanos::from_millis(1);
/// Bytes of a frame's addresses, and of its EtherType behind them.
const ADDRESSES: usize = 12;
const TYPE: usize = 2;
/// The EtherType of a tag (IEEE 802.1Q).
const TAG: u16 = 0x8100;
/// The membership by which an interface takes frames for one more station (`PACKET_MR_UNICAST`).
const MEMBER_UNICAST: libc::c_ushort = 3;
/// The most bytes of a frame's head behind its tag: a tag of redundancy, and the EtherType.
const BEHIND_MAX: usize = 8;
/// A frame up to this length is copied into one piece: the kernel takes longer to fetch the list of
/// two pieces than this program to copy so much.
const WHOLE_MAX: usize = 2048;
/// The most bytes of a frame's head.
const HEAD_MAX: usize = ADDRESSES + 4 + BEHIND_MAX;

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

/// A frame that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departing<'a> {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
    pub(crate) tag: Option<Tag>,
    /// The bytes between the tag and the payload: at most `BEHIND_MAX` bytes, the last two of which
    /// are the EtherType of the bytes.
    pub(crate) behind: &'a [u8],
}

impl Departing<'_> {
    /// The head of the frame.
    pub(crate) fn head(&self) -> Head {
        let mut head = Head { bytes: [0; HEAD_MAX], length: ADDRESSES };
        head.bytes[..6].copy_from_slice(&self.to);
        head.bytes[6..12].copy_from_slice(&self.from);
        for word in self.tag.map(|tag| [TAG, tag.word()]).into_iter().flatten() {
            head.append(&word.to_be_bytes());
        }
        head.append(self.behind);
        head
    }
}

/// The head of a frame, from its addresses up to its EtherType.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    length: usize,
}

impl Head {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The sender.
    pub(crate) from: Mac,
    /// The VLAN in which it came.
    pub(crate) vlan: Option<u16>,
    /// The bytes behind its head.
    pub(crate) bytes: &'a [u8],
}

/// The claim of one process of a network at an interface, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

/// A socket for the frames of one EtherType at one interface.
#[derive(Debug)]
pub(crate) struct Station {
    socket: OwnedFd,
    mac: Mac,
    index: u32,
    mtu: usize,
    ring: Ring,
    /// Frames that found the ring full.
    dropped: Cell<u64>,
    checked_at: Instant,
    /// Whether the interface was down when it was last asked for, and why nothing comes any more if
    /// it was deleted.
    is_down: bool,
    gone: Option<rustix::io::Errno>,
    /// A frame in one piece.
    whole: Vec<u8>,
}

impl Station {
    /// Opens the socket.
    ///
    /// # Errors
    /// When there is no such interface, or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str, ether_type: u16) -> io::Result<Self> {
        let socket = socket()?;
        let index = interface_of(&socket, interface)?;
        let mtu = mtu_of(&socket, interface)?;
        filter(&socket, ether_type)?;
        // Without this, the kernel makes a copy of each frame that is sent, for the filter to drop.
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        let ring = Ring::of(&socket, mtu + ADDRESSES + TYPE)?;
        let address = bind(&socket, index)?;
        if address.sll_hatype != libc::ARPHRD_ETHER && address.sll_hatype != libc::ARPHRD_LOOPBACK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the interface is not Ethernet's"));
        }
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        let is_down = !is_up(&socket, interface)?;
        Ok(Self {
            socket,
            mac: [a, b, c, d, e, f],
            index,
            mtu,
            ring,
            dropped: Cell::new(0),
            checked_at: Instant::ZERO,
            is_down,
            gone: None,
            whole: Vec::with_capacity(WHOLE_MAX),
        })
    }

    /// Takes frames for the station `mac`, and no longer those for its own address.
    ///
    /// # Errors
    /// When the interface does not take frames for others.
    pub(crate) fn answer_as(&mut self, mac: Mac) -> io::Result<()> {
        join(&self.socket, self.index, MEMBER_UNICAST, mac)?;
        self.mac = mac;
        Ok(())
    }

    /// Claims `what` at the interface. The kernel keeps no second socket from the same
    /// frames. Names of sockets in its abstract name space belong to a network, too, and go
    /// with their process.
    ///
    /// # Errors
    /// `AddrInUse` when another process of this network has it.
    pub(crate) fn claim(&self, what: &str) -> io::Result<Claim> {
        let name = SocketAddr::from_abstract_name(format!("farlane-station-{}-{what}", self.index))?;
        Ok(Claim { _socket: UnixDatagram::bind_addr(&name)? })
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

    /// Whether the interface is down or gone, as far as [`Station::look`] has noticed. When it
    /// comes up, or goes away while it is down, nothing wakes a thread that waits for the socket.
    pub(crate) const fn is_down(&self) -> bool {
        self.is_down || self.is_gone()
    }

    /// Whether the interface is gone, as far as [`Station::look`] has noticed.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Whether there is an interface of this name that is up, as when the station's own one was
    /// deleted and made anew.
    pub(crate) fn is_back(&self, interface: &str) -> bool {
        is_up(&self.socket, interface).unwrap_or(false)
    }

    /// Takes the place of `former`, whose frames count as this station's.
    pub(crate) fn succeed(&self, former: &Self) {
        self.dropped.set(self.dropped.get() + former.dropped());
    }

    /// How many frames the kernel dropped because the ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = libc::socklen_t::try_from(size_of_val(&statistics)).unwrap_or(0);
        // SAFETY: the option's value is at most as long as `statistics`, which outlive the call.
        let result = unsafe {
            let (value, option) = ((&raw mut statistics).cast(), libc::PACKET_STATISTICS);
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, option, value, &raw mut length)
        };
        // The kernel begins anew with each answer.
        let more = if result == 0 { u64::from(statistics.tp_drops) } else { 0 };
        self.dropped.set(self.dropped.get() + more);
        self.dropped.get()
    }

    /// Sends `bytes` behind `head`, at `launch` if a time is given, for which
    /// [`outgoing::enable_launch`] asks.
    ///
    /// # Errors
    /// When the interface is down or gone, takes no such frame, or takes none now (`WouldBlock`).
    pub(crate) fn send(&mut self, head: &Head, bytes: &[u8], launch: Option<Nanos>) -> io::Result<()> {
        if launch.is_none() && head.length + bytes.len() <= WHOLE_MAX {
            self.whole.clear();
            self.whole.extend_from_slice(head.bytes());
            self.whole.extend_from_slice(bytes);
            send(&self.socket, &self.whole, SendFlags::DONTWAIT)?;
            return Ok(());
        }
        outgoing::send(&self.socket, &[head.bytes(), bytes], About { launch, ..About::default() })
    }

    /// Sends each piece behind its head, by few system calls. Returns how many pieces the system
    /// took; pieces that it loses count as taken.
    pub(crate) fn send_all<'a>(&self, pieces: impl Iterator<Item = (&'a Head, &'a [u8])>) -> usize {
        outgoing::send_all(&self.socket, pieces.map(|(head, piece)| [head.bytes(), piece]))
    }

    /// Hands frames for this station that have come by `now` to `each`, or some of them; returns
    /// whether there were any frames.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn look(&mut self, now: Instant, mut each: impl FnMut(Frame<'_>)) -> io::Result<bool> {
        let Self { ring, mac, .. } = self;
        let mut handle = |Slot { bytes, tag, is_cut }: Slot<'_>| {
            let Some((to, rest)) = bytes.split_first_chunk() else { return };
            let Some((from, rest)) = rest.split_first_chunk() else { return };
            let Some((_, bytes)) = rest.split_first_chunk::<TYPE>() else { return };
            // A service tag (802.1ad) is about the VLANs of another network.
            let is_service = tag.is_some_and(|[kind, _]| kind != TAG);
            if to == mac && !is_cut && !is_service {
                each(Frame { from: *from, vlan: tag.map(|[_, tag]| tag & 0xfff), bytes });
            }
        };
        let seen = (0..FRAMES_MAX).take_while(|_| ring.take(&mut handle).is_some()).count();
        if seen == 0 {
            self.check(now)?;
        }
        Ok(seen > 0)
    }

    /// Asks, now and then, whether the interface is gone: the ring does not say, and to the socket
    /// an interface that was deleted is down.
    fn check(&mut self, now: Instant) -> io::Result<()> {
        if let Some(error) = self.gone {
            return Err(error.into());
        }
        if now - self.checked_at < CHECK_EVERY {
            return Ok(());
        }
        self.checked_at = now;
        match recv(&self.socket, &mut [0; 1][..], RecvFlags::DONTWAIT) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            // The interface is down, and may come up again. The socket reports this once.
            Err(rustix::io::Errno::NETDOWN) => self.is_down = true,
            Err(error) => return Err(error.into()),
        }
        let name = rustix::net::netdevice::index_to_name(&self.socket, self.index);
        let name = name.inspect_err(|error| self.gone = Some(*error))?;
        if self.is_down {
            self.is_down = !is_up(&self.socket, &name)?;
        }
        Ok(())
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

/// A socket to which no frames come before it is bound.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call has no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// The number of the interface with this name.
fn interface_of(socket: &OwnedFd, interface: &str) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket, interface)?)
}

/// Has an interface take frames of one more kind, as long as the socket lives.
fn join(socket: &OwnedFd, index: u32, kind: libc::c_ushort, mac: Mac) -> io::Result<()> {
    // SAFETY: a request of all zeroes is valid.
    let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
    request.mr_ifindex = index.cast_signed();
    request.mr_type = kind;
    request.mr_alen = 6;
    request.mr_address[..6].copy_from_slice(&mac);
    let length = libc::socklen_t::try_from(size_of_val(&request)).unwrap_or(0);
    // SAFETY: the option's value is the request that outlives the call.
    let result = unsafe {
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const request).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets only frames of a type come that others have sent (`linux/filter.h`).
///
/// A socket that asks the kernel for this type alone does not get the VLAN.
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
    // SAFETY: the address outlives the call, and has the given length.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the address outlives the call, and has room for the given length.
    if unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address)
}

/// The most bytes of a frame of the interface.
fn mtu_of(socket: &OwnedFd, interface: &str) -> io::Result<usize> {
    let answer = request(socket, interface, libc::SIOCGIFMTU)?;
    // SAFETY: the kernel has written the number.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the interface is up.
fn is_up(socket: &OwnedFd, interface: &str) -> io::Result<bool> {
    let answer = request(socket, interface, libc::SIOCGIFFLAGS)?;
    // SAFETY: the kernel has written the flags.
    let flags = unsafe { answer.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// Asks the kernel for something about an interface (netdevice(7)).
fn request(socket: &OwnedFd, interface: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: a request of all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte.cast_signed();
    }
    // SAFETY: the request outlives the call, and the kernel writes into its union.
    if unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}
