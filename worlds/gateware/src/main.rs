//! Programs around Farlane's circuits; see `--help`.

#![forbid(unsafe_code)]

#[cfg(verilated)]
mod program;

#[cfg(verilated)]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(verilated))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "farlane-gateware was built without circuits: install Verilator (Debian package verilator) and build it again"
    );
    std::process::ExitCode::from(69)
}
