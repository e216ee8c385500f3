//! The command line.

mod bench;
mod campaign;
mod export;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Circuits of Farlane, compiled by Verilator, in the place of the engines whose protocols they
/// speak.
#[derive(Debug, Parser)]
#[command(name = "farlane-gateware", version)]
struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Attach to a far SSD with the circuit's upstream role: read, write, verify, measure.
    Bench(bench::Arguments),
    /// Offer an SSD in memory with the circuit's downstream role.
    Export(export::Arguments),
    /// Simulated worlds in which things go wrong, with circuits in them.
    Campaign(campaign::Arguments),
}

pub(crate) fn main() -> ExitCode {
    match Arguments::parse().job {
        Job::Bench(arguments) => bench::run(&arguments),
        Job::Export(arguments) => export::run(&arguments),
        Job::Campaign(arguments) => campaign::run(&arguments),
    }
}
