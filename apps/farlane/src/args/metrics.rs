//! The option by which programs watch a process.

use std::net::SocketAddr;

use clap::Args;

use super::headings::MONITORING;
use super::parse_address;

/// Who may watch.
#[derive(Clone, Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Answer HTTP requests at this address with figures, as Prometheus reads them, e.g.
    /// --metrics 127.0.0.1:9420.
    ///
    /// Port 0 is a free one, which is told. Whoever reaches the address can read them
    #[arg(long, value_name = "ADDR", value_parser = parse_address, help_heading = MONITORING)]
    pub(crate) metrics: Option<SocketAddr>,
}
