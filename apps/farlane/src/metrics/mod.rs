//! The figures of a running process for programs that watch many: OpenMetrics over HTTP.
//!
//! A thread of its own answers requests. What belongs to a loop, the thread takes from the loop in
//! small jobs, so that a request never holds up the data path.

mod controller;
mod datagrams;
mod link;
mod namespaces;
mod page;
mod process;
mod server;

pub(crate) use controller::ControllerFigures;
pub(crate) use datagrams::add_datagrams;
pub(crate) use link::{Link, add_connections, add_reads};
pub(crate) use namespaces::{add_all_namespaces, add_health, add_host, next_namespaces};
pub(crate) use page::{Kind, Labels, Page, seconds};

use crate::args::MetricsArgs;
use crate::error::Error;

/// Answers whoever asks at the address that `args` names, if they name one, as long as the process
/// runs. `figures` adds what the process has to tell; it returns false when there is no more to
/// tell, because the process ends.
///
/// # Errors
/// When the address can't be had.
pub(crate) fn serve(
    args: &MetricsArgs,
    mut figures: impl FnMut(&mut Page) -> bool + Send + 'static,
) -> Result<(), Error> {
    let Some(address) = args.metrics else { return Ok(()) };
    let text = move || {
        let mut page = Page::default();
        process::add(&mut page);
        figures(&mut page).then(|| page.text())
    };
    let bound = server::serve(address, text).map_err(|error| Error::Metrics { address, error })?;
    note!("figures at http://{bound}/metrics");
    Ok(())
}
