//! `farlane connect --list`: block devices that this user's processes serve, and those that wait
//! for a process.

use live::drivers::ublk::name_of;
use live::sys::ublk::{Control, Info, State};
use serde_json::{Value, json};

use super::status;
use crate::commands::{control, print, print_json};
use crate::error::Error;

/// The status of every process of this user that serves a block device, with its control socket.
///
/// # Errors
/// As of [`control::daemons`].
pub(super) fn served() -> Result<Vec<control::Daemon>, Error> {
    let mut daemons = control::daemons()?;
    daemons.retain(|daemon| daemon.status["kind"] == "connect");
    Ok(daemons)
}

/// The block devices of the user-space block driver that have lost their process.
pub(super) fn waiting() -> Vec<Info> {
    let devices = Control::open().and_then(|mut control| control.devices()).unwrap_or_default();
    devices.into_iter().filter(|info| info.state == State::Waiting).collect()
}

pub(super) fn run(json: bool) -> Result<(), Error> {
    let (served, waiting) = (served()?, waiting());
    let left = |info: &Info| format!("/dev/{}", name_of(info.device));
    if json {
        let waiting: Vec<_> = waiting.iter().map(left).collect();
        let served: Vec<&Value> = served.iter().map(|daemon| &daemon.status).collect();
        return print_json(&json!({ "connected": served, "waiting": waiting }));
    }
    let mut text: String = served.iter().map(|daemon| status::text(&daemon.status)).collect();
    for info in &waiting {
        text += &format!("{} has lost its process: its I/O waits for farlane connect URL\n", left(info));
    }
    print(if text.is_empty() { "nothing is connected\n" } else { &text })
}
