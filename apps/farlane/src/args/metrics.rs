//! The option by which programs watch what a process does.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use live::sys::sandbox::Needs;
use live::sys::usage::MEMORY_FILE;

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

impl MetricsArgs {
    /// Adds what answers need of the machine to `needs`.
    pub(crate) fn need(&self, needs: &mut Needs) {
        if self.metrics.is_some() {
            needs.read_beside(Path::new(MEMORY_FILE));
        }
    }
}
