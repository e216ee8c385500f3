//! `farlane connect`: makes the SSD of a far end a block device of this machine.

mod background;
pub(crate) mod disconnect;
mod initiator;
mod kernel;
mod list;
mod metrics;
mod status;
mod ublk;

pub(crate) use status::text as status_text;

use std::process::{Command, Stdio};

use engine::Nanos;
use live::client::Url;
use live::media::RemoteMedium;
use live::media::remote::{self, Place};
use live::sys::clock::Clock;
use live::sys::ublk as driver;
use nvme::subsystem::NamespaceIdentity;
use nvme::wire::NamespaceId;

use crate::args::{ConnectArgs, Over};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, begin_serving, print, print_json};
use crate::error::{BlockError, Error};

/// How long the device may take to appear at the start: a far end may hold it for a process of ours
/// that was killed.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// How long I/O waits for a device that is away, where it waits without end: 100 years.
const WITHOUT_END: Nanos = Nanos::from_secs(100 * 365 * 24 * 3600);

/// What is connected, for people and machines.
#[derive(Clone, Debug)]
struct About {
    url: String,
    over: Over,
    bytes: u64,
    block: u32,
    read_only: bool,
}

pub(crate) fn run(args: &ConnectArgs) -> Result<(), Error> {
    let Some(url) = &args.device()? else { return list::run(args.printing.is_json()) };
    if args.background && !background::is_there() {
        return background::start();
    }
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER + OPENED_BY_NAMESPACE)?;
    // Which way it is, and whether it can be gone, is better known before the device is taken.
    let way = way(args.over)?;
    let clock = Clock::start();
    let medium = open(clock, url, args)?;
    let about = About {
        url: url.to_string(),
        over: if way.is_some() { Over::Ublk } else { Over::NvmeTcp },
        bytes: medium.size(),
        block: medium.block(),
        read_only: args.read_only,
    };
    match way {
        Some(control) => ublk::serve(args, clock, control, medium, about),
        None => initiator::serve(args, clock, medium, about),
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

/// Has the kernel load a module, if it has it. Whoever needs the module sees whether it has.
fn load(module: &str) {
    let mut command = Command::new("modprobe");
    command.args(["--quiet", module]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => debug!("modprobe has loaded {module}"),
        Ok(status) => debug!("modprobe {module}: {status}"),
        Err(error) => debug!("modprobe {module}: {error}"),
    }
}

/// Reaches the device at `url` and opens its namespace.
fn open(clock: Clock, url: &Url, args: &ConnectArgs) -> Result<RemoteMedium, Error> {
    let hold = args.timeout.map_or(WITHOUT_END, Nanos::from);
    let place = Place {
        name: url.to_string(),
        address: url.resolve()?,
        namespace: args.namespace.map(NamespaceId),
        hold: url.hold(hold),
        options: args.options(url)?,
        // A target's Deallocate makes zeroes; ours is a hint, as the block layer's is.
        deallocates_as_hint: true,
    };
    let opened = remote::open(clock, place, PATIENCE, |what| warn!("{what}"));
    opened.map_err(|error| match error {
        remote::OpenError::Attach(error) => error.into(),
        remote::OpenError::Namespace(why) => Error::FarNamespace { why },
        remote::OpenError::Io(error) => Error::Output(error),
    })
}

/// What tells the namespace behind `medium` from all others, wherever it is reached.
fn identity(medium: &RemoteMedium) -> NamespaceIdentity {
    let (model, serial, id) = (medium.model(), medium.serial(), medium.namespace());
    NamespaceIdentity::derived(&format!("block device\n{model}\n{serial}\n{id}"))
}

/// Tells a person, or a machine, that the block device `name` can be used.
fn announce(json: bool, name: &str, about: &About) -> Result<String, Error> {
    let text = format!("{} is /dev/{name}", about.url);
    if json {
        print_json(&serde_json::json!({
            "device": format!("/dev/{name}"),
            "url": about.url,
            "over": about.over.name(),
            "bytes": about.bytes,
            "block": about.block,
            "read_only": about.read_only,
        }))?;
    } else {
        print(&format!("{text} ({})\n", indicatif::HumanBytes(about.bytes)))?;
    }
    Ok(text)
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
