//! The option for the config cache of a tunnel's near end.

use clap::Args;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ConfigCacheOption {
    /// Turn off the config cache, and read every register at the far end.
    ///
    /// Without this option, the near end itself answers reads of registers that cannot change by
    /// themselves, with the values that the far end sent. Example: farlane observe lspci
    /// --no-shadow tcp://HOST:PORT
    #[arg(long)]
    no_shadow: bool,
}

impl ConfigCacheOption {
    pub(crate) const fn is_on(self) -> bool {
        !self.no_shadow
    }
}
