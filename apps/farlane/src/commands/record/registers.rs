//! The registers of a recorder, for a guest.

use std::path::Path;

use live::drivers::beside::Beside;
use live::drivers::record::{Handle, offer_registers};

use crate::commands::guest::report;
use crate::error::Error;

/// Offers the registers of the recorder of `handle` at `path`, if somebody is to have them.
pub(super) fn start(path: Option<&Path>, handle: &Handle) -> Result<Option<Beside>, Error> {
    let Some(path) = path else { return Ok(None) };
    let offered = offer_registers(path, handle, report);
    offered.map(Some).map_err(|error| Error::Bind { path: path.to_owned(), error })
}
