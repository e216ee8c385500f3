//! Whoever may ask a recorder or replayer something, and what is begun because somebody asks.

use std::path::Path;

use live::drivers::beside::Beside;
use live::drivers::record::{Handle, offer_registers};
use serde_json::json;

use super::ctl;
use crate::args::RecorderControl;
use crate::commands::guest::report;
use crate::commands::{control, report_json};
use crate::error::Error;

/// Calls `session`, a recording or replay: once, or whenever somebody asks for it until the process
/// is to end. What `args` name answers meanwhile. A session on demand that fails is reported, and
/// the next one may be asked for.
pub(super) fn serve(
    args: &RecorderControl,
    handle: &Handle,
    json: bool,
    session: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Bind { path, error }
    };
    let path = control::path("record", args.control.as_ref());
    let asked = match args.control {
        Some(_) => Some(ctl::start(&path, handle, args.on_demand).map_err(failed(&path))?),
        None => default_socket(&path, handle, args.on_demand),
    };
    let registers =
        args.registers.as_deref().map(|path| offer_registers(path, handle, report).map_err(failed(path)));
    // Both answer until they are dropped.
    let _serving = (asked, registers.transpose()?);
    if !args.on_demand {
        return session();
    }
    info!("waiting for a start");
    while handle.wait_for_start() {
        if let Err(error) = session() {
            handle.fail();
            warn!("this one failed: {error}");
            if json {
                report_json(&json!({ "event": "error", "error": error.to_string() }))?;
            }
        }
    }
    Ok(())
}

/// Answers at the default socket. A recorder that can't have it logs a warning and runs without.
fn default_socket(path: &Path, handle: &Handle, waits: bool) -> Option<Beside> {
    let started = match control::make_folder() {
        Err(why) => Err(why.to_string()),
        Ok(()) => ctl::start(path, handle, waits).map_err(|error| format!("{}: {error}", path.display())),
    };
    started.map_err(|why| warn!(each = true, "no control socket in {why}; choose one with --control")).ok()
}
