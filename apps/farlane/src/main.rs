//! The `farlane` program: arguments, wiring, reports.

/// Tells a person a line, on standard error, without waiting for whoever reads it.
macro_rules! tell {
    ($($told:tt)*) => { live::telling::tell(format_args!($($told)*)) };
}

mod args;
mod commands;
mod device_url;
mod distribution;
mod drawing;
mod error;
mod fabrics;
mod picture;
mod session;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // What was given, in its order.
    let given = matches.subcommand().map_or(&matches, |(_, given)| given);
    let result = match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Export(args) => commands::export::run(args, given),
        Command::Attach(args) => commands::attach::run(&args),
        Command::Device(args) => commands::device::run(&args),
        Command::Target(args) => commands::target::run(args),
        Command::Lspci(args) => commands::lspci::run(&args),
        Command::Identify(args) => commands::identify::run(&args),
        Command::SmartLog(args) => commands::smart_log::run(&args),
        Command::Ping(args) => commands::ping::run(&args),
        Command::Read(args) => commands::copy::read(&args),
        Command::Write(args) => commands::copy::write(&args),
        Command::Discover(args) => commands::discover::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Tsn(args) => commands::tsn::run(&args),
        Command::Emulate(args) => commands::emulate::run(&args),
        Command::FloorServer(args) => commands::floor_server::run(&args),
    };
    let Err(error) = result else {
        live::telling::flush();
        return ExitCode::SUCCESS;
    };
    let code = error.exit_code();
    live::telling::tell_last(format!("Error: {:?}", miette::Report::new(error)));
    code.into()
}
