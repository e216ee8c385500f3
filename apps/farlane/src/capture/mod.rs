//! Captures as files: writing our own. The crate `captures` reads them.

mod outcome;
mod queue;
mod segments;
mod tap;
mod tracing;
mod writer;

pub(crate) use outcome::{Lent, Outcome};
pub(crate) use tap::{Taps, What};
pub(crate) use tracing::Tracing;
pub(crate) use writer::{Captured, Times, Wanted, capture, capture_reporting};
