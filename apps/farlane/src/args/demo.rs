//! The options of `farlane demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Lookahead, Output, Root, parse_positive_size, parse_time};

pub(super) const EXAMPLES: &str = "Examples:
  farlane demo --file /usr/bin/gcc --size 16MiB
  farlane demo --carrier shm --size 4MiB
  farlane demo --carrier eth --size 4MiB
  farlane demo --link scenarios/5g.toml --size 4MiB
  farlane demo --link scenarios/5g.toml --size 4MiB --no-lookahead";

/// The carrier of the demo's tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Carrier {
    /// The kernel's TCP
    #[default]
    Tcp,
    /// Memory that both ends share
    Shm,
    /// Datagrams of UDP
    Udp,
    /// Bare Ethernet frames
    Eth,
}

fn parse_interfaces(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((near, far)) if !near.is_empty() && !far.is_empty() => Ok((near.to_owned(), far.to_owned())),
        _ => Err("expected the names of two interfaces, such as eth0,eth1".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Write this file and read it back [default: farlane's own binary]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Write this many bytes.
    ///
    /// The demo repeats the file until this size is reached
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_positive_size)]
    pub(crate) size: u64,
    /// Limit each measurement to this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) runtime: Duration,
    /// Put the demo's namespace in this directory, which needs room for twice --size
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// Carry the tunnel over this
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub(crate) carrier: Carrier,

    /// For --carrier eth, use these interfaces of this machine, between which frames pass.
    ///
    /// Without this option, the demo makes a pair of virtual interfaces in a network of its own,
    /// by unshare and ip
    #[arg(long, value_name = "NEAR,FAR", value_parser = parse_interfaces)]
    pub(crate) interfaces: Option<(String, String)>,

    /// Put the network that this file describes between the ends.
    ///
    /// The demo then shows the simulation's values beside the measured values. The file is a link
    /// file, or a scenario with a [link]. docs/emulate.md describes all keys
    #[arg(long, value_name = "FILE", conflicts_with = "carrier")]
    pub(crate) link: Option<PathBuf>,
    /// Derive all random choices in the network of --link from this seed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "link")]
    pub(crate) seed: u64,

    /// Write the PCIe packets that pass the tunnel's near end to this file, for farlane observe
    /// trace.
    ///
    /// Lookahead is off meanwhile, so that the capture has each step
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) root: Root,
    #[command(flatten)]
    pub(crate) lookahead: Lookahead,
    #[command(flatten)]
    pub(crate) output: Output,
}
