//! The meaning of a request's end for its user, and for the connection.

use rdma::{Disconnected, WorkError};

use crate::sys::verbs::Ended;

/// Why a request was not done.
pub(super) const fn error_of(ended: Ended) -> WorkError {
    match ended {
        Ended::LocalLength => WorkError::LocalLength,
        Ended::BadResponse => WorkError::BadResponse,
        Ended::RemoteInvalidRequest => WorkError::RemoteInvalidRequest,
        Ended::RemoteAccess => WorkError::RemoteAccess,
        Ended::RemoteOperation => WorkError::RemoteOperation,
        Ended::RetryExceeded => WorkError::RetryExceeded,
        Ended::ReceiverNotReady => WorkError::ReceiverNotReady,
        Ended::Done | Ended::Flushed | Ended::Local => WorkError::Flushed,
    }
}

/// Why the connection is over after such an end of a request.
pub(super) const fn reason_of(ended: Ended) -> Disconnected {
    match ended {
        Ended::LocalLength => Disconnected::PeerFault("a message is longer than its receive request allows"),
        Ended::BadResponse => Disconnected::PeerFault("an unexpected response"),
        Ended::RemoteInvalidRequest => Disconnected::Reported("a request of this end is invalid"),
        Ended::RemoteAccess => {
            Disconnected::Reported("this end may not access the memory that its request names")
        }
        Ended::RemoteOperation => Disconnected::Reported("it could not perform a request"),
        Ended::ReceiverNotReady => Disconnected::Reported("it has no receive request"),
        Ended::RetryExceeded => Disconnected::TimedOut,
        Ended::Done | Ended::Flushed | Ended::Local => Disconnected::NetworkFailed,
    }
}
