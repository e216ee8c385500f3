//! A network interface whose packets this process reads and writes: TUN.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::Namespace;

/// The device file that makes such interfaces.
const CLONE_DEVICE: &str = "/dev/net/tun";
/// The name pattern of the interfaces; the kernel fills in a number.
const NAME: &str = "farlane%d";
/// How many packets the kernel keeps for this process: a burst of a large window while it was not
/// awake.
const QUEUE: libc::c_int = 4096;
// Request numbers of `linux/sockios.h`.
const SET_FLAGS: libc::Ioctl = 0x8914;
const GET_FLAGS: libc::Ioctl = 0x8913;
const SET_ADDRESS: libc::Ioctl = 0x8916;
const SET_NETMASK: libc::Ioctl = 0x891c;
const SET_MTU: libc::Ioctl = 0x8922;
const SET_QUEUE: libc::Ioctl = 0x8943;

/// The settings of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface's IPv4 address.
    pub address: Ipv4Addr,
    /// The number of leading bits of the address that all neighbours share: 0 to 32.
    pub prefix: u8,
    /// The length of the longest packet, in bytes.
    pub mtu: u32,
}

/// A network interface, which is removed when dropped.
#[derive(Debug)]
pub struct Tun {
    device: File,
    name: String,
}

impl Tun {
    /// Makes an interface in `namespace` and brings it up. A thread of any namespace can read and
    /// write its packets.
    ///
    /// # Errors
    /// When this process may not do that, or the system has no such interfaces. The message names
    /// the step that failed.
    pub fn open(namespace: &Namespace, settings: Settings) -> io::Result<Self> {
        namespace.within(|| Self::open_here(settings))
    }

    fn open_here(settings: Settings) -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(CLONE_DEVICE)
            .map_err(|error| failed(CLONE_DEVICE, &error))?;
        let mut request = Request::of(NAME);
        let flags = libc::IFF_TUN | libc::IFF_NO_PI;
        request.0.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).expect("flags of 16 bits");
        request.ask(device.as_raw_fd(), libc::TUNSETIFF).map_err(|error| failed("TUNSETIFF", &error))?;
        let name = request.name();
        // Any socket of this namespace will do.
        let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        let set = |what, number, fill: &dyn Fn(&mut Request)| {
            let mut request = Request::of(&name);
            fill(&mut request);
            request.ask(socket.as_raw_fd(), number).map_err(|error| failed(what, &error))
        };
        let mtu = libc::c_int::try_from(settings.mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
        set("the MTU", SET_MTU, &|request| request.0.ifr_ifru.ifru_mtu = mtu)?;
        set("the queue's length", SET_QUEUE, &|request| request.0.ifr_ifru.ifru_metric = QUEUE)?;
        // IPv6 would send packets by itself. A system without IPv6 has nothing to switch off.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let mask =
            Ipv4Addr::from_bits(u32::MAX.checked_shl(u32::from(32 - settings.prefix.min(32))).unwrap_or(0));
        set("the address", SET_ADDRESS, &|request| request.set_address(settings.address))?;
        set("the netmask", SET_NETMASK, &|request| request.set_address(mask))?;
        let mut request = Request::of(&name);
        request.ask(socket.as_raw_fd(), GET_FLAGS).map_err(|error| failed("its flags", &error))?;
        // SAFETY: the kernel has filled in the flags.
        let flags = unsafe { request.0.ifr_ifru.ifru_flags };
        let up = libc::c_short::try_from(libc::IFF_UP).expect("a flag of 16 bits");
        set("bringing it up", SET_FLAGS, &|request| request.0.ifr_ifru.ifru_flags = flags | up)?;
        Ok(Self { device, name })
    }

    /// The name that the kernel gave the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next packet that the namespace sends into `block`, as far as it fits. Returns the
    /// number of bytes, or `None` if there is no packet now.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn receive(&self, block: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.device).read(block) {
            Ok(count) => Ok(Some(count)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Gives the namespace a packet; returns whether the packet was taken. No packet is taken if it
    /// is not IP, if the interface is down, or if the system has no memory.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<bool> {
        match (&self.device).write(packet) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Err(error),
            Err(_) => Ok(false),
        }
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }
}

/// Adds to an error the step that failed.
fn failed(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// `struct ifreq`: a request about an interface.
struct Request(libc::ifreq);

impl Request {
    /// A request about the interface of this name, of at most 15 bytes.
    fn of(name: &str) -> Self {
        // SAFETY: all zeroes is a valid request, about no interface.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.len() - 1;
        for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        Self(request)
    }

    fn name(&self) -> String {
        let bytes = self.0.ifr_name.iter().flat_map(|byte| byte.to_ne_bytes()).take_while(|byte| *byte != 0);
        bytes.map(char::from).collect()
    }

    fn set_address(&mut self, address: Ipv4Addr) {
        let mut data = [0; 14];
        // In `struct sockaddr_in` the port comes before the address; here it is 0.
        for (place, byte) in data[2..6].iter_mut().zip(address.octets()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        let family = libc::sa_family_t::try_from(libc::AF_INET).expect("a family of 16 bits");
        self.0.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: data };
    }

    fn ask(&mut self, descriptor: RawFd, number: libc::Ioctl) -> io::Result<()> {
        // SAFETY: all of these requests read or fill in the structure that the pointer is of, which
        // outlives the call.
        match unsafe { libc::ioctl(descriptor, number, &raw mut self.0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
