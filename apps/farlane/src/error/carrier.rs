//! Errors in reaching a far end otherwise than over TCP.

use std::io;
use std::net::SocketAddr;

use live::carrier::identity::Fingerprint;
use miette::Diagnostic;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A far end can't listen as its options require.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum CarrierError {
    #[error("can't listen on UDP {address}: {error}")]
    #[diagnostic(help("choose another {option} address; port 0 lets the system choose one"))]
    Listen { option: &'static str, address: SocketAddr, error: io::Error },

    #[error("{option} {place} for {count} far ends: only one of them can have it")]
    #[diagnostic(help("start a farlane export for each far end that is to be reached so"))]
    One { option: &'static str, place: String, count: usize },

    #[error("can't send and receive frames at {0}")]
    #[diagnostic(help("ip link shows the interfaces of this machine"))]
    Frames(io::Error),

    #[error("{option} {place} is reachable from other machines, and this export has no authentication")]
    #[diagnostic(help(
        "--allow FINGERPRINT admits hosts by their keys, and encrypts; --insecure declares that this network is trusted"
    ))]
    Exposed { option: &'static str, place: String },

    #[error("{option} with --allow or --allow-file: a host that connects this way has no key")]
    #[diagnostic(help("leave one of them out, or start a farlane export for each"))]
    NoKeys { option: &'static str },

    #[error("no key is given for {name}")]
    #[diagnostic(help(
        "give its FINGERPRINT, or the URL with ?key= that farlane export prints; farlane setup key show prints the one of \
         this machine"
    ))]
    NoKey { name: String },

    #[error("two keys are given: {one} in the URL, and {other}")]
    #[diagnostic(help(
        "leave one of them out; farlane setup key show prints the right one on the far machine"
    ))]
    TwoKeys { one: Fingerprint, other: Fingerprint },

    #[error("{option} is for the tunnel to a far end, not for {with}")]
    #[diagnostic(help("leave {option} out"))]
    NoTunnel { option: &'static str, with: &'static str },
}

impl CarrierError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Listen { .. } | Self::Frames(_) => Exit::Failed,
            Self::One { .. }
            | Self::Exposed { .. }
            | Self::NoKeys { .. }
            | Self::NoKey { .. }
            | Self::TwoKeys { .. }
            | Self::NoTunnel { .. } => Exit::Wrong,
        }
    }
}
