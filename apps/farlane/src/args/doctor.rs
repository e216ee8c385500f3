//! The options of `farlane setup doctor`.

use clap::{Args, ValueEnum};

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane setup doctor
  farlane setup doctor vfio
  farlane setup doctor files guests --json";

/// The purposes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// Serve: export, target, attach, device, record
    Serving,
    /// Serve files and block devices
    Files,
    /// Carry a tunnel or NVMe/TCP over TCP or QUIC
    Network,
    /// Have repeatable latencies: bench, ping, demo
    Latency,
    /// Give a virtual machine an SSD: attach, device
    Guests,
    /// Drive an NVMe controller of this machine: --vfio
    Vfio,
    /// Record packets and datagrams
    Record,
    /// Compare the clocks of two machines
    Time,
    /// Put a modelled network between interfaces: emulate --interface
    Emulate,
    /// Have this kernel use a target, by nvme connect
    Initiator,
    /// Use RDMA with a card: programs beside Farlane, which needs none
    Rdma,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check the requirements of this purpose [default: all]
    #[arg(value_name = "PURPOSE")]
    pub(crate) purposes: Vec<Purpose>,
    #[command(flatten)]
    pub(crate) output: Output,
}
