//! From the counters of engines to the types that statuses and reports have.

use nvme::subsystem::{HostTally, Kind, NamespaceConfig, NamespaceTally, Phase, Subsystem};
use nvme::wire::{NamespaceId, StatusCode};
use nvme_lookahead::Refusals;
use status::{
    Activity, ConfigCache, Connection, Dma, DmaMode, FarReads, HostActivity, Lookahead, Namespace, Ssd,
};
use tunnel::frame::Tally;
use tunnel::session::Session;
use tunnel::upstream::PortIndex;

/// The most namespaces that a status reports: the loop that moves data builds it.
const NAMESPACES_MAX: usize = 256;

/// The counts of a near end's lookahead; none if it does not look ahead.
pub(crate) fn lookahead(upstream: &assemblies::Upstream) -> Option<Lookahead> {
    let session = upstream.session(PortIndex(0))?;
    let lookahead = upstream.interposer().filter(|_| session.config().lookahead)?;
    let nvme_lookahead::Statistics { entries, pieces, bytes, over_budget, given_up, reads, .. } =
        *lookahead.statistics();
    Some(Lookahead { entries, pieces, bytes, over_budget, given_up, reads })
}

/// The memory that the first port of a near end lets the far device reach.
pub(crate) fn dma(upstream: &assemblies::Upstream) -> Dma {
    let refusals = upstream.interposer().and_then(|interposer| interposer.refusals(PortIndex(0).0.into()));
    let mode = if refusals.is_some() { DmaMode::Strict } else { DmaMode::Mapped };
    let Refusals { reads, writes } = refusals.unwrap_or_default();
    Dma { mode, refused_reads: reads, refused_writes: writes }
}

/// The config cache of a near end, if it has one.
pub(crate) fn config_cache(upstream: &assemblies::Upstream) -> Option<ConfigCache> {
    let tunnel::config_cache::Statistics { reads_near, reads_far, writes, properties_near, retries, shown } =
        *upstream.config_cache()?;
    Some(ConfigCache { reads_near, reads_far, writes, properties_near, retries, shown })
}

/// The far device's reads of memory, as its end counts them.
pub(crate) fn far_reads(tally: &Tally) -> FarReads {
    let Tally { hits, misses, bytes_received, bytes_in_vain, evicted, .. } = *tally;
    FarReads { hits, misses, bytes_ahead: bytes_received, bytes_in_vain, evicted }
}

/// All connections of a link, beginning with the main one. Empty if the link has only one.
pub(crate) fn connections<'a>(sessions: impl Iterator<Item = &'a Session>) -> Vec<Connection> {
    let one = |session: &Session| {
        let statistics = session.statistics();
        Connection {
            connected: session.is_open(),
            packets_sent: statistics.tlps_sent,
            packets_received: statistics.tlps_received,
            bytes_sent: statistics.bytes_sent,
            bytes_received: statistics.bytes_received,
            resumptions: statistics.resumptions,
        }
    };
    let each: Vec<_> = sessions.map(one).collect();
    if each.len() > 1 { each } else { Vec::new() }
}

/// The report of an SSD or a subsystem about itself.
pub(crate) fn ssd(config: &nvme::subsystem::Config) -> Ssd {
    Ssd {
        serial: config.serial_number.clone(),
        model: config.model_number.clone(),
        firmware: config.firmware_revision.clone(),
    }
}

/// The namespaces of an SSD or a subsystem.
pub(crate) fn namespaces(core: &Subsystem) -> Vec<Namespace> {
    let errors = space_errors(core);
    let namespace = |one: NamespaceConfig| Namespace {
        nsid: one.id.0,
        bytes: one.bytes,
        block: one.block.bytes(),
        readonly: one.read_only,
        space_errors: count_of(one.id, &errors),
    };
    core.namespaces().map(namespace).collect()
}

/// How many commands found no space on the medium of a namespace, of all those that had any.
fn space_errors(core: &Subsystem) -> Vec<(NamespaceId, u64)> {
    let counts = core.tallies().map(|(id, tally)| (id, without_space(tally)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The count of one namespace among those of [`space_errors`].
fn count_of(id: NamespaceId, errors: &[(NamespaceId, u64)]) -> u64 {
    errors.iter().find(|(one, _)| *one == id).map_or(0, |(_, count)| *count)
}

/// How many commands of a namespace with this tally found no space on its medium.
pub(crate) fn without_space(tally: &NamespaceTally) -> u64 {
    let full = tally.statuses().iter().find(|(status, _)| *status == StatusCode::CapacityExceeded);
    full.map_or(0, |(_, count)| *count)
}

/// The counts of the commands of each namespace. `took` counts them by their time, in the classes
/// of [`nvme::subsystem::LATENCY_BOUNDS`].
pub(crate) fn activity<'a>(
    tallies: impl Iterator<Item = (NamespaceId, &'a NamespaceTally)>,
) -> Vec<Activity> {
    let one = |(id, tally): (NamespaceId, &NamespaceTally)| {
        let mut took: Vec<u64> = Vec::new();
        for kind in Kind::ALL {
            let counts = tally.latencies(kind, Phase::Whole).counts();
            took.resize(counts.len(), 0);
            took.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
        Activity {
            nsid: id.0,
            reads: reads.operations,
            read_bytes: reads.bytes,
            writes: writes.operations,
            written_bytes: writes.bytes,
            others: others.operations,
            errors: reads.errors + writes.errors + others.errors,
            took,
        }
    };
    tallies.take(NAMESPACES_MAX).map(one).collect()
}

/// The counts of a host's commands.
pub(crate) fn host_activity(tally: &HostTally) -> HostActivity {
    let [reads, writes, others] = Kind::ALL.map(|kind| tally.of(kind));
    HostActivity {
        reads: reads.operations,
        read_bytes: reads.bytes,
        writes: writes.operations,
        written_bytes: writes.bytes,
        others: others.operations,
        errors: reads.errors + writes.errors + others.errors,
    }
}
