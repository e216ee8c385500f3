//! The options of the commands that nvme-cli has too, under the same names.

mod controller;
mod io;
mod logs;
mod management;
mod reports;
mod reservations;

use clap::{Args, Subcommand};

pub(crate) use controller::{
    GetPropertyArgs, HostArgs, LockdownArgs, NsDescsArgs, ShowRegsArgs, VirtMgmtArgs,
};
pub(crate) use io::{BlocksArgs, CompareBlocksArgs, CopyArgs, DsmArgs, PassthruArgs, WriteZeroesArgs};
pub(crate) use logs::{ErrorLogArgs, FeatureArgs, GetLogArgs, SelfTestLogArgs, SetFeatureArgs, SmartLogArgs};
pub(crate) use management::{
    AttachNsArgs, CreateNsArgs, FormatArgs, FwCommitArgs, FwDownloadArgs, IdNsArgs, ListCtrlArgs, ListNsArgs,
    SanitizeArgs, SelfTestArgs,
};
pub(crate) use reports::{
    AnaLogArgs, ChangedNsArgs, EffectsLogArgs, EnduranceLogArgs, PersistentEventLogArgs, TelemetryLogArgs,
};
pub(crate) use reservations::{ResvAcquireArgs, ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs};

use super::printing::{Detail, Printing, StructurePrinting};
use super::{Target, parse_size};

/// The controller of a command that does something, and how that is reported.
#[derive(Debug, Args)]
pub(crate) struct At {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// The controller of a command that reads a structure, and how the structure is printed.
#[derive(Debug, Args)]
pub(crate) struct ReadAt {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) printing: StructurePrinting,
}

/// A controller alone, of which a structure is read.
#[derive(Debug, Args)]
pub(crate) struct ReadAtArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
}

/// A controller alone.
#[derive(Debug, Args)]
pub(crate) struct AtArgs {
    #[command(flatten)]
    pub(crate) at: At,
}

/// A controller alone, of which a structure with bit fields is read.
#[derive(Debug, Args)]
pub(crate) struct DetailArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

/// A controller and one of its namespaces, as nvme-cli names them.
#[derive(Debug, Args)]
pub(crate) struct AtNamespaceArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Use the namespace with this identifier
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "1", value_parser = number32)]
    pub(crate) namespace: u32,
}

/// A command of nvme-cli.
#[derive(Debug, Subcommand)]
pub(crate) enum NvmeCommand {
    /// Print the properties of a controller and its namespaces together
    #[command(after_help = "Example:\n  farlane nvme identify tcp://127.0.0.1:4430 --json")]
    Identify(AtArgs),
    /// Print a controller's report about itself
    #[command(after_help = "Example:\n  farlane nvme id-ctrl tcp://127.0.0.1:4430 -o json")]
    IdCtrl(DetailArgs),
    /// Print the controller's SMART / health information
    #[command(after_help = "Examples:\n  farlane nvme smart-log tcp://127.0.0.1:4430\n  \
        farlane nvme smart-log tcp://127.0.0.1:4430 -o json")]
    SmartLog(SmartLogArgs),
    /// Print a controller's report about a namespace
    #[command(after_help = "Example:\n  farlane nvme id-ns tcp://127.0.0.1:4430 -n 1")]
    IdNs(IdNsArgs),
    /// Print the names of a namespace
    #[command(after_help = "Example:\n  farlane nvme ns-descs tcp://127.0.0.1:4430 -n 1")]
    NsDescs(NsDescsArgs),
    /// Print the UUIDs of vendors whose commands a controller knows
    #[command(after_help = "Example:\n  farlane nvme id-uuid tcp://127.0.0.1:4430")]
    IdUuid(ReadAtArgs),
    /// List the namespaces of a controller, or with --all of the subsystem
    #[command(after_help = "Example:\n  farlane nvme list-ns tcp://127.0.0.1:4430 --all")]
    ListNs(ListNsArgs),
    /// List the controllers of a subsystem, or of a namespace
    #[command(after_help = "Example:\n  farlane nvme list-ctrl nvme-tcp://127.0.0.1:4420/NQN -n 1")]
    ListCtrl(ListCtrlArgs),
    /// Create a namespace in the subsystem's free room
    #[command(after_help = "Example:\n  \
        farlane nvme create-ns tcp://127.0.0.1:4430 --nsze 262144 --ncap 262144 --block-size 4096\n  \
        farlane nvme attach-ns tcp://127.0.0.1:4430 -n 1")]
    CreateNs(CreateNsArgs),
    /// Delete a namespace, with all of its data
    #[command(after_help = "Example:\n  farlane nvme delete-ns tcp://127.0.0.1:4430 -n 1")]
    DeleteNs(AtNamespaceArgs),
    /// Attach a namespace to controllers
    #[command(after_help = "Example:\n  farlane nvme attach-ns tcp://127.0.0.1:4430 -n 1 --controllers 1")]
    AttachNs(AttachNsArgs),
    /// Detach a namespace from controllers; its data stay
    #[command(after_help = "Example:\n  farlane nvme detach-ns tcp://127.0.0.1:4430 -n 1")]
    DetachNs(AttachNsArgs),
    /// Format a namespace: all of its data are lost
    #[command(after_help = "Example:\n  farlane nvme format tcp://127.0.0.1:4430 -n 1 --lbaf 1 --force")]
    Format(FormatArgs),
    /// Sanitize the subsystem: all data of all namespaces are lost
    #[command(
        after_help = "Example:\n  farlane nvme sanitize tcp://127.0.0.1:4430 -a start-block-erase --force"
    )]
    Sanitize(SanitizeArgs),
    /// Print the state of a sanitize operation
    #[command(after_help = "Example:\n  farlane nvme sanitize-log tcp://127.0.0.1:4430")]
    SanitizeLog(DetailArgs),
    /// Read a log page
    #[command(after_help = "Example:\n  farlane nvme get-log tcp://127.0.0.1:4430 --log-id 2 --log-len 512")]
    GetLog(GetLogArgs),
    /// Print the Error Information log, the newest entry first
    #[command(after_help = "Example:\n  farlane nvme error-log tcp://127.0.0.1:4430 -e 16")]
    ErrorLog(ErrorLogArgs),
    /// Print which commands a controller supports, and their effects
    #[command(after_help = "Example:\n  farlane nvme effects-log tcp://127.0.0.1:4430 -H")]
    EffectsLog(EffectsLogArgs),
    /// Print how well a controller reaches groups of namespaces
    #[command(after_help = "Example:\n  farlane nvme ana-log nvme-tcp://127.0.0.1:4420/NQN")]
    AnaLog(AnaLogArgs),
    /// Print which log pages a controller has
    #[command(after_help = "Example:\n  farlane nvme supported-log-pages tcp://127.0.0.1:4430")]
    SupportedLogPages(DetailArgs),
    /// Print which attached namespaces have changed
    #[command(after_help = "Example:\n  farlane nvme changed-ns-list-log tcp://127.0.0.1:4430")]
    ChangedNsListLog(ChangedNsArgs),
    /// Print the wear of an Endurance Group
    #[command(after_help = "Example:\n  farlane nvme endurance-log tcp://127.0.0.1:4430 -g 1")]
    EnduranceLog(EnduranceLogArgs),
    /// Print the events of a device's life
    #[command(after_help = "Example:\n  farlane nvme persistent-event-log tcp://127.0.0.1:4430 -o json")]
    PersistentEventLog(PersistentEventLogArgs),
    /// Write a snapshot of a controller's state to a file, for its vendor
    #[command(after_help = "Example:\n  farlane nvme telemetry-log tcp://127.0.0.1:4430 -O telemetry.bin")]
    TelemetryLog(TelemetryLogArgs),
    /// Print which firmware is in which slot
    #[command(after_help = "Example:\n  farlane nvme fw-log tcp://127.0.0.1:4430")]
    FwLog(ReadAtArgs),
    /// Send a firmware image to a controller
    #[command(after_help = "Example:\n  farlane nvme fw-download tcp://127.0.0.1:4430 --fw image.bin")]
    FwDownload(FwDownloadArgs),
    /// Put the firmware image that was sent into a slot, or activate one
    #[command(after_help = "Example:\n  farlane nvme fw-commit tcp://127.0.0.1:4430 --slot 1 --action 3")]
    FwCommit(FwCommitArgs),
    /// Start or abort a self-test of the device
    #[command(after_help = "Example:\n  farlane nvme device-self-test tcp://127.0.0.1:4430 -s 1")]
    DeviceSelfTest(SelfTestArgs),
    /// Print the progress and the results of self-tests
    #[command(after_help = "Example:\n  farlane nvme self-test-log tcp://127.0.0.1:4430")]
    SelfTestLog(SelfTestLogArgs),
    /// Read a feature's value
    #[command(after_help = "Example:\n  farlane nvme get-feature tcp://127.0.0.1:4430 -f 6")]
    GetFeature(FeatureArgs),
    /// Set a feature's value
    #[command(after_help = "Example:\n  farlane nvme set-feature tcp://127.0.0.1:4430 -f 6 --value 0 --save")]
    SetFeature(SetFeatureArgs),
    /// Register, replace or unregister a reservation key
    #[command(
        after_help = "Example:\n  farlane nvme resv-register nvme-tcp://127.0.0.1:4420/NQN --nrkey 0xab"
    )]
    ResvRegister(ResvRegisterArgs),
    /// Acquire a reservation, or preempt another host's
    #[command(
        after_help = "Example:\n  farlane nvme resv-acquire nvme-tcp://127.0.0.1:4420/NQN --crkey 0xab --rtype 1"
    )]
    ResvAcquire(ResvAcquireArgs),
    /// Release a reservation, or clear all
    #[command(
        after_help = "Example:\n  farlane nvme resv-release nvme-tcp://127.0.0.1:4420/NQN --crkey 0xab --rtype 1"
    )]
    ResvRelease(ResvReleaseArgs),
    /// Print a namespace's registered hosts, and its reservation
    #[command(after_help = "Example:\n  farlane nvme resv-report nvme-tcp://127.0.0.1:4420/NQN -o json")]
    ResvReport(ResvReportArgs),
    /// Make all data that were written durable
    #[command(after_help = "Example:\n  farlane nvme flush tcp://127.0.0.1:4430 -n 1")]
    Flush(AtNamespaceArgs),
    /// Set blocks to zero
    #[command(after_help = "Example:\n  farlane nvme write-zeroes tcp://127.0.0.1:4430 -s 0 -c 2047")]
    WriteZeroes(WriteZeroesArgs),
    /// Read blocks without transferring them, to learn whether the medium can
    #[command(
        name = "verify",
        after_help = "Example:\n  farlane nvme verify tcp://127.0.0.1:4430 -s 0 -c 2047"
    )]
    VerifyBlocks(BlocksArgs),
    /// Compare blocks with a file, in the controller
    #[command(after_help = "Example:\n  farlane nvme compare tcp://127.0.0.1:4430 -s 0 -c 7 --data blocks")]
    Compare(CompareBlocksArgs),
    /// Copy ranges of blocks within a namespace, in the controller
    #[command(
        after_help = "Example:\n  farlane nvme copy tcp://127.0.0.1:4430 --sdlba 4096 --slbs 0,2048 --blocks 7,7"
    )]
    Copy(CopyArgs),
    /// Make blocks unreadable until they are written again
    #[command(after_help = "Example:\n  farlane nvme write-uncor tcp://127.0.0.1:4430 -s 0 -c 0")]
    WriteUncor(BlocksArgs),
    /// Deallocate ranges of blocks (Dataset Management)
    #[command(
        after_help = "Example:\n  farlane nvme dsm tcp://127.0.0.1:4430 --ad --slbs 0,4096 --blocks 2048,8"
    )]
    Dsm(DsmArgs),
    /// Reset a controller on PCI Express or behind vfio-user
    #[command(after_help = "Example:\n  farlane nvme reset tcp://127.0.0.1:4430")]
    Reset(AtArgs),
    /// Reset a subsystem with all of its controllers, whichever hosts use them
    #[command(after_help = "Example:\n  farlane nvme subsystem-reset nvme-tcp://127.0.0.1:4420/NQN")]
    SubsystemReset(AtArgs),
    /// Print the properties of a controller over a fabric
    #[command(after_help = "Example:\n  farlane nvme show-regs nvme-tcp://127.0.0.1:4420/NQN -H")]
    ShowRegs(ShowRegsArgs),
    /// Print a property of a controller over a fabric
    #[command(after_help = "Example:\n  farlane nvme get-property nvme-tcp://127.0.0.1:4420/NQN -O 0x1c -H")]
    GetProperty(GetPropertyArgs),
    /// Assign queues and interrupts to secondary controllers
    #[command(after_help = "Example:\n  farlane nvme virt-mgmt tcp://127.0.0.1:4430 -c 1 -r 0 -a 8 -n 2")]
    VirtMgmt(VirtMgmtArgs),
    /// Prohibit or allow a command or a feature
    #[command(after_help = "Example:\n  farlane nvme lockdown tcp://127.0.0.1:4430 --ofi 0x84 --prhbt 1")]
    Lockdown(LockdownArgs),
    /// Print the name by which this host connects to subsystems
    #[command(name = "show-hostnqn", after_help = "Example:\n  farlane nvme show-hostnqn")]
    ShowHostNqn(HostArgs),
    /// Print a new name for a host
    #[command(name = "gen-hostnqn", after_help = "Example:\n  farlane nvme gen-hostnqn > /etc/nvme/hostnqn")]
    GenHostNqn(HostArgs),
    /// Print farlane's version
    #[command(after_help = "Example:\n  farlane nvme version")]
    Version(HostArgs),
    /// List the subsystems that this user's daemons offer or use, and the paths
    #[command(after_help = "Example:\n  farlane nvme list-subsys -o json")]
    ListSubsys(HostArgs),
    /// Send any admin command
    #[command(after_help = "Example:\n  \
        farlane nvme admin-passthru tcp://127.0.0.1:4430 --opcode 0x06 --cdw10 1 --data-len 4096 --read")]
    AdminPassthru(PassthruArgs),
    /// Send any I/O command
    #[command(after_help = "Example:\n  \
        farlane nvme io-passthru tcp://127.0.0.1:4430 --opcode 0x02 -n 1 --data-len 4096 --read -b > block")]
    IoPassthru(PassthruArgs),
}

/// A number in decimal, or with `0x` in hexadecimal.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a number, such as 26 or 0x1a".to_owned())
}

/// A number of at most 32 bits.
fn number32(text: &str) -> Result<u32, String> {
    number(text)?.try_into().map_err(|_| "expected a number of at most 32 bits".to_owned())
}

/// A number of at most 16 bits.
pub(super) fn number16(text: &str) -> Result<u16, String> {
    number(text)?.try_into().map_err(|_| "expected a number of at most 16 bits".to_owned())
}

/// A number of at most 8 bits.
fn number8(text: &str) -> Result<u8, String> {
    number(text)?.try_into().map_err(|_| "expected a number of at most 8 bits".to_owned())
}
