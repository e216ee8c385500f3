//! How bytes go between the two ends of a tunnel, where plain TCP takes long.

use std::time::Duration;

use clap::Args;
use live::route;
use live::tcp::Options;

use super::{QuicOptions, parse_time};
use crate::error::Error;

/// What is asked of the kernel's TCP: either end for what it sends.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Tcp {
    /// Send a lost segment again after the round trip and this time, rather than the kernel's 200 ms (Linux 6.15 and later;
    /// earlier: ip route change ... rto_min). To be given at both ends
    #[arg(long, value_name = "TIME", value_parser = parse_rto_min)]
    rto_min: Option<Duration>,
    /// While little is under way, don't wait twice as long for each retransmission in a row. To be given at both ends
    #[arg(long)]
    thin: bool,
    /// Congestion control of TCP, by the kernel's name: bbr, cubic, reno. To be given at both ends
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
}

impl Tcp {
    /// The same for sockets.
    ///
    /// # Errors
    /// When the kernel has no such thing.
    pub(crate) fn options(&self) -> Result<Options, Error> {
        let Self { rto_min, thin, congestion } = self.clone();
        let options = Options { rto_min: rto_min.map(Into::into), thin, congestion };
        options.check()?;
        Ok(options)
    }
}

/// How far ends at `tcp://` and `quic://` are reached.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Transport {
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    quic: QuicOptions,
}

impl Transport {
    /// The same for links.
    ///
    /// # Errors
    /// When the kernel lacks something of it.
    pub(crate) fn checked(&self) -> Result<route::Transport, Error> {
        Ok(route::Transport { tcp: self.tcp.options()?, quic: self.quic.options() })
    }
}

/// What the kernel takes: no less than a microsecond, no more than its initial timeout.
fn parse_rto_min(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if (Duration::from_millis(1)..=Duration::from_secs(1)).contains(&time) {
        Ok(time)
    } else {
        Err("expected 1ms to 1s; 5ms to 20ms suit a jittery link".to_owned())
    }
}
