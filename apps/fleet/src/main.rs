//! The program `farlane-fleet`. `farlane fleet` starts it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fleetd::cli::main()
}
