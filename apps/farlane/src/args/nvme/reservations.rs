//! The options of the reservation commands.

use clap::Args;

use super::{AtNamespaceArgs, ReadAt, number, number32};

/// The key by which a host is registered, and whether it matters.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OwnKey {
    /// The key with which this host is registered
    #[arg(short = 'c', long, value_name = "KEY", default_value = "0", value_parser = number)]
    pub(crate) crkey: u64,
    /// Do not compare --crkey with the registered key
    #[arg(short = 'i', long)]
    pub(crate) iekey: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResvRegisterArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) own: OwnKey,
    /// Register this key
    #[arg(short = 'k', long, value_name = "KEY", default_value = "0", value_parser = number)]
    pub(crate) nrkey: u64,
    /// Do this: 0 register, 1 unregister, 2 replace the key
    #[arg(short = 'r', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) rrega: u8,
    /// Change the effect of a power loss: 2 it releases, 3 reservations persist
    #[arg(short = 'p', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..4))]
    pub(crate) cptpl: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ResvAcquireArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) own: OwnKey,
    /// Preempt the host that is registered with this key
    #[arg(short = 'p', long, value_name = "KEY", default_value = "0", value_parser = number)]
    pub(crate) prkey: u64,
    /// Reserve by this type: 1 write exclusive, 2 exclusive access, 3 and 4 for registrants
    /// only, 5 and 6 for all registrants
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    pub(crate) rtype: u8,
    /// Do this: 0 acquire, 1 preempt, 2 preempt and abort
    #[arg(short = 'a', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) racqa: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ResvReleaseArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    #[command(flatten)]
    pub(crate) own: OwnKey,
    /// The type of the reservation
    #[arg(short = 't', long, value_name = "N", default_value_t = 0)]
    pub(crate) rtype: u8,
    /// Do this: 0 release, 1 clear the reservation and all registrations
    #[arg(short = 'a', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) rrela: u8,
}

#[derive(Debug, Args)]
pub(crate) struct ResvReportArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Use the namespace with this identifier
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "1", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Ask for host identifiers of 128 bits; this is the default
    #[arg(short = 'e', long)]
    pub(crate) eds: bool,
    /// Ask for host identifiers of 64 bits, which fabrics do not have
    #[arg(long, conflicts_with = "eds")]
    pub(crate) short: bool,
    /// Command Dword 11, whose bit 0 asks for host identifiers of 128 bits
    #[arg(short = 'c', long, value_name = "N", value_parser = number32, conflicts_with_all = ["eds", "short"])]
    pub(crate) cdw11: Option<u32>,
    /// Read this many double words
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) numd: u32,
}
