//! `farlane connect --list`: block devices that this user's processes serve, and block devices that
//! wait for a process.

use std::path::PathBuf;

use ::status::{Connect, Report, SchemaVersion, Status};
use live::drivers::ublk::name_of;
use live::sys::ublk::{Control, Info, State};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::status::text;
use crate::commands::{control, print, print_line};
use crate::error::Error;

/// The report of every process of this user that serves a block device, its block device, and its
/// control socket.
///
/// # Errors
/// As of [`control::daemons`].
pub(super) fn served() -> Result<Vec<(Report, Connect, PathBuf)>, Error> {
    let device = |daemon: control::Daemon| match &daemon.report.status {
        Status::Connect(device) => {
            let device = device.clone();
            Some((daemon.report, device, daemon.socket))
        }
        _ => None,
    };
    Ok(control::daemons()?.into_iter().filter_map(device).collect())
}

/// The `--json` report.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Connected {
    schema_version: SchemaVersion,
    /// The report of each process that serves a block device.
    connected: Vec<Report>,
    /// Paths of block devices that have lost their process.
    waiting: Vec<String>,
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
        let connected = served.into_iter().map(|(report, ..)| report).collect();
        return print_line(&Connected { schema_version: SchemaVersion, connected, waiting });
    }
    let mut shown: String = served.iter().map(|(_, device, _)| text::connect(device)).collect();
    for info in &waiting {
        shown += &format!("{} has lost its process: its I/O waits for farlane connect URL\n", left(info));
    }
    print(if shown.is_empty() { "no block device is connected\n" } else { &shown })
}
