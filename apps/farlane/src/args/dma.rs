//! The option for what a far device may reach, and the counters of what was refused.

use clap::{Args, ValueEnum};
use nvme_lookahead::Refusals;
use serde::Serialize;
use tunnel::upstream::PortIndex;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Dma {
    /// What the far device may reach of the host's memory
    #[arg(long = "dma", value_name = "MODE", value_enum, default_value_t)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Only what outstanding commands named: the device of an NVMe controller can neither read nor
    /// write anything else
    #[default]
    Strict,
    /// All memory that the guest has mapped, or all of the command's own memory
    Mapped,
}

impl Dma {
    /// The mode as the tunnel has it.
    pub(crate) const fn mode(self) -> tunnel::session::Dma {
        match self.mode {
            Mode::Strict => tunnel::session::Dma::Strict,
            Mode::Mapped => tunnel::session::Dma::Mapped,
        }
    }
}

/// What a far device may reach, and what it was refused, for machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Reach {
    mode: Mode,
    refused_reads: u64,
    refused_writes: u64,
}

impl Reach {
    /// The state of the first port of a near end.
    pub(crate) fn of(upstream: &assemblies::Upstream) -> Self {
        let refusals =
            upstream.interposer().and_then(|interposer| interposer.refusals(PortIndex(0).0.into()));
        let mode = if refusals.is_some() { Mode::Strict } else { Mode::Mapped };
        let Refusals { reads, writes } = refusals.unwrap_or_default();
        Self { mode, refused_reads: reads, refused_writes: writes }
    }
}
