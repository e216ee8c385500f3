//! `farlane use disconnect`: removes a block device that `farlane connect` has made.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use live::drivers::ublk::name_of;
use live::sys::block_use;
use live::sys::ublk::Control;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Disconnecting, Request, list};
use crate::args::DisconnectArgs;
use crate::commands::{control, print, print_json};
use crate::error::{BlockError, Error};

/// How long a block device may take to go away.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// The block device that was removed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Disconnected<'a> {
    /// The device's path.
    disconnected: &'a str,
}

/// The object to disconnect.
enum Found {
    /// A process serves it, and has this control socket.
    Served(PathBuf),
    /// It has lost its process. This is its number.
    Waiting(u32),
}

pub(crate) fn run(args: &DisconnectArgs) -> Result<(), Error> {
    let device = match find(args)? {
        Found::Served(socket) => {
            let request = Request::Disconnect { force: args.force };
            control::ask_for::<Disconnecting>(&socket, &request)?.device
        }
        Found::Waiting(number) => remove(number, args.force)?,
    };
    wait_for_end(&device)?;
    if args.printing.is_json() {
        return print_json(&Disconnected { disconnected: &device });
    }
    print(&format!("{device} was removed\n"))
}

fn find(args: &DisconnectArgs) -> Result<Found, Error> {
    if let Some(socket) = &args.control {
        return Ok(Found::Served(socket.clone()));
    }
    let mut found: Vec<(String, Found)> = Vec::new();
    for (_, served, socket) in list::served()? {
        let device = served.device.unwrap_or_default();
        let is_it = |what| is_meant(what, &device) || is_meant(what, &served.url);
        if args.what.as_deref().is_none_or(is_it) {
            found.push((device, Found::Served(socket)));
        }
    }
    for info in list::waiting() {
        let name = format!("/dev/{}", name_of(info.device));
        if args.what.as_ref().is_none_or(|what| is_meant(what, &name)) {
            found.push((name, Found::Waiting(info.device)));
        }
    }
    match found.len() {
        0 => Err(BlockError::NotConnected { what: args.what.clone() }.into()),
        1 => Ok(found.remove(0).1),
        _ => Err(BlockError::Which { devices: found.into_iter().map(|(name, _)| name).collect() }.into()),
    }
}

/// Whether `what` names the device or URL `name`; a device's folder may be left out.
fn is_meant(what: &str, name: &str) -> bool {
    what == name || name.strip_prefix("/dev/") == Some(what)
}

/// Removes a block device that has lost its process. Returns its path.
fn remove(number: u32, force: bool) -> Result<String, Error> {
    let name = name_of(number);
    let device = format!("/dev/{name}");
    let users = block_use::users(&name);
    if !users.is_empty() && !force {
        return Err(BlockError::InUse { device, users }.into());
    }
    let mut control = Control::open().map_err(BlockError::Ublk)?;
    control.stop(number).map_err(BlockError::Ublk)?;
    control.delete(number).map_err(BlockError::Ublk)?;
    Ok(device)
}

/// Waits until the block device is gone.
fn wait_for_end(device: &str) -> Result<(), Error> {
    let name = Path::new(device).file_name().unwrap_or_default();
    let place = Path::new("/sys/class/block").join(name);
    let until = Instant::now() + GONE_WITHIN;
    while !name.is_empty() && place.exists() {
        if Instant::now() > until {
            let seconds = GONE_WITHIN.as_secs();
            return Err(BlockError::Stays { device: device.to_owned(), seconds }.into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
