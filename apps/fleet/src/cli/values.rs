//! Values of the command line.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::agent::Tunnels;
use crate::wire::{Mode, Transport};

/// A pool with its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SizedPool {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) bytes: u64,
}

pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size::parse_size(text).map_err(|_| "expected a size such as 4096, 10GiB or 1TB".to_owned())
}

pub(super) fn parse_pool(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("expected NAME=FOLDER")?;
    Ok((name.to_owned(), folder.into()))
}

pub(super) fn parse_sized_pool(text: &str) -> Result<SizedPool, String> {
    let expected = "expected NAME=FOLDER,size=SIZE, such as fast=/srv/fast,size=100GiB";
    let (pool, size) = text.rsplit_once(",size=").ok_or(expected)?;
    let (name, folder) = parse_pool(pool).map_err(|_| expected)?;
    Ok(SizedPool { name, folder, bytes: parse_bytes(size)? })
}

pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

pub(super) fn parse_tunnels(text: &str) -> Result<Tunnels, String> {
    let expected = "expected IP:FIRST-LAST, such as 0.0.0.0:4440-4695";
    let (address, ports) = text.rsplit_once(':').ok_or(expected)?;
    let (first, last) = ports.split_once('-').ok_or(expected)?;
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(expected);
    let address = address.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| expected)?;
    let (first, last) = (port(first)?, port(last)?);
    if last < first { Err(expected.to_owned()) } else { Ok(Tunnels { address, ports: first..=last }) }
}

impl ValueEnum for Transport {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::NvmeTcp, Self::Tunnel]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::NvmeTcp => clap::builder::PossibleValue::new("nvme-tcp").help("NVMe over TCP"),
            Self::Tunnel => clap::builder::PossibleValue::new("tunnel").help("PCIe over TCP; one host"),
        })
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Exclusive, Self::Shared, Self::Read]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let (word, help) = match self {
            Self::Exclusive => ("exclusive", "no other host has the volume"),
            Self::Shared => ("shared", "hosts write beside each other"),
            Self::Read => ("read", "the host only reads"),
        };
        Some(clap::builder::PossibleValue::new(word).help(help))
    }
}
