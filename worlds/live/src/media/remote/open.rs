//! The place of another device, and the choice of the namespace to serve.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use engine::Nanos;
use mio::Poll;
use nvme::host::Namespace;
use nvme::wire::NamespaceId;

use super::fabrics::Fabrics;
use super::pcie::Pcie;
use super::way::{Device, Way};
use super::{Link, PIECES_MAX, RemoteMedium};
use crate::drivers::attach;
use crate::drivers::fabrics::initiator;
use crate::media::commands::{Commands, Extent, misfit};
use crate::sys::clock::Clock;

/// Where a device is, and how to use it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The name by which reports call the place.
    pub name: String,
    /// How the device is reached.
    pub address: Address,
    /// The namespace to serve; `None` takes the only namespace of the device.
    pub namespace: Option<NamespaceId>,
    /// How long commands wait while the device is away.
    pub hold: Nanos,
}

/// How a device is reached.
#[derive(Clone, Debug)]
pub enum Address {
    /// A far PCIe device, at this `HOST:PORT`.
    Pcie(String),
    /// A subsystem of NVMe over Fabrics. Each element lists the addresses of one path.
    Fabrics(Vec<Vec<SocketAddr>>, Box<initiator::Options>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why the namespace of a device can't serve.
#[derive(Debug)]
pub enum OpenError {
    /// The far PCIe device can't be attached.
    Attach(attach::AttachError),
    /// The subsystem of NVMe over Fabrics can't be used.
    Fabrics(initiator::AttachError),
    /// The device has no such namespace, or the namespace can't be served.
    Namespace(String),
    /// The system refuses an operation.
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach(error) => error.fmt(f),
            Self::Fabrics(error) => error.fmt(f),
            Self::Namespace(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl Place {
    /// Starts a host that looks for the device.
    pub(super) fn begin(&self) -> Result<Way, OpenError> {
        match &self.address {
            Address::Pcie(authority) => Pcie::begin(authority, self.hold).map(|way| Way::Pcie(Box::new(way))),
            Address::Fabrics(paths, options) => {
                Fabrics::begin(paths.clone(), options).map(|way| Way::Fabrics(Box::new(way)))
            }
        }
    }

    /// The namespace that the place names, if it can be served.
    fn choose(&self, device: &Device) -> Result<Namespace, OpenError> {
        let refuse = |why: String| OpenError::Namespace(format!("{self}: {why}"));
        let all = &device.namespaces;
        let found = match (self.namespace, all.as_slice()) {
            (None, [only]) => Some(only),
            (Some(wanted), all) => all.iter().find(|one| one.id == wanted),
            (None, _) => None,
        };
        let Some(found) = found.copied() else {
            let there: Vec<_> = all.iter().map(|one| one.id.0.to_string()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return Err(refuse(match self.namespace {
                Some(wanted) => format!("there is no namespace {wanted}; there are: {there}"),
                None => format!("which namespace? say it with nsid=; there are: {there}"),
            }));
        };
        misfit(&found).map_or(Ok(found), |why| Err(refuse(why)))
    }
}

/// Reaches the device at `place` within `timeout` and serves its namespace. `report` is told
/// whatever happens to the device later.
///
/// # Errors
/// When the device can't be reached in time, or its namespace can't be served; see [`OpenError`].
pub fn open(clock: Clock, place: Place, timeout: Nanos, report: fn(&str)) -> Result<RemoteMedium, OpenError> {
    let mut way = place.begin()?;
    match &mut way {
        Way::Pcie(way) => way.wait(timeout).map_err(OpenError::Attach)?,
        Way::Fabrics(way) => way.wait(timeout).map_err(OpenError::Fabrics)?,
    }
    let device = way.device().ok_or(OpenError::Attach(attach::AttachError::NoController))?;
    let namespace = place.choose(&device)?;
    let gate = Poll::new().map_err(OpenError::Io)?;
    let mut medium = RemoteMedium {
        clock,
        place,
        report,
        gate,
        way: None,
        link: Link::Here,
        seen: clock.now(),
        commands: Commands::new(vec![Extent::new(&namespace, 0)], device.abilities, PIECES_MAX),
        serial: device.serial,
    };
    medium.way = Some(medium.watch(way)?);
    Ok(medium)
}
