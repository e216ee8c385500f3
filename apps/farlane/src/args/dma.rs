//! The option that limits the memory that a far device reaches.

use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Dma {
    /// The part of the host's memory that the far device may reach
    #[arg(long = "dma", value_name = "MODE", value_enum, default_value_t)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    /// Only memory that outstanding commands name: the device of an NVMe controller can neither
    /// read nor write any other
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
