//! How this machine reaches a peer: from which address, and in packets of which length.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use roce::PathMtu;
use rustix::net::sockopt;

use crate::sys::address::{Host, zone_of};

/// The way to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The address of this machine that packets to the peer come from.
    ///
    /// The port is any.
    pub(crate) local: SocketAddr,
    /// The longest payload of a packet that passes the first link.
    pub(crate) mtu: PathMtu,
}

impl Route {
    /// The way to `peer`, from `local` if it is given. Nothing is sent.
    ///
    /// # Errors
    /// When there is no way, or `local` is not an address of this machine.
    pub(crate) fn to(mut peer: SocketAddr, local: Option<Host>) -> io::Result<Self> {
        let any = match peer {
            SocketAddr::V4(_) => IpAddr::from([0; 4]),
            SocketAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let mut from = local.map_or_else(|| SocketAddr::new(any, 0), |local| local.0);
        if let SocketAddr::V6(from) = &mut from
            && from.scope_id() == 0
        {
            // Two addresses of one link are in one zone.
            from.set_scope_id(zone_of(peer));
        }
        let socket = UdpSocket::bind(from)?;
        peer.set_port(roce::PORT);
        socket.connect(peer)?;
        let mtu = match peer {
            SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
            SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
        };
        let mtu = usize::try_from(mtu).unwrap_or(0);
        Ok(Self { local: socket.local_addr()?, mtu: PathMtu::within(mtu) })
    }
}
