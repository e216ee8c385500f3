//! `farlane fleet csi`: the driver for Kubernetes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::args::Access;
use super::values::parse_label;
use super::{Error, objects};
use crate::csi::{NodeSettings, Role, Settings, run as drive};

#[derive(Debug, Args)]
pub(super) struct CsiArgs {
    /// The services of this process
    role: CsiRole,
    /// Listen at this socket
    #[arg(long, value_name = "PATH", default_value = "/csi/csi.sock")]
    socket: PathBuf,
    /// The name of this machine in the fleet [default: here]
    #[arg(long, value_name = "NAME", default_value = "here")]
    node: String,
    /// A label of this machine for the topology; its name alone if there is none
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// The most volumes that this machine is to have; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    volumes_max: u64,
    /// Wait at most this long for a block device
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    device_timeout: Duration,
}

/// The services of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CsiRole {
    /// Once for a cluster
    Controller,
    /// On each machine
    Node,
    /// Both
    All,
}

/// Runs a driver until a signal ends it.
pub(super) async fn run(args: CsiArgs, access: &Access) -> Result<(), Error> {
    let role = match args.role {
        CsiRole::Controller => Role::Controller,
        CsiRole::Node => Role::Node,
        CsiRole::All => Role::All,
    };
    let node = fleet::Name::new(&args.node).map_err(|error| Error::Wrong(error.to_string()))?;
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let node = NodeSettings { node, labels, volumes_max: args.volumes_max, patience: args.device_timeout };
    let settings = Settings { socket: args.socket, role, patience: access.timeout, node };
    Ok(drive(settings, objects::client(access)?).await?)
}
