//! The command line.

mod backing;
mod bench;
mod bench_load;
mod capture;
mod changes;
mod check_file;
mod command;
mod completion_timeout;
mod config_cache;
mod connect;
mod convert;
mod copying;
mod criterion;
mod daemon_options;
mod demo;
mod discover;
mod dma;
mod doctor;
mod emulate;
mod explain;
mod export;
mod fabric_words;
mod fio;
mod floor_server;
mod groups;
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
pub(crate) mod names;
pub(crate) mod new_files;
mod nic;
mod nvme;
pub(crate) mod overview;
mod packets;
mod precedence;
mod preflight;
mod printing;
mod quic;
mod random_distribution;
mod rdma;
mod record;
mod record_control;
mod record_proof;
mod record_raw;
mod record_ring;
mod root;
mod sandbox;
mod secrets;
mod sim;
mod sizes;
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
mod upgrade;
mod values;
mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Parser};
use live::client::Url;
use live::sys::vfio::PciAddress;

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
pub(crate) use command::Command;
pub(crate) use config_cache::ConfigCacheOption;
pub(crate) use connect::{ConnectArgs, DisconnectArgs, Over};
pub(crate) use convert::{ConvertArgs, Datatype, Format};
pub(crate) use copying::{BlockExtent, Extent, ReadArgs, WriteArgs};
pub(crate) use criterion::{Criterion, Figure};
pub(crate) use daemon_options::{DaemonOptions, daemon_settings};
pub(crate) use demo::{Carrier, DemoArgs};
pub(crate) use discover::DiscoverArgs;
pub(crate) use dma::Dma;
pub(crate) use doctor::{DoctorArgs, Purpose};
pub(crate) use emulate::EmulateArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use export::ExportArgs;
pub(crate) use fabric_words::FabricPlace;
pub(crate) use fio::{Amount, Each, Workload};
pub(crate) use floor_server::FloorServerArgs;
pub(crate) use groups::{
    MeasureCommand, ModelCommand, ObserveCommand, OfferCommand, RecordingCommand, SetupCommand, UseCommand,
};
pub(crate) use guest::{AttachArgs, DeviceArgs, Socket};
pub(crate) use log::LogForm;
pub(crate) use lookahead::Lookahead;
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
pub(crate) use random_distribution::RandomDistribution;
pub(crate) use rdma::{PeerArg, ProgramArg, ProviderArg, RdmaAction, RdmaMeasureArgs, ServeArgs};
pub(crate) use record::{
    Destination, Moment, OnFullArg, RangeArgs, RecordArgs, RecordingArgs, ReplayArgs, SourceUrl,
};
pub(crate) use record_control::{RecordAction, RecordControlArgs, RecordRequest, RecorderControl};
pub(crate) use record_proof::{DigestArg, ProofArgs};
pub(crate) use record_raw::{RawArgs, RawReplayArgs};
pub(crate) use record_ring::{KeepFor, PinArgs, RingArgs};
pub(crate) use root::Root;
pub(crate) use sandbox::{Sandbox, need_far, need_served};
pub(crate) use secrets::{Secrets, TargetSecrets};
pub(crate) use sim::{PlayArgs, PublishedArgs, SweepArgs};
pub(crate) use sizes::Sizes;
pub(crate) use spread::Spread;
pub(crate) use status::{Control, ListArgs, StatusArgs};
pub(crate) use target::{
    AccessState, Discovery, HostSpec, OfferArgs, SubsystemArgs, TargetAction, parse_cores, parse_proof_max,
};
pub(crate) use top::TopArgs;
pub(crate) use trace::{
    CaptureArgs, ChainArgs, CompareArgs, DissectorArgs, Form, Level, Out, ShowArgs, TraceAction,
    TraceConvertArgs,
};
pub(crate) use transport::{Tcp, Transport};
pub(crate) use trust::{
    DhchapHash, KeyAction, KeyArgs, KeyTestArgs, NewDhchapArgs, NewTlsArgs, TlsHash, Trust, TrustArgs,
    Trusted,
};
pub(crate) use tsn::{ApplyArgs, AuditArgs, PlanArgs, TsnAction};
pub(crate) use tunnel::TunnelOptions;
pub(crate) use ui::UiArgs;
pub(crate) use upgrade::UpgradeArgs;
use values::{note_once, parse_positive_size, parse_positive_time, parse_runtime, parse_serial};
pub(crate) use values::{parse_address, parse_size, parse_time};
pub(crate) use verify::VerifyArgs;

/// NVMe and PCIe at the far end of a network, with every hop's latency accounted for.
#[derive(Debug, Parser)]
#[command(name = "farlane", version = env!("FARLANE_VERSION"), max_term_width = 100)]
#[command(after_help = "Examples:\n  farlane demo\n  \
    farlane export --listen 127.0.0.1:4430 --ram 1GiB\n  \
    farlane observe lspci -t tcp://127.0.0.1:4430")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: log::LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Gives each command the places where it is found, and the help of groups.
pub(crate) fn arrange(root: clap::Command) -> clap::Command {
    overview::add_to(names::add_to(root))
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
    /// Divides these options among the far ends that `listen`. By `matches`, each far end gets the
    /// options between its address and the next address. The first far end also gets the options
    /// before its address.
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

    /// The options that give a namespace each, in the order of identifiers.
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

    /// The number of all media: namespaces, memory, pool, and the state file.
    pub(crate) fn count_media(&self) -> usize {
        self.media() + self.ram.len() + usize::from(!self.state.is_empty())
    }

    /// Describes the offer: the number of namespaces, and the room for more if there is any.
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

    /// Write the packets that pass between host and controller to this file, for farlane observe
    /// trace.
    ///
    /// The capture is pcapng: PCIe packets or, of a fabric, its bytes as segments of TCP. Lookahead
    /// is off meanwhile, so that the capture has each step
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
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
