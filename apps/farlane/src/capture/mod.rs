//! Captures as files: writing our own. The crate `captures` reads them.

mod queue;
mod segments;
mod tap;
mod writer;

pub(crate) use tap::{Taps, What};
pub(crate) use writer::{Captured, Times, Wanted, capture, to_file};
