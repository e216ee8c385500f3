//! Commands that change the offers of a running daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{MediumSpec, Output, RamSpec, parse_address, parse_size};

const ADD_EXAMPLES: &str = "Examples:
  farlane export add --namespace /srv/new.img,size=10GiB
  farlane export add --far-end 127.0.0.1:4431 --ram 1GiB";

const RESIZE_EXAMPLES: &str = "Examples:
  truncate -s 20G disk.img && farlane export resize --nsid 1
  farlane export resize --far-end 127.0.0.1:4431 --nsid 2 --size 2GiB";

const SAVE_EXAMPLES: &str = "Examples:
  farlane export save
  farlane export save --control /run/farlane-export-disk/control --to new.toml --json";

/// What to ask of running far ends.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportAction {
    /// Show what far ends do, like farlane observe status
    Status(DaemonStatusArgs),
    /// Add a namespace to a far end; its host hears of the change at once
    #[command(after_help = ADD_EXAMPLES)]
    Add(ExportAddArgs),
    /// Remove a namespace from a far end; its host hears of the change at once.
    ///
    /// Commands for it that are under way end first
    Remove(ExportRemoveArgs),
    /// Change the size of a namespace; its host hears of the change at once.
    ///
    /// Without --size, the namespace gets the current size of its file or block device
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ExportResizeArgs),
    /// Write what was changed at run time into the --config file; its comments stay.
    ///
    /// The file is changed by this command and with its rights, not by the far end
    #[command(after_help = SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// Read the --config file again, and add, remove and resize namespaces as it says
    Reload(ControlArgs),
}

/// Which running daemon is asked.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Use this control socket [default: that of the only such daemon of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// Which running daemon shows what it does, and in which form.
#[derive(Debug, Args)]
pub(crate) struct DaemonStatusArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which far end of a process is meant.
#[derive(Debug, Args)]
pub(crate) struct FarEndArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// Use the far end that listens on this address [default: the only one]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) far_end: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportAddArgs {
    #[command(flatten)]
    pub(crate) place: FarEndArgs,
    #[command(flatten)]
    pub(crate) added: AddedMedium,
}

#[derive(Debug, Args)]
pub(crate) struct ExportRemoveArgs {
    #[command(flatten)]
    pub(crate) place: FarEndArgs,
    #[command(flatten)]
    pub(crate) removed: RemovedNamespace,
}

#[derive(Debug, Args)]
pub(crate) struct ExportResizeArgs {
    #[command(flatten)]
    pub(crate) place: FarEndArgs,
    #[command(flatten)]
    pub(crate) resized: ResizedNamespace,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What holds the data of a namespace that is added.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct AddedMedium {
    /// Serve a file, a block device, or a namespace of another device.
    ///
    /// Another device is tcp://HOST:PORT[,nsid=N] or nvme-tcp://HOST:PORT/NQN[,nsid=N]
    #[arg(long, value_name = "PATH[,size=SIZE][,block=512|4096][,protection=16|64][,readonly]")]
    pub(crate) namespace: Option<MediumSpec>,
    /// Serve memory of this size
    #[arg(long, value_name = "SIZE[,block=512|4096][,protection=16|64]")]
    pub(crate) ram: Option<RamSpec>,
}

#[derive(Debug, Args)]
pub(crate) struct RemovedNamespace {
    /// Remove the namespace with this identifier
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nsid: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ResizedNamespace {
    /// Resize the namespace with this identifier
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nsid: u32,
    /// Set this size [default: the current size of the namespace's file or block device]
    ///
    /// A file gets the new size too
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
}

/// Where to write what a daemon offers.
#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// Leave the daemon's file as it is, and write the changed text to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}
