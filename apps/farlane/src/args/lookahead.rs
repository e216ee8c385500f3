//! Whether the near end of a tunnel looks ahead, and what came of it.

use clap::Args;
use serde::Serialize;
use tunnel::lookahead::Statistics;

/// Whether commands look ahead when nobody says.
const USUAL: bool = false;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Lookahead {
    /// Send queue entries, lists and write data along with the doorbell rather than let the far controller fetch each of them
    /// over the link: one round trip a command instead of two or three
    #[arg(long, overrides_with = "no_lookahead")]
    lookahead: bool,
    /// The far controller fetches for itself, as it does unless --lookahead is given
    #[arg(long, overrides_with = "lookahead")]
    no_lookahead: bool,
}

impl Lookahead {
    pub(crate) const fn is_on(self) -> bool {
        if USUAL { !self.no_lookahead } else { self.lookahead }
    }
}

/// What was sent ahead, for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ahead {
    entries: u64,
    pieces: u64,
    bytes: u64,
    over_budget: u64,
    given_up: u64,
    /// Reads of memory that came from the far end all the same.
    reads: u64,
}

impl From<&Statistics> for Ahead {
    fn from(from: &Statistics) -> Self {
        let Statistics { entries, pieces, bytes, over_budget, given_up, reads, .. } = *from;
        Self { entries, pieces, bytes, over_budget, given_up, reads }
    }
}

impl std::fmt::Display for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { entries, pieces, bytes, reads, .. } = self;
        write!(
            f,
            "{entries} commands went ahead in {pieces} pieces of {bytes} B; {reads} reads of memory came all the same"
        )
    }
}
