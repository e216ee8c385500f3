//! The figures of a running process for programs that watch many: OpenMetrics over HTTP.
//!
//! A thread of its own answers requests. The thread takes the figures of a loop from the loop in
//! small jobs, so that a request never holds up the data path.

mod page;
mod process;
mod server;

pub use page::{Family, Kind, Labels, Page, seconds};

use std::net::SocketAddr;

use crate::Failure;

/// Answers requests at `address`, if there is one, as long as the process runs. `figures` adds the
/// figures of the daemon; it returns false when the process ends and there are no more.
///
/// # Errors
/// When the address is not available.
pub(crate) fn serve(
    address: Option<SocketAddr>,
    mut figures: impl FnMut(&mut Page) -> bool + Send + 'static,
) -> Result<(), Failure> {
    let Some(address) = address else { return Ok(()) };
    let text = move || {
        let mut page = Page::default();
        process::add(&mut page);
        figures(&mut page).then(|| page.text())
    };
    let bound = server::serve(address, text).map_err(|error| Failure::Metrics { address, error })?;
    info!(each = true, "figures at http://{bound}/metrics");
    Ok(())
}
