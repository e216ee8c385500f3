//! The options of the commands that read less common log pages.

use std::path::PathBuf;

use clap::Args;

use super::{At, Detail, ReadAt, number8, number16, number32};

#[derive(Debug, Args)]
pub(crate) struct EffectsLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// Command Set Identifier
    #[arg(short = 'c', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) csi: u8,
}

#[derive(Debug, Args)]
pub(crate) struct AnaLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// List the groups without their namespaces
    #[arg(short = 'g', long)]
    pub(crate) groups: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChangedNsArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Leave the page's event outstanding
    #[arg(short = 'r', long)]
    pub(crate) rae: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnduranceLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// The Endurance Group
    #[arg(short = 'g', long, value_name = "N", default_value = "1", value_parser = number16)]
    pub(crate) group_id: u16,
}

#[derive(Debug, Args)]
pub(crate) struct PersistentEventLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Do this: 0 read, 1 establish a reporting context and read, 2 release the context
    /// [default: establish a context, read, and release the context]
    #[arg(short = 'a', long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) action: Option<u8>,
    /// Read this many bytes, a multiple of 4 [default: the whole log]
    #[arg(short = 'l', long, alias = "log_len", value_name = "BYTES", value_parser = number32)]
    pub(crate) log_len: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct TelemetryLogArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Write the log to this file
    #[arg(short = 'O', long, value_name = "FILE")]
    pub(crate) output_file: PathBuf,
    /// Have the controller make a new snapshot: 1; read the latest one: 0
    #[arg(short = 'g', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) host_generate: u8,
    /// Read the snapshot that the controller made on its own
    #[arg(short = 'c', long, conflicts_with = "host_generate")]
    pub(crate) controller_init: bool,
    /// Read up to this data area
    #[arg(short = 'd', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) data_area: u8,
    /// Leave the event of a snapshot that the controller made outstanding
    #[arg(short = 'r', long, requires = "controller_init")]
    pub(crate) rae: bool,
}
