//! Where another device is, and what it turns out to have.

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
use crate::attach;
use crate::clock::Clock;
use crate::fabrics::initiator;
use crate::media::commands::{Commands, Extent, misfit};

/// Where a device is, and how to use it.
#[derive(Clone, Debug)]
pub struct Place {
    /// What a person calls it.
    pub name: String,
    /// How it is reached.
    pub address: Address,
    /// The namespace; the only one, if it is left out.
    pub namespace: Option<NamespaceId>,
    /// How long commands wait for a device that is away.
    pub hold: Nanos,
}

/// How a device is reached.
#[derive(Clone, Debug)]
pub enum Address {
    /// A far PCIe device, at this `HOST:PORT`.
    Pcie(String),
    /// A subsystem of NVMe over Fabrics, by these paths, each the addresses of one.
    Fabrics(Vec<Vec<SocketAddr>>, Box<initiator::Options>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why a device's namespace can't serve.
#[derive(Debug)]
pub enum OpenError {
    /// The far device can't be attached.
    Attach(attach::AttachError),
    /// The subsystem can't be used.
    Fabrics(initiator::AttachError),
    /// It has no such namespace, or one that can't be served.
    Namespace(String),
    /// The system fails us.
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
    /// A host that looks for the device from now on.
    pub(super) fn begin(&self) -> Result<Way, OpenError> {
        match &self.address {
            Address::Pcie(authority) => Pcie::begin(authority, self.hold).map(|way| Way::Pcie(Box::new(way))),
            Address::Fabrics(paths, options) => {
                Fabrics::begin(paths.clone(), options).map(|way| Way::Fabrics(Box::new(way)))
            }
        }
    }

    /// The namespace that is meant, if it can be served.
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

/// Reaches the device at `place`, within `timeout`, and serves its namespace. What happens to it later is told to `report`.
///
/// # Errors
/// See [`OpenError`].
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
