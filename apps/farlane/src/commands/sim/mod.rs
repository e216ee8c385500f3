//! `farlane sim`: networks that are not there.

mod explain;
mod play;
mod plot;
mod published;
mod sweep;
mod table;

use std::path::Path;

use crate::args::{SimAction, SimArgs};
use crate::error::Error;

pub(crate) fn run(args: &SimArgs) -> Result<(), Error> {
    match &args.action {
        Some(SimAction::Explain(args)) => explain::run(args),
        Some(SimAction::Published(args)) => published::run(args),
        Some(SimAction::Sweep(args)) => sweep::run(args),
        None => play::run(&args.play),
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
