//! The `farlane` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    farlane::run(std::env::args_os())
}
