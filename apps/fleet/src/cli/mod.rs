//! The command line of `farlane fleet`.

mod args;
mod csi;
mod objects;
mod print;
mod serve;
mod values;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::Parser;

use crate::api::{Failure, FailureCode};
use args::{Cli, Command};

/// The end of a command that has failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Controller(#[from] crate::controller::ControllerError),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error(transparent)]
    Agent(#[from] crate::agent::AgentError),
    #[error(transparent)]
    Csi(#[from] crate::csi::CsiError),
    #[error("{0}; {help}", help = .0.help())]
    Key(#[from] live::carrier::identity::KeyError),
    #[error("{0}")]
    Wrong(String),
    #[error("{0}: {1}")]
    File(std::path::PathBuf, io::Error),
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl Error {
    /// The exit status: 2 for what fails again in the same way, as `farlane` has it.
    const fn exit(&self) -> u8 {
        match self {
            Self::Wrong(_) => 2,
            Self::Failure(Failure {
                code: FailureCode::Invalid | FailureCode::Forbidden | FailureCode::NotFound,
                ..
            }) => 2,
            _ => 1,
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log(&cli);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Error::Output(error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farlane fleet: {error}");
            ExitCode::from(error.exit())
        }
    }
}

/// Events go to standard error: of services all, of other commands warnings.
fn log(cli: &Cli) {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::prelude::*;
    let level = match (&cli.command, cli.verbose) {
        (_, 2..) => LevelFilter::DEBUG,
        (Command::Up(_) | Command::Controller(_) | Command::Agent(_) | Command::Csi(_), _) | (_, 1) => {
            LevelFilter::INFO
        }
        _ => LevelFilter::WARN,
    };
    let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(is_terminal)
        .with_target(false)
        .with_timer(tracing_subscriber::fmt::time::SystemTime);
    tracing_subscriber::registry().with(level).with(lines).init();
}

async fn run(cli: Cli) -> Result<(), Error> {
    let Cli { command, access, json, .. } = cli;
    match command {
        Command::Up(args) => serve::up(args, json).await,
        Command::Controller(args) => serve::controller(args, json).await,
        Command::Agent(args) => serve::agent(args).await,
        Command::Join(args) => serve::join(args, json).await,
        Command::Csi(args) => csi::run(args, &access).await,
        Command::Openapi => print::json(&crate::api::description::openapi()),
        command => objects::run(command, &access, json).await,
    }
}
