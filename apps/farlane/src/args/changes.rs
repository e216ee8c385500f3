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

/// The requests to running far ends.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportAction {
    /// Show the status of far ends, like farlane observe status
    Status(DaemonStatusArgs),
    /// Add a namespace to a far end; its host is notified at once
    #[command(after_help = ADD_EXAMPLES)]
    Add(ExportAddArgs),
    /// Remove a namespace from a far end; its host is notified at once.
    ///
    /// Commands for it that are in progress end first
    Remove(ExportRemoveArgs),
    /// Change the size of a namespace; its host is notified at once.
    ///
    /// Without --size, the namespace gets the current size of its file or block device
    #[command(after_help = RESIZE_EXAMPLES)]
    Resize(ExportResizeArgs),
    /// Write the changes made at run time to the --config file; its comments stay.
    ///
    /// This command changes the file, with its own rights; the far end does not
    #[command(after_help = SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// Read the --config file again, and add, remove and resize namespaces as it says
    Reload(ControlArgs),
}

/// The running daemon that gets the request.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Use this control socket [default: that of the only such daemon of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// The running daemon that shows its status, and the form.
#[derive(Debug, Args)]
pub(crate) struct DaemonStatusArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The far end of a process that a request concerns.
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

/// The storage of an added namespace's data.
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

/// The file for a daemon's offers.
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
