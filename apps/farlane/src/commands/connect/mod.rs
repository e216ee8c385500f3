//! `farlane connect`: makes the SSD of a far end a block device of this machine.

mod background;
mod block;
pub(crate) mod disconnect;
mod initiator;
mod kernel;
pub(crate) mod list;
mod status;
mod ublk;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use daemon::{Common, Settings};
use engine::Nanos;
use live::carrier::route::Way;
use live::client::Url;
use live::media::RemoteMedium;
use live::media::remote::{self, Place};
use live::sys::block_use;
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use live::sys::service;
use live::sys::ublk as driver;
use nvme::subsystem::NamespaceIdentity;
use nvme::wire::NamespaceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{ConnectArgs, Over, need_far};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, control, print, print_json};
use crate::error::{BlockError, Error};
use block::Block;
use initiator::Initiator;
use ublk::Ublk;

/// How long the device may take to appear at the start: a far end may hold it for a process of ours
/// that was killed.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// How long I/O waits for a device that is away, where it waits without end: 100 years.
const WITHOUT_END: Nanos = Nanos::from_secs(100 * 365 * 24 * 3600);

/// The connected device, for people and machines.
#[derive(Clone, Debug)]
struct About {
    url: String,
    over: Over,
    bytes: u64,
    block: u32,
    read_only: bool,
}

/// The block device, on the first line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Connected<'a> {
    /// The device's path.
    device: String,
    url: &'a str,
    /// `nvme-tcp` or `ublk`.
    over: &'static str,
    bytes: u64,
    /// Bytes of a block.
    block: u32,
    read_only: bool,
}

/// The answer to a request to disconnect.
#[derive(Serialize, Deserialize)]
struct Disconnecting {
    /// The device's path.
    device: String,
}

pub(crate) fn run(args: &ConnectArgs) -> Result<(), Error> {
    let Some(url) = args.device()? else { return list::run(args.printing.is_json()) };
    if args.background && !background::is_there() {
        return background::start();
    }
    service::begin();
    // Which way it is, and whether it can be gone, is better known before the device is taken.
    match way(args.over)? {
        Some(control) => daemon::run(Block::new(args, url, Ublk::new(control))),
        None => daemon::run(Block::new(args, url, Initiator)),
    }
}

/// How often a thread's loop, its way to the kernel and its host's loop open a descriptor, beside
/// the host's connections.
const OPENED_BY_QUEUE: usize = 8;

/// The options that every daemon has, of one with this many hosts.
fn settings(args: &ConnectArgs, hosts: usize) -> Settings {
    let further = hosts.saturating_sub(1) * (OPENED_BY_QUEUE + OPENED_BY_NAMESPACE);
    args.daemon.settings(OPENED_BY_LISTENER + OPENED_BY_NAMESPACE + further)
}

/// Adds the needs of the device at `url`, and of the kernel's block device.
fn need(needs: &mut Needs, args: &ConnectArgs, url: &Url) {
    let transport = &args.tunnel.transport;
    let of_url = match url {
        Url::Subsystem(subsystem) => subsystem.settings.secrets.paths().collect(),
        _ => Vec::new(),
    };
    need_far(needs, args.secrets.files().paths().chain(of_url).chain(transport.key_file()));
    transport.need(needs);
    needs.sends_frames = matches!(url, Url::Far(far) if far.way() == Way::Eth);
    needs.administers_devices = true;
    // The devices that the kernel makes, and their settings.
    needs.folders.extend(["/dev", "/sys/bus/pci", "/sys/devices"].map(PathBuf::from));
}

/// The description of the device that `medium` connects.
fn about(args: &ConnectArgs, url: &Url, over: Over, medium: &RemoteMedium) -> About {
    About {
        url: url.to_string(),
        over,
        bytes: medium.size(),
        block: medium.block(),
        read_only: args.read_only,
    }
}

/// The control file of the user-space block driver, or none if the kernel's initiator is used.
fn way(over: Option<Over>) -> Result<Option<driver::Control>, Error> {
    if over == Some(Over::NvmeTcp) {
        kernel::load().map_err(BlockError::NoInitiator)?;
        return Ok(None);
    }
    let opened = driver::Control::open().or_else(|error| match error {
        driver::Error::NoDriver => {
            load("ublk_drv");
            driver::Control::open()
        }
        error => Err(error),
    });
    match (opened, over) {
        (Ok(control), _) => Ok(Some(control)),
        (Err(error), Some(_)) => Err(BlockError::Ublk(error).into()),
        (Err(error @ (driver::Error::NoDriver | driver::Error::Old)), None) => match kernel::load() {
            Ok(()) => Ok(None),
            Err(_) => Err(BlockError::NoWay(error).into()),
        },
        (Err(error), None) => Err(BlockError::Ublk(error).into()),
    }
}

/// Has the kernel load a module, if it has it. The user of the module sees whether it has.
fn load(module: &str) {
    let mut command = Command::new("modprobe");
    command.args(["--quiet", module]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => debug!("modprobe has loaded {module}"),
        Ok(status) => debug!("modprobe {module}: {status}"),
        Err(error) => debug!("modprobe {module}: {error}"),
    }
}

/// Where the device at `url` is, and how it is used.
fn place(url: &Url, args: &ConnectArgs) -> Result<Place, Error> {
    let hold = args.timeout.map_or(WITHOUT_END, Nanos::from);
    Ok(Place {
        name: url.to_string(),
        address: url.resolve()?,
        namespace: args.namespace.map(NamespaceId),
        hold: url.hold(hold),
        refused_retry: args.refused_retry.into(),
        options: args.options(url)?,
        // A target's Deallocate makes zeroes; ours is a hint, as the block layer's is.
        deallocates_as_hint: true,
    })
}

/// Reaches the device at `place` and opens its namespace.
fn reach(clock: Clock, place: Place) -> Result<RemoteMedium, Error> {
    remote::open(clock, place, PATIENCE, log).map_err(unopened)
}

/// Logs an event of the device.
fn log(what: &str) {
    warn!("{what}");
}

/// The error that the device can't be used.
fn unopened(error: remote::OpenError) -> Error {
    match error {
        remote::OpenError::Attach(error) => error.into(),
        remote::OpenError::Namespace(why) => Error::FarNamespace { why },
        remote::OpenError::Io(error) => Error::Output(error),
    }
}

/// The identity that distinguishes the namespace behind `medium` from all others, wherever it is
/// reached.
fn identity(medium: &RemoteMedium) -> NamespaceIdentity {
    let (model, serial, id) = (medium.model(), medium.serial(), medium.namespace());
    NamespaceIdentity::derived(&format!("block device\n{model}\n{serial}\n{id}"))
}

/// Announces to a person, or a machine, that the block device `name` can be used.
fn announce(json: bool, name: &str, about: &About) -> Result<(), Error> {
    if json {
        print_json(&Connected {
            device: format!("/dev/{name}"),
            url: &about.url,
            over: about.over.name(),
            bytes: about.bytes,
            block: about.block,
            read_only: about.read_only,
        })
    } else {
        print(&format!("{} ({})\n", about.text(name), indicatif::HumanBytes(about.bytes)))
    }
}

impl About {
    /// The description of the block device `name`.
    fn text(&self, name: &str) -> String {
        format!("{} is /dev/{name}", self.url)
    }
}

/// The request to a process that serves a block device.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Asks for the state.
    Status,
    /// Asks it to remove the block device and to end.
    Disconnect {
        /// Whether it does so while the block device is in use.
        #[serde(default)]
        force: bool,
    },
}

impl daemon::Request for Request {
    fn common(&self) -> Option<Common> {
        matches!(self, Self::Status).then_some(Common::Status)
    }
}

/// Removes the block device `name` with `remove`, unless it is in use and the request is not to
/// `force` it.
fn disconnect(name: &str, force: bool, remove: impl FnOnce()) -> Result<Value, String> {
    let device = format!("/dev/{name}");
    match block_use::users(name) {
        users if !users.is_empty() && !force => Err(BlockError::InUse { device, users }.to_string()),
        _ => {
            remove();
            control::reply(&Disconnecting { device })
        }
    }
}
