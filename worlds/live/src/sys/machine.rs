//! The limits of this machine and this process, read without changing anything.

use std::io;

use rustix::process::{Resource, getrlimit};

/// Whether files and block devices can be used through io_uring.
///
/// # Errors
/// Why not.
pub fn io_uring() -> io::Result<()> {
    io_uring::IoUring::new(1).map(drop)
}

/// How many bytes of memory this process may keep from being paged out (`RLIMIT_MEMLOCK`); none if
/// there is no limit.
pub fn locked_bytes_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// How many descriptors this process can get (`RLIMIT_NOFILE`); none if there is no limit.
pub fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}
