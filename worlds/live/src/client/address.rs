//! Where a controller is, with the names of a subsystem's paths resolved.

use std::net::SocketAddr;
use std::path::PathBuf;

use engine::Nanos;

use super::error::AttachError;
use super::subsystem::SubsystemUrl;
use super::url::Url;
use crate::carrier::route::{Route, Transport};
use crate::carrier::tcp;

/// Where a controller is.
#[derive(Clone, Debug)]
pub enum Address {
    /// At the far end of this name (see [`crate::carrier::route::Name`]).
    Far(String),
    /// At the far end to which this route leads.
    Route(Box<Route>),
    /// In another process of this machine, at this socket. If the path is a directory, the socket
    /// is called `cntrl` in it.
    VfioUser(PathBuf),
    /// In a subsystem of NVMe over Fabrics.
    Subsystem(Box<Subsystem>),
}

impl Address {
    /// Whether several hosts of one process can use the device there at a time, each with a
    /// controller of its own.
    pub fn takes_many_hosts(&self) -> bool {
        matches!(self, Self::Subsystem(subsystem) if subsystem.url.takes_many_hosts())
    }

    /// The address with the route to a far end instead of its name, so that no user of the address
    /// waits for the system's resolver later. Waits for it now.
    ///
    /// # Errors
    /// When the name of a far end has no address, or a key can't be read or made.
    pub fn routed(self, transport: &Transport) -> Result<Self, AttachError> {
        match self {
            Self::Far(name) => {
                let route = transport.route(&name);
                let route = route.map_err(|error| AttachError::without_route(&name, error))?;
                Ok(Self::Route(Box::new(route)))
            }
            resolved => Ok(resolved),
        }
    }
}

/// A subsystem, and the addresses of each path to it, which are tried in turn.
#[derive(Clone, Debug)]
pub struct Subsystem {
    /// Which subsystem, and how it is used.
    pub(super) url: SubsystemUrl,
    /// The addresses of each path.
    pub(super) paths: Vec<Vec<SocketAddr>>,
}

impl SubsystemUrl {
    /// The address of the subsystem's controllers. Waits for the system's resolver.
    ///
    /// # Errors
    /// When the name of a path has no address.
    pub fn resolve(&self) -> Result<Address, AttachError> {
        let paths =
            self.paths.iter().map(|path| tcp::resolve(&path.address).map_err(AttachError::ResolvePath));
        let subsystem = Subsystem { url: self.clone(), paths: paths.collect::<Result<_, _>>()? };
        Ok(Address::Subsystem(Box::new(subsystem)))
    }
}

impl Url {
    /// The address of the controller. Waits for the system's resolver where paths have names.
    ///
    /// # Errors
    /// When the name of a path has no address.
    pub fn resolve(&self) -> Result<Address, AttachError> {
        match self {
            Self::Far(url) => Ok(Address::Far(url.name())),
            Self::VfioUser(path) => Ok(Address::VfioUser(path.clone())),
            Self::Subsystem(url) => url.resolve(),
        }
    }

    /// How long commands wait for a controller that is away: `hold`, unless the URL says otherwise.
    pub fn hold(&self, hold: Nanos) -> Nanos {
        match self {
            Self::Subsystem(url) => url.settings.fast_io_fail.map_or(hold, Nanos::from),
            Self::Far(_) | Self::VfioUser(_) => hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_far_end_is_resolved_once() {
        let address = Address::Far("127.0.0.1:1".to_owned());
        let address = address.routed(&Transport::default()).unwrap();
        let Address::Route(route) = &address else { panic!("{address:?}") };
        assert_eq!(route.addresses, [SocketAddr::from(([127, 0, 0, 1], 1))]);
        assert!(matches!(address.routed(&Transport::default()), Ok(Address::Route(_))));
        let nowhere = Address::Far("far:0".to_owned());
        assert!(matches!(nowhere.routed(&Transport::default()), Err(AttachError::Trust(_))));
    }
}
