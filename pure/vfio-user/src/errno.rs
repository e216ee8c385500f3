//! Error numbers of replies.

use core::fmt;

/// A Linux errno. Replies carry the number of Linux on every system. A reply that reports an error
/// may carry zero, which does not name the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u32);

macro_rules! numbers {
    ($($name:ident = $number:literal $meaning:literal),* $(,)?) => {
        impl Errno {
            $(#[doc = $meaning] pub const $name: Self = Self($number);)*

            /// Name of the number, if it is one that this crate uses.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    ENOENT = 2 "The region of memory does not exist.",
    EIO = 5 "The device did not answer, or answered with an error.",
    ENXIO = 6 "The device does not exist.",
    E2BIG = 7 "A list is too long.",
    EAGAIN = 11 "Not now.",
    ENOMEM = 12 "No memory, or no room in a table.",
    EACCES = 13 "The region can't be used that way.",
    EFAULT = 14 "A bad address.",
    EBUSY = 16 "Too many requests are in progress.",
    EEXIST = 17 "The region of memory exists already.",
    ENODEV = 19 "The descriptor can't be mapped.",
    EINVAL = 22 "A field has an invalid value.",
    ENOSPC = 28 "The table is full.",
    ENOSYS = 38 "The command does not exist.",
    EMSGSIZE = 90 "A message is too long.",
    EOPNOTSUPP = 95 "An optional part of the protocol that is absent here (also ENOTSUP).",
    ENOTCONN = 107 "There is no connection, or it has ended.",
    ETIMEDOUT = 110 "No answer in time.",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}
