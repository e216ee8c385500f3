//! Over how many connections a far SSD's queues are spread.

use std::fmt;

use clap::{Args, value_parser};
use serde::Serialize;
use tunnel::Session;

use super::{Transport, Url};
use crate::device_url::DeviceUrl;
use crate::error::Error;

/// Most of them: as many as the tunnel can have.
const CONNECTIONS_MAX: i64 = 8;

#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Spread {
    /// Over tcp://, use so many connections, 1 to 8, for the queues of the SSD, the first of them
    /// for what is no queue's: what one of them loses keeps only its own commands waiting (--spread
    /// 5 has four queues, where the queues are not a guest's). Not with --second-path or
    /// --no-lookahead
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "no_lookahead")]
    #[arg(value_parser = value_parser!(u8).range(1..=CONNECTIONS_MAX))]
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
            DeviceUrl::Tcp(url) => return self.check_far(url, transport),
            DeviceUrl::VfioUser(_) => "vfio-user:",
            DeviceUrl::NvmeTcp(_) => "nvme-tcp://, which has ?queues=N",
        };
        Err(Error::NoSpread { with })
    }
    /// Whether the way to the far end at `url` can have so many.
    ///
    /// # Errors
    /// When it can't.
    pub(crate) fn check_far(self, url: &Url, transport: &Transport) -> Result<(), Error> {
        let with = match url {
            _ if !self.is_on() => return Ok(()),
            url if url.0.quic.is_some() => "quic://",
            _ if transport.has_second_path() => "--second-path",
            _ => return Ok(()),
        };
        Err(Error::NoSpread { with })
    }
    /// Whether there is more than one connection.
    pub(crate) const fn is_on(self) -> bool {
        self.spread > 1
    }
}

/// What one of several connections has carried, for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Carried {
    connected: bool,
    packets_sent: u64,
    packets_received: u64,
    bytes_sent: u64,
    bytes_received: u64,
    resumptions: u64,
}

impl Carried {
    /// Of all connections of a link, the first of them the main one; nothing where there is but
    /// one.
    pub(crate) fn by<'a>(sessions: impl Iterator<Item = &'a Session>) -> Vec<Self> {
        let each: Vec<Self> = sessions.map(Self::of).collect();
        if each.len() > 1 { each } else { Vec::new() }
    }

    fn of(session: &Session) -> Self {
        let statistics = session.statistics();
        Self {
            connected: session.is_open(),
            packets_sent: statistics.tlps_sent,
            packets_received: statistics.tlps_received,
            bytes_sent: statistics.bytes_sent,
            bytes_received: statistics.bytes_received,
            resumptions: statistics.resumptions,
        }
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets sent, {} received", self.packets_sent, self.packets_received)?;
        if self.connected { Ok(()) } else { f.write_str(", not connected") }
    }
}
