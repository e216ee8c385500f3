//! The figures that several daemons have. The crate `daemon` serves them.

mod controller;
mod datagrams;
mod link;
mod namespaces;

pub(crate) use controller::ControllerFigures;
pub(crate) use daemon::metrics::{Kind, Labels, Page, seconds};
pub(crate) use datagrams::add_datagrams;
pub(crate) use link::{Link, add_connections, add_reads};
pub(crate) use namespaces::{add_all_namespaces, add_health, add_host, next_namespaces};

use crate::args::MetricsArgs;
use crate::error::Error;

/// Answers requests at the address that `args` name, like [`daemon::metrics::serve`].
///
/// # Errors
/// When the address can't be had.
pub(crate) fn serve(
    args: &MetricsArgs,
    figures: impl FnMut(&mut Page) -> bool + Send + 'static,
) -> Result<(), Error> {
    Ok(daemon::metrics::serve(args.metrics, figures)?)
}
