//! The processor that a loop runs on.

use std::io;

use engine::Nanos;

/// A spin budget for this machine: long enough for a round trip on a local network, none where the
/// spinning would take the only processor from the peer it waits for.
pub fn spin_default() -> Nanos {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => Nanos::from_micros(200),
        _ => Nanos::ZERO,
    }
}

/// Keeps this thread on one of the processors that it may use: the one at `index` among them, counted around. Two
/// ends that spin for each other on one machine need different ones, and the system does not know that.
///
/// # Errors
/// When the system refuses.
pub fn pin(index: usize) -> io::Result<()> {
    let mut allowed = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most one `cpu_set_t`; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), allowed.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a valid `cpu_set_t`, and the kernel has overwritten it with one.
    let allowed = unsafe { allowed.assume_init() };
    let most = usize::try_from(libc::CPU_SETSIZE).expect("a constant of the system");
    // SAFETY: every processor asked about is below the size of the set.
    let processors: Vec<_> =
        (0..most).filter(|&number| unsafe { libc::CPU_ISSET(number, &allowed) }).collect();
    if processors.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let chosen = processors[index % processors.len()];
    // SAFETY: all zeroes is a valid `cpu_set_t`, the empty one.
    let mut one = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: the processor is below the size of the set.
    unsafe { libc::CPU_SET(chosen, &mut one) };
    // SAFETY: the kernel reads one `cpu_set_t`; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        // In a thread of its own, which takes the choice with it.
        std::thread::spawn(|| {
            pin(usize::MAX).unwrap();
            assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
            pin(5).unwrap();
            assert_eq!(spin_default(), Nanos::ZERO);
        })
        .join()
        .unwrap();
    }
}
