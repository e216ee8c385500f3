//! What this process uses of the machine.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time of the process so far, in user and system mode.
pub fn processor_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the system call writes one `rusage`, for which `usage` has room.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if result != 0 {
        return Duration::ZERO;
    }
    // SAFETY: all bytes of an `rusage` may be zero, and the call has succeeded.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
        seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or_default())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Where the system tells the memory of this process.
pub const MEMORY_FILE: &str = "/proc/self/statm";

/// Bytes of memory that the process has in use; `None` if the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string(MEMORY_FILE).ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_used_time_and_memory() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::black_box(vec![1_u8; 1 << 16]);
        }
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20), "{:?}", resident_bytes());
    }
}
