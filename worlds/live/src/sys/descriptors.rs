//! Descriptors: how many a process may have, and which connections are refused when they run out.
//!
//! The kernel gives each new descriptor the lowest free number. The number of a connection
//! therefore shows how many are in use, without a count.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors connections from other machines leave free. The process uses these to save
/// its state, add namespaces and answer its user.
pub const HEADROOM: u64 = 16;
/// How many descriptors connections by this machine's user (the control socket, a guest) leave
/// free.
pub const OWN_HEADROOM: u64 = 8;
/// How many connections must fit besides the headroom, or serving does not begin.
pub const CONNECTIONS_MIN: u64 = 8;
/// The most connections turned away in one go, so that each gets an answer soon, and served ones
/// wait only briefly.
const TURNED_AWAY_AT_ONCE: usize = 1024;

/// Connections whose peers have proved nothing may take one in this many of the descriptors.
const STRANGERS_PART: u64 = 8;

/// The process may have fewer descriptors than it needs to serve one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    /// The most descriptors that the process may have.
    pub limit: u64,
    /// The number of descriptors that the process needs.
    pub needed: u64,
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(f, "this process may have {limit} descriptors (RLIMIT_NOFILE) and needs at least {needed}")
    }
}

impl std::error::Error for TooFew {}

/// How many descriptors the process may have at once.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of descriptors to the hard limit, which needs no permission.
///
/// # Errors
/// When the limit is still too low for the descriptors in use, `opened` more, and those that
/// serving takes.
pub fn prepare(opened: u64) -> Result<(), TooFew> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system refuses, the soft limit stays in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let limit = limit();
    let in_use = File::open("/dev/null").map_or(limit, |next| number(&next));
    let needed = in_use.saturating_add(opened + HEADROOM + CONNECTIONS_MIN);
    if limit < needed { Err(TooFew { limit, needed }) } else { Ok(()) }
}

/// How many descriptors connections whose peers have proved nothing may take at once.
pub(crate) fn strangers_max() -> usize {
    usize::try_from(limit() / STRANGERS_PART).unwrap_or(usize::MAX)
}

fn number(descriptor: &impl AsRawFd) -> u64 {
    u64::try_from(descriptor.as_raw_fd()).unwrap_or(0)
}

/// Lets connections in as long as there are descriptors for them and for the process itself. Closes
/// the others, so that they neither wait nor keep the loop awake.
#[derive(Debug)]
pub(crate) struct Door {
    /// The number of descriptors that are left free.
    headroom: u64,
    /// A spare descriptor, closed to make room for accepting a connection that is to be turned
    /// away.
    reserve: RefCell<Option<OwnedFd>>,
}

impl Door {
    pub(crate) fn new(headroom: u64) -> Self {
        let door = Self { headroom, reserve: RefCell::new(None) };
        door.keep_reserve();
        door
    }

    fn keep_reserve(&self) {
        let mut reserve = self.reserve.borrow_mut();
        if reserve.is_none() {
            *reserve = File::open("/dev/null").ok().map(OwnedFd::from);
        }
    }

    /// Returns the connection that `accept` gives, if it may stay.
    ///
    /// # Errors
    /// When connections had to be turned away: the one at hand and all that waited, up to a limit.
    /// Earlier connections stay.
    pub(crate) fn admit<T: AsRawFd>(
        &self,
        mut accept: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let mut why = match accept() {
            Ok(Some(one)) if number(&one) < limit().saturating_sub(self.headroom) => return Ok(Some(one)),
            Ok(Some(_)) => Errno::MFILE.into(),
            Ok(None) => return Ok(None),
            Err(error) => error,
        };
        for _ in 0..TURNED_AWAY_AT_ONCE {
            if is_exhaustion(&why) {
                drop(self.reserve.take());
            }
            let turned_away = accept();
            self.keep_reserve();
            match turned_away {
                Ok(Some(one)) => drop(one),
                Ok(None) => break,
                Err(error) => {
                    let again = is_exhaustion(&error) && !is_exhaustion(&why);
                    why = error;
                    if !again {
                        break;
                    }
                }
            }
        }
        Err(why)
    }
}

/// Whether the process (EMFILE) or the system (ENFILE) has no descriptor left.
pub fn is_exhaustion(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A limit of the process applies to all tests in it, so this test has a process of its own.
    const CHILD: &str = "FARLANE_LIVE_TEST_DESCRIPTORS_CHILD";

    #[test]
    fn child_that_has_few_descriptors() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let accept = || match listener.accept() {
            Ok((socket, _)) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        };
        let maximum = getrlimit(Resource::Nofile).maximum;
        let few = |current| setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
        // The callers are in this process too, and connect before the limit falls.
        let mut callers: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let door = Door::new(HEADROOM);
        let next = number(&File::open("/dev/null").unwrap());
        few(next + HEADROOM + 5);
        let served: Vec<_> = std::iter::from_fn(|| door.admit(accept).unwrap_or_default()).collect();
        assert_eq!(served.len(), 5);
        // The others are not left waiting.
        for caller in &mut callers[5..] {
            assert_eq!(caller.read(&mut [0]).unwrap_or(0), 0);
        }
        assert!(door.admit(accept).unwrap().is_none(), "no connection waits any more");
        // Without a single descriptor, a caller is turned away by means of the reserve.
        few(1024);
        let caller = TcpStream::connect(address).unwrap();
        few(number(&File::open("/dev/null").unwrap()));
        assert!(File::open("/dev/null").is_err());
        for _ in 0..3 {
            assert!(door.admit(accept).is_err() || door.admit(accept).unwrap().is_none());
        }
        assert_eq!((&caller).read(&mut [0]).unwrap_or(0), 0);
        drop(served);
        let needed = number(&File::open("/dev/null").unwrap()) + HEADROOM + CONNECTIONS_MIN;
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: Some(needed) }).unwrap();
        assert_eq!(prepare(0), Ok(()));
        assert_eq!(prepare(1), Err(TooFew { limit: needed, needed: needed + 1 }));
        println!("\nheld");
    }

    #[test]
    fn a_connection_too_many_is_turned_away_and_no_other() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["sys::descriptors::tests::child_that_has_few_descriptors", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("\nheld\n"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
