//! Sockets that receive datagrams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use record::format::LinkType;
use record::sequence::{Ledger, Tracker};
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::Source;
use super::datagrams::Datagrams;
use crate::sys::address::{Host, zone_of};
use crate::sys::datagrams::{enable, join_source};
use crate::sys::option::set_option;

/// Where a group is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// At the interface with this name.
    Name(String),
    /// At the interface with this address.
    Address(Ipv4Addr),
}

/// How to receive datagrams.
#[derive(Debug)]
pub struct Udp {
    /// The address to receive at; a group is joined.
    pub address: SocketAddr,
    /// Where a group is joined; the system chooses if there is none.
    pub interface: Option<Interface>,
    /// The only source of a group from which datagrams are taken.
    pub source: Option<Host>,
    /// The size of the kernel's buffer in bytes.
    pub buffer: usize,
    /// Whether datagrams become records of packets; otherwise their bytes are put one behind
    /// the other.
    pub framed: bool,
    /// Follows the numbers of datagrams.
    pub tracker: Option<Tracker>,
}

impl Udp {
    /// The number of the interface at which a group is joined: the given one, or the zone of an
    /// address. 0 lets the system choose.
    fn index(&self, socket: &Socket) -> io::Result<u32> {
        let named = match &self.interface {
            Some(Interface::Name(name)) => name_to_index(socket, name)?,
            _ => 0,
        };
        let zones = [zone_of(self.address), self.source.map_or(0, Host::zone)];
        let mut given = [named].into_iter().chain(zones).filter(|index| *index > 0);
        let index = given.next().unwrap_or(0);
        match given.find(|other| *other != index) {
            None => Ok(index),
            Some(_) => {
                let why = "iface= and the interfaces behind % differ; expected one interface";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

/// A socket that receives.
pub struct Bound {
    /// The source.
    pub source: Source,
    /// Its address.
    pub address: SocketAddr,
    /// The size of the kernel's buffer in bytes, as far as the system has given it.
    pub buffer: usize,
}

impl Source {
    /// Receives datagrams.
    ///
    /// # Errors
    /// When the system refuses the address, the group or the interface.
    pub fn udp(udp: Udp) -> io::Result<Bound> {
        let socket = Socket::new(Domain::for_address(udp.address), Type::DGRAM, Some(Protocol::UDP))?;
        let is_group = udp.address.ip().is_multicast();
        if is_group {
            // Several programs of this host may receive the datagrams of a group.
            socket.set_reuse_address(true)?;
        }
        enable(&socket)?;
        let wanted = i32::try_from(udp.buffer).unwrap_or(i32::MAX);
        // The first needs a privilege, and knows no limit.
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted)
            .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted))?;
        // The system doubles the requested size, for its own accounts.
        let buffer = socket.recv_buffer_size()? / 2;
        let index = udp.index(&socket)?;
        let mut address = udp.address;
        if let (SocketAddr::V6(address), true) = (&mut address, index > 0) {
            // A group of the link alone is one of its interface.
            address.set_scope_id(index);
        }
        socket.bind(&address.into())?;
        if is_group {
            join(&socket, &udp, index)?;
        }
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        let address = socket.local_addr()?;
        let datagrams =
            Datagrams::new(socket.into(), Ledger::new(udp.tracker), udp.framed, LinkType::PAYLOAD);
        Ok(Bound { source: Self::new(datagrams), address, buffer })
    }
}

/// Joins the group at the interface with number `index`; 0 lets the system choose.
fn join(socket: &Socket, udp: &Udp, index: u32) -> io::Result<()> {
    match (udp.address.ip(), udp.source.map(|source| source.0.ip()), &udp.interface) {
        (IpAddr::V4(group), Some(IpAddr::V4(source)), Some(Interface::Address(interface))) => {
            socket.join_ssm_v4(&source, &group, interface)
        }
        (group, Some(source), _) => join_source(socket, index, group, source),
        (IpAddr::V4(group), None, Some(Interface::Address(interface))) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Address(*interface))
        }
        (IpAddr::V4(group), None, _) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
        }
        (IpAddr::V6(group), None, _) => socket.join_multicast_v6(&group, index),
    }?;
    match udp.address.ip() {
        // Groups that other programs have joined are not ours.
        IpAddr::V4(_) => set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
        IpAddr::V6(_) => Ok(()),
    }
}
