//! The program `farlane-fleet`. `farlane fleet` starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleetd::cli::main()
}
