//! The metrics of a running process for programs that watch many: OpenMetrics over HTTP.
//!
//! A thread of its own answers requests. It takes the daemon's status from the loop, as a client of
//! the control socket does, and derives the metrics from the status.

mod ask;
mod server;
mod text;

pub(crate) use ask::{Asked, ask};

use std::net::SocketAddr;

use live::sys::usage;
use status::metrics::{Metrics, Page, Process};

use crate::Failure;

/// Answers requests at `address`, if there is one, as long as the process runs. `status` returns
/// the status of the daemon, and `None` when the process ends and there is none. An address
/// that `is_being_freed` by another process is waited for.
///
/// # Errors
/// When the address is not available.
pub(crate) fn serve<S: Metrics>(
    address: Option<SocketAddr>,
    is_being_freed: bool,
    mut status: impl FnMut() -> Option<S> + Send + 'static,
) -> Result<(), Failure> {
    let Some(address) = address else { return Ok(()) };
    let text = move || {
        let mut page = Page::default();
        process().add_to(&mut page);
        status()?.add_to(&mut page);
        Some(text::of(page))
    };
    let bound =
        server::serve(address, is_being_freed, text).map_err(|error| Failure::Metrics { address, error })?;
    info!(each = true, "figures at http://{bound}/metrics");
    Ok(())
}

/// The resources that this process has used so far.
fn process() -> Process {
    let processor_ns = u64::try_from(usage::processor_time().as_nanos()).unwrap_or(u64::MAX);
    Process { processor_ns, resident_bytes: usage::resident_bytes() }
}
