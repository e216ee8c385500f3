//! The figures of a tunnel's end.

use engine::{Instant, Nanos};
use live::sys::tcp_info::TcpInfo;
use tunnel::frame::Tally;
use tunnel::session::{Session, Statistics};

use daemon::metrics::{Kind, Labels, Page, seconds};

/// The state of a tunnel's session at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    is_open: bool,
    up_for: Option<Nanos>,
    round_trip: Option<Nanos>,
    statistics: Statistics,
    waiting: u64,
    unacknowledged: u64,
}

impl Link {
    /// The state of `session` at `now`.
    pub(crate) fn of(now: Instant, session: &Session) -> Self {
        Self {
            is_open: session.is_open(),
            up_for: session.up_since().map(|since| now - since),
            round_trip: session.round_trip(),
            statistics: *session.statistics(),
            waiting: session.queued_bytes() as u64,
            unacknowledged: session.unacknowledged_bytes() as u64,
        }
    }

    /// Adds the state to `page`; `labels` say which tunnel it is.
    pub(crate) fn add(&self, page: &mut Page, labels: &Labels) {
        let Statistics { tlps_sent, tlps_received, bytes_sent, bytes_received, .. } = self.statistics;
        let Statistics { frames_replayed, resumptions, dropped, .. } = self.statistics;
        let counters = [
            ("farlane_link_packets_sent", "TLPs sent, repetitions not counted", tlps_sent),
            ("farlane_link_packets_received", "TLPs received", tlps_received),
            ("farlane_link_bytes_sent", "Bytes sent", bytes_sent),
            ("farlane_link_bytes_received", "Bytes received", bytes_received),
            ("farlane_link_frames_replayed", "Frames sent again on a new connection", frames_replayed),
            ("farlane_link_resumptions", "Times that a new connection went on for a lost one", resumptions),
            ("farlane_link_dropped", "Packets dropped, as the link was down", dropped),
        ];
        page.add_rows(labels, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
        let gauges = [
            ("farlane_link_connected", "1 while there is a connection", f64::from(u8::from(self.is_open))),
            ("farlane_link_waiting_bytes", "Bytes that wait for credits", self.waiting as f64),
            (
                "farlane_link_unacknowledged_bytes",
                "Bytes kept until they are acknowledged",
                self.unacknowledged as f64,
            ),
        ];
        let times = [
            ("farlane_link_up_seconds", "Time since the link came up", self.up_for),
            ("farlane_link_round_trip_seconds", "The shortest round trip of late", self.round_trip),
        ];
        let times = times.into_iter().filter_map(|(name, help, time)| Some((name, help, seconds(time?))));
        let gauges = gauges.into_iter().chain(times);
        page.add_rows(labels, gauges.map(|(name, help, value)| (Kind::Gauge, name, help, value)));
    }
}

/// Adds the kernel's figures of the TCP connections of a tunnel, which `labels` name.
pub(crate) fn add_connections(page: &mut Page, labels: &Labels, connections: &[TcpInfo]) {
    for (index, info) in connections.iter().enumerate() {
        let mut labels = labels.clone();
        labels.push(("connection", index.to_string()));
        let help = "The smoothed round trip of a TCP connection, as the kernel measures it";
        let round_trip = seconds(info.round_trip);
        page.family(Kind::Gauge, "farlane_tcp_round_trip_seconds", help).add(&labels, round_trip);
        let help = "Segments that a TCP connection sent again";
        let again = info.retransmissions as f64;
        page.family(Kind::Counter, "farlane_tcp_retransmissions", help).add(&labels, again);
    }
}

/// Adds what became of a device's reads of memory; `labels` say whose they are.
pub(crate) fn add_reads(page: &mut Page, labels: &Labels, reads: &Tally) {
    let Tally { hits, misses, bytes_received, bytes_in_vain, evicted, .. } = *reads;
    let counters = [
        ("farlane_far_reads_hits", "Reads by the device answered from memory sent ahead", hits),
        ("farlane_far_reads_misses", "Reads by the device that went to the host", misses),
        ("farlane_far_reads_bytes_ahead", "Bytes of memory that came ahead", bytes_received),
        ("farlane_far_reads_bytes_in_vain", "Bytes that came ahead and were not read", bytes_in_vain),
        ("farlane_far_reads_evicted", "Pieces of memory dropped for lack of room", evicted),
    ];
    page.add_rows(labels, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
}
