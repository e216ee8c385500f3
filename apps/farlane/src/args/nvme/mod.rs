//! The options of the commands that nvme-cli has too, under the same names.

mod io;
mod logs;
mod management;
mod reservations;

use clap::{Args, Subcommand, ValueEnum};

pub(crate) use io::{BlocksArgs, DsmArgs, PassthruArgs, WriteZeroesArgs};
pub(crate) use logs::{ErrorLogArgs, FeatureArgs, GetLogArgs, SetFeatureArgs};
pub(crate) use management::{
    AttachNsArgs, CreateNsArgs, FormatArgs, FwCommitArgs, FwDownloadArgs, ListCtrlArgs, ListNsArgs,
    SanitizeArgs, SelfTestArgs,
};
pub(crate) use reservations::{ResvAcquireArgs, ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs};

use super::Target;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Text for people
    Normal,
    /// JSON for machines
    Json,
}

/// The controller of a command, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct At {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print the answer in this form
    #[arg(short = 'o', long, value_name = "FORM", default_value = "normal")]
    output_format: Form,
    /// Print JSON for machines instead of text for people
    #[arg(long)]
    json: bool,
}

impl At {
    /// Whether the answer is for machines.
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.output_format == Form::Json
    }
}

/// A controller alone.
#[derive(Debug, Args)]
pub(crate) struct AtArgs {
    #[command(flatten)]
    pub(crate) at: At,
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
    /// Print what a controller reports about itself
    #[command(after_help = "Example:\n  farlane id-ctrl tcp://127.0.0.1:4430 -o json")]
    IdCtrl(AtArgs),
    /// Print what a controller reports about a namespace
    #[command(after_help = "Example:\n  farlane id-ns tcp://127.0.0.1:4430 -n 1")]
    IdNs(AtNamespaceArgs),
    /// List the namespaces of a controller, or with --all those of the whole subsystem
    #[command(after_help = "Example:\n  farlane list-ns tcp://127.0.0.1:4430 --all")]
    ListNs(ListNsArgs),
    /// List the controllers of a subsystem, or those to which a namespace is attached
    #[command(after_help = "Example:\n  farlane list-ctrl nvme-tcp://127.0.0.1:4420/NQN -n 1")]
    ListCtrl(ListCtrlArgs),
    /// Create a namespace in the subsystem's free room
    #[command(after_help = "Example:\n  \
        farlane create-ns tcp://127.0.0.1:4430 --nsze 262144 --ncap 262144 --block-size 4096\n  \
        farlane attach-ns tcp://127.0.0.1:4430 -n 1")]
    CreateNs(CreateNsArgs),
    /// Delete a namespace, with all of its data
    #[command(after_help = "Example:\n  farlane delete-ns tcp://127.0.0.1:4430 -n 1")]
    DeleteNs(AtNamespaceArgs),
    /// Attach a namespace to controllers
    #[command(after_help = "Example:\n  farlane attach-ns tcp://127.0.0.1:4430 -n 1 --controllers 1")]
    AttachNs(AttachNsArgs),
    /// Detach a namespace from controllers; its data stay
    #[command(after_help = "Example:\n  farlane detach-ns tcp://127.0.0.1:4430 -n 1")]
    DetachNs(AttachNsArgs),
    /// Format a namespace: all of its data are lost
    #[command(after_help = "Example:\n  farlane format tcp://127.0.0.1:4430 -n 1 --lbaf 1 --force")]
    Format(FormatArgs),
    /// Sanitize the subsystem: all data of all namespaces are lost
    #[command(after_help = "Example:\n  farlane sanitize tcp://127.0.0.1:4430 -a start-block-erase --force")]
    Sanitize(SanitizeArgs),
    /// Print how a sanitize operation fares
    #[command(after_help = "Example:\n  farlane sanitize-log tcp://127.0.0.1:4430")]
    SanitizeLog(AtArgs),
    /// Read a log page
    #[command(after_help = "Example:\n  farlane get-log tcp://127.0.0.1:4430 --log-id 2 --log-len 512")]
    GetLog(GetLogArgs),
    /// Print the Error Information log, the newest entry first
    #[command(after_help = "Example:\n  farlane error-log tcp://127.0.0.1:4430 -e 16")]
    ErrorLog(ErrorLogArgs),
    /// Print which firmware is in which slot
    #[command(after_help = "Example:\n  farlane fw-log tcp://127.0.0.1:4430")]
    FwLog(AtArgs),
    /// Send a firmware image to a controller
    #[command(after_help = "Example:\n  farlane fw-download tcp://127.0.0.1:4430 --fw image.bin")]
    FwDownload(FwDownloadArgs),
    /// Put the firmware image that was sent into a slot, or activate one
    #[command(after_help = "Example:\n  farlane fw-commit tcp://127.0.0.1:4430 --slot 1 --action 3")]
    FwCommit(FwCommitArgs),
    /// Start or abort a self-test of the device
    #[command(after_help = "Example:\n  farlane device-self-test tcp://127.0.0.1:4430 -s 1")]
    DeviceSelfTest(SelfTestArgs),
    /// Print how self-tests fare and how they ended
    #[command(after_help = "Example:\n  farlane self-test-log tcp://127.0.0.1:4430")]
    SelfTestLog(AtArgs),
    /// Read a feature's value
    #[command(after_help = "Example:\n  farlane get-feature tcp://127.0.0.1:4430 -f 6")]
    GetFeature(FeatureArgs),
    /// Set a feature's value
    #[command(after_help = "Example:\n  farlane set-feature tcp://127.0.0.1:4430 -f 6 --value 0 --save")]
    SetFeature(SetFeatureArgs),
    /// Register, replace or unregister a reservation key
    #[command(after_help = "Example:\n  farlane resv-register nvme-tcp://127.0.0.1:4420/NQN --nrkey 0xab")]
    ResvRegister(ResvRegisterArgs),
    /// Acquire a reservation, or preempt another host's
    #[command(
        after_help = "Example:\n  farlane resv-acquire nvme-tcp://127.0.0.1:4420/NQN --crkey 0xab --rtype 1"
    )]
    ResvAcquire(ResvAcquireArgs),
    /// Release a reservation, or clear all
    #[command(
        after_help = "Example:\n  farlane resv-release nvme-tcp://127.0.0.1:4420/NQN --crkey 0xab --rtype 1"
    )]
    ResvRelease(ResvReleaseArgs),
    /// Print who is registered with a namespace, and who has reserved it
    #[command(after_help = "Example:\n  farlane resv-report nvme-tcp://127.0.0.1:4420/NQN -o json")]
    ResvReport(ResvReportArgs),
    /// Make all data that were written durable
    #[command(after_help = "Example:\n  farlane flush tcp://127.0.0.1:4430 -n 1")]
    Flush(AtNamespaceArgs),
    /// Set blocks to zero
    #[command(after_help = "Example:\n  farlane write-zeroes tcp://127.0.0.1:4430 -s 0 -c 2047")]
    WriteZeroes(WriteZeroesArgs),
    /// Read blocks without transferring them, to learn whether the medium can
    #[command(after_help = "Example:\n  farlane verify-blocks tcp://127.0.0.1:4430 -s 0 -c 2047")]
    VerifyBlocks(BlocksArgs),
    /// Tell the controller about ranges of blocks: deallocate them
    #[command(after_help = "Example:\n  farlane dsm tcp://127.0.0.1:4430 --ad --slbs 0,4096 --blocks 2048,8")]
    Dsm(DsmArgs),
    /// Send any admin command
    #[command(after_help = "Example:\n  \
        farlane admin-passthru tcp://127.0.0.1:4430 --opcode 0x06 --cdw10 1 --data-len 4096 --read")]
    AdminPassthru(PassthruArgs),
    /// Send any I/O command
    #[command(after_help = "Example:\n  \
        farlane io-passthru tcp://127.0.0.1:4430 --opcode 0x02 -n 1 --data-len 4096 --read -b > block")]
    IoPassthru(PassthruArgs),
}

/// A number in decimal, or with `0x` in hexadecimal.
fn number(text: &str) -> Result<u64, String> {
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
fn number16(text: &str) -> Result<u16, String> {
    number(text)?.try_into().map_err(|_| "expected a number of at most 16 bits".to_owned())
}

/// A number of at most 8 bits.
fn number8(text: &str) -> Result<u8, String> {
    number(text)?.try_into().map_err(|_| "expected a number of at most 8 bits".to_owned())
}
