//! The options for lookahead at the near end of a tunnel.

use clap::Args;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Lookahead {
    /// Send queue entries, lists and write data along with the doorbell.
    ///
    /// A command then takes one round trip. Lookahead is on unless --no-lookahead is given, if the
    /// far end keeps the data sent ahead
    #[arg(long, overrides_with = "no_lookahead")]
    lookahead: bool,

    /// Let the far controller fetch queue entries, lists and data over the link.
    ///
    /// The controller fetches each of these when it needs it. A command then takes two or three
    /// round trips
    #[arg(long, overrides_with = "lookahead")]
    no_lookahead: bool,
}

impl Lookahead {
    pub(crate) const fn is_on(self) -> bool {
        // `--lookahead` only overrides an earlier `--no-lookahead`.
        !self.no_lookahead
    }
}
