//! The options for how bytes travel between the two ends of a tunnel.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use live::carrier::route;
use live::carrier::tcp::Options;
use live::client::Url;
use live::sys::sandbox::Needs;
use tunnel::paths::PATHS_MAX;

use super::headings::{TRANSPORT, TRUST};
use super::{LaunchArgs, PrecedenceArgs, PtpArgs, QuicOptions, parse_time};
use crate::error::{CarrierError, Error};

/// Settings of the kernel's TCP. Each end sets them for the bytes that it sends.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Tcp {
    /// Send a lost segment again after the round trip plus this time, instead of the kernel's
    /// 200 ms.
    ///
    /// The time is 1ms to 1s. The option needs Linux 6.15 or later. With an earlier Linux, use ip
    /// route change ... rto_min. Give this option at both ends
    #[arg(long, value_name = "TIME", value_parser = parse_rto_min, help_heading = TRANSPORT)]
    rto_min: Option<Duration>,
    /// Do not double the wait for repeated retransmissions while few segments are in flight.
    ///
    /// Give this option at both ends
    #[arg(long, help_heading = TRANSPORT)]
    thin: bool,
    /// Use this congestion control for TCP, by the kernel's name: bbr, cubic, reno.
    ///
    /// Give this option at both ends
    #[arg(long, value_name = "NAME", help_heading = TRANSPORT)]
    congestion: Option<String>,

    /// Let bytes that do not fill a segment wait this long for more bytes, at most 100ms.
    ///
    /// A longer wait means fewer segments, but each command takes longer. Give this option at both
    /// ends
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_coalesce, help_heading = TRANSPORT)]
    coalesce: Duration,
    #[command(flatten)]
    precedence: PrecedenceArgs,
}

impl Tcp {
    /// The settings for sockets.
    ///
    /// # Errors
    /// When the kernel does not support a setting.
    pub(crate) fn options(&self) -> Result<Options, Error> {
        let Self { rto_min, thin, congestion, coalesce, precedence } = self.clone();
        let (rto_min, precedence) = (rto_min.map(Into::into), precedence.precedence());
        let options = Options { rto_min, thin, congestion, coalesce: coalesce.into(), precedence };
        options.check()?;
        Ok(options)
    }

    /// Adds the rights for these settings to the needs of a confined process.
    pub(crate) fn need(&self, needs: &mut Needs) {
        needs.chooses_congestion |= self.congestion.is_some();
        self.precedence.need(needs);
    }
}

/// How to reach far ends at `tcp://` and `quic://`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Transport {
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    quic: QuicOptions,
    #[command(flatten)]
    launch: LaunchArgs,
    #[command(flatten)]
    pub(crate) ptp: PtpArgs,

    /// Use another path to the same far end, through another network; may be given up to
    /// three times.
    ///
    /// Everything goes over all paths, and the first copy counts. A path that loses, delays or
    /// breaks costs nothing while another path works
    #[arg(long, value_name = "HOST:PORT", help_heading = TRANSPORT)]
    second_path: Vec<String>,

    /// Send frames without CRC32C over tcp://, to measure the cost of the CRC32C.
    ///
    /// With the CRC32C, the other end detects bits that changed on the way. An
    /// encrypted connection needs no CRC32C, and its frames have none
    #[arg(long, help_heading = TRANSPORT)]
    no_crc: bool,

    /// Prove this host's identity with the key in this file (PEM) [default: farlane/key.pem in the
    /// user's configuration directory].
    ///
    /// A file that does not exist is made when a far end is reached by its key
    #[arg(long, value_name = "FILE", help_heading = TRUST)]
    key: Option<PathBuf>,
}

impl Transport {
    /// The file with this host's key, if one was named.
    pub(crate) fn key_file(&self) -> Option<PathBuf> {
        self.key.clone()
    }

    /// Adds the rights for these settings to the needs of a confined process.
    pub(crate) fn need(&self, needs: &mut Needs) {
        self.tcp.need(needs);
        self.launch.need(needs);
    }

    /// Whether there are several paths to one far end.
    pub(crate) const fn has_second_path(&self) -> bool {
        !self.second_path.is_empty()
    }

    /// Checks that no option is for a tunnel to a far end unless `url` is one.
    ///
    /// # Errors
    /// When such an option was given for another device.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Error> {
        let with = match url {
            Url::Far(_) => return Ok(()),
            Url::VfioUser(_) => "vfio-user:",
            Url::Subsystem(url) => url.fabric.scheme(),
        };
        let given = [
            ("--ptp", self.ptp.daemon().is_some()),
            ("--launch", self.launch.is_given()),
            ("--second-path", self.has_second_path()),
            ("--no-crc", self.no_crc),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(CarrierError::NoTunnel { option, with }.into()),
            None => Ok(()),
        }
    }

    /// The settings for links.
    ///
    /// # Errors
    /// When there are too many paths, or the kernel does not support a setting.
    pub(crate) fn checked(&self) -> Result<route::Transport, Error> {
        let second_paths = self.second_path.clone();
        if second_paths.len() >= PATHS_MAX {
            return Err(Error::TooManyPaths { count: second_paths.len() + 1, most: PATHS_MAX });
        }
        let (tcp, quic) = (self.tcp.options()?, self.quic.options());
        let (key, launch, without_digests) = (self.key.clone(), self.launch.launch()?, self.no_crc);
        let ptp = self.ptp.daemon().cloned();
        Ok(route::Transport { tcp, quic, launch, ptp, second_paths, without_digests, key })
    }

    /// The settings for the links of `count` far ends.
    ///
    /// # Errors
    /// As [`Self::checked`], and when there is a second path although there are several far ends.
    pub(crate) fn checked_for(&self, count: usize) -> Result<route::Transport, Error> {
        match self.second_path.first() {
            Some(path) if count > 1 => Err(Error::WhosePath { path: path.clone(), count }),
            _ => self.checked(),
        }
    }
}

/// Parses a wait that is too short to be taken for a silence.
fn parse_coalesce(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time <= Duration::from_millis(100) { Ok(time) } else { Err("expected at most 100ms".to_owned()) }
}

/// Parses a minimum retransmission time-out. The kernel takes no more than its initial time-out.
fn parse_rto_min(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if (Duration::from_millis(1)..=Duration::from_secs(1)).contains(&time) {
        Ok(time)
    } else {
        Err("expected 1ms to 1s; 5ms to 20ms suit a jittery link".to_owned())
    }
}
