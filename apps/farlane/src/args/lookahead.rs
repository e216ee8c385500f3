//! Whether the near end of a tunnel looks ahead, and what came of it.

use clap::Args;
use serde::Serialize;
use tunnel::frame::Tally;
use tunnel::lookahead::Statistics;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Lookahead {
    /// Send queue entries, lists and write data along with the doorbell, so that a command is one
    /// round trip: what is done unless --no-lookahead is given, where the far end keeps what is
    /// sent
    #[arg(long, overrides_with = "no_lookahead")]
    lookahead: bool,
    /// Have the far controller fetch entries, lists and data over the link, each when it wants it:
    /// two or three round trips a command
    #[arg(long, overrides_with = "lookahead")]
    no_lookahead: bool,
}

impl Lookahead {
    pub(crate) const fn is_on(self) -> bool {
        // The other one only takes it back.
        !self.no_lookahead
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

/// What became of the far device's reads of memory, as the far end has counted it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FarReads {
    /// Reads that were answered with what had been sent ahead.
    hits: u64,
    /// Reads that went to the host.
    misses: u64,
    /// Bytes of memory that came ahead.
    bytes_ahead: u64,
    /// Bytes of them that the device has not read.
    bytes_in_vain: u64,
    /// Pieces that were dropped for want of room.
    evicted: u64,
}

impl From<&Tally> for FarReads {
    fn from(from: &Tally) -> Self {
        let Tally { hits, misses, bytes_received, bytes_in_vain, evicted, .. } = *from;
        Self { hits, misses, bytes_ahead: bytes_received, bytes_in_vain, evicted }
    }
}

impl FarReads {
    /// Round trips that a command takes, where those of its reads of memory follow each other: that
    /// of its doorbell and completion, and one for each read that went to the host.
    pub(crate) fn round_trips(&self, commands: u64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = |part: u64| part as f64 / commands as f64;
        (commands > 0).then(|| 1.0 + share(self.misses))
    }
}

impl std::fmt::Display for FarReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hits, misses, bytes_ahead, bytes_in_vain, .. } = self;
        write!(
            f,
            "{hits} reads of memory answered there, {misses} by the host; {bytes_in_vain} of {bytes_ahead} B sent in vain"
        )
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
