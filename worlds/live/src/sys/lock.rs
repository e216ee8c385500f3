//! Files that only one process uses at a time. Advisory locks end with their holder, if not at
//! once.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a holder that lives, because it may be about to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a holder that is dead. After `kill -9`, its lock is released with the last
/// of its writes that were under way, for which a busy disk takes many seconds.
const PATIENCE_WITH_THE_DEAD: Duration = Duration::from_secs(60);
/// The interval between two attempts to lock.
const RETRY: Duration = Duration::from_millis(20);

/// Locks `file` for this process alone, or if `shared`, together with others that lock it so. Waits
/// a little for a holder that ends or has died.
///
/// # Errors
/// `WouldBlock` if another process uses the file; the file system's error if it has no locks.
pub(crate) fn lock(file: &File, shared: bool) -> Result<(), TryLockError> {
    let start = Instant::now();
    loop {
        let result = if shared { file.try_lock_shared() } else { file.try_lock() };
        let Err(TryLockError::WouldBlock) = result else { return result };
        let patience = if is_of_the_dead(file) { PATIENCE_WITH_THE_DEAD } else { PATIENCE };
        if start.elapsed() > patience {
            return result;
        }
        std::thread::sleep(RETRY);
    }
}

/// Whether only processes that no longer exist hold the lock; `false` if the kernel does not report
/// it.
fn is_of_the_dead(file: &File) -> bool {
    let (Ok(metadata), Ok(locks)) = (file.metadata(), std::fs::read_to_string("/proc/locks")) else {
        return false;
    };
    let inode = metadata.ino().to_string();
    let mut holders = locks.lines().filter_map(|line| holder(line, &inode)).peekable();
    holders.peek().is_some() && holders.all(|holder| !Path::new("/proc").join(holder).exists())
}

/// The process that holds the lock of a line of `/proc/locks`, if that lock is on a whole file with
/// this inode; see proc_locks(5).
fn holder<'a>(line: &'a str, inode: &str) -> Option<&'a str> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let kind = fields.next()?;
    let (process, place) = (fields.nth(2)?, fields.next()?);
    // Files of other file systems may have the same number. At worst a wait is then too long or too
    // short.
    (kind == "FLOCK" && place.rsplit(':').next() == Some(inode)).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line = "1: FLOCK  ADVISORY  WRITE 30097 fe:00:10347667 0 EOF";
        assert_eq!(holder(line, "10347667"), Some("30097"));
        assert_eq!(holder(line, "347667"), None);
        assert_eq!(holder("2: POSIX  ADVISORY  READ 5 fe:00:10347667 128 128", "10347667"), None);
        assert_eq!(holder("3: -> FLOCK  ADVISORY  WRITE 7 fe:00:10347667 0 EOF", "10347667"), None);
        assert_eq!(holder("", "1"), None);
    }

    #[test]
    fn a_lock_of_the_living_is_no_lock_of_the_dead() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_of_the_dead(&file));
        lock(&file, false).unwrap();
        assert!(!is_of_the_dead(&file));
    }
}
