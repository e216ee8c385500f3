//! Options of sockets that no library of ours has.

use std::io;
use std::os::fd::AsRawFd;

/// Sets an option whose value is an integer (`setsockopt(2)`).
///
/// # Errors
/// When the system does not have the option, or not with this value.
pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("an integer has four bytes");
    // SAFETY: the option's value is the integer that outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The value of an option that is an integer (`getsockopt(2)`).
///
/// # Errors
/// When the system does not have the option.
pub(crate) fn get_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&value)).expect("an integer has four bytes");
    // SAFETY: the kernel writes at most `length` bytes to the integer, which outlives the call.
    let result = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
