//! What is done to interrupts, at both ends.

use alloc::vec::Vec;

/// What to do with interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptAction {
    /// Mask.
    Mask,
    /// Unmask.
    Unmask,
    /// Trigger; with descriptors: what to signal from now on.
    Trigger,
}

/// What comes with what is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum InterruptData<D> {
    /// Nothing: do it to each vector of the range.
    None,
    /// Do it to those vectors of the range whose entry is true; one entry for each.
    Bools(Vec<bool>),
    /// Signal these from now on, one for each vector of the range; or none at all: signal nothing for any of them.
    Descriptors(Vec<D>),
}
