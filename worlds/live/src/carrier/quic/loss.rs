//! Why a connection has ended, and the remedy.

use std::io;

use quinn_proto::{ConnectionError, TransportErrorCode};

use super::config::IDLE_MAX;
use crate::carrier::identity::Verifier;

/// The codes with which a peer closes: after it has sent everything, and when it gives up.
pub(super) const CODE_DONE: u32 = 0;
pub(super) const CODE_ABORTED: u32 = 1;
/// TLS alert no_application_protocol (RFC 7301).
const NO_APPLICATION_PROTOCOL: u8 = 120;
/// CONNECTION_REFUSED (RFC 9000).
const CONNECTION_REFUSED: u64 = 2;
/// The most characters of a peer's own words that are repeated.
const WORDS_MAX: usize = 120;

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The peer has closed after it had sent everything.
    Done,
    /// This end gave the connection up.
    Aborted,
    /// The peer's port is closed.
    Gone,
    /// The other end speaks QUIC, but not our protocol over it.
    OtherProtocol,
    /// The stream was ended without being finished.
    Reset,
    /// Any other reason that QUIC reports.
    Failed(ConnectionError),
}

impl From<ConnectionError> for Loss {
    fn from(error: ConnectionError) -> Self {
        let refuses = TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL);
        match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == CODE_DONE.into() => Self::Done,
            ConnectionError::ConnectionClosed(close) if close.error_code == refuses => Self::OtherProtocol,
            ConnectionError::TransportError(error) if error.code == refuses => Self::OtherProtocol,
            ConnectionError::LocallyClosed => Self::Aborted,
            error => Self::Failed(error),
        }
    }
}

impl Loss {
    /// The error that the application gets. At a near end `verifier` has the key that the far end
    /// showed.
    pub(super) fn explain(&self, verifier: Option<&Verifier>) -> io::Error {
        if let Some(text) = verifier.and_then(Verifier::mismatch) {
            return io::Error::new(io::ErrorKind::PermissionDenied, text);
        }
        let (kind, text) = match self {
            Self::Done | Self::Aborted => (io::ErrorKind::ConnectionAborted, "closed".to_owned()),
            Self::Gone => {
                (io::ErrorKind::ConnectionRefused, "no process listens at this UDP port".to_owned())
            }
            Self::Reset => (io::ErrorKind::ConnectionReset, "reset by the peer".to_owned()),
            Self::OtherProtocol => (
                io::ErrorKind::Unsupported,
                "it speaks QUIC, but not farlane/2 over it: this is no far end, or one of another version"
                    .to_owned(),
            ),
            Self::Failed(error) => explain(error),
        };
        io::Error::new(kind, text)
    }
}

fn explain(error: &ConnectionError) -> (io::ErrorKind, String) {
    use ConnectionError as E;
    match error {
        E::VersionMismatch => {
            (io::ErrorKind::Unsupported, "it speaks QUIC, but not version 1 (RFC 9000)".to_owned())
        }
        E::TimedOut => (io::ErrorKind::TimedOut, format!("it was silent for {} s", IDLE_MAX.as_secs())),
        E::Reset => {
            (io::ErrorKind::ConnectionReset, "it has restarted and does not know the connection".to_owned())
        }
        E::ConnectionClosed(close) if u64::from(close.error_code) == CONNECTION_REFUSED => {
            (io::ErrorKind::ConnectionRefused, "it has the most connections that it can serve".to_owned())
        }
        // A stranger's words must not act on the terminal.
        error => {
            let words: String = error.to_string().chars().take(WORDS_MAX).collect();
            (io::ErrorKind::ConnectionAborted, words.escape_debug().to_string())
        }
    }
}
