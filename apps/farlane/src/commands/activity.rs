//! What the commands of namespaces and hosts have done so far, as part of a daemon's status.

use nvme::subsystem::{HostTally, Kind, NamespaceTally, Phase};
use nvme::wire::NamespaceId;
use serde_json::{Value, json};

/// The most namespaces that a status tells of: the loop that moves data makes it.
const NAMESPACES_MAX: usize = 256;

/// What the commands of each namespace did. `took` counts them by their time, in the classes of
/// [`nvme::subsystem::LATENCY_BOUNDS`].
pub(crate) fn of_namespaces<'a>(tallies: impl Iterator<Item = (NamespaceId, &'a NamespaceTally)>) -> Value {
    let one = |(id, tally): (NamespaceId, &NamespaceTally)| {
        let mut took: Vec<u64> = Vec::new();
        for kind in Kind::ALL {
            let counts = tally.latencies(kind, Phase::Whole).counts();
            took.resize(counts.len(), 0);
            took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
        json!({
            "nsid": id.0,
            "reads": reads.operations,
            "read_bytes": reads.bytes,
            "writes": writes.operations,
            "written_bytes": writes.bytes,
            "others": others.operations,
            "errors": reads.errors + writes.errors + others.errors,
            "took": took,
        })
    };
    tallies.take(NAMESPACES_MAX).map(one).collect()
}

/// What the commands of a host did.
pub(crate) fn of_host(tally: &HostTally) -> Value {
    let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
    json!({
        "reads": reads.operations,
        "read_bytes": reads.bytes,
        "writes": writes.operations,
        "written_bytes": writes.bytes,
        "others": others.operations,
        "errors": reads.errors + writes.errors + others.errors,
    })
}
