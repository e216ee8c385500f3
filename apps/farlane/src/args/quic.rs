//! The options for QUIC: where a far end listens, and how both ends use it.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use engine::Instant;
use live::carrier::identity::Identity;
use live::carrier::quic::{self, Listener};
use live::sys::precedence::Precedence;

use super::headings::TRANSPORT;
use crate::error::{CarrierError, Error};

/// How both ends use QUIC.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct QuicOptions {
    /// Use this congestion control for the data that this end sends over QUIC.
    ///
    /// The other end chooses its own
    #[arg(long, value_name = "NAME", value_enum, default_value_t, help_heading = TRANSPORT)]
    quic_congestion: Congestion,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Congestion {
    /// The same as in Linux's TCP
    #[default]
    Cubic,
    /// By bandwidth and round trip; experimental
    Bbr,
    /// The simplest of the three
    Newreno,
}

impl QuicOptions {
    pub(crate) fn options(&self) -> quic::Options {
        let congestion = match self.quic_congestion {
            Congestion::Cubic => quic::Congestion::Cubic,
            Congestion::Bbr => quic::Congestion::Bbr,
            Congestion::Newreno => quic::Congestion::NewReno,
        };
        quic::Options { congestion, ..quic::Options::default() }
    }
}

/// Where a far end listens for QUIC.
#[derive(Clone, Debug, Args)]
pub(crate) struct QuicListen {
    /// Also listen for QUIC, on this address and UDP port.
    ///
    /// The connection is encrypted. A near end names this far end by the fingerprint of its key,
    /// which the far end prints: quic://HOST:PORT?key=FINGERPRINT
    #[arg(long, value_name = "ADDR", value_parser = super::parse_address)]
    pub(crate) quic: Option<SocketAddr>,
    #[command(flatten)]
    options: QuicOptions,
}

impl QuicListen {
    /// Listens if `--quic` was given, and sends with `precedence`. Only a process with a single far
    /// end can.
    ///
    /// # Errors
    /// When there are several `far_ends`, or the address cannot be bound.
    pub(crate) fn listen(
        &self,
        far_ends: usize,
        identity: Option<&Identity>,
        precedence: Precedence,
        now: Instant,
    ) -> Result<Option<Listener>, Error> {
        let (Some(address), Some(identity)) = (self.quic, identity) else { return Ok(None) };
        if far_ends > 1 {
            return Err(
                CarrierError::One { option: "--quic", place: address.to_string(), count: far_ends }.into()
            );
        }
        let options = quic::Options { precedence, ..self.options.options() };
        let listener = Listener::bind(address, identity, options, now);
        listener.map(Some).map_err(|error| CarrierError::Listen { option: "--quic", address, error }.into())
    }
}
