//! How a far end is reached.

use std::io;
use std::net::SocketAddr;

use crate::tcp;

/// What is the same for all far ends of a host.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// What is asked of the kernel's TCP.
    pub tcp: tcp::Options,
}

impl Transport {
    /// The way to the far end that is called `name` (`HOST:PORT`); asks the system's resolver, and waits for it.
    ///
    /// # Errors
    /// When the name has no address, naming it.
    pub fn route(&self, name: &str) -> io::Result<Route> {
        Ok(Route { addresses: tcp::resolve(name)?, tcp: self.tcp.clone() })
    }
}

/// The way to one far end.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its addresses, tried in turn.
    pub addresses: Vec<SocketAddr>,
    /// What is asked of the kernel's TCP.
    pub tcp: tcp::Options,
}
