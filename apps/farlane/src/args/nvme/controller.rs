//! The options of the commands that concern a controller as a whole, and of those of the host.

use clap::Args;

use super::{At, Detail, Printing, ReadAt, number8, number16, number32};

#[derive(Debug, Args)]
pub(crate) struct ShowRegsArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Args)]
pub(crate) struct GetPropertyArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// The property's offset
    #[arg(short = 'O', long, value_name = "N", value_parser = number32)]
    pub(crate) offset: u32,
}

#[derive(Debug, Args)]
pub(crate) struct NsDescsArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Use the namespace with this identifier
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "1", value_parser = number32)]
    pub(crate) namespace: u32,
}

#[derive(Debug, Args)]
pub(crate) struct VirtMgmtArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// The controller whose resources change
    #[arg(short = 'c', long, value_name = "ID", default_value = "0", value_parser = number16)]
    pub(crate) cntlid: u16,
    /// The resources: 0 queues, 1 interrupts
    #[arg(short = 'r', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) rt: u8,
    /// Do this: 1 give the primary controller resources, 7 take a secondary one offline, 8 assign
    /// resources to it, 9 take it online
    #[arg(short = 'a', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..16))]
    pub(crate) act: u8,
    /// The number of resources
    #[arg(short = 'n', long, value_name = "N", default_value = "0", value_parser = number16)]
    pub(crate) nr: u16,
}

#[derive(Debug, Args)]
pub(crate) struct LockdownArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// The opcode, or the identifier of the feature
    #[arg(short = 'O', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) ofi: u8,
    /// The interfaces: 0 admin queues, 1 both, 2 out-of-band management
    #[arg(short = 'f', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..4))]
    pub(crate) ifc: u8,
    /// Do this: 0 allow, 1 prohibit
    #[arg(short = 'p', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..2))]
    pub(crate) prhbt: u8,
    /// The kind of --ofi: 0 an admin opcode, 2 a feature, 3 and 4 opcodes of management
    #[arg(short = 's', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..16))]
    pub(crate) scp: u8,
    /// Index of a UUID
    #[arg(short = 'U', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..128))]
    pub(crate) uuid: u8,
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    #[command(flatten)]
    pub(crate) printing: Printing,
}
