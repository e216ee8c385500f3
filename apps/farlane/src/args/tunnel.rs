//! The options by which a near end uses the tunnel to a far end's SSD.

use clap::Args;
use tunnel::session;

use super::{ConfigCacheOption, Dma, Lookahead, Spread, Transport};

/// How a near end uses the tunnel to a far end.
#[derive(Debug, Default, Args)]
pub(crate) struct TunnelOptions {
    #[command(flatten)]
    pub(crate) lookahead: Lookahead,
    #[command(flatten)]
    pub(crate) dma: Dma,
    #[command(flatten)]
    pub(crate) config_cache: ConfigCacheOption,
    #[command(flatten)]
    pub(crate) transport: Transport,
    #[command(flatten)]
    pub(crate) spread: Spread,
}

impl TunnelOptions {
    /// Applies the options to `session`.
    pub(crate) const fn apply(&self, session: &mut session::Config) {
        session.lookahead = self.lookahead.is_on();
        session.dma = self.dma.mode();
        session.config_cache = self.config_cache.is_on();
        session.strands = self.spread.connections();
    }
}
