//! The options of the commands that go to a namespace's blocks, and of commands of any kind.

use std::path::PathBuf;

use clap::Args;

use super::{AtNamespaceArgs, ReadAt, number, number8, number16, number32, parse_size};

/// Blocks of a namespace, as nvme-cli names them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Blocks {
    /// Begin with this block
    #[arg(short = 's', long, value_name = "LBA", default_value = "0", value_parser = number)]
    pub(crate) start_block: u64,
    /// Go on for this many further blocks: 0 is one block
    #[arg(short = 'c', long, value_name = "N", default_value = "0", value_parser = number16)]
    pub(crate) block_count: u16,
}

#[derive(Debug, Args)]
pub(crate) struct BlocksArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) blocks: Blocks,
}

#[derive(Debug, Args)]
pub(crate) struct WriteZeroesArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) blocks: Blocks,
    /// Deallocate the blocks, if they then read as zeroes
    #[arg(short = 'd', long)]
    pub(crate) deac: bool,
    /// End only when the zeroes are durable
    #[arg(short = 'f', long)]
    pub(crate) force_unit_access: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareBlocksArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) blocks: Blocks,
    /// Compare this many bytes; at least those of --block-count are [default: these]
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) data_size: Option<u64>,
    /// Compare with the bytes of this file; - is standard input
    #[arg(short = 'd', long, value_name = "FILE", default_value = "-")]
    pub(crate) data: PathBuf,
    /// Read the blocks from the medium rather than from a cache
    #[arg(short = 'f', long)]
    pub(crate) force_unit_access: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    /// Copy to the blocks from this one on
    #[arg(short = 'd', long, value_name = "LBA", value_parser = number)]
    pub(crate) sdlba: u64,
    /// The first block of each source, separated by commas
    #[arg(short = 's', long, value_name = "LBA,...", required = true, value_delimiter = ',', value_parser = number)]
    pub(crate) slbs: Vec<u64>,
    /// How many blocks follow the first one of each source, separated by commas: 0 is one block
    #[arg(short = 'b', long, value_name = "N,...", required = true, value_delimiter = ',', value_parser = number16)]
    pub(crate) blocks: Vec<u16>,
    /// End only when the copies are durable
    #[arg(short = 'f', long)]
    pub(crate) force_unit_access: bool,
    /// Let the controller try less hard to read a source
    #[arg(short = 'l', long)]
    pub(crate) limited_retry: bool,
    /// Describe the sources in this Copy Descriptor Format
    #[arg(short = 'F', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) format: u8,
}

#[derive(Debug, Args)]
pub(crate) struct DsmArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    /// Deallocate the ranges
    #[arg(short = 'd', long)]
    pub(crate) ad: bool,
    /// The first block of each range, separated by commas
    #[arg(short = 's', long, value_name = "LBA,...", required = true, value_delimiter = ',', value_parser = number)]
    pub(crate) slbs: Vec<u64>,
    /// The number of blocks of each range, separated by commas
    #[arg(short = 'b', long, value_name = "N,...", required = true, value_delimiter = ',', value_parser = number32)]
    pub(crate) blocks: Vec<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct PassthruArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Send a command with this opcode
    #[arg(short = 'O', long, value_name = "N", value_parser = number8)]
    pub(crate) opcode: u8,
    /// Byte 1 of the command: fused operations
    #[arg(short = 'f', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) flags: u8,
    /// Namespace Identifier of the command
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Command Dword 2
    #[arg(short = '2', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw2: u32,
    /// Command Dword 3
    #[arg(short = '3', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw3: u32,
    /// Command Dword 10
    #[arg(short = '4', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw10: u32,
    /// Command Dword 11
    #[arg(short = '5', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw11: u32,
    /// Command Dword 12
    #[arg(short = '6', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw12: u32,
    /// Command Dword 13
    #[arg(short = '7', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw13: u32,
    /// Command Dword 14
    #[arg(short = '8', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw14: u32,
    /// Command Dword 15
    #[arg(short = '9', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw15: u32,
    /// Transfer this many bytes of data
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "0", value_parser = number32)]
    pub(crate) data_len: u32,
    /// The data go to this host
    #[arg(short = 'r', long, conflicts_with = "write")]
    pub(crate) read: bool,
    /// The data go to the controller
    #[arg(short = 'w', long, requires = "input_file")]
    pub(crate) write: bool,
    /// Send the bytes of this file; - is standard input
    #[arg(short = 'i', long, value_name = "FILE")]
    pub(crate) input_file: Option<PathBuf>,
    /// Print the command, and send nothing
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
}
