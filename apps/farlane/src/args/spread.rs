//! The option that spreads a far SSD's queues over several connections.

use clap::{Args, value_parser};
use live::carrier::route::Way;
use live::client::{FarUrl, Url};

use super::Transport;
use super::headings::TRANSPORT;
use crate::error::Error;

/// The most connections that a tunnel can have.
const CONNECTIONS_MAX: i64 = 8;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Spread {
    /// Spread the SSD's queues over this many tcp:// connections (strands), 1 to 8.
    ///
    /// The first connection carries all data that belong to no queue. A loss on one connection
    /// delays only the commands of its queues. With --spread 5, there are four queues, unless a
    /// guest chooses the number of its queues. --spread works over tcp:// alone, and not with
    /// --second-path or --no-lookahead
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "no_lookahead", help_heading = TRANSPORT)]
    #[arg(value_parser = value_parser!(u8).range(1..=CONNECTIONS_MAX))]
    spread: u8,
}

impl Default for Spread {
    fn default() -> Self {
        Self { spread: 1 }
    }
}

impl Spread {
    /// The number of connections.
    pub(crate) const fn connections(self) -> u8 {
        self.spread
    }
    /// The number of queues.
    pub(crate) fn queues(self) -> u16 {
        u16::from(self.spread - 1).max(1)
    }

    /// Checks that the transport to `url` supports this number of connections.
    ///
    /// # Errors
    /// When the transport does not.
    pub(crate) fn check(self, url: &Url, transport: &Transport) -> Result<(), Error> {
        let with = match url {
            _ if !self.is_on() => return Ok(()),
            Url::Far(url) => return self.check_far(url, transport),
            Url::VfioUser(_) => "vfio-user:".to_owned(),
            Url::Subsystem(url) => format!("{}, which has ?queues=N", url.fabric.scheme()),
        };
        Err(Error::NoSpread { with })
    }

    /// Checks that the transport to the far end at `url` supports this number of connections.
    ///
    /// # Errors
    /// When the transport does not.
    pub(crate) fn check_far(self, url: &FarUrl, transport: &Transport) -> Result<(), Error> {
        let with = match url {
            _ if !self.is_on() => return Ok(()),
            url if url.way() != Way::Tcp => url.way().scheme(),
            _ if transport.has_second_path() => "--second-path",
            _ => return Ok(()),
        };
        Err(Error::NoSpread { with: with.to_owned() })
    }
    /// Whether there is more than one connection.
    pub(crate) const fn is_on(self) -> bool {
        self.spread > 1
    }
}
