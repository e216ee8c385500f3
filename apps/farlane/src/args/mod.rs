//! The command line.

mod backing;
mod bench;
mod bench_load;
mod capture;
mod changes;
mod check_file;
mod completion_timeout;
mod config_cache;
mod connect;
mod copying;
mod demo;
mod dma;
mod doctor;
mod emulate;
mod explain;
mod export;
mod fabric_words;
mod fio;
mod floor_server;
mod guest;
mod headings;
mod log;
mod lookahead;
mod lspci;
mod manual;
mod max_transfer;
mod measure;
mod memory_buffer;
mod metrics;
pub(crate) mod new_files;
mod nic;
mod nvme;
mod packets;
mod precedence;
mod preflight;
mod printing;
mod quic;
mod rdma;
mod record;
mod record_control;
mod record_export;
mod record_proof;
mod record_raw;
mod record_ring;
mod root;
mod sandbox;
mod secrets;
mod sim;
mod spread;
mod status;
mod target;
mod top;
mod trace;
mod transport;
mod trust;
mod tsn;
mod tunnel;
mod ui;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Parser, Subcommand};
use live::client::Url;
use live::sys::vfio::PciAddress;

use crate::commands::discover::DiscoverArgs;
use crate::error::Error;

pub(crate) use backing::{
    Backing, FarSpec, FormatSpec, MediumSpec, NamespaceSpec, PoolSpec, RamSpec, check_ram,
};
pub(crate) use bench::{BenchArgs, Percentiles, ReportNames};
pub(crate) use bench_load::{RateProcess, Sequencer, ZoneMode};
pub(crate) use capture::{CaptureDaemonArgs, Filters, PacketKind, Trigger};
pub(crate) use changes::{
    AddedMedium, ControlArgs, DaemonStatusArgs, ExportAction, FarEndArgs, RemovedNamespace, ResizedNamespace,
    SaveArgs,
};
pub(crate) use check_file::CheckFileArgs;
pub(crate) use config_cache::{ConfigCacheCounters, ConfigCacheOption};
pub(crate) use connect::{ConnectArgs, DisconnectArgs, Over};
pub(crate) use copying::{BlockExtent, Extent, ReadArgs, WriteArgs};
pub(crate) use demo::{Carrier, DemoArgs};
pub(crate) use dma::{Dma, Reach};
pub(crate) use doctor::{DoctorArgs, Purpose};
pub(crate) use emulate::EmulateArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use export::ExportArgs;
pub(crate) use fabric_words::FabricPlace;
pub(crate) use fio::{Amount, Each, Workload};
pub(crate) use floor_server::FloorServerArgs;
pub(crate) use guest::{AttachArgs, DeviceArgs, Socket};
pub(crate) use headings::AUTHENTICATION;
pub(crate) use log::LogForm;
pub(crate) use lookahead::{Ahead, FarReads, Lookahead};
pub(crate) use lspci::LspciArgs;
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use max_transfer::MaxTransfer;
pub(crate) use measure::{Direction, MeasureArgs, ReportForm};
pub(crate) use memory_buffer::MemoryBuffer;
pub(crate) use metrics::MetricsArgs;
pub(crate) use nic::{
    CardOptions, NicAction, NicArgs, NicMeasureArgs, NicPingArgs, NicReceiveArgs, NicSendArgs, NicServeArgs,
};
pub(crate) use nvme::{
    AnaLogArgs, At, AtArgs, AtNamespaceArgs, AttachNsArgs, BlocksArgs, ChangedNsArgs, CompareBlocksArgs,
    CopyArgs, CreateNsArgs, DetailArgs, DsmArgs, EffectsLogArgs, EnduranceLogArgs, ErrorLogArgs, FeatureArgs,
    FormatArgs, FwCommitArgs, FwDownloadArgs, GetLogArgs, GetPropertyArgs, HostArgs, IdNsArgs, ListCtrlArgs,
    ListNsArgs, LockdownArgs, NsDescsArgs, NvmeCommand, PassthruArgs, PersistentEventLogArgs, ReadAtArgs,
    ResvAcquireArgs, ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs, SanitizeArgs, SelfTestArgs,
    SelfTestLogArgs, SetFeatureArgs, ShowRegsArgs, SmartLogArgs, TelemetryLogArgs, VirtMgmtArgs,
    WriteZeroesArgs,
};
pub(crate) use packets::{SOCKET_BUFFER_DEFAULT, UdpUrl};
pub(crate) use precedence::{LaunchArgs, PrecedenceArgs, PtpArgs};
pub(crate) use preflight::PreflightArgs;
pub(crate) use printing::{Printed, Printing, StructurePrinting};
pub(crate) use quic::{QuicListen, QuicOptions};
pub(crate) use rdma::{PeerArg, ProgramArg, ProviderArg, RdmaAction, RdmaMeasureArgs, ServeArgs};
pub(crate) use record::{
    Destination, Moment, OnFullArg, RangeArgs, RecordArgs, RecordingArgs, ReplayArgs, SourceUrl,
};
pub(crate) use record_control::{RecordAction, RecordControlArgs, RecordRequest, RecorderControl};
pub(crate) use record_export::{Datatype, Format, RecordingExport};
pub(crate) use record_proof::{DigestArg, ProofArgs, VerifyArgs};
pub(crate) use record_raw::{RawArgs, RawReplayArgs};
pub(crate) use record_ring::{KeepFor, PinArgs, RingArgs};
pub(crate) use root::Root;
pub(crate) use sandbox::{Sandbox, need_far, need_served};
pub(crate) use secrets::{Secrets, TargetSecrets};
pub(crate) use sim::{PlayArgs, PublishedArgs, SimAction, SimArgs, SweepArgs};
pub(crate) use spread::{Carried, Spread};
pub(crate) use status::{Control, ListArgs, StatusArgs};
pub(crate) use target::{
    AccessState, Discovery, HostSpec, OfferArgs, SubsystemArgs, TargetAction, parse_proof_max,
};
pub(crate) use top::TopArgs;
pub(crate) use trace::{
    CaptureArgs, ChainArgs, CompareArgs, DissectorArgs, Form, Level, Out, ShowArgs, TraceAction,
    TraceExportArgs,
};
pub(crate) use transport::{Tcp, Transport};
pub(crate) use trust::{
    CheckArgs, DhchapHash, KeyAction, KeyArgs, NewDhchapArgs, NewTlsArgs, TlsHash, Trust, TrustArgs, Trusted,
};
pub(crate) use tsn::{ApplyArgs, CheckPlanArgs, PlanArgs, TsnAction};
pub(crate) use tunnel::TunnelOptions;
pub(crate) use ui::UiArgs;
use values::{note_once, parse_positive_size, parse_positive_time, parse_runtime, parse_serial};
pub(crate) use values::{parse_address, parse_size, parse_time};

/// NVMe and PCIe at the far end of a network, with every hop's latency accounted for.
#[derive(Debug, Parser)]
#[command(name = "farlane", version = env!("FARLANE_VERSION"), max_term_width = 100)]
#[command(after_help = "Try it:  farlane demo\n\nA far end and a near end, in two terminals:\n  \
    farlane export --listen 127.0.0.1:4430 --ram 1GiB\n  \
    farlane lspci -t tcp://127.0.0.1:4430")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: log::LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine: join a far SSD over TCP, use it, verify it and
    /// measure it
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoArgs),
    /// Offer an NVMe SSD, or any PCIe device that speaks vfio-user, to a host over a network.
    ///
    /// With a RECORDING, write what was recorded to a file of another format instead
    #[command(after_help = "Examples:\n  \
        farlane export --listen 127.0.0.1:4430 --namespace disk.img,size=10GiB\n  \
        farlane export --listen 127.0.0.1:4430 --pool pool.img,size=1TiB --state ssd.state\n  \
        farlane export --listen 0.0.0.0:4430 --allow SHA256:... --namespace /dev/sdb,readonly\n  \
        farlane export --listen 127.0.0.1:4430 --ram 1GiB --listen 127.0.0.1:4431 --ram 1GiB\n  \
        farlane export --quic 0.0.0.0:4430 --allow-file hosts --ram 1GiB\n  \
        farlane export --listen 127.0.0.1:4430 --vfio-user /run/user/1000/device.sock\n  \
        farlane export --listen 0.0.0.0:4430 --allow SHA256:... --vfio 0000:01:00.0\n  \
        farlane export --config /etc/farlane/export/disk.toml\n  \
        farlane export add --namespace new.img,size=10GiB\n  \
        farlane export flight.rec --to flight.pcapng\n  \
        farlane export flight.rec --to flight --format sigmf --datatype ci16_le --sample-rate 2.4e6")]
    Export(Box<ExportArgs>),
    /// Give a virtual machine the SSD of a far end.
    ///
    /// QEMU's guest sees an ordinary NVMe device
    #[command(after_help = "Example:\n  \
        farlane attach tcp://127.0.0.1:4430 --vfio-user /run/user/1000/ssd.sock\n  \
        qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on \\\n    \
        -M q35,memory-backend=mem -m 1G ... -device \\\n    \
        '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/ssd.sock\"}}'")]
    Attach(AttachArgs),
    /// Give a virtual machine an SSD of this machine.
    ///
    /// The guest uses the same controller as with farlane attach, without a network in between
    #[command(
        after_help = "Example:\n  farlane device --vfio-user /run/user/1000/ssd.sock --namespace disk.img,size=10GiB"
    )]
    Device(DeviceArgs),

    /// Make the SSD of a far end a block device of this machine: /dev/ublkbN or /dev/nvmeNn1.
    ///
    /// I/O waits while the far end is away. The block device outlives this process: another farlane
    /// connect goes on with it
    #[command(after_help = connect::EXAMPLES)]
    Connect(Box<ConnectArgs>),

    /// Remove a block device that farlane connect has made
    #[command(after_help = connect::DISCONNECT_EXAMPLES)]
    Disconnect(DisconnectArgs),
    /// Offer NVMe namespaces over TCP and RDMA (NVMe/TCP, NVMe/RDMA).
    ///
    /// Linux's own initiator can use the namespaces, and so can any other initiator of these
    #[command(after_help = target::EXAMPLES)]
    Target(Box<OfferArgs>),
    /// List the PCIe functions that a host sees through the tunnel
    #[command(after_help = "Examples:\n  farlane lspci tcp://127.0.0.1:4430\n  \
        farlane lspci -t tcp://127.0.0.1:4430 tcp://127.0.0.1:4431")]
    Lspci(LspciArgs),
    /// Print what a controller and its namespaces report about themselves
    #[command(after_help = "Example:\n  farlane identify tcp://127.0.0.1:4430 --json")]
    Identify(AtArgs),

    /// Measure the round trip to a far function or to an NVMe/TCP controller.
    ///
    /// The command sends configuration reads to a far function, and Property Gets to an
    /// NVMe/TCP controller
    #[command(after_help = "Example:\n  farlane ping tcp://127.0.0.1:4430 --count 10000 --rate 1000")]
    Ping(PingArgs),

    /// Measure a device as published work does, and write a report: sizes, idle and under load.
    ///
    /// Latencies are given with and without what lies beyond three standard deviations. Through a
    /// tunnel, the time of a read is divided among its hops by the clocks of both ends
    #[command(after_help = measure::EXAMPLES)]
    Measure(MeasureArgs),
    /// Read from a namespace into a file
    #[command(
        after_help = "Examples:\n  farlane read tcp://127.0.0.1:4430 --length 1GiB --output copy.img\n  \
        farlane read tcp://127.0.0.1:4430 --start-block 8 --block-count 7 --data blocks"
    )]
    Read(ReadArgs),
    /// Write a file into a namespace
    #[command(after_help = "Example:\n  farlane write tcp://127.0.0.1:4430 --input disk.img --offset 1MiB")]
    Write(WriteArgs),
    /// List the subsystems that an NVMe/TCP discovery controller reports.
    ///
    /// With --mdns, the command lists the discovery controllers on the network instead
    #[command(after_help = "Examples:\n  farlane discover nvme-tcp://192.0.2.7:8009\n  \
        farlane discover -t tcp -a 192.0.2.7 -s 8009\n  farlane discover --mdns\n  \
        farlane identify nvme-tcp://192.0.2.7:4420/nqn.2014-08.org.example:disk")]
    Discover(DiscoverArgs),
    /// Run a load on a namespace, and report rate and latency in fio's terms
    #[command(after_help = "Examples:\n  \
        farlane bench tcp://127.0.0.1:4430 --rw randwrite --bs 4k --iodepth 32 --runtime 10s --verify\n  \
        farlane bench vfio-user:/run/user/1000/ssd.sock --cpu 1 --spin 10ms\n  \
        farlane bench nvme-tcp://127.0.0.1:4420/NQN --iodepth 128 --rate_iops 100000\n  \
        farlane bench tcp://127.0.0.1:4430 --bssplit 4k/70:64k/30 --percentile_list 50:99:99.99\n  \
        farlane bench tcp://127.0.0.1:4430 --job mixed.fio --output-format json")]
    Bench(Box<BenchArgs>),

    /// Show a running farlane's link state and lookahead counters.
    ///
    /// The lookahead counters say how many bytes were sent ahead of doorbells, and how many of
    /// these bytes the device did not read
    #[command(after_help = status::EXAMPLE)]
    Status(StatusArgs),
    /// List the running farlane daemons of this user, with what they offer and their sockets
    #[command(after_help = status::LIST_EXAMPLE)]
    List(ListArgs),
    /// Show what far ends, namespaces and hosts of this user's daemons do right now.
    ///
    /// The keys f, n and h choose a view, q ends
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),
    /// Check files without using them: what a target offers, options of daemons, models of networks
    /// and scenarios
    #[command(after_help = check_file::EXAMPLES)]
    Check(CheckFileArgs),
    /// Look at what this machine has and lacks for each command, and say what to do about it.
    ///
    /// The command ends with status 1 if something is missing for a PURPOSE that is named
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Make a key, show its fingerprint, or remember the key of a far end
    #[command(subcommand, after_help = trust::EXAMPLES)]
    Key(KeyAction),
    /// Simulate scenarios, sweeps over their values, and published experiments
    #[command(after_help = sim::EXAMPLES)]
    Sim(SimArgs),

    /// Capture what passes a running daemon: PCIe packets, or the connections of a fabric.
    ///
    /// Nothing is copied in the daemon until then. Wireshark reads the capture, farlane trace
    /// understands it
    #[command(after_help = capture::EXAMPLES)]
    Capture(Box<CaptureDaemonArgs>),
    /// Understand a capture of PCIe packets: its NVMe commands, and where their time went
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(TraceAction),
    /// Look into captures, scenarios and running daemons in a browser
    #[command(after_help = ui::EXAMPLES)]
    Ui(UiArgs),
    /// Plan, apply and check Time-Sensitive Networking for a tunnel's frames
    #[command(subcommand, after_help = tsn::EXAMPLES)]
    Tsn(TsnAction),
    /// Put a modelled network between two ends.
    ///
    /// The model has latency, a rate and losses, and the TCP that recovers from the losses
    #[command(after_help = emulate::EXAMPLE)]
    Emulate(EmulateArgs),
    /// Record streams to a file without a gap, or with every gap declared
    #[command(after_help = record::EXAMPLES)]
    Record(Box<RecordArgs>),
    /// Measure whether a medium keeps up with a recording, and which buffer it needs
    #[command(after_help = preflight::EXAMPLES)]
    Preflight(PreflightArgs),
    /// Send what was recorded, at its pace
    #[command(after_help = record::REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Prove from the medium that a recording's certificate is true
    #[command(
        after_help = "Example:\n  farlane verify flight.rec --json\n  farlane verify flight.rec --signed-by SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
    )]
    Verify(VerifyArgs),
    /// Find all that a cut off or damaged recording has, and certify it
    #[command(after_help = "Example:\n  farlane recover flight.rec")]
    Recover(RecordingArgs),
    /// Print what a recording is
    #[command(after_help = "Example:\n  farlane info flight.rec")]
    Info(RecordingArgs),
    #[command(flatten)]
    Nvme(Box<NvmeCommand>),
    /// Print what a shell needs to complete farlane's command line
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page of a command, or write those of all commands
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(ManArgs),
    /// Measure latency and bandwidth of RDMA connections, in perftest's words
    #[command(subcommand, after_help = rdma::EXAMPLES)]
    Rdma(RdmaAction),
    /// Use low-latency network cards between processes: serve one, measure, send and receive.
    ///
    /// A packet of up to 60 bytes is one store into the card, and one line that its receiver polls
    #[command(after_help = nic::EXAMPLES)]
    Nic(Box<NicArgs>),
    /// Run the far side of a floor measurement: raw TCP without a protocol
    #[command(hide = true)]
    FloorServer(FloorServerArgs),
}

impl Command {
    /// Whether the command goes on until it is ended, and others rely on it meanwhile.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Self::Export(args) => args.recorded.recording.is_empty() && args.action.is_none(),
            Self::Target(args) => args.action.is_none(),
            Self::Record(args) => args.action.is_none(),
            Self::Nic(args) => matches!(args.action, None | Some(NicAction::Serve(_))),
            Self::Connect(args) => args.url.is_some() || args.place.is_given(),
            Self::Attach(_) | Self::Device(_) | Self::Emulate(_) => true,
            _ => false,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Print JSON for machines instead of text for people
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Spin {
    /// Poll for this long after the last event before sleeping; 0 sleeps at once
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time, help_heading = headings::PROCESSOR)]
    pub(crate) spin: Duration,
    /// Run on this processor; the first processor is 0.
    ///
    /// Give two ends that spin on one machine different processors
    #[arg(long, value_name = "N", help_heading = headings::PROCESSOR)]
    pub(crate) cpu: Option<usize>,
}

/// The SSD that an end offers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Served {
    /// Serve a file, a block device or another device's namespace as a namespace; may be
    /// given again.
    ///
    /// Another device is tcp://HOST:PORT (farlane export) or nvme-tcp://HOST:PORT/NQN. Append
    /// ,nsid=N if that device has several namespaces. Append ,hold=TIME to set how long commands
    /// wait while that device is away [10s]. Append ,metadata=8 or 16 to a path, or to the size of
    /// --ram, for blocks of 4096 bytes with that many bytes of metadata for hosts' own use
    #[arg(long, value_name = "PATH[,size=SIZE][,block=512|4096][,protection=16|64][,readonly]")]
    pub(crate) namespace: Vec<MediumSpec>,
    /// Serve a namespace in memory, empty at each start; may be given again
    #[arg(long, value_name = "SIZE[,block=512|4096][,protection=16|64]")]
    pub(crate) ram: Vec<RamSpec>,
    /// Serve each namespace of an NVMe controller of this machine; may be given again.
    ///
    /// The controller must be bound to vfio-pci
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) vfio: Vec<PciAddress>,

    /// Offer room in which hosts create namespaces of their own (nvme create-ns).
    ///
    /// Give a path for a file or block device, which needs --state. Give a size for memory, which
    /// is empty at each start
    #[arg(long, value_name = "PATH[,size=SIZE]|SIZE")]
    pub(crate) pool: Option<PoolSpec>,

    /// Keep the SSD's state in this file across restarts.
    ///
    /// The state consists of names, created and formatted namespaces, saved features, logs and
    /// counters. A file that does not exist is created. Without --state, each start offers a
    /// new SSD
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Vec<PathBuf>,
    /// Set the controller's serial number [default: the one in --state, or derived from the machine
    /// and the namespaces]
    #[arg(long, value_name = "TEXT", value_parser = parse_serial)]
    pub(crate) serial: Option<String>,
    /// Let one command move this much data: a power of two from 4KiB to 1MiB [default: 128KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_transfer: Option<MaxTransfer>,
}

impl Served {
    /// Divides these options among the far ends that `listen`. By `matches`, each far end gets what
    /// was given between its address and the next address. The first far end also gets what was
    /// given before its address.
    ///
    /// # Errors
    /// When a far end has no namespaces, or several far ends would have the same serial number.
    pub(crate) fn divide(
        self,
        listen: &[SocketAddr],
        matches: &ArgMatches,
    ) -> Result<Vec<(SocketAddr, Self)>, Error> {
        let places = |name| matches.indices_of(name).into_iter().flatten().collect::<Vec<_>>();
        let starts = places("listen");
        if let (Some(serial), true) = (&self.serial, listen.len() > 1) {
            return Err(Error::OneSerial { serial: serial.clone(), count: listen.len() });
        }
        let owner = |place: usize| starts.iter().filter(|start| **start < place).count().saturating_sub(1);
        let common = Self { max_transfer: self.max_transfer, ..Self::default() };
        let mut parts: Vec<_> = listen.iter().map(|address| (*address, common.clone())).collect();
        for (spec, place) in self.namespace.into_iter().zip(places("namespace")) {
            parts[owner(place)].1.namespace.push(spec);
        }
        for (spec, place) in self.ram.into_iter().zip(places("ram")) {
            parts[owner(place)].1.ram.push(spec);
        }
        if let Some(place) = places("pool").first() {
            parts[owner(*place)].1.pool = self.pool;
        }
        for (path, place) in self.state.into_iter().zip(places("state")) {
            parts[owner(place)].1.state.push(path);
        }
        for (address, place) in self.vfio.into_iter().zip(places("vfio")) {
            parts[owner(place)].1.vfio.push(address);
        }
        parts[0].1.serial = self.serial;
        match parts.iter().find(|(_, part)| part.is_empty()) {
            Some((address, _)) => Err(Error::NothingToExport { address: *address }),
            None => Ok(parts),
        }
    }

    /// What was given by itself for a namespace each, in the order of identifiers.
    pub(crate) fn backings(&self) -> impl Iterator<Item = Backing> {
        let media = self.namespace.iter().cloned().map(Backing::Medium);
        media.chain(self.ram.iter().copied().map(Backing::Ram))
    }

    const fn is_empty(&self) -> bool {
        self.namespace.is_empty() && self.ram.is_empty() && self.pool.is_none() && self.vfio.is_empty()
    }

    /// The number of media that keep a file open.
    pub(crate) fn media(&self) -> usize {
        self.namespace.len() + self.vfio.len() + usize::from(self.pool.is_some())
    }

    /// Bytes of this machine's memory that hold data.
    pub(crate) fn memory(&self) -> u64 {
        let pool = match self.pool {
            Some(PoolSpec::Ram { size }) => size,
            _ => 0,
        };
        self.ram.iter().fold(pool, |sum, spec| sum.saturating_add(spec.size))
    }

    /// The number of all media: namespaces, memory, pool, and what keeps the state.
    pub(crate) fn count_media(&self) -> usize {
        self.media() + self.ram.len() + usize::from(!self.state.is_empty())
    }

    /// Describes what is served: the number of namespaces, and the room for more if there is any.
    pub(crate) fn count(&self, namespaces: usize) -> String {
        let namespaces = match namespaces {
            0 => "no namespace yet".to_owned(),
            1 => "1 namespace".to_owned(),
            count => format!("{count} namespaces"),
        };
        match &self.pool {
            Some(PoolSpec::Ram { size }) => {
                format!("{namespaces} and room for more ({})", indicatif::HumanBytes(*size))
            }
            Some(PoolSpec::File { path, .. }) => {
                format!("{namespaces} and room for more ({})", path.display())
            }
            None => namespaces,
        }
    }
}

/// A controller, as every command that uses one names it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The device: a far end, a vfio-user: socket or an nvme-tcp:// subsystem.
    ///
    /// A far end is tcp://HOST:PORT or quic://HOST:PORT?key=FINGERPRINT, in the clear
    /// udp://HOST:PORT or eth:IFACE/MAC, and on this machine shm:PATH. A device in another process
    /// is vfio-user:SOCKET. A subsystem is nvme-tcp://HOST:PORT[,HOST:PORT]/NQN[?OPTIONS]; each
    /// address is a path. OPTIONS are joined by &, for example queues=4&hdgst=off;
    /// docs/networks.md describes all
    #[arg(value_name = "URL")]
    pub(crate) url: Url,
    /// Give up if the far end is not there, or not back after a loss, within this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,

    /// Write the packets that pass between host and controller to this file, for farlane trace.
    ///
    /// The capture is pcapng: PCIe packets or, of a fabric, its bytes as segments of TCP. Nothing
    /// is sent ahead meanwhile, so that each step is seen
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: Root,
    #[command(flatten)]
    pub(crate) tunnel: TunnelOptions,
    #[command(flatten)]
    pub(crate) secrets: Secrets,
    #[command(flatten)]
    pub(crate) spin: Spin,
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Measure this many round trips
    #[arg(long, short = 'c', value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) count: u64,
    /// Begin this many round trips a second [default: each when the previous one ends]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: Option<u64>,
    /// Wait this long from one round trip to the next, and print a line for each
    #[arg(long, short = 'i', value_name = "TIME", conflicts_with = "rate", value_parser = parse_positive_time)]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_visible_subcommand_shows_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("farlane {}", command.get_name())), "{}", command.get_name());
        }
    }
}
