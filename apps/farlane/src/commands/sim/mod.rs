//! `farlane sim`: networks that are not there.

mod play;
mod plot;
mod published;
mod sweep;

use std::path::Path;

use crate::args::{SimAction, SimArgs};
use crate::error::Error;

pub(crate) fn run(args: &SimArgs) -> Result<(), Error> {
    match (&args.action, &args.play) {
        (Some(SimAction::Published(args)), _) => published::run(args),
        (Some(SimAction::Sweep(args)), _) => sweep::run(args),
        (None, Some(args)) => play::run(args),
        (None, None) => unreachable!("one of them is required"),
    }
}

/// A file's text.
fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::Simulation(format!("{}: {error}", path.display())))
}

/// Writes a file.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::Simulation(format!("{}: {error}", path.display())))
}
