//! The options of the commands that manage namespaces, firmware and the subsystem.

use std::path::PathBuf;

use clap::Args;

use super::{At, AtNamespaceArgs, Detail, ReadAt, number, number8, number16, number32};

#[derive(Debug, Args)]
pub(crate) struct IdNsArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// Use the namespace with this identifier
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "1", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Read the structure of a namespace that is attached to no controller, too
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListNsArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// Begin with the first namespace after this one
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0", value_parser = number32)]
    pub(crate) after: u32,
    /// List the namespaces of the subsystem, attached or not
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// List the namespaces of this command set alone
    #[arg(short = 'y', long, value_name = "N", value_parser = number8)]
    pub(crate) csi: Option<u8>,
}

#[derive(Debug, Args)]
pub(crate) struct ListCtrlArgs {
    #[command(flatten)]
    pub(crate) at: ReadAt,
    /// List those to which this namespace is attached
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", value_parser = number32)]
    pub(crate) namespace: Option<u32>,
    /// Begin with this controller
    #[arg(short = 'c', long, value_name = "ID", default_value = "0", value_parser = number16)]
    pub(crate) cntid: u16,
}

#[derive(Debug, Args)]
pub(crate) struct CreateNsArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Make the namespace this many blocks long
    #[arg(short = 's', long, value_name = "BLOCKS", value_parser = number)]
    pub(crate) nsze: u64,
    /// Reserve room for this many blocks [default: as many as --nsze]
    #[arg(short = 'c', long, value_name = "BLOCKS", value_parser = number)]
    pub(crate) ncap: Option<u64>,
    /// Use the LBA format with this number
    #[arg(short = 'f', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) flbas: u8,
    /// Use the LBA format without metadata that has blocks of this many bytes
    #[arg(short = 'b', long, value_name = "BYTES", conflicts_with = "flbas", value_parser = number32)]
    pub(crate) block_size: Option<u32>,
    /// Protect data end to end by this type of information
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "0", value_parser = number8)]
    pub(crate) dps: u8,
    /// Let several controllers have the namespace: 1
    #[arg(short = 'm', long, value_name = "BITS", default_value = "0", value_parser = number8)]
    pub(crate) nmic: u8,
    /// Put the namespace into this ANA group
    #[arg(short = 'a', long, value_name = "GROUP", default_value = "0", value_parser = number32)]
    pub(crate) anagrp_id: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AttachNsArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    /// Use these controllers, separated by commas [default: the answering one]
    #[arg(short = 'c', long, value_name = "ID,...", value_delimiter = ',', value_parser = number16)]
    pub(crate) controllers: Vec<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    pub(crate) place: AtNamespaceArgs,
    /// Use the LBA format with this number
    #[arg(short = 'l', long, value_name = "N", value_parser = number8)]
    pub(crate) lbaf: Option<u8>,
    /// Use the LBA format without metadata that has blocks of this many bytes
    #[arg(short = 'b', long, value_name = "BYTES", conflicts_with = "lbaf", value_parser = number32)]
    pub(crate) block_size: Option<u32>,
    /// Erase securely: 0 not, 1 user data, 2 by a new key
    #[arg(short = 's', long, value_name = "N", default_value = "0", value_parser = number8)]
    pub(crate) ses: u8,
    /// Protect data end to end by this type of information
    #[arg(short = 'i', long, value_name = "TYPE", default_value = "0", value_parser = number8)]
    pub(crate) pi: u8,
    /// Confirm the loss of the namespace's data, without which farlane refuses
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SanitizeArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Do this: exit-failure, start-block-erase, start-overwrite or start-crypto-erase, or 1 to 4
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = action)]
    pub(crate) sanact: u8,
    /// Leave the blocks allocated
    #[arg(short = 'd', long)]
    pub(crate) no_dealloc: bool,
    /// Invert the pattern between two passes
    #[arg(short = 'i', long)]
    pub(crate) oipbp: bool,
    /// Overwrite this many times; 0 is 16
    #[arg(short = 'n', long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(0..16))]
    pub(crate) owpass: u8,
    /// Let a failed operation be left without another one
    #[arg(short = 'u', long)]
    pub(crate) ause: bool,
    /// Overwrite with this pattern of 32 bits
    #[arg(short = 'p', long, value_name = "BITS", default_value = "0", value_parser = number32)]
    pub(crate) ovrpat: u32,
    /// Confirm the loss of all data of the subsystem, without which farlane refuses
    #[arg(long)]
    pub(crate) force: bool,
}

/// A Sanitize Action (SANACT) by nvme-cli's word or its number.
fn action(text: &str) -> Result<u8, String> {
    let words = ["exit-failure", "start-block-erase", "start-overwrite", "start-crypto-erase"];
    let of = |number: u8, word: &&str| text == *word || text == number.to_string();
    let found = (1..).zip(&words).find(|(number, word)| of(*number, word));
    found.map(|(number, _)| number).ok_or_else(|| format!("expected one of {}, or 1 to 4", words.join(", ")))
}

#[derive(Debug, Args)]
pub(crate) struct FwDownloadArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Send this file, whose length must be a multiple of 4 bytes
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) fw: PathBuf,
    /// Send this many bytes with each command
    #[arg(short = 'x', long, value_name = "BYTES", default_value = "4096", value_parser = number32)]
    pub(crate) xfer: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FwCommitArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Use this slot; 0 lets the controller choose
    #[arg(short = 's', long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) slot: u8,
    /// Do this: 0 put into the slot, 1 and activate at the next reset, 2 activate the slot at the
    /// next reset, 3 at once
    #[arg(short = 'a', long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u8).range(0..8))]
    pub(crate) action: u8,
}

#[derive(Debug, Args)]
pub(crate) struct SelfTestArgs {
    #[command(flatten)]
    pub(crate) at: At,
    /// Test this namespace; all, unless given
    #[arg(short = 'n', long = "namespace-id", value_name = "NSID", default_value = "0xffffffff", value_parser = number32)]
    pub(crate) namespace: u32,
    /// Do this: 1 the short test, 2 the extended one, 0xf abort
    #[arg(short = 's', long, value_name = "N", default_value = "1", value_parser = number8)]
    pub(crate) self_test_code: u8,
    /// Wait for the end of an extended test, as for that of a short one
    #[arg(short = 'w', long)]
    pub(crate) wait: bool,
}
