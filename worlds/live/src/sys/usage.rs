//! The resources of the machine that this process uses.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use engine::Nanos;
use rustix::time::{ClockId, clock_gettime};

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

/// Processor time of the calling thread so far.
pub fn thread_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Nanos::new(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// The file in which the system reports the memory of this process.
pub const MEMORY_FILE: &str = "/proc/self/statm";

/// Bytes of memory that the process has in use; `None` if the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string(MEMORY_FILE).ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

/// A thread's use of the processors so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// How long it ran.
    pub ran: Nanos,
    /// How long it was ready to run, and others ran.
    pub waited: Nanos,
}

impl Turns {
    /// Those of the thread or process whose directory of `/proc` this is; `None` if the system does
    /// not report them.
    fn of(directory: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(directory.join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || Some(Nanos::new(numbers.next()?.ok()?));
        Some(Self { ran: next()?, waited: next()? })
    }

    /// Those of the calling thread; `None` if the system does not report them.
    pub fn of_this_thread() -> Option<Self> {
        Self::of(Path::new("/proc/thread-self"))
    }

    /// The increase since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let since = |now: Nanos, then: Nanos| Nanos::new(now.get().saturating_sub(then.get()));
        Self { ran: since(self.ran, earlier.ran), waited: since(self.waited, earlier.waited) }
    }

    /// Those of each thread of this process that has this name; none if the system does not report
    /// them.
    pub fn of_threads(name: &str) -> Vec<Self> {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let has_name = |path: &Path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name)
        };
        let named = threads.map(|thread| thread.path()).filter(|path| has_name(path));
        named.filter_map(|path| Self::of(&path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_by_its_name_and_has_run() {
        let work = || {
            // The system counts now and then.
            while Turns::of_this_thread().is_some_and(|turns| turns.ran == Nanos::ZERO) {
                std::hint::black_box(vec![1_u8; 1 << 16]);
            }
            (Turns::of_this_thread(), Turns::of_threads("a worker"), Turns::of_threads("nobody"))
        };
        let worker = std::thread::Builder::new().name("a worker".into()).spawn(work).unwrap();
        let (own, named, absent) = worker.join().unwrap();
        assert!(absent.is_empty());
        // A kernel may have been built without these figures.
        let Some(own) = own else { return };
        assert_eq!(named.len(), 1);
        assert!(named[0].since(own).waited <= named[0].waited && named[0].ran >= own.ran);
    }

    #[test]
    fn a_running_process_has_used_time_and_memory() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::black_box(vec![1_u8; 1 << 16]);
        }
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20), "{:?}", resident_bytes());
    }
}
