//! Whether the machine has the memory for the served namespaces.

use live::sys::memory;

use crate::error::Error;

/// Checks that `bytes` of memory fit the machine. Warns if so much is not available now: memory is
/// taken as it is written.
///
/// # Errors
/// When the machine has less memory.
pub(crate) fn check(bytes: u64) -> Result<(), Error> {
    if let Some(machine) = memory::total().filter(|machine| bytes > *machine) {
        let expected = format!(
            "at most {machine} B, the memory of this machine; a file may be longer: --namespace PATH,size=SIZE"
        );
        return Err(Error::Range { what: "memory for namespaces of", value: bytes, expected });
    }
    if let Some(available) = memory::available().filter(|available| bytes > *available) {
        warn!(
            "namespaces take up to {bytes} B of memory, and {available} B are available: as they fill up, the system \
             may end processes; make them smaller, or use a file (--namespace PATH,size=SIZE)"
        );
    }
    Ok(())
}

/// Checks that the machine has as much memory as the limit that the option `what` gives.
///
/// # Errors
/// When the machine has less memory.
pub(crate) fn check_limit(what: &'static str, bytes: u64) -> Result<(), Error> {
    match memory::total().filter(|machine| bytes > *machine) {
        None => Ok(()),
        Some(machine) => {
            let expected = format!("at most {machine} B, the memory of this machine");
            Err(Error::Range { what, value: bytes, expected })
        }
    }
}
