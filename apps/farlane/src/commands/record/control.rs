//! Whoever may ask a recorder or replayer something, and what is begun because somebody asks.

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
    let failed = |path: &std::path::Path| {
        let path = path.to_owned();
        move |error| Error::Bind { path, error }
    };
    let path = control::path("record", args.control.as_ref());
    control::make_folder();
    let asked = match ctl::start(&path, handle, args.on_demand) {
        Err(error) if args.control.is_some() => return Err(failed(&path)(error)),
        // Nobody asked for the default one.
        asked => asked.ok(),
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
