//! `farlane floor-server`: the far side of a floor measurement.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct FloorServerArgs {
    /// Listen on this address; the first line of standard output is the address that was bound
    #[arg(long, default_value = "127.0.0.1:0", value_parser = super::parse_address)]
    pub(crate) listen: SocketAddr,
    /// Run on this processor
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
}
