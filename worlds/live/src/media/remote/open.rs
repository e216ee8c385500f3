//! The place of another device, and the choice of the namespace to serve.

use std::fmt;
use std::io;

use engine::Nanos;
use mio::Poll;
use nvme::host::Namespace;
use nvme::wire::NamespaceId;

use super::{Link, PIECES_MAX, RemoteMedium};
use crate::client::{Absence, Address, AttachError, Controller, Identity, Options};
use crate::media::commands::{Abilities, Commands, Extent, misfit};
use crate::sys::clock::Clock;

/// Where a device is, and how to use it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The name by which reports call the place.
    pub name: String,
    /// Where the device is. A name is resolved when the medium is opened, and not again.
    pub address: Address,
    /// The namespace to serve; `None` takes the only namespace of the device.
    pub namespace: Option<NamespaceId>,
    /// How long commands wait while the device is away.
    pub hold: Nanos,
    /// How long to wait before the next attempt while the device refuses this host for good.
    /// Requests fail at once meanwhile.
    pub refused_retry: Nanos,
    /// How the device is used. The medium adds the options that it needs of its host.
    pub options: Options,
    /// Whether [`nvme::media::Operation::Deallocate`] is a hint, after which nothing has to read
    /// as zeroes.
    pub deallocates_as_hint: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why the namespace of a device can't serve.
#[derive(Debug)]
pub enum OpenError {
    /// The device can't be used.
    Attach(AttachError),
    /// The device has no such namespace, or the namespace can't be served.
    Namespace(String),
    /// The system refuses an operation.
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach(error) => error.fmt(f),
            Self::Namespace(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl Place {
    /// Starts a host that looks for the device.
    pub(super) fn begin(&self) -> Result<Controller, OpenError> {
        let options = Options {
            data_bytes: 0,
            slots: PIECES_MAX,
            depth: PIECES_MAX,
            absence: Absence::Fail(self.hold),
            ..self.options.clone()
        };
        Controller::open(&self.address, &options).map_err(OpenError::Attach)
    }

    /// The namespace that the place names, if it can be served.
    fn choose(&self, device: &Identity<'_>) -> Result<Namespace, OpenError> {
        let refuse = |why: String| OpenError::Namespace(format!("{self}: {why}"));
        let all = device.namespaces;
        let found = match (self.namespace, all) {
            (None, [only]) => Some(only),
            (Some(wanted), all) => all.iter().find(|one| one.id == wanted),
            (None, _) => None,
        };
        let Some(found) = found.copied() else {
            let there: Vec<_> = all.iter().map(|one| one.id.0.to_string()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return Err(refuse(match self.namespace {
                Some(wanted) => format!("there is no namespace {wanted}; there are: {there}"),
                None => format!("which namespace? choose one with nsid=; there are: {there}"),
            }));
        };
        misfit(&found).map_or(Ok(found), |why| Err(refuse(why)))
    }
}

/// Reaches the device at `place` within `timeout` and serves its namespace. `report` gets all later
/// events of the device.
///
/// # Errors
/// When the device can't be reached in time, or its namespace can't be served; see [`OpenError`].
pub fn open(
    clock: Clock,
    mut place: Place,
    timeout: Nanos,
    report: fn(&str),
) -> Result<RemoteMedium, OpenError> {
    // Later hosts begin in a turn of the reactor, which must not wait for the system's resolver.
    place.address = place.address.routed(&place.options.transport).map_err(OpenError::Attach)?;
    let mut controller = place.begin()?;
    controller.wait_ready(timeout).map_err(OpenError::Attach)?;
    let device = controller.identity().ok_or(OpenError::Attach(AttachError::NoController))?;
    let namespace = place.choose(&device)?;
    let abilities = Abilities::new(device.controller, device.transfer_bytes_max);
    let serial = device.controller.serial_number.to_string();
    let model = device.controller.model_number.to_string();
    let gate = Poll::new().map_err(OpenError::Io)?;
    let mut commands = Commands::new(vec![Extent::new(&namespace, 0)], abilities, PIECES_MAX);
    commands.deallocates_as_hint = place.deallocates_as_hint;
    let mut medium = RemoteMedium {
        clock,
        place,
        report,
        gate,
        controller: None,
        queue: 0,
        is_logged: false,
        link: Link::Here,
        refusal: None,
        seen: clock.now(),
        commands,
        serial,
        model,
    };
    medium.controller = Some(medium.watch(controller)?);
    Ok(medium)
}
