//! Over how many connections a far SSD's queues are spread.

use clap::{Args, value_parser};

use super::Transport;
use crate::device_url::DeviceUrl;
use crate::error::Error;

/// Most of them: as many as the tunnel can have.
const CONNECTIONS_MAX: i64 = 8;

#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Spread {
    /// Over tcp://, use so many connections, 1 to 8, and a queue of the SSD for each but the first, which keeps what is no queue's:
    /// what one of them loses keeps only its own commands waiting (--spread 5: four queues). Looks ahead, too; not with --second-path
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=CONNECTIONS_MAX))]
    spread: u8,
}

impl Default for Spread {
    fn default() -> Self {
        Self { spread: 1 }
    }
}

impl Spread {
    /// Connections.
    pub(crate) const fn connections(self) -> u8 {
        self.spread
    }
    /// Queues.
    pub(crate) fn queues(self) -> u16 {
        u16::from(self.spread - 1).max(1)
    }
    /// Whether the way to `url` can have so many.
    ///
    /// # Errors
    /// When it can't.
    pub(crate) fn check(self, url: &DeviceUrl, transport: &Transport) -> Result<(), Error> {
        let with = match url {
            _ if !self.is_on() => return Ok(()),
            DeviceUrl::Tcp(url) if url.0.quic.is_some() => "quic://",
            DeviceUrl::Tcp(_) if transport.has_second_path() => "--second-path",
            DeviceUrl::Tcp(_) => return Ok(()),
            DeviceUrl::VfioUser(_) => "vfio-user:",
            DeviceUrl::NvmeTcp(_) => "nvme-tcp://, which has ?queues=N",
        };
        Err(Error::NoSpread { with })
    }
    /// Whether there is more than one connection.
    pub(crate) const fn is_on(self) -> bool {
        self.spread > 1
    }
}
