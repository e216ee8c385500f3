//! The processor that a loop runs on.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use engine::Nanos;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A spin budget for this machine: 200 µs, which is long enough for a round trip on a local
/// network. Zero where spinning would take the only processor from the peer that is waited for.
pub fn spin_default() -> Nanos {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => Nanos::from_micros(200),
        _ => Nanos::ZERO,
    }
}

/// Why a thread could not be kept on a processor.
#[derive(Debug)]
pub enum PinError {
    /// The index is beyond the processors that this process may use.
    NoSuch {
        /// The index that was asked for; the first processor is 0.
        index: usize,
        /// How many processors this process may use.
        count: usize,
    },
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuch { index, count: 1 } => {
                write!(f, "there is no processor {index}: this process may use one, 0")
            }
            Self::NoSuch { index, count } => {
                write!(f, "there is no processor {index}: this process may use {count}, 0 to {}", count - 1)
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PinError {}

/// Number of processors that this process may use; [`pin`] numbers them from 0.
///
/// # Errors
/// When the system does not report it.
pub fn processors() -> io::Result<usize> {
    allowed().map(|allowed| allowed.len())
}

/// The system's numbers of the processors that this process may use. A thread inherits the
/// processors of the thread that starts it: those of the first call count, before any thread was
/// kept on one of them.
fn allowed() -> io::Result<&'static [usize]> {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(known) = ALLOWED.get() {
        return Ok(known);
    }
    let allowed = sched_getaffinity(None)?;
    Ok(ALLOWED.get_or_init(|| (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).collect()))
}

/// Keeps this thread on the processor at `index` among those that the process may use. Two ends
/// that spin for each other on one machine need different processors, which the system does not
/// know.
///
/// # Errors
/// When there is no such processor, or the system refuses.
pub fn pin(index: usize) -> Result<(), PinError> {
    let allowed = allowed().map_err(PinError::Io)?;
    let Some(&chosen) = allowed.get(index) else {
        return Err(PinError::NoSuch { index, count: allowed.len() });
    };
    let mut one = CpuSet::new();
    one.set(chosen);
    sched_setaffinity(None, &one).map_err(|error| PinError::Io(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        // The pinning ends with this thread.
        std::thread::spawn(|| {
            let count = processors().unwrap();
            let error = pin(count).unwrap_err();
            assert!(
                matches!(error, PinError::NoSuch { index, count: there } if (index, there) == (count, count))
            );
            assert!(
                error.to_string().contains(&format!("may use {count}, 0 to {}", count - 1)) || count == 1
            );
            pin(count - 1).unwrap();
            assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
            assert_eq!(spin_default(), Nanos::ZERO);
        })
        .join()
        .unwrap();
    }
}
