//! The processor on which a command runs.

use crate::error::Error;

/// Keeps this thread on processor `cpu`, if one was chosen.
///
/// # Errors
/// When the machine has no such processor, or this process may not run there.
pub(crate) fn stay_on(cpu: Option<usize>) -> Result<(), Error> {
    cpu.map_or(Ok(()), |cpu| live::reactor::pin(cpu).map_err(Error::Processor))
}
