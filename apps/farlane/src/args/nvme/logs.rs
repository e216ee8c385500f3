//! The options of the commands that read log pages, and read and set features.

use std::path::PathBuf;

use clap::Args;

use super::{At, Detail, ReadAt, number, number8, number16, number32};

#[derive(Debug, Args)]
pub(crate) struct GetLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Read the page of this namespace; of the controller, unless given
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0xffffffff", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Read the log page with this identifier
    #[arg(short = 'i', long, value_name = "LID", value_parser = number8)]
    pub(crate) log_id: u8,
    /// Read this many bytes, a multiple of 4
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number32)]
    pub(crate) log_len: u32,
    /// Begin at this byte, a multiple of 4
    #[arg(short = 'L', long, value_name = "BYTE", default_value = "0", value_parser = number)]
    pub(crate) lpo: u64,
    /// Log Specific Field
    #[arg(short = 's', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) lsp: u8,
    /// Leave the page's event outstanding
    #[arg(short = 'r', long)]
    pub(crate) rae: bool,
    /// Log Specific Identifier, such as a group
    #[arg(short = 'S', long, value_name = "N", default_value = "0", value_parser = number16)]
    pub(crate) lsi: u16,
    /// Index of a UUID
    #[arg(short = 'U', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..128))]
    pub(crate) uuid_index: u8,
    /// Command Set Identifier
    #[arg(short = 'y', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) csi: u8,
    /// Take --lpo for the index of an entry rather than a byte; the page is then read at once
    #[arg(short = 'O', long)]
    pub(crate) ot: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SmartLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// Read the log of this namespace; of the controller, unless given
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0xffffffff", value_parser = number32)]
    pub(crate) namespace: u32,
}

#[derive(Debug, Args)]
pub(crate) struct SelfTestLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Print this many results at most, the newest first
    #[arg(short = 'e', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) dst_entries: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ErrorLogArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Read this many entries
    #[arg(short = 'e', long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) log_entries: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FeatureArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// Read the value for this namespace; for the controller, unless given
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Read the feature with this identifier
    #[arg(short = 'f', long, value_name = "FID", value_parser = number8)]
    pub(crate) feature_id: u8,
    /// Read this value: 0 the present one, 1 the default, 2 the saved one, 3 its capabilities
    #[arg(short = 's', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) sel: u8,
    /// Command Dword 11
    #[arg(short = 'c', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw11: u32,
    /// Read this many bytes of data, where the feature has data [default: as the feature has]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number32)]
    pub(crate) data_len: Option<u32>,
    /// Index of a UUID
    #[arg(short = 'U', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..128))]
    pub(crate) uuid_index: u8,
}

#[derive(Debug, Args)]
pub(crate) struct SetFeatureArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Set the value for this namespace; for the controller, unless given
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Set the feature with this identifier
    #[arg(short = 'f', long, value_name = "FID", value_parser = number8)]
    pub(crate) feature_id: u8,
    /// Set this value: Command Dword 11, or the 48 bits of a Timestamp in milliseconds since 1970
    #[arg(short = 'V', long, value_name = "N", default_value = "0", value_parser = number)]
    pub(crate) value: u64,
    /// Command Dword 12
    #[arg(short = 'c', long, value_name = "N", default_value = "0", value_parser = number32)]
    pub(crate) cdw12: u32,
    /// Index of a UUID
    #[arg(short = 'U', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..128))]
    pub(crate) uuid_index: u8,
    /// Send the bytes of this file, where the feature has data; - is standard input
    #[arg(short = 'd', long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Send this many bytes of --data [default: all]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number32, requires = "data")]
    pub(crate) data_len: Option<u32>,
    /// Keep the value across resets and power cycles
    #[arg(short = 's', long)]
    pub(crate) save: bool,
}
