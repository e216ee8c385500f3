//! How this machine reaches a peer: from which address, and in packets of which length.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use roce::PathMtu;
use rustix::net::sockopt;

/// The way to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The address of this machine that packets to the peer come from.
    pub(crate) local: IpAddr,
    /// The longest payload of a packet that passes the first link.
    pub(crate) mtu: PathMtu,
}

impl Route {
    /// The way to `peer`, from `local` if it is given. Nothing is sent.
    ///
    /// # Errors
    /// When there is no way, or `local` is not an address of this machine.
    pub(crate) fn to(peer: IpAddr, local: Option<IpAddr>) -> io::Result<Self> {
        let any = || match peer {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let socket = UdpSocket::bind(SocketAddr::new(local.unwrap_or_else(any), 0))?;
        socket.connect(SocketAddr::new(peer, roce::PORT))?;
        let mtu = match peer {
            IpAddr::V4(_) => sockopt::ip_mtu(&socket)?,
            IpAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
        };
        let mtu = usize::try_from(mtu).unwrap_or(0);
        Ok(Self { local: socket.local_addr()?.ip(), mtu: PathMtu::within(mtu) })
    }
}
