//! QUIC: where a far end listens for it, and how either end speaks it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use engine::Instant;
use live::quic::{self, Identity, Listener};

use crate::error::Error;

/// How QUIC is spoken.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct QuicOptions {
    /// Congestion control of QUIC. To be given at both ends
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    quic_congestion: Congestion,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Congestion {
    /// As Linux's TCP does
    #[default]
    Cubic,
    /// By bandwidth and round trip; experimental
    Bbr,
    /// The simplest
    Newreno,
}

impl QuicOptions {
    pub(crate) fn options(&self) -> quic::Options {
        let congestion = match self.quic_congestion {
            Congestion::Cubic => quic::Congestion::Cubic,
            Congestion::Bbr => quic::Congestion::Bbr,
            Congestion::Newreno => quic::Congestion::NewReno,
        };
        quic::Options { congestion }
    }
}

/// Where a far end listens for QUIC, and who it is there.
#[derive(Clone, Debug, Args)]
pub(crate) struct QuicListen {
    /// Listen for QUIC as well, on this address and UDP port. What passes is encrypted, and whoever
    /// connects names this far end by the fingerprint that it prints:
    /// quic://HOST:PORT?cert=SHA256HEX. It asks nobody who they are
    #[arg(long, value_name = "ADDR", value_parser = super::parse_address)]
    quic: Option<SocketAddr>,
    /// The key and the certificate for that (PEM); a file that is not there is made [default: new
    /// ones at each start]
    #[arg(long, value_name = "FILE", requires = "quic")]
    quic_key: Option<PathBuf>,
    #[command(flatten)]
    options: QuicOptions,
}

impl QuicListen {
    /// Listens, if that is wanted. One of `far_ends` can.
    ///
    /// # Errors
    /// When the address is not ours or is taken, or the file is no key.
    pub(crate) fn listen(&self, far_ends: usize, now: Instant) -> Result<Option<Listener>, Error> {
        let Some(address) = self.quic else { return Ok(None) };
        if far_ends > 1 {
            return Err(Error::OneQuic { address, count: far_ends });
        }
        let identity = match &self.quic_key {
            Some(path) => Identity::keep(path).map_err(Error::QuicKey)?,
            None => Identity::generate().map_err(Error::QuicKey)?,
        };
        let listener = Listener::bind(address, &identity, self.options.options(), now);
        listener.map(Some).map_err(|error| Error::ListenQuic { address, error })
    }
}
