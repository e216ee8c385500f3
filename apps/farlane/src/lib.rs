//! The `farlane` program as a library: parses arguments, runs a subcommand, and reports its error.
//!
//! `src/main.rs` calls [`run`], and so can a test in its own process.

#![forbid(unsafe_code)]

/// Logs an event like `info!`, for events that are logged once for each thing given at the start.
/// The log does not take lines that resemble each other for repetitions.
macro_rules! note {
    ($($words:tt)*) => { info!(each = true, $($words)*) };
}

#[macro_use]
extern crate tracing;

mod args;
mod capture;
mod columns;
mod commands;
mod config_file;
mod counters;
mod device_path;
mod drawing;
mod error;
mod exit;
mod failure;
mod hops;
mod lasting;
mod picture;
mod plan_file;
mod processor;
mod protected;
mod session;
mod suggestions;
mod whole_file;
mod workload;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::names::Modern;
use args::{
    Cli, Command, LogForm, MeasureCommand, ModelCommand, ObserveCommand, OfferCommand, RecordingCommand,
    SetupCommand, UseCommand,
};

/// Makes every option that takes values accept a negative number, which the option's parser then
/// refuses with a reason.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes =
        |arg: clap::Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// The command line that the program understands.
fn command_line() -> clap::Command {
    let root = args::arrange(config_file::add_to(args::new_files::add_to(Cli::command())));
    with_negative_numbers(root)
}

/// Runs the program with `words`, the first of which is the program's own name. Returns the exit
/// status. A usage error, and a page that `--help` prints, end the process.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(beside) = words.get(1).and_then(|word| commands::beside::Beside::of(word)) {
        return failure::end(&beside.run(&words[2..]), LogForm::Text);
    }
    // Otherwise the error for `--offset -1` asks whether `-1` is an option, instead of explaining
    // an offset.
    let root = command_line();
    let Modern { words, note } = args::names::modern(&root, words);
    let words = device_path::expand(&root, words);
    let line = match config_file::expand(&root, words) {
        Ok(line) => line,
        Err(error) => return failure::end(&error, LogForm::Text),
    };
    let matches = match root.clone().try_get_matches_from(&line.words) {
        Ok(matches) => matches,
        Err(error) => match line.blame(&error) {
            Some(error) => return failure::end(&error, LogForm::Text),
            None => {
                failure::note_before_refusal(note.as_deref());
                failure::refuse(&suggestions::with_suggestions(error, &root, &line.words))
            }
        },
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| failure::refuse(&error));
    args::new_files::apply(&matches);
    let log = cli.log;
    let result = log.begin(cli.command.is_service()).and_then(|()| {
        if let Some(note) = &note {
            failure::note(note, log.form);
        }
        // The command's arguments, in the order in which they were given.
        dispatch(cli.command, matches.subcommand().map_or(&matches, |(_, given)| given))
    });
    match result {
        Ok(()) => {
            live::sys::logging::flush();
            exit::Exit::Done.into()
        }
        Err(error) => failure::end(&error, log.form),
    }
}

/// Runs a daily word, which has its arguments in the order in which they were `given`, or a command
/// of a group.
fn dispatch(command: Command, given: &clap::ArgMatches) -> Result<(), error::Error> {
    match command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Export(args) => commands::export::run(*args, given),
        Command::Target(args) => commands::target::run(*args),
        Command::Attach(args) => commands::attach::run(&args),
        Command::Connect(args) => commands::connect::run(&args),
        Command::Bench(args) => commands::bench::run(*args),
        Command::Record(args) => commands::record::recorder::command(&args),
        Command::Offer(OfferCommand::Device(args)) => commands::device::run(&args),
        Command::Use(command) => match command {
            UseCommand::Disconnect(args) => commands::connect::disconnect::run(&args),
            UseCommand::Discover(args) => commands::discover::run(&args),
            UseCommand::Read(args) => commands::copy::read(&args),
            UseCommand::Write(args) => commands::copy::write(&args),
        },
        Command::Nvme(command) => commands::nvme::run(&command),
        Command::Measure(command) => match command {
            MeasureCommand::Ping(args) => commands::ping::run(&args),
            MeasureCommand::Report(args) => commands::measure::run(&args),
            MeasureCommand::Rdma(action) => commands::rdma::run(&action),
            MeasureCommand::Nic(args) => commands::nic::run(&args),
        },
        Command::Observe(command) => match command {
            ObserveCommand::Status(args) => commands::status::run(&args),
            ObserveCommand::List(args) => commands::status::list::run(&args),
            ObserveCommand::Top(args) => commands::top::run(&args),
            ObserveCommand::Capture(args) => commands::capture::run(&args),
            ObserveCommand::Trace(action) => commands::trace::run(&action),
            ObserveCommand::Ui(args) => commands::ui::run(&args),
            ObserveCommand::Lspci(args) => commands::lspci::run(&args),
        },
        Command::Model(command) => match command {
            ModelCommand::Sim(args) => commands::sim::play::run(&args),
            ModelCommand::Sweep(args) => commands::sim::sweep::run(&args),
            ModelCommand::Explain(args) => commands::sim::explain::run(&args),
            ModelCommand::Published(args) => commands::sim::published::run(&args),
            ModelCommand::Emulate(args) => commands::emulate::run(&args),
            ModelCommand::Tsn(action) => commands::tsn::run(&action),
        },
        Command::Recording(command) => match command {
            RecordingCommand::Replay(args) => commands::record::replay::run(&args),
            RecordingCommand::Verify(args) => commands::record::survey::verify(&args),
            RecordingCommand::Recover(args) => commands::record::survey::recover(&args),
            RecordingCommand::Info(args) => commands::record::survey::info(&args),
            RecordingCommand::Convert(args) => commands::record::export::run(&args),
            RecordingCommand::Preflight(args) => commands::preflight::run(&args),
        },
        Command::Upgrade(args) => commands::upgrade::run(&args),
        Command::Setup(command) => match command {
            SetupCommand::Upgrade(args) => commands::upgrade::run(&args),
            SetupCommand::Key(action) => commands::key::run(&action),
            SetupCommand::Check(args) => commands::check::run(&args),
            SetupCommand::Doctor(args) => commands::doctor::run(&args),
            SetupCommand::Man(args) => commands::man::run(&args),
            SetupCommand::Completions(args) => commands::completions::run(&args),
        },
        Command::FloorServer(args) => commands::floor_server::run(&args),
    }
}
