//! `farlane floor-server`: the far side of a floor measurement.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct FloorServerArgs {
    /// Address to listen on; the one that was bound is the first line of standard output
    #[arg(long, default_value = "127.0.0.1:0", value_parser = super::parse_address)]
    pub(crate) listen: SocketAddr,
    /// Stay on this processor
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
}
