//! The commands of each group but `nvme`, whose commands are in a folder of their own.
//!
//! The daily words of a group are not here: `names` puts them there.

use clap::Subcommand;

use super::{
    CaptureDaemonArgs, CheckFileArgs, CompletionsArgs, ConvertArgs, DeviceArgs, DisconnectArgs, DiscoverArgs,
    DoctorArgs, EmulateArgs, ExplainArgs, KeyAction, ListArgs, LspciArgs, ManArgs, MeasureArgs, NicArgs,
    PingArgs, PlayArgs, PreflightArgs, PublishedArgs, RdmaAction, ReadArgs, RecordingArgs, ReplayArgs,
    StatusArgs, SweepArgs, TopArgs, TraceAction, TsnAction, UiArgs, UpgradeArgs, VerifyArgs, WriteArgs,
    capture, check_file, connect, convert, doctor, emulate, explain, manual, measure, nic, preflight, rdma,
    record, sim, status, top, trace, trust, tsn, ui, upgrade,
};

pub(super) const OFFER_EXAMPLE: &str = "Example:\n  \
    farlane offer device --vfio-user /run/user/1000/ssd.sock --ram 1GiB";
pub(super) const USE_EXAMPLE: &str = "Example:\n  \
    farlane use read tcp://127.0.0.1:4430 --length 1GiB --output copy.img";
pub(super) const NVME_EXAMPLE: &str = "Example:\n  farlane nvme smart-log tcp://127.0.0.1:4430 -o json";
pub(super) const MEASURE_EXAMPLE: &str = "Example:\n  farlane measure ping tcp://127.0.0.1:4430";
pub(super) const OBSERVE_EXAMPLE: &str = "Example:\n  farlane observe status";
pub(super) const MODEL_EXAMPLE: &str = "Example:\n  farlane model sim scenarios/tcp-1g.toml";
pub(super) const RECORDING_EXAMPLE: &str = "Example:\n  farlane recording verify flight.rec";
pub(super) const SETUP_EXAMPLE: &str = "Example:\n  farlane setup doctor";

/// The commands that offer a device.
#[derive(Debug, Subcommand)]
pub(crate) enum OfferCommand {
    /// Give a virtual machine an SSD of this machine.
    ///
    /// The guest uses the same controller as with farlane attach, without a network in between
    #[command(
        after_help = "Example:\n  farlane offer device --vfio-user /run/user/1000/ssd.sock --namespace disk.img,size=10GiB"
    )]
    Device(DeviceArgs),
}

/// The commands that use a device.
#[derive(Debug, Subcommand)]
pub(crate) enum UseCommand {
    /// Remove a block device that farlane connect has made
    #[command(after_help = connect::DISCONNECT_EXAMPLES)]
    Disconnect(DisconnectArgs),
    /// List the subsystems that an NVMe/TCP discovery controller reports.
    ///
    /// With --mdns, the command lists the discovery controllers on the network instead
    #[command(after_help = "Examples:\n  farlane use discover nvme-tcp://192.0.2.7:8009\n  \
        farlane use discover -t tcp -a 192.0.2.7 -s 8009\n  farlane use discover --mdns\n  \
        farlane nvme identify nvme-tcp://192.0.2.7:4420/nqn.2014-08.org.example:disk")]
    Discover(DiscoverArgs),
    /// Read from a namespace into a file
    #[command(
        after_help = "Examples:\n  farlane use read tcp://127.0.0.1:4430 --length 1GiB --output copy.img\n  \
        farlane use read tcp://127.0.0.1:4430 --start-block 8 --block-count 7 --data blocks"
    )]
    Read(ReadArgs),
    /// Write a file into a namespace
    #[command(
        after_help = "Example:\n  farlane use write tcp://127.0.0.1:4430 --input disk.img --offset 1MiB"
    )]
    Write(WriteArgs),
}

/// The commands that measure.
#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    /// Measure the round trip to a far function or to an NVMe/TCP controller.
    ///
    /// The command sends configuration reads to a far function, and Property Gets to an
    /// NVMe/TCP controller
    #[command(after_help = "Example:\n  farlane measure ping tcp://127.0.0.1:4430 --count 10000 --rate 1000")]
    Ping(PingArgs),

    /// Measure a device as published work does, and write a report.
    ///
    /// The report has several sizes, idle and under load. Latencies are given with and without
    /// outliers beyond three standard deviations. Through a tunnel, the time of a read is divided
    /// among its hops by the clocks of both ends
    #[command(after_help = measure::EXAMPLES)]
    Report(MeasureArgs),
    /// Measure RDMA connections, in perftest's terms
    #[command(subcommand, after_help = rdma::EXAMPLES)]
    Rdma(RdmaAction),
    /// Use low-latency network cards: serve one, measure, send and receive.
    ///
    /// A packet of up to 60 bytes is one store into the card, and one line that its receiver polls
    #[command(after_help = nic::EXAMPLES)]
    Nic(Box<NicArgs>),
}

/// The commands that show running daemons and captures.
#[derive(Debug, Subcommand)]
pub(crate) enum ObserveCommand {
    /// Show a running farlane's link state and lookahead counters.
    ///
    /// The lookahead counters say how many bytes were sent ahead of doorbells, and how many of
    /// these bytes the device did not read
    #[command(after_help = status::EXAMPLE)]
    Status(StatusArgs),
    /// List this user's running daemons, their offers and their sockets
    #[command(after_help = status::LIST_EXAMPLE)]
    List(ListArgs),

    /// Show the load of this user's daemons right now.
    ///
    /// Far ends, namespaces and hosts are views of their own. The keys f, n and h choose a view, q
    /// ends
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),

    /// Capture a running daemon's traffic: PCIe packets, or connections of a fabric.
    ///
    /// The daemon copies no packet before a capture begins. Wireshark and farlane observe trace
    /// read the capture
    #[command(after_help = capture::EXAMPLES)]
    Capture(Box<CaptureDaemonArgs>),
    /// Analyse a capture: its NVMe commands, and where their time went
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(TraceAction),
    /// Show captures, scenarios and running daemons in a browser
    #[command(after_help = ui::EXAMPLES)]
    Ui(UiArgs),
    /// List the PCIe functions that a host sees through the tunnel
    #[command(after_help = "Examples:\n  farlane observe lspci tcp://127.0.0.1:4430\n  \
        farlane observe lspci -t tcp://127.0.0.1:4430 tcp://127.0.0.1:4431")]
    Lspci(LspciArgs),
}

/// The commands that model networks.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Simulate a scenario
    #[command(after_help = sim::EXAMPLES)]
    Sim(PlayArgs),
    /// Simulate a scenario with every combination of some values
    #[command(after_help = sim::SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Draw where the time of one operation of each task goes, hop by hop
    #[command(after_help = explain::EXAMPLES)]
    Explain(ExplainArgs),
    /// Repeat published experiments, and print their values beside the simulated ones
    #[command(after_help = sim::PUBLISHED_EXAMPLES)]
    Published(PublishedArgs),
    /// Put a modelled network between two ends.
    ///
    /// The model has latency, a rate and losses, and the TCP that recovers from the losses
    #[command(after_help = emulate::EXAMPLE)]
    Emulate(EmulateArgs),
    /// Plan, apply and audit Time-Sensitive Networking for a tunnel's frames
    #[command(subcommand, after_help = tsn::EXAMPLES)]
    Tsn(TsnAction),
}

/// The commands for recordings.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordingCommand {
    /// Send a recording's data at the recorded pace
    #[command(after_help = record::REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Prove from the medium that a recording's certificate is true
    #[command(
        after_help = "Examples:\n  farlane recording verify flight.rec --json\n  farlane recording verify flight.rec --signed-by SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
    )]
    Verify(VerifyArgs),
    /// Find all data of a cut off or damaged recording, and certify them
    #[command(after_help = "Example:\n  farlane recording recover flight.rec")]
    Recover(RecordingArgs),
    /// Print the streams, the certificate and the gaps of a recording
    #[command(after_help = "Example:\n  farlane recording info flight.rec")]
    Info(RecordingArgs),
    /// Write a recording to a file of another format
    #[command(after_help = convert::EXAMPLES)]
    Convert(ConvertArgs),
    /// Measure whether a medium keeps up with a recording, and which buffer it needs
    #[command(after_help = preflight::EXAMPLES)]
    Preflight(PreflightArgs),
}

/// The commands that prepare a machine.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupCommand {
    /// Have another version go on in the place of a running daemon.
    ///
    /// A new process with the same options takes the daemon's sockets and state; hosts notice a
    /// pause. If it can't, the daemon goes on. Far ends (farlane export) at TCP can be upgraded
    #[command(after_help = upgrade::EXAMPLES)]
    Upgrade(UpgradeArgs),

    /// Make a key, show its fingerprint, or remember the key of a far end
    #[command(subcommand, after_help = trust::EXAMPLES)]
    Key(KeyAction),

    /// Check configuration files without using them.
    ///
    /// The files describe a target's offers, options of daemons, models of networks, or scenarios
    #[command(after_help = check_file::EXAMPLES)]
    Check(CheckFileArgs),
    /// Report this machine's lacks for each command, and their remedies.
    ///
    /// The command ends with status 1 if something is missing for a PURPOSE that is named
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Print the manual page of a command, or write those of all commands
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(ManArgs),
    /// Print a shell's completions of farlane's command line
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
}
