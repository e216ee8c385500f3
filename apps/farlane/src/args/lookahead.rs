//! The options for lookahead at the near end of a tunnel, and the counters of its results.

use clap::Args;
use nvme_lookahead::Statistics;
use serde::Serialize;
use tunnel::frame::Tally;
use tunnel::upstream::PortIndex;

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Lookahead {
    /// Send queue entries, lists and write data along with the doorbell.
    ///
    /// A command then takes one round trip. Lookahead is on unless --no-lookahead is given, if the
    /// far end keeps what is sent ahead
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

/// What was sent ahead, for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ahead {
    entries: u64,
    pieces: u64,
    bytes: u64,
    over_budget: u64,
    given_up: u64,
    /// Reads of memory that the far end sent nevertheless.
    reads: u64,
}

impl From<&Statistics> for Ahead {
    fn from(from: &Statistics) -> Self {
        let Statistics { entries, pieces, bytes, over_budget, given_up, reads, .. } = *from;
        Self { entries, pieces, bytes, over_budget, given_up, reads }
    }
}

/// The far end's counters of the far device's memory reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FarReads {
    /// Reads that were answered with what had been sent ahead.
    hits: u64,
    /// Reads that went to the host.
    misses: u64,
    /// Bytes of memory that came ahead.
    bytes_ahead: u64,
    /// Bytes that came ahead and that the device has not read.
    bytes_in_vain: u64,
    /// Pieces that were dropped because there was no room.
    evicted: u64,
}

impl Ahead {
    /// What a near end has sent ahead; none if it does not look ahead.
    pub(crate) fn of(upstream: &assemblies::Upstream) -> Option<Self> {
        let session = upstream.session(PortIndex(0))?;
        let lookahead = upstream.interposer().filter(|_| session.config().lookahead)?;
        Some(Self::from(lookahead.statistics()))
    }
}

impl From<&Tally> for FarReads {
    fn from(from: &Tally) -> Self {
        let Tally { hits, misses, bytes_received, bytes_in_vain, evicted, .. } = *from;
        Self { hits, misses, bytes_ahead: bytes_received, bytes_in_vain, evicted }
    }
}

impl FarReads {
    /// Round trips of a command whose memory reads follow each other: one for its doorbell and
    /// completion, and one for each read that went to the host.
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
