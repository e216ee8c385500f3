//! The options of `farlane measure rdma`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use live::drivers::perftest::{DEPTH_MAX, Mode, Peer, Provider, SIZE_MAX, Verb};
use live::sys::address::Host;

use super::{DaemonOptions, Output, Spin, parse_address, parse_size, parse_time};

pub(crate) const EXAMPLES: &str = "Examples:\n  \
    farlane measure rdma serve --listen 127.0.0.1:18515\n  \
    farlane measure rdma ping 127.0.0.1:18515 --verb write --size 2\n  \
    farlane measure rdma bench 127.0.0.1:18515 --verb read --all\n  \
    farlane measure rdma serve --provider roce --listen 127.0.0.1:18515\n  \
    farlane measure rdma ping --provider roce --local 127.0.0.2 127.0.0.1:18515\n\n\
    With perftest's programs, and with rping, of 192.0.2.2:\n  \
    farlane measure rdma serve --provider roce --listen 192.0.2.1:18515 --perftest ib_send_lat\n  \
    ib_send_lat -R 192.0.2.1\n\n  \
    ib_read_bw -R\n  \
    farlane measure rdma bench --provider roce 192.0.2.2:18515 --peer perftest --verb read\n\n  \
    rping -s -S 64\n  \
    farlane measure rdma ping --provider roce 192.0.2.2:7174 --peer rping --size 64";

#[derive(Debug, Subcommand)]
pub(crate) enum RdmaAction {
    /// Measure latency: t_typical and its kin of perftest's ib_send_lat, ib_write_lat, ib_read_lat.
    ///
    /// Of a send or a write, half of the way to and fro counts; of a read, the whole
    #[command(
        after_help = "Example:\n  farlane measure rdma ping 127.0.0.1:18515 --verb send --size 64 --iters 10000"
    )]
    Ping(RdmaMeasureArgs),
    /// Measure bandwidth: that of perftest's ib_send_bw, ib_write_bw, ib_read_bw
    #[command(
        after_help = "Example:\n  farlane measure rdma bench 127.0.0.1:18515 --verb write --size 128k --tx-depth 64"
    )]
    Bench(RdmaMeasureArgs),
    /// Let other machines measure a connection to this machine
    #[command(after_help = "Example:\n  farlane measure rdma serve --provider iwarp --listen 0.0.0.0:18515")]
    Serve(ServeArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProviderArg {
    /// Over TCP connections, with no card and no right
    Iwarp,
    /// RoCEv2, over UDP datagrams at port 4791
    Roce,
    /// RDMA devices of this machine, by libibverbs and librdmacm
    Verbs,
}

impl From<ProviderArg> for Provider {
    fn from(arg: ProviderArg) -> Self {
        match arg {
            ProviderArg::Iwarp => Self::Iwarp,
            ProviderArg::Roce => Self::Roce,
            ProviderArg::Verbs => Self::Verbs,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum VerbArg {
    Send,
    Write,
    Read,
}

impl From<VerbArg> for Verb {
    fn from(arg: VerbArg) -> Self {
        match arg {
            VerbArg::Send => Self::Send,
            VerbArg::Write => Self::Write,
            VerbArg::Read => Self::Read,
        }
    }
}

/// The program of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerArg {
    /// A farlane measure rdma serve
    Farlane,
    /// The program of perftest for this test, such as ib_send_lat, started with -R and with the
    /// same -s and -n
    Perftest,
    /// rping -s of rdma-core, started with the same -S
    Rping,
}

impl From<PeerArg> for Peer {
    fn from(arg: PeerArg) -> Self {
        match arg {
            PeerArg::Farlane => Self::Farlane,
            PeerArg::Perftest => Self::Perftest,
            PeerArg::Rping => Self::Rping,
        }
    }
}

/// A program of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramArg {
    #[value(name = "ib_send_lat")]
    SendLat,
    #[value(name = "ib_send_bw")]
    SendBw,
    #[value(name = "ib_write_lat")]
    WriteLat,
    #[value(name = "ib_write_bw")]
    WriteBw,
    #[value(name = "ib_read_lat")]
    ReadLat,
    #[value(name = "ib_read_bw")]
    ReadBw,
}

impl ProgramArg {
    /// The verb and the mode that the program measures.
    pub(crate) const fn test(self) -> (Verb, Mode) {
        match self {
            Self::SendLat => (Verb::Send, Mode::Latency),
            Self::SendBw => (Verb::Send, Mode::Bandwidth),
            Self::WriteLat => (Verb::Write, Mode::Latency),
            Self::WriteBw => (Verb::Write, Mode::Bandwidth),
            Self::ReadLat => (Verb::Read, Mode::Latency),
            Self::ReadBw => (Verb::Read, Mode::Bandwidth),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    pub(crate) listen: SocketAddr,
    /// Carry RDMA in this way
    #[arg(long, value_enum, default_value = "iwarp")]
    pub(crate) provider: ProviderArg,

    /// Serve also clients that are this program of perftest, started with -R: one at a time.
    ///
    /// Give --size and --iters as the client has -s and -n
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub(crate) perftest: Option<ProgramArg>,

    /// Take so many bytes at a time from perftest's client [default: 2 for latency, 64 KiB for
    /// bandwidth]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = parse_message, requires = "perftest")]
    pub(crate) size: Option<u32>,
    /// Expect perftest's client to do it this many times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000, requires = "perftest",
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) iters: u32,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct RdmaMeasureArgs {
    /// The address of the server, which is a farlane measure rdma serve, or the program that --peer
    /// names
    #[arg(value_name = "HOST:PORT", value_parser = parse_address)]
    pub(crate) server: SocketAddr,
    /// Speak with this kind of server
    #[arg(long, value_enum, default_value = "farlane")]
    pub(crate) peer: PeerArg,
    /// Carry RDMA in this way, as the server does
    #[arg(long, value_enum, default_value = "iwarp")]
    pub(crate) provider: ProviderArg,
    /// Measure this verb [default: send]
    #[arg(long, value_enum)]
    pub(crate) verb: Option<VerbArg>,
    /// Move this many bytes at a time, up to 1 MiB [default: 2 for ping, 64 KiB for bench]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = parse_message, conflicts_with = "all")]
    pub(crate) size: Option<u32>,
    /// Measure each power of two from 2 bytes to 1 MiB
    #[arg(long, short = 'a')]
    pub(crate) all: bool,
    /// Do it this many times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) iters: u32,
    /// Keep this many requests in progress; ping has one
    #[arg(long, short = 't', value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) tx_depth: u16,
    /// Use this address of this machine, with RoCE and verbs [default: that of the route to the
    /// server]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) local: Option<Host>,
    /// Give up if nothing happens for this long
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) spin: Spin,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses the length of a message.
fn parse_message(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    let fits = u32::try_from(size).ok().filter(|size| (1..=SIZE_MAX).contains(size));
    fits.ok_or_else(|| "expected 1 byte to 1 MiB".to_owned())
}
