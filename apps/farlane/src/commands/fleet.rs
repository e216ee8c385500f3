//! `farlane fleet`: the program `farlane-fleet`, which is beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;

/// The name of the program.
const PROGRAM: &str = "farlane-fleet";
/// Without it.
const MISSING: &str =
    "the program farlane-fleet, which belongs beside farlane (cargo build --package farlane-fleetd)";

/// Becomes the program of fleets, with the words behind `farlane fleet`. Returns if there is no
/// such program.
pub(crate) fn run(words: &[OsString]) -> Error {
    let beside = std::env::current_exe().ok().map(|this| this.with_file_name(PROGRAM));
    let path = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&path).args(words).exec();
    Error::Child { what: MISSING, error }
}
