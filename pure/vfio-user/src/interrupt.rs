//! Operations on interrupts, for both ends.

use alloc::vec::Vec;

/// An action on interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptAction {
    /// Mask the interrupts.
    Mask,
    /// Unmask the interrupts.
    Unmask,
    /// Trigger the interrupts. With descriptors, set the events to signal from now on.
    Trigger,
}

/// The data of an operation on interrupts.
#[derive(Debug, PartialEq, Eq)]
pub enum InterruptData<D> {
    /// No data: the operation concerns each vector of the range.
    None,
    /// The operation concerns the vectors of the range whose entry is true. Each vector has an
    /// entry.
    Bools(Vec<bool>),
    /// Descriptors to signal from now on, one for each vector of the range. An empty list means
    /// that no vector of the range is signalled.
    Descriptors(Vec<D>),
}
