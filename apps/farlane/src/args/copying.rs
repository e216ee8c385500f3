//! `farlane use read` and `farlane use write`: the part of a namespace that is copied, and the
//! file.

use std::path::PathBuf;

use clap::Args;

use super::nvme::{number, number16};
use super::printing::{Printing, ReportPrinting};
use super::{Target, parse_size};
use crate::error::Error;

/// The part of a namespace that a command copies.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Extent {
    /// Use the namespace with this identifier
    #[arg(long, short = 'n', alias = "namespace-id", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
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
    #[command(flatten)]
    pub(crate) blocks: BlockExtent,
}

/// The same part in nvme-cli's words.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct BlockExtent {
    /// Start at this block, in place of --offset
    #[arg(short = 's', long, value_name = "LBA", value_parser = number, conflicts_with = "offset")]
    pub(crate) start_block: Option<u64>,
    /// Copy this many blocks after the first one, in place of --length: 0 is one block
    #[arg(short = 'c', long, value_name = "N", value_parser = number16, conflicts_with = "length")]
    pub(crate) block_count: Option<u16>,
    /// Copy this many bytes, as --length; with --block-count, as many as these blocks have
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "length")]
    pub(crate) data_size: Option<u64>,
}

impl Extent {
    /// The same part in bytes, for blocks of `block` bytes.
    ///
    /// # Errors
    /// When --data-size and --block-count contradict each other, or the start is beyond all bytes.
    pub(crate) fn in_bytes(&self, block: u32) -> Result<Self, Error> {
        let (block, blocks) = (u64::from(block), self.blocks);
        let range = |what, value, expected| Error::Range { what, value, expected };
        let offset = match blocks.start_block {
            Some(start) => start
                .checked_mul(block)
                .ok_or_else(|| range("--start-block", start, format!("at most {}", u64::MAX / block)))?,
            None => self.offset,
        };
        let counted = blocks.block_count.map(|count| (u64::from(count) + 1) * block);
        let length = match (counted, blocks.data_size) {
            (Some(counted), Some(size)) if counted != size => {
                return Err(range("--data-size", size, format!("{counted}, the bytes of --block-count")));
            }
            (counted, size) => counted.or(size).or(self.length),
        };
        Ok(Self { offset, length, blocks: BlockExtent::default(), ..*self })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) extent: Extent,
    /// Write the bytes to this file; - is standard output
    #[arg(
        long = "output",
        short = 'o',
        visible_alias = "data",
        visible_short_alias = 'd',
        value_name = "PATH",
        default_value = "-",
        value_parser = file
    )]
    pub(crate) output_file: PathBuf,
    #[command(flatten)]
    pub(crate) printing: ReportPrinting,
}

/// A file for data. The forms for which nvme-cli has `-o` are hardly meant as one.
fn file(text: &str) -> Result<PathBuf, String> {
    match text {
        "json" | "normal" | "binary" => Err(format!(
            "-o names a file here; expected ./{text} for a file of that name, or --output-format {text} for the report"
        )),
        path => Ok(path.into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) extent: Extent,
    /// Read the bytes from this file; - is standard input
    #[arg(
        long,
        short = 'i',
        visible_alias = "data",
        visible_short_alias = 'd',
        value_name = "PATH",
        default_value = "-"
    )]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_no_file() {
        assert!(file("json").unwrap_err().contains("--output-format json"));
        assert_eq!(file("./json"), Ok("./json".into()));
    }

    #[test]
    fn blocks_are_bytes_of_their_size() {
        let extent = Extent {
            namespace: 1,
            offset: 0,
            length: None,
            bs: 4096,
            iodepth: 1,
            blocks: BlockExtent { start_block: Some(2), block_count: Some(7), data_size: Some(4096) },
        };
        let bytes = extent.in_bytes(512).unwrap();
        assert_eq!((bytes.offset, bytes.length, bytes.bs), (1024, Some(4096), 4096));
        let error = extent.in_bytes(4096).unwrap_err().to_string();
        assert!(error.contains("--data-size 4096") && error.contains("32768"), "{error}");
        let blocks = BlockExtent { start_block: Some(u64::MAX), ..BlockExtent::default() };
        assert!(Extent { blocks, ..extent }.in_bytes(512).is_err());
        let plain = Extent { offset: 5, length: Some(6), blocks: BlockExtent::default(), ..extent };
        let same = plain.in_bytes(512).unwrap();
        assert_eq!((same.offset, same.length), (5, Some(6)));
        let size = BlockExtent { data_size: Some(100), ..BlockExtent::default() };
        assert_eq!(Extent { blocks: size, length: None, ..plain }.in_bytes(512).unwrap().length, Some(100));
    }
}
