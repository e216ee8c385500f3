//! Calls of a socket that fail although it is called readable.

use std::io;

use tracing::warn;

/// How the latest call of a socket ended. While it failed, the socket ends no sleep: it would do so
/// at once and without end. The call is tried again after each sleep.
#[derive(Debug, Default)]
pub(super) struct Failing {
    fails: bool,
    is_logged: bool,
}

impl Failing {
    /// Takes in how a call ended. Logs the first failure, with the action of the call.
    pub(super) fn on_result<T>(&mut self, what: &str, result: &io::Result<T>) {
        let error = result.as_ref().err().filter(|error| !is_usual(error.kind()));
        self.fails = error.is_some();
        if let Some(error) = error
            && !std::mem::replace(&mut self.is_logged, true)
        {
            warn!("{what} fails and is tried again and again: {error}");
        }
    }

    /// Whether the latest call failed.
    pub(super) const fn fails(&self) -> bool {
        self.fails
    }
}

/// Whether a call ends so if nothing is there, or not any more.
const fn is_usual(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_finds_nothing_has_not_failed() {
        let mut failing = Failing::default();
        let mut ends = |result: io::Result<()>| {
            failing.on_result("accepting a connection", &result);
            (failing.fails(), failing.is_logged)
        };
        assert_eq!(ends(Err(io::ErrorKind::WouldBlock.into())), (false, false));
        let full = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!((ends(full()), ends(full())), ((true, true), (true, true)));
        assert_eq!(ends(Err(io::ErrorKind::WouldBlock.into())), (false, true));
        assert_eq!((ends(full()), ends(Ok(()))), ((true, true), (false, true)));
    }
}
