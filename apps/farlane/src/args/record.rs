//! The options of commands that record, prove, repair and replay.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use live::sys::address;
use record::format::{ALIGNMENT, CHUNK_MAX, CHUNK_MIN, is_chunk_length};

use super::headings::PART;
use super::{
    MetricsArgs, Output, ProofArgs, RawArgs, RawReplayArgs, RecordAction, RecorderControl, RingArgs, Sandbox,
    UdpUrl, parse_positive_size, parse_positive_time, parse_size, parse_time,
};

pub(super) const EXAMPLES: &str = "Examples:
  farlane record --from tcp-listen://127.0.0.1:5000 --to flight.rec
  farlane record --from tcp-connect://192.0.2.9:5000 --to flight.rec --for 10m --json
  farlane record --from tcp-listen://127.0.0.1:5000 --to tcp://far.example:4430
  farlane record --from 'udp://239.1.2.3:5004?iface=eth1&sequence=rtp' --to flight.rec --for 1h
  farlane record --from udp://0.0.0.0:5004 --to ring.rec --ring 20GiB --control ring.control
  farlane record ctl ring.control pin --last 30s
  farlane record --from udp://0.0.0.0:5004 --to crash.rec --pre-trigger 5s --rate 80MB --control crash.control
  farlane record ctl crash.control trigger
  farlane record --from tcp-listen://127.0.0.1:5000 --to /dev/nvme1n1 --raw --start-address 1GiB --chunks 8192 --force
  farlane record --each --from tcp-listen://127.0.0.1:5000 --to a.rec --from tcp-listen://127.0.0.1:5001 --to b.rec
  farlane record --from generate:100MB --to test.rec --size 1GiB --rate 100MB --pause 2s";
pub(super) const REPLAY_EXAMPLES: &str = "Examples:
  farlane recording replay flight.rec --to copy.bin --speed max
  farlane recording replay flight.rec --to tcp-connect://127.0.0.1:5001 --speed 2 --json
  farlane recording replay flight.rec --to udp://239.1.2.3:5000 --from-time 90s --loop 3
  farlane recording replay /dev/nvme1n1 --raw --start-address 1GiB --maximum-address 2GiB --to copy.bin";

/// Where bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum SourceUrl {
    Listen(SocketAddr),
    Connect(SocketAddr),
    File(PathBuf),
    StandardInput,
    Generate(u64),
    Udp(Box<UdpUrl>),
    Packets(String),
}

impl FromStr for SourceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::StandardInput);
        }
        if let Some(address) = text.strip_prefix("tcp-listen://") {
            return super::parse_address(address).map(Self::Listen);
        }
        if let Some(address) = text.strip_prefix("tcp-connect://") {
            return resolve(address).map(Self::Connect);
        }
        if let Some(url) = text.strip_prefix("udp://") {
            return url.parse().map(|url| Self::Udp(Box::new(url)));
        }
        if let Some(interface) = text.strip_prefix("packets:").filter(|name| !name.is_empty()) {
            return Ok(Self::Packets(interface.to_owned()));
        }
        if let Some(path) = text.strip_prefix("file:") {
            return Ok(Self::File(path.into()));
        }
        if let Some(rate) = text.strip_prefix("generate:") {
            return parse_rate(rate).map(Self::Generate);
        }
        Err("expected tcp-listen://ADDR, tcp-connect://ADDR, udp://ADDR, packets:IFACE, file:PATH, - or \
             generate:RATE"
            .to_owned())
    }
}

/// Where replayed bytes go.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    Listen(SocketAddr),
    Connect(SocketAddr),
    Datagrams(SocketAddr),
    File(PathBuf),
    StandardOutput,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::StandardOutput);
        }
        if let Some(address) = text.strip_prefix("tcp-listen://") {
            return super::parse_address(address).map(Self::Listen);
        }
        if let Some(address) = text.strip_prefix("tcp-connect://") {
            return resolve(address).map(Self::Connect);
        }
        if let Some(address) = text.strip_prefix("udp://") {
            return resolve(address).map(Self::Datagrams);
        }
        if text.contains("://") {
            return Err("expected a file, -, tcp-connect://ADDR, tcp-listen://ADDR or udp://ADDR".to_owned());
        }
        Ok(Self::File(text.strip_prefix("file:").unwrap_or(text).into()))
    }
}

fn resolve(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected HOST:PORT, such as 127.0.0.1:5000";
    let found = address::resolve(text).map_err(|error| format!("{error}; {expected}"))?;
    found.first().copied().ok_or_else(|| format!("the name has no address; {expected}"))
}

/// Parses bytes a second, such as `100MB` or `1.2GB/s`. MB are decimal here, as rates are.
pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    match parse_size::Config::new().with_decimal().parse_size(size) {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err("expected bytes a second, such as 100MB/s or 1.2GB".to_owned()),
    }
}

pub(super) fn parse_chunk(text: &str) -> Result<u32, String> {
    let chunk = u32::try_from(parse_size(text)?).ok().filter(|chunk| is_chunk_length(*chunk));
    chunk.ok_or_else(|| {
        format!("expected {} KiB to {} KiB, a multiple of {ALIGNMENT}", CHUNK_MIN >> 10, CHUNK_MAX >> 10)
    })
}

/// Parses a speed: `max`, or a factor. The result is in thousandths of the recorded pace.
fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed(None));
    }
    let expected = "expected max, or a factor from 0.001 to 1000 such as 1 or 2.5";
    let factor = text.parse::<f64>().ok().filter(|factor| (0.001..=1000.0).contains(factor));
    let factor = factor.ok_or_else(|| expected.to_owned())?;
    let thousandths = format!("{:.0}", factor * 1000.0);
    thousandths.parse().map(|speed| Speed(Some(speed))).map_err(|_| expected.to_owned())
}

/// Thousandths of the recorded pace; `None` is as fast as possible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed(pub(crate) Option<u32>);

/// The behaviour of sources when the buffer is full.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnFullArg {
    /// Sources wait, and lose nothing.
    Wait,
    /// Sources continue. The recorder declares their bytes lost.
    Drop,
}

/// Record streams without a gap, or with every gap declared.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RecordArgs {
    #[command(subcommand)]
    pub(crate) action: Option<RecordAction>,

    /// Record the data of this source as a stream of its own; may be given again.
    ///
    /// generate:RATE makes bytes of which each 8 are their place divided by 8. - is standard input.
    ///
    /// udp://ADDR:PORT receives datagrams, also of a group, and records each behind a head with its
    /// length and time. Options follow a question mark, with & between them: payload records the
    /// bytes alone; iface=NAME|ADDR and source=ADDR say where a group is joined and who sends to
    /// it; buffer=SIZE is the kernel's buffer (16 MiB); sequence= says where datagrams have their
    /// numbers, so that missing datagrams are declared: rtp, vita49, gvsp, spead (the step from
    /// heap to heap is learnt, or given by spead,step:K), or offset:BYTES,bytes:N,step:K,be|le;
    /// window=PACKETS (32) says how late they may come.
    ///
    /// packets:IFACE records the packets that a network interface receives and sends. It needs
    /// CAP_NET_RAW
    #[arg(
        long,
        required = true,
        value_name = "tcp-listen://ADDR|tcp-connect://ADDR|udp://ADDR|packets:IFACE|file:PATH|-|generate:RATE"
    )]
    pub(crate) from: Vec<SourceUrl>,

    /// Write the recording to this file, block device, or namespace of another device; several
    /// take its chunks in turn, all at once.
    ///
    /// Every --to is then a member of one striped recording; commands that read it name all of
    /// them.
    ///
    /// URLs are tcp://, quic://, udp://, eth:, shm:, nvme-tcp://, nvme-rdma:// and vfio-user:, with
    /// ,nsid=N where there are several namespaces
    #[arg(long, value_name = "PATH|URL", required = true)]
    pub(crate) to: Vec<PathBuf>,

    /// Record each --from to the --to of the same place, as a recording of its own.
    ///
    /// There are as many --to as --from. --size, --rate, --buffer and --ring are those of
    /// each recording
    #[arg(long)]
    pub(crate) each: bool,
    /// Overwrite the contents of the file or block device
    #[arg(long)]
    pub(crate) force: bool,
    /// The length of a chunk, between 16 KiB and 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = parse_chunk)]
    pub(crate) chunk: u32,
    /// The size of the buffer [default: 256 chunks, or as --rate and --pause need].
    ///
    /// The buffer has 32 to 16384 chunks
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) buffer: Option<u64>,

    /// Choose a source's behaviour when the buffer is full: wait, or drop bytes, declared as lost.
    ///
    /// Datagrams never wait. generate: drops if --rate is given, because it stands for a source
    /// that cannot wait; others wait by default
    #[arg(long, value_name = "wait|drop")]
    pub(crate) on_full: Option<OnFullArg>,

    /// The sources' rate together in bytes a second.
    ///
    /// With --pause, the buffer's size follows. Warns if the recording will not fit, by the
    /// last result of farlane recording preflight or by the free space
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
    /// The longest pause of the medium that the buffer is to bridge
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "rate")]
    pub(crate) pause: Option<Duration>,

    /// Keep the data of this time in the buffer, and write nothing until a trigger comes: farlane
    /// record ctl PATH trigger, SIGUSR1, or the registers.
    ///
    /// The recording then begins with the kept data, e.g. --pre-trigger 5s. With --rate, the
    /// buffer's size follows
    #[arg(long, value_name = "TIME", value_parser = parse_positive_time, conflicts_with = "ring")]
    pub(crate) pre_trigger: Option<Duration>,

    /// End after this time; with --pre-trigger, after the trigger
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_time)]
    pub(crate) time: Option<Duration>,
    /// End after this many bytes of all sources together; with --pre-trigger, after the trigger
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    #[command(flatten)]
    pub(crate) control: RecorderControl,
    #[command(flatten)]
    pub(crate) proof: ProofArgs,
    #[command(flatten)]
    pub(crate) watch: MetricsArgs,
    #[command(flatten)]
    pub(crate) sandbox: Sandbox,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The recording that a command reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecordingArgs {
    /// The recording; of a striped one, every member
    #[arg(value_name = "RECORDING", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A time in a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// So long after the recording's first byte.
    After(Duration),
    /// Nanoseconds since 1970.
    At(u64),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = parse_time(text) {
            return Ok(Self::After(time));
        }
        let since = humantime::parse_rfc3339_weak(text).ok();
        let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let nanos = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        nanos.map(Self::At).ok_or_else(|| {
            "expected a time after the start such as 90s, or a date such as 2026-05-01T12:00:00Z".to_owned()
        })
    }
}

/// Which part of a stream.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RangeArgs {
    /// Begin at this byte of the stream; lost bytes are counted
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "from_time", requires = "recording", help_heading = PART)]
    pub(crate) from_offset: Option<u64>,
    /// End after so many bytes of the stream
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, conflicts_with = "time", requires = "recording", help_heading = PART)]
    pub(crate) bytes: Option<u64>,
    /// Begin so long after the stream's first byte, or at this date and time (UTC)
    #[arg(long, value_name = "TIME|DATE", requires = "recording", help_heading = PART)]
    pub(crate) from_time: Option<Moment>,
    /// End after the data recorded within this time
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = parse_positive_time, requires = "recording", help_heading = PART)]
    pub(crate) time: Option<Duration>,
}

/// Send recorded data.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording; of a striped one, every member
    #[arg(id = "recording", value_name = "RECORDING", required = true)]
    pub(crate) paths: Vec<PathBuf>,

    /// Send the bytes to this file, TCP connection or UDP address; - is standard output.
    ///
    /// A stream of packets goes to UDP as the datagrams that were recorded. Elsewhere it goes with
    /// the heads of its records
    #[arg(long, value_name = "PATH|-|tcp-connect://ADDR|tcp-listen://ADDR|udp://ADDR")]
    pub(crate) to: Destination,
    /// Send at this multiple of the recorded pace; max is as fast as possible
    #[arg(long, value_name = "FACTOR|max", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: Speed,
    /// Send the stream with this number; the first is 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) stream: u32,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    #[command(flatten)]
    pub(crate) raw: RawReplayArgs,
    /// Send everything so many times; 0 is without end
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    pub(crate) passes: u64,
    /// Cut a stream that is no stream of packets into datagrams of this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = value_parser!(u16).range(1..=65_507))]
    pub(crate) datagram: u16,
    /// Read ahead as much as this [default: 256 chunks]
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) buffer: Option<u64>,
    #[command(flatten)]
    pub(crate) control: RecorderControl,
    #[command(flatten)]
    pub(crate) watch: MetricsArgs,
    #[command(flatten)]
    pub(crate) sandbox: Sandbox,
    #[command(flatten)]
    pub(crate) output: Output,
}
