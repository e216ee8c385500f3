//! From the counters of engines to the types that statuses and reports have.

mod activity;

pub(crate) use activity::{Tallies, activity, host_activity, latencies, next_tallies};

use live::sys::tcp_info::TcpInfo;
use nvme::subsystem::{Counters, NamespaceConfig, Subsystem};
use nvme::wire::NamespaceId;
use nvme_lookahead::Refusals;
use nvme_pcie::controller::Statistics;
use status::{
    ConfigCache, Connection, ControllerCounts, Dma, DmaMode, FarReads, Health, Lookahead, Namespace, Ssd, Tcp,
};
use tunnel::frame::Tally;
use tunnel::session::Session;
use tunnel::upstream::PortIndex;

use activity::without_space;

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

/// How many commands found no space on the medium of a namespace, for each namespace with any.
fn space_errors(core: &Subsystem) -> Vec<(NamespaceId, u64)> {
    let counts = core.tallies().map(|(id, tally)| (id, without_space(tally)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The count of one namespace among those of [`space_errors`].
fn count_of(id: NamespaceId, errors: &[(NamespaceId, u64)]) -> u64 {
    errors.iter().find(|(one, _)| *one == id).map_or(0, |(_, count)| *count)
}

/// The kernel's figures of TCP connections.
pub(crate) fn tcp(of: TcpInfo) -> Tcp {
    Tcp { round_trip_ns: of.round_trip.get(), retransmissions: of.retransmissions }
}

/// The counts of a controller behind registers.
pub(crate) fn controller(of: Statistics) -> ControllerCounts {
    let Statistics { commands, fetches, pushed, interrupts, .. } = of;
    ControllerCounts { commands, fetches, pushed, interrupts }
}

/// The health of an SSD or a subsystem.
pub(crate) fn health(of: &Counters) -> Health {
    Health {
        media_errors: of.media_errors,
        space_errors: of.space_errors,
        error_entries: of.error_entries,
        busy_ns: of.busy.get(),
        power_on_ns: of.power_on.get(),
    }
}
