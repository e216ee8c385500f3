//! How bytes go between the two ends of a tunnel, where plain TCP takes long.

use std::time::Duration;

use clap::Args;
use live::route;
use live::tcp::Options;
use tunnel::paths::PATHS_MAX;

use super::{QuicOptions, parse_time};
use crate::error::Error;

/// What is asked of the kernel's TCP: either end for what it sends.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Tcp {
    /// Send a lost segment again after the round trip and this time, rather than the kernel's 200
    /// ms (Linux 6.15 and later; earlier: ip route change ... rto_min). To be given at both ends
    #[arg(long, value_name = "TIME", value_parser = parse_rto_min)]
    rto_min: Option<Duration>,
    /// While little is under way, don't wait twice as long for each retransmission in a row. To be
    /// given at both ends
    #[arg(long)]
    thin: bool,
    /// Congestion control of TCP, by the kernel's name: bbr, cubic, reno. To be given at both ends
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Let bytes wait so long for more before they are sent, where they fill no segment: fewer
    /// segments, and each command later. To be given at both ends
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_coalesce)]
    coalesce: Duration,
}

impl Tcp {
    /// The same for sockets.
    ///
    /// # Errors
    /// When the kernel has no such thing.
    pub(crate) fn options(&self) -> Result<Options, Error> {
        let Self { rto_min, thin, congestion, coalesce } = self.clone();
        let options =
            Options { rto_min: rto_min.map(Into::into), thin, congestion, coalesce: coalesce.into() };
        options.check()?;
        Ok(options)
    }
}

/// How far ends at `tcp://` and `quic://` are reached.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct Transport {
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    quic: QuicOptions,
    /// Another way to the same far end, through another network; may be given again, three times in
    /// all. Everything goes over all of them, and the first copy wins: a way that loses, holds up
    /// or breaks costs nothing while another one works
    #[arg(long, value_name = "HOST:PORT")]
    second_path: Vec<String>,
    /// Over tcp://, send frames without the CRC32C by which the other end finds out that a bit was
    /// changed on the way: to measure what it takes. Over quic:// there is none anyway, because
    /// QUIC proves more
    #[arg(long)]
    no_crc: bool,
}

impl Transport {
    /// Whether there are several ways to one far end.
    pub(crate) const fn has_second_path(&self) -> bool {
        !self.second_path.is_empty()
    }

    /// The same for links.
    ///
    /// # Errors
    /// When the kernel lacks something of it.
    pub(crate) fn checked(&self) -> Result<route::Transport, Error> {
        let second_paths = self.second_path.clone();
        if second_paths.len() >= PATHS_MAX {
            return Err(Error::TooManyPaths { count: second_paths.len() + 1, most: PATHS_MAX });
        }
        let (tcp, quic) = (self.tcp.options()?, self.quic.options());
        Ok(route::Transport { tcp, quic, second_paths, without_digests: self.no_crc })
    }

    /// The same for the links of `count` far ends.
    ///
    /// # Errors
    /// Also when there is another way to one of several.
    pub(crate) fn checked_for(&self, count: usize) -> Result<route::Transport, Error> {
        match self.second_path.first() {
            Some(path) if count > 1 => Err(Error::WhosePath { path: path.clone(), count }),
            _ => self.checked(),
        }
    }
}

/// Less than anybody takes for a silence.
fn parse_coalesce(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time <= Duration::from_millis(100) { Ok(time) } else { Err("expected at most 100ms".to_owned()) }
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
