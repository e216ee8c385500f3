//! The first word of a command line: a daily word, or a group of commands.

use clap::Subcommand;

use super::groups::{
    MeasureCommand, ModelCommand, ObserveCommand, OfferCommand, RecordingCommand, SetupCommand, UseCommand,
};
use super::{
    AttachArgs, BenchArgs, ConnectArgs, DemoArgs, ExportArgs, FloorServerArgs, NicAction, NvmeCommand,
    OfferArgs, RecordArgs, UpgradeArgs, bench, connect, demo, export, groups, guest, record, target, upgrade,
};

/// The first word behind `farlane`. `overview` has the order in which `--help` lists it.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine, verify it and measure it.
    ///
    /// The demo joins a far SSD over TCP, and uses it as a host does
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoArgs),
    /// Offer an NVMe SSD or a vfio-user device to a host over a network
    #[command(after_help = export::EXAMPLES)]
    Export(Box<ExportArgs>),
    /// Offer namespaces to hosts over NVMe/TCP and NVMe/RDMA.
    ///
    /// Linux's own initiator can use the namespaces, and so can any other initiator of these
    #[command(after_help = target::EXAMPLES)]
    Target(Box<OfferArgs>),
    /// Give a virtual machine the SSD of a far end.
    ///
    /// QEMU's guest sees an ordinary NVMe device
    #[command(after_help = guest::ATTACH_EXAMPLES)]
    Attach(AttachArgs),

    /// Make the SSD of a far end a block device of this machine.
    ///
    /// The block device is /dev/ublkbN or /dev/nvmeNn1. I/O waits while the far end is away. The
    /// block device outlives this process: another farlane connect takes it over
    #[command(after_help = connect::EXAMPLES)]
    Connect(Box<ConnectArgs>),
    /// Run a load on a namespace, and report rate and latency in fio's terms
    #[command(after_help = bench::EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Record streams to a file without a gap, or with every gap declared
    #[command(after_help = record::EXAMPLES)]
    Record(Box<RecordArgs>),

    /// Offer devices to hosts and guests
    #[command(subcommand, after_help = groups::OFFER_EXAMPLE)]
    Offer(OfferCommand),
    /// Use the device of a far end
    #[command(subcommand, after_help = groups::USE_EXAMPLE)]
    Use(UseCommand),
    /// Send NVMe commands by nvme-cli's names
    #[command(subcommand, after_help = groups::NVME_EXAMPLE)]
    Nvme(Box<NvmeCommand>),
    /// Measure devices, links and machines
    #[command(subcommand, after_help = groups::MEASURE_EXAMPLE)]
    Measure(MeasureCommand),
    /// Watch running daemons and read captures
    #[command(subcommand, after_help = groups::OBSERVE_EXAMPLE)]
    Observe(ObserveCommand),
    /// Simulate, emulate and plan networks
    #[command(subcommand, after_help = groups::MODEL_EXAMPLE)]
    Model(ModelCommand),
    /// Make and use recordings
    #[command(subcommand, after_help = groups::RECORDING_EXAMPLE)]
    Recording(RecordingCommand),
    /// Prepare a machine
    #[command(subcommand, after_help = groups::SETUP_EXAMPLE)]
    Setup(SetupCommand),

    /// The same as `setup upgrade`
    #[command(hide = true, after_help = upgrade::EXAMPLES)]
    Upgrade(UpgradeArgs),
    /// Run the far side of a floor measurement: raw TCP without a protocol
    #[command(hide = true)]
    FloorServer(FloorServerArgs),
}

impl Command {
    /// Whether the command runs until a signal ends it, and other processes rely on it meanwhile.
    pub(crate) fn is_service(&self) -> bool {
        match self {
            Self::Export(args) => args.action.is_none(),
            Self::Target(args) => args.action.is_none(),
            Self::Record(args) => args.action.is_none(),
            Self::Measure(MeasureCommand::Nic(args)) => {
                matches!(args.action, None | Some(NicAction::Serve(_)))
            }
            Self::Connect(args) => args.url.is_some() || args.place.is_given(),
            Self::Attach(_)
            | Self::Offer(OfferCommand::Device(_))
            | Self::Model(ModelCommand::Emulate(_)) => true,
            _ => false,
        }
    }
}
