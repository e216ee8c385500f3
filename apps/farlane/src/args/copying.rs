//! `farlane read` and `farlane write`: the part of a namespace that is copied, and the file.

use std::path::PathBuf;

use clap::Args;

use super::{Output, Target, parse_size};

/// The part of a namespace that a command copies.
#[derive(Debug, Args)]
pub(crate) struct Extent {
    /// Use the namespace with this identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: u32,
    /// Start at this byte of the namespace, a multiple of its block size
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// Copy this many bytes [default: to the end of the input, or of the namespace]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// Transfer this many bytes with each command
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = parse_size)]
    pub(crate) bs: u64,
    /// Keep this many commands in progress at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) extent: Extent,
    /// Write the bytes to this file; - is standard output
    #[arg(long = "output", short = 'o', value_name = "PATH", default_value = "-")]
    pub(crate) output_file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) extent: Extent,
    /// Read the bytes from this file; - is standard input
    #[arg(long, short = 'i', value_name = "PATH", default_value = "-")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}
