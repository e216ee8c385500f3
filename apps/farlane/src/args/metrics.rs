//! The option by which programs watch a process.

use std::net::SocketAddr;

use clap::Args;

use super::headings::MONITORING;
use super::parse_address;

/// The address of the metrics.
#[derive(Clone, Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve metrics in Prometheus' format over HTTP at this address, e.g.
    /// --metrics 127.0.0.1:9420.
    ///
    /// With port 0, the system chooses a port, and the log names it. Every client that reaches the
    /// address can read the metrics
    #[arg(long, value_name = "ADDR", value_parser = parse_address, help_heading = MONITORING)]
    pub(crate) metrics: Option<SocketAddr>,
}
