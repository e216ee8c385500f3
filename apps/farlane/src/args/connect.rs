//! The options of `farlane connect` and `farlane use disconnect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use live::client::{Options, Url};

use super::{DaemonOptions, FabricPlace, Printing, Secrets, TunnelOptions, parse_positive_time};
use crate::error::Error;

pub(super) const EXAMPLES: &str = "Examples:
  farlane connect tcp://192.0.2.7:4430
  farlane connect tcp://192.0.2.7:4430 --background && mount /dev/ublkb0 /mnt
  farlane connect 'nvme-tcp://192.0.2.7:4420/nqn.2014-08.org.example:disk?queues=4' --timeout 30s
  farlane connect -t tcp -a 192.0.2.7 -n nqn.2014-08.org.example:disk
  farlane connect tcp://192.0.2.7:4430 --over nvme-tcp
  farlane connect --list
  farlane use disconnect /dev/ublkb0";

pub(super) const DISCONNECT_EXAMPLES: &str = "Examples:
  umount /mnt && farlane use disconnect /dev/ublkb0
  farlane use disconnect tcp://192.0.2.7:4430
  farlane use disconnect --force";

/// The part of the kernel that makes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// The user-space block driver, of Linux 6.5 or newer: /dev/ublkbN
    Ublk,
    /// The kernel's own NVMe/TCP initiator, and a target on loopback in this process: /dev/nvmeNn1
    NvmeTcp,
}

impl Over {
    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ublk => "ublk",
            Self::NvmeTcp => "nvme-tcp",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The device: a far end, a vfio-user: socket, or an nvme-tcp:// or nvme-rdma:// subsystem.
    ///
    /// farlane bench --help shows the forms
    #[arg(value_name = "URL", required_unless_present_any = ["list", "traddr"])]
    pub(crate) url: Option<Url>,
    #[command(flatten)]
    pub(crate) place: FabricPlace,
    /// Use the subsystem with this name there
    #[arg(short = 'n', long, value_name = "NQN", requires = "traddr")]
    pub(crate) nqn: Option<String>,
    /// Use the namespace with this identifier [default: the only one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: Option<u32>,
    /// Make the block device by this part of the kernel [default: ublk, or nvme-tcp where the
    /// kernel has no ublk]
    #[arg(long, value_name = "WAY")]
    pub(crate) over: Option<Over>,

    /// Fail I/O when the device was away for this long [default: I/O waits until it is back].
    ///
    /// Farlane looks for the device without end in either case
    #[arg(long, value_name = "TIME", value_parser = parse_positive_time)]
    pub(crate) timeout: Option<Duration>,
    /// Wait this long between attempts while the subsystem refuses this host: it is not there, does
    /// not let this host in, or does not take its key. I/O fails meanwhile
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_time)]
    pub(crate) refused_retry: Duration,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Give the block device this many queues [default: one for each processor that the process
    /// may use; with --cpu, 1].
    ///
    /// Over ublk, each queue of a subsystem has a thread and a controller of its own. The kernel
    /// allows at most one queue for each processor, and a controller may grant fewer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUES_MAX)))]
    pub(crate) queues: Option<u16>,
    /// Accept this many requests of a queue at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) iodepth: u16,
    /// Return as soon as the block device can be used, and continue in the background
    #[arg(long)]
    pub(crate) background: bool,
    /// List the block devices that this user's processes serve, and block devices without a process
    #[arg(long, conflicts_with_all = ["url", "traddr"])]
    pub(crate) list: bool,
    /// Over nvme-tcp: continue where the kernel's initiator can't authenticate.
    ///
    /// Every user of this machine can then reach the far SSD through the target on loopback
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) tunnel: TunnelOptions,
    #[command(flatten)]
    pub(crate) secrets: Secrets,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    /// Print the block device as JSON on the first line of standard output
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// The most queues of a block device.
const QUEUES_MAX: u16 = 64;

impl ConnectArgs {
    /// The device, named by a URL or in nvme-cli's words; `None` for a list of the connected ones.
    ///
    /// # Errors
    /// When the words name no subsystem.
    pub(crate) fn device(&self) -> Result<Option<Url>, Error> {
        let named = self.place.url(self.nqn.as_deref().unwrap_or_default())?;
        Ok(named.or_else(|| self.url.clone()))
    }

    /// How many queues the block device gets.
    pub(crate) fn queues(&self) -> u16 {
        let all = || u16::try_from(live::reactor::processors().unwrap_or(1)).unwrap_or(u16::MAX);
        let usual = || if self.daemon.spin.cpu.is_some() { 1 } else { all().clamp(1, QUEUES_MAX) };
        self.queues.unwrap_or_else(usual)
    }

    /// How the device at `url` is used.
    ///
    /// # Errors
    /// When options do not suit the device, or the kernel does not support one.
    pub(crate) fn options(&self, url: &Url) -> Result<Options, Error> {
        let tunnel = &self.tunnel;
        tunnel.spread.check(url, &tunnel.transport)?;
        tunnel.transport.check(url)?;
        self.secrets.check(url)?;
        let mut options = Options::new("block device");
        options.queues = if tunnel.spread.is_on() { tunnel.spread.queues() } else { self.queues() };
        tunnel.apply(&mut options.session);
        options.transport = tunnel.transport.checked()?;
        options.secrets = self.secrets.files();
        Ok(options)
    }
}

#[derive(Debug, Args)]
pub(crate) struct DisconnectArgs {
    /// The block device, or the URL that is connected [default: the only one]
    #[arg(value_name = "DEVICE|URL")]
    pub(crate) what: Option<String>,
    /// Disconnect while the block device is in use: its users get errors from then on
    #[arg(long)]
    pub(crate) force: bool,
    /// Use this control socket, if farlane connect was given one
    #[arg(long, value_name = "PATH", conflicts_with = "what")]
    pub(crate) control: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
