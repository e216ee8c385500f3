//! Recording and replaying without a container.

use clap::{Args, value_parser};
use record::format::ALIGNMENT;

use super::{parse_positive_size, parse_size};

/// Parses an address of a whole page.
fn parse_address(text: &str) -> Result<u64, String> {
    let address = parse_size(text)?;
    let page = u64::from(ALIGNMENT);
    let expected = || format!("expected a multiple of {ALIGNMENT}, such as {}", address / page * page);
    if address.is_multiple_of(page) { Ok(address) } else { Err(expected()) }
}

/// The destination of a stream without a container.
#[derive(Clone, Debug, Args)]
pub(crate) struct RawArgs {
    /// Write the stream's bytes alone, without a container, from an address of the medium on.
    ///
    /// One --from goes to one --to. Datagrams lie one behind the other without heads, and lost ones
    /// keep their place where sequence= reveals them. The medium does not describe its contents:
    /// the report does, e.g. --raw --start-address 1GiB --maximum-address 2GiB
    #[arg(long, conflicts_with_all = ["ring", "sign", "pre_trigger", "each"])]
    pub(crate) raw: bool,
    /// The address of the first byte on the medium, a multiple of 4096
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = parse_address, requires = "raw")]
    pub(crate) start_address: u64,

    /// End before this address of the medium, a multiple of 4096, e.g. --maximum-address 2GiB
    /// [default: where the medium ends]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, requires = "raw")]
    pub(crate) maximum_address: Option<u64>,
    /// End after so many chunks
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..), requires = "raw")]
    pub(crate) chunks: Option<u64>,
}

/// The bytes to send from a medium without a container.
#[derive(Clone, Debug, Args)]
pub(crate) struct RawReplayArgs {
    /// Send the bytes of a medium as they are there, from address to address, as fast as possible.
    ///
    /// It reads the bytes that farlane record --raw has written, or any others, e.g. --raw
    /// --start-address 1GiB --maximum-address 2GiB
    #[arg(long, conflicts_with_all = ["stream", "from_offset", "bytes", "from_time", "time", "speed"])]
    pub(crate) raw: bool,
    /// The address of the first byte, a multiple of 4096
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = parse_address, requires = "raw")]
    pub(crate) start_address: u64,

    /// Send the bytes before this address, such as the last address that a recorder has reported
    /// [default: where the medium ends]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_positive_size, requires = "raw")]
    pub(crate) maximum_address: Option<u64>,
}
