//! The `farlane` program as a library: parses arguments, runs a subcommand, and reports its error.
//!
//! `src/main.rs` calls [`run`], and so can a test in its own process.

#![forbid(unsafe_code)]

/// Tells an event like `info!`, for what is told once of each thing that is given at the start.
/// Lines that resemble each other are not taken for repetitions.
macro_rules! note {
    ($($told:tt)*) => { info!(each = true, $($told)*) };
}

#[macro_use]
extern crate tracing;

mod args;
mod capture;
mod columns;
mod commands;
mod config_file;
mod device_path;
mod drawing;
mod error;
mod exit;
mod failure;
mod hops;
mod lasting;
mod metrics;
mod picture;
mod protected;
mod session;
mod whole_file;
mod workload;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command, LogForm};

/// Makes every option that takes values accept a negative number, which the option's parser then
/// refuses with a reason.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes =
        |arg: clap::Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// The command line that the program understands.
fn command_line() -> clap::Command {
    with_negative_numbers(config_file::add_to(args::new_files::add_to(Cli::command())))
}

/// Runs the program with `words`, the first of which is the program's own name. Returns the exit
/// status. A usage error, and a page that `--help` prints, end the process.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Otherwise the error for `--offset -1` asks whether `-1` is an option, instead of saying what
    // an offset is.
    let root = command_line();
    let words = device_path::expand(&root, words.into_iter().collect());
    let line = match config_file::expand(&root, words) {
        Ok(line) => line,
        Err(error) => return failure::end(&error, LogForm::Text),
    };
    let matches = match root.try_get_matches_from(&line.words) {
        Ok(matches) => matches,
        Err(error) => match line.blame(&error) {
            Some(error) => return failure::end(&error, LogForm::Text),
            None => failure::refuse(&failure::without_danger(error)),
        },
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| failure::refuse(&error));
    // The subcommand's arguments, in the order in which they were given.
    let given = matches.subcommand().map_or(&matches, |(_, given)| given);
    args::new_files::apply(&matches);
    let log = cli.log;
    let result = log.begin(cli.command.is_service()).and_then(|()| dispatch(cli.command, given));
    match result {
        Ok(()) => {
            live::sys::logging::flush();
            exit::Exit::Done.into()
        }
        Err(error) => failure::end(&error, log.form),
    }
}

/// Runs a subcommand with its arguments in the order in which they were `given`.
fn dispatch(command: Command, given: &clap::ArgMatches) -> Result<(), error::Error> {
    match command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Export(args) if !args.recorded.recording.is_empty() => {
            commands::record::export::run(&args.recorded, args.output.json)
        }
        Command::Export(args) => commands::export::run(*args, given),
        Command::Attach(args) => commands::attach::run(&args),
        Command::Device(args) => commands::device::run(&args),
        Command::Connect(args) => commands::connect::run(&args),
        Command::Disconnect(args) => commands::connect::disconnect::run(&args),
        Command::Target(args) => commands::target::run(*args),
        Command::Lspci(args) => commands::lspci::run(&args),
        Command::Identify(args) => commands::identify::run(&args),
        Command::Ping(args) => commands::ping::run(&args),
        Command::Measure(args) => commands::measure::run(&args),
        Command::Read(args) => commands::copy::read(&args),
        Command::Write(args) => commands::copy::write(&args),
        Command::Discover(args) => commands::discover::run(&args),
        Command::Bench(args) => commands::bench::run(*args),
        Command::Key(action) => commands::key::run(&action),
        Command::Status(args) => commands::status::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Capture(args) => commands::capture::run(&args),
        Command::Trace(action) => commands::trace::run(&action),
        Command::Ui(args) => commands::ui::run(&args),
        Command::Tsn(args) => commands::tsn::run(&args),
        Command::Emulate(args) => commands::emulate::run(&args),
        Command::Record(args) => commands::record::recorder::command(&args),
        Command::Preflight(args) => commands::preflight::run(&args),
        Command::Replay(args) => commands::record::replay::run(&args),
        Command::Verify(args) => commands::record::survey::verify(&args),
        Command::Recover(args) => commands::record::survey::recover(&args),
        Command::Info(args) => commands::record::survey::info(&args),
        Command::Nvme(command) => commands::nvme::run(&command),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Rdma(action) => commands::rdma::run(&action),
        Command::Nic(args) => commands::nic::run(&args),
        Command::FloorServer(args) => commands::floor_server::run(&args),
    }
}
