//! The life of a command, hop by hop, computed from the packets that passed the near host.

use alloc::vec::Vec;

use engine::{Instant, Nanos};
use tunnel::session::ClockAlignment;

use super::trace::{Observation, Point};

/// A hop in the read of one page, in the order in which hops follow each other. Times at the far
/// end are by the far clock. Times of the tunnel are between the clocks of both ends, as exact as
/// the clocks are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The driver queues the command and the root complex sends the doorbell.
    Issue,
    /// The doorbell goes down.
    DoorbellDown,
    /// The controller asks for the submission queue entry.
    Dispatch,
    /// The read of the submission queue entry goes up.
    FetchUp,
    /// Host memory answers the read of the submission queue entry.
    HostMemory,
    /// The submission queue entry goes down.
    EntryDown,
    /// The controller carries the command out: medium, data, completion.
    Controller,
    /// The data go up, together with the completion.
    DataUp,
    /// The driver sees the completion.
    Completion,
}

impl Hop {
    /// All hops, in order.
    pub const ALL: [Self; 9] = [
        Self::Issue,
        Self::DoorbellDown,
        Self::Dispatch,
        Self::FetchUp,
        Self::HostMemory,
        Self::EntryDown,
        Self::Controller,
        Self::DataUp,
        Self::Completion,
    ];
}

/// How long each of [`Hop::ALL`] took for one command.
pub type Chain = [Nanos; Hop::ALL.len()];

/// The chains of the reads in `observations`. The reads must have been submitted one after another
/// over a tunnel with time stamps. Commands that do not fit the pattern (a replay in between,
/// another kind) are left out.
pub fn read_chains(observations: &[Observation], clock: ClockAlignment) -> Vec<Chain> {
    let starts: Vec<usize> = observations
        .iter()
        .enumerate()
        .filter(|(_, seen)| seen.point == Point::Submitted)
        .map(|(index, _)| index)
        .chain([observations.len()])
        .collect();
    starts.windows(2).filter_map(|range| chain(&observations[range[0]..range[1]], clock)).collect()
}

fn chain(observations: &[Observation], clock: ClockAlignment) -> Option<Chain> {
    let find = |point: Point| observations.iter().find(|seen| seen.point == point);
    let submitted = find(Point::Submitted)?.at;
    let doorbell = find(Point::DoorbellSent)?.at;
    let fetch = find(Point::MemoryRead)?.arrival?;
    let entry = find(Point::CompletionSent)?.at;
    let data = find(Point::MemoryWrite)?.arrival?;
    let completed = find(Point::Completed)?.at;
    let near = |far: Instant| near_time(far, clock);
    let (fetch_stamps, data_stamps) = (fetch.stamps?, data.stamps?);
    let (doorbell_arrived, fetch_sent) = (fetch_stamps.received_at, fetch_stamps.sent_at);
    let (entry_arrived, data_sent) = (data_stamps.received_at, data_stamps.sent_at);
    Some([
        doorbell - submitted,
        near(doorbell_arrived) - doorbell,
        fetch_sent - doorbell_arrived,
        fetch.at - near(fetch_sent),
        entry - fetch.at,
        near(entry_arrived) - entry,
        data_sent - entry_arrived,
        data.at - near(data_sent),
        completed - data.at,
    ])
}

/// The time of the near clock when the far clock showed `far`.
fn near_time(far: Instant, clock: ClockAlignment) -> Instant {
    let shifted = i128::from(far.as_nanos()) - i128::from(clock.offset_ns);
    Instant::from_nanos(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
}
