//! The `farlane` program: parses arguments, runs a subcommand, and reports its error.

#![forbid(unsafe_code)]

/// Tells a person a line, on standard error, without waiting for whoever reads it.
macro_rules! tell {
    ($($told:tt)*) => { live::sys::telling::tell(format_args!($($told)*)) };
}

/// Tells a person a line like `tell!`, for what is told once of each thing that is given at the
/// start. Lines that resemble each other are not taken for repetitions.
macro_rules! note {
    ($($told:tt)*) => { live::sys::telling::note(format_args!($($told)*)) };
}

mod args;
mod capture;
mod columns;
mod commands;
mod distribution;
mod drawing;
mod error;
mod exit;
mod hops;
mod metrics;
mod picture;
mod protected;
mod session;
mod workload;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};

/// Makes every option that takes values accept a negative number, which the option's parser then
/// refuses with a reason.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes =
        |arg: clap::Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

fn main() -> ExitCode {
    // Otherwise the error for `--offset -1` asks whether `-1` is an option, instead of saying what
    // an offset is.
    let matches =
        with_negative_numbers(Cli::command()).try_get_matches().unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    // The subcommand's arguments, in the order in which they were given.
    let given = matches.subcommand().map_or(&matches, |(_, given)| given);
    let result = match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Export(args) if !args.recorded.recording.is_empty() => {
            commands::record::export::run(&args.recorded, args.output.json)
        }
        Command::Export(args) => commands::export::run(args, given),
        Command::Attach(args) => commands::attach::run(&args),
        Command::Device(args) => commands::device::run(&args),
        Command::Target(args) => commands::target::run(args),
        Command::Lspci(args) => commands::lspci::run(&args),
        Command::Identify(args) => commands::identify::run(&args),
        Command::SmartLog(args) => commands::smart_log::run(&args),
        Command::Ping(args) => commands::ping::run(&args),
        Command::Measure(args) => commands::measure::run(&args),
        Command::Read(args) => commands::copy::read(&args),
        Command::Write(args) => commands::copy::write(&args),
        Command::Discover(args) => commands::discover::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Key(action) => commands::key::run(&action),
        Command::Status(args) => commands::status::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Sim(args) => commands::sim::run(&args),
        Command::Trace(action) => commands::trace::run(&action),
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
        Command::FloorServer(args) => commands::floor_server::run(&args),
    };
    let Err(error) = result else {
        live::sys::telling::flush();
        return exit::Exit::Done.into();
    };
    let code = error.exit();
    live::sys::telling::tell_last(report(&error));
    code.into()
}

/// The text of an error, in the form of errors about arguments: what is wrong, then what to do.
fn report(error: &error::Error) -> String {
    match miette::Diagnostic::help(error) {
        Some(help) => format!("error: {error}\n\n  help: {help}"),
        None => format!("error: {error}"),
    }
}

/// Ends the program with what is wrong with its arguments, or with the help that was asked for. The
/// parsers of numbers don't say what they expect, so their messages are replaced.
fn refuse(error: &clap::Error) -> ! {
    if error.kind() == clap::error::ErrorKind::ValueValidation {
        let styled = error.render();
        let text = match std::io::stderr().is_terminal() {
            true => styled.ansi().to_string(),
            false => styled.to_string(),
        };
        let text = text.replace("invalid digit found in string", "expected a whole number, such as 1");
        let text =
            text.replace("cannot parse integer from empty string", "expected a whole number, such as 1");
        eprint!("{text}");
        std::process::exit(error.exit_code());
    }
    error.exit()
}
