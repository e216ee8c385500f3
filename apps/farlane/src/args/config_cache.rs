//! The option for the config cache of a tunnel's near end, and its counters.

use clap::Args;
use serde::Serialize;
use tunnel::config_cache::Statistics;

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

/// Accesses to the far function's registers, for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ConfigCacheCounters {
    reads_near: u64,
    reads_far: u64,
    writes: u64,
    properties_near: u64,
    retries: u64,
    shown: u64,
}

impl From<&Statistics> for ConfigCacheCounters {
    fn from(from: &Statistics) -> Self {
        let Statistics { reads_near, reads_far, writes, properties_near, retries, shown } = *from;
        Self { reads_near, reads_far, writes, properties_near, retries, shown }
    }
}

impl std::fmt::Display for ConfigCacheCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads_near, reads_far, writes, properties_near, retries, .. } = self;
        let near = reads_near + properties_near;
        write!(
            f,
            "{near} reads of registers were answered near; {reads_far} and {writes} writes went to the far end"
        )?;
        if *retries > 0 {
            write!(f, "; {retries} requests were asked for patience while it was away")?;
        }
        Ok(())
    }
}
