//! The counts and times of commands, by namespace and by host.

use live::reactor::JobSender;
use nvme::subsystem::{HostTally, Kind, KindTally, NamespaceTally, Phase};
use nvme::wire::{NamespaceId, StatusCode};
use status::{Activity, CommandKinds, Counts, HostActivity, HostKinds, Latencies, StatusCount, TimedCounts};

/// The most namespaces whose tallies are taken in one job, which then takes a loop less than
/// 100 µs.
const PER_JOB: usize = 64;

/// The tallies of some of a subsystem's namespaces.
pub(crate) type Tallies = Vec<(NamespaceId, NamespaceTally)>;

/// The next of `tallies` after `after`, as many as one job takes.
pub(crate) fn next_tallies<'a>(
    tallies: impl Iterator<Item = (NamespaceId, &'a NamespaceTally)>,
    after: NamespaceId,
) -> Tallies {
    let next = tallies.filter(|(id, _)| *id > after).take(PER_JOB);
    next.map(|(id, tally)| (id, tally.clone())).collect()
}

/// The counts of the commands of all namespaces of a subsystem. `next` runs in the loop to which
/// `sender` gives jobs, and returns the next tallies after an identifier. `None` when the loop has
/// ended.
pub(crate) fn activity<D>(
    sender: &JobSender<D>,
    next: impl Fn(&mut D, NamespaceId) -> Tallies + Copy + Send + 'static,
) -> Option<Vec<Activity>> {
    let (mut all, mut after) = (Vec::new(), NamespaceId(0));
    loop {
        let some = sender.run(move |driver| next(driver, after))?;
        let Some((last, _)) = some.last() else { return Some(all) };
        after = *last;
        all.extend(some.iter().map(of_namespace));
    }
}

/// How many commands of a namespace with this tally found no space on its medium.
pub(super) fn without_space(tally: &NamespaceTally) -> u64 {
    let full = tally.statuses().iter().find(|(status, _)| *status == StatusCode::CapacityExceeded);
    full.map_or(0, |(_, count)| *count)
}

fn of_namespace((id, tally): &(NamespaceId, NamespaceTally)) -> Activity {
    let mut took: Vec<u64> = Vec::new();
    for kind in Kind::ALL {
        let counts = tally.latencies(kind, Phase::Whole).counts();
        took.resize(counts.len(), 0);
        took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
    let [read, write, other] = Kind::ALL.map(|kind| timed(tally, kind));
    let one = |(status, count): &(StatusCode, u64)| StatusCount { status: status.to_string(), count: *count };
    let others_failed = Some(tally.other_statuses()).filter(|count| *count > 0);
    let others_failed = others_failed.map(|count| StatusCount { status: "other".to_owned(), count });
    Activity {
        nsid: id.0,
        reads: reads.operations,
        read_bytes: reads.bytes,
        writes: writes.operations,
        written_bytes: writes.bytes,
        others: others.operations,
        errors: reads.errors + writes.errors + others.errors,
        took,
        kinds: Some(CommandKinds { read, write, other }),
        space_errors: without_space(tally),
        statuses: tally.statuses().iter().map(one).chain(others_failed).collect(),
    }
}

/// The counts and times of the commands of one kind.
fn timed(tally: &NamespaceTally, kind: Kind) -> TimedCounts {
    let [link, medium, wait, whole] = Phase::ALL.map(|phase| latencies(tally.latencies(kind, phase)));
    TimedCounts { counts: counts(tally.of(kind)), link, medium, wait, whole }
}

fn counts(tally: &KindTally) -> Counts {
    Counts { operations: tally.operations, bytes: tally.bytes, errors: tally.errors }
}

/// A distribution of times.
pub(crate) fn latencies(of: &nvme::subsystem::Latencies) -> Latencies {
    Latencies::new(of.sum().get(), of.counts())
}

/// The counts of a host's commands.
pub(crate) fn host_activity(tally: &HostTally) -> HostActivity {
    let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
    let [read, write, other] = [reads, writes, others].map(counts);
    HostActivity {
        reads: reads.operations,
        read_bytes: reads.bytes,
        writes: writes.operations,
        written_bytes: writes.bytes,
        others: others.operations,
        errors: reads.errors + writes.errors + others.errors,
        kinds: Some(HostKinds { read, write, other }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_of_a_status_are_those_of_the_tallies() {
        assert_eq!(Latencies::BOUNDS_NS, nvme::subsystem::LATENCY_BOUNDS.map(engine::Nanos::get));
    }
}
