//! Metrics of both ends of a tunnel.

use super::{Kind, Labels, Page, count, flag, seconds, storage, with};
use crate::{
    Callers, ControllerCounts, Copies, Datagrams, FarEnd, FarReads, Guest, Host, Lane, Link, Lookahead, Port,
    Slot, Tcp,
};

/// Adds the metrics of a far end.
pub(super) fn far_end(page: &mut Page, of: &FarEnd) {
    let labels: Labels = vec![("far_end", format!("tcp://{}", of.listening))];
    callers(page, &labels, &of.callers);
    connections(page, &labels, &of.tcp);
    datagrams(page, &labels, &of.datagrams);
    if of.seats.is_empty() {
        seat(page, &labels, (of.host.as_ref(), &of.link, &of.far_reads, of.controller.as_ref()));
    }
    for one in &of.seats {
        let labels = with(&labels, "controller", one.controller_id.to_string());
        seat(page, &labels, (one.host.as_ref(), &one.link, &one.far_reads, Some(&one.controller)));
    }
    if let Some(health) = &of.health {
        storage::health(page, &labels, health);
    }
    storage::namespaces(page, &labels, of.activity.as_deref().unwrap_or_default());
}

/// Adds the metrics of a host's place: its host, link, reads of memory, and controller.
fn seat(
    page: &mut Page,
    labels: &Labels,
    (host, of, reads, controller): (Option<&Host>, &Link, &FarReads, Option<&ControllerCounts>),
) {
    let help = "1 while a host that proved its key has the device";
    page.add_gauges(labels, [("farlane_far_end_owned", help, flag(host.is_some()))]);
    link(page, labels, of);
    far_reads(page, labels, reads);
    if let Some(controller) = controller {
        storage::controller(page, labels, controller);
    }
}

/// Adds the metrics of a guest's slot, and of the tunnel or the controller behind it.
pub(super) fn slot(page: &mut Page, of: &Slot) {
    let none = Labels::new();
    guest(page, &none, &of.guest);
    if let Some(Port { plugs, unplugs, .. }) = of.port {
        let counts = [
            ("farlane_guest_plugs", "Times that the function was plugged into its port", plugs),
            ("farlane_guest_unplugs", "Times that it was unplugged", unplugs),
        ];
        page.add_counters(&none, counts);
    }
    if let Some(of) = &of.link {
        link(page, &none, of);
    }
    connections(page, &none, &of.tcp);
    datagrams(page, &none, &of.datagrams);
    if let Some(reads) = &of.far_reads {
        far_reads(page, &none, reads);
    }
    if let Some(commands) = of.commands {
        lookahead(page, &none, commands, of.lookahead.as_ref());
    }
    if let Some(controller) = &of.controller {
        storage::controller(page, &none, controller);
    }
    of.lanes.iter().enumerate().for_each(|(index, one)| lane(page, index, one));
    if let Some(health) = &of.health {
        storage::health(page, &none, health);
    }
    storage::namespaces(page, &none, &of.activity);
}

/// Adds the work of a thread that serves I/O queues; the device's own thread is core 0.
fn lane(page: &mut Page, index: usize, of: &Lane) {
    let labels: Labels = vec![("core", (index + 1).to_string())];
    page.add_gauges(
        &labels,
        [("farlane_io_queues", "I/O queues whose commands the core executes", count(of.io_queues))],
    );
    page.add_counters(&labels, [("farlane_core_commands", "Commands that the core has taken", of.commands)]);
    let (help, time) = ("Processor time of the core", seconds(of.processor_ns));
    page.add(&labels, [(Kind::Counter, "farlane_core_seconds", help, time)]);
}

/// Adds the counts of a guest's accesses.
fn guest(page: &mut Page, labels: &Labels, of: &Guest) {
    page.add_counters(
        labels,
        [
            (
                "farlane_guest_config_accesses",
                "Accesses of the guest to configuration space",
                of.config_accesses,
            ),
            ("farlane_guest_register_accesses", "Accesses of the guest to registers", of.register_accesses),
            ("farlane_guest_interrupts", "Interrupts given to the guest", of.interrupts),
            ("farlane_guest_waits", "Accesses that waited for an answer of the function", of.waited),
            ("farlane_guest_waits_in_vain", "Accesses that were answered without the function", of.given_up),
        ],
    );
}

/// Adds the fate of connections whose hosts had not authenticated.
fn callers(page: &mut Page, labels: &Labels, of: &Callers) {
    let Callers { waiting, accepted, admitted, refused, late, displaced } = *of;
    let help = "Connections whose hosts have not said Hello yet";
    page.add_gauges(labels, [("farlane_strangers_waiting", help, count(waiting))]);
    page.add_counters(
        labels,
        [
            ("farlane_strangers_accepted", "Connections accepted", accepted),
            ("farlane_strangers_admitted", "Connections that carried a session", admitted),
            ("farlane_strangers_refused", "Connections refused for their Hello, or its key", refused),
            ("farlane_strangers_late", "Connections refused because no Hello arrived in time", late),
            ("farlane_strangers_displaced", "Connections closed to make room for later ones", displaced),
        ],
    );
}

/// Adds the state of a tunnel, which `labels` name.
fn link(page: &mut Page, labels: &Labels, of: &Link) {
    page.add_counters(
        labels,
        [
            ("farlane_link_packets_sent", "TLPs sent, repetitions not counted", of.packets_sent),
            ("farlane_link_packets_received", "TLPs received", of.packets_received),
            ("farlane_link_bytes_sent", "Bytes sent", of.bytes_sent),
            ("farlane_link_bytes_received", "Bytes received", of.bytes_received),
            ("farlane_link_frames_replayed", "Frames sent again on a new connection", of.sent_again),
            ("farlane_link_resumptions", "Times that a new connection replaced a lost one", of.resumptions),
            ("farlane_link_dropped", "Packets dropped, as the link was down", of.dropped),
        ],
    );
    let unacknowledged = count(of.unacknowledged_bytes);
    let gauges = [
        ("farlane_link_connected", "1 while there is a connection", flag(of.connected)),
        ("farlane_link_waiting_bytes", "Bytes that wait for credits", count(of.waiting_bytes)),
        ("farlane_link_unacknowledged_bytes", "Bytes kept until they are acknowledged", unacknowledged),
    ];
    let times = [
        ("farlane_link_up_seconds", "Time since the link came up", of.up_ns),
        ("farlane_link_round_trip_seconds", "The shortest round trip of late", of.round_trip_ns),
    ];
    let times = times.into_iter().filter_map(|(name, help, time)| Some((name, help, seconds(time?))));
    page.add_gauges(labels, gauges.into_iter().chain(times));
}

/// Adds the kernel's figures of the TCP connections of a tunnel, which `labels` name.
fn connections(page: &mut Page, labels: &Labels, all: &[Tcp]) {
    for (index, tcp) in all.iter().enumerate() {
        let labels = with(labels, "connection", index.to_string());
        let help = "The smoothed round trip of a TCP connection, as the kernel measures it";
        page.add_gauges(&labels, [("farlane_tcp_round_trip_seconds", help, seconds(tcp.round_trip_ns))]);
        let help = "Segments that a TCP connection sent again";
        page.add_counters(&labels, [("farlane_tcp_retransmissions", help, tcp.retransmissions)]);
    }
}

/// Adds the outcome of the datagrams of a tunnel's connections, which `labels` name.
fn datagrams(page: &mut Page, labels: &Labels, connections: &[Datagrams]) {
    for (index, of) in connections.iter().enumerate() {
        let labels = with(labels, "connection", index.to_string());
        page.add_counters(
            &labels,
            [
                ("farlane_datagrams_sent", "Datagrams sent", of.sent),
                ("farlane_datagrams_received", "Datagrams received for the first time", of.received),
                ("farlane_datagrams_lost", "Datagrams taken for lost; their bytes were sent again", of.lost),
                ("farlane_datagrams_again", "Datagrams received again, or too late to know", of.again),
                ("farlane_datagrams_late", "Datagrams not sent, as they missed their launch", of.late),
            ],
        );
        let round_trip = seconds(of.round_trip_ns);
        page.add_gauges(
            &labels,
            [
                ("farlane_datagrams_round_trip_seconds", "The smoothed round trip", round_trip),
                ("farlane_datagrams_window_bytes", "Bytes that may be under way", count(of.window_bytes)),
                ("farlane_datagrams_under_way_bytes", "Bytes under way", count(of.under_way_bytes)),
                (
                    "farlane_datagrams_length_bytes",
                    "The longest datagrams known to pass",
                    count(of.datagram_bytes),
                ),
            ],
        );
        for path in &of.paths {
            let labels = with(&labels, "path", &path.interface);
            let help = "Frames received while this end had no room";
            page.add_counters(&labels, [("farlane_frames_dropped", help, path.dropped)]);
            if let Some(one) = &path.copies {
                copies(page, &labels, one);
                let help = "1 while the path fails: other paths bring its frames";
                page.add_gauges(&labels, [("farlane_path_failing", help, flag(path.failing))]);
            }
        }
        if let Some(all) = &of.copies {
            copies(page, &with(&labels, "path", "all"), all);
        }
    }
}

/// Adds the outcome of frames that were sent over several paths (IEEE 802.1CB).
fn copies(page: &mut Page, labels: &Labels, of: &Copies) {
    page.add_counters(
        labels,
        [
            ("farlane_frames_passed", "Frames that were the first of their number", of.passed),
            ("farlane_frames_eliminated", "Copies of frames that had passed", of.eliminated),
            ("farlane_frames_out_of_order", "Frames whose number was not the next", of.out_of_order),
            ("farlane_frames_rogue", "Frames whose number is outside of the remembered range", of.rogue),
            ("farlane_frames_lost", "Numbers without any received frame", of.lost),
            ("farlane_frames_resets", "Times that any number was taken, after a silence", of.resets),
            (
                "farlane_frames_latent_errors",
                "Times that a path was found failing in silence",
                of.latent_errors,
            ),
        ],
    );
}

/// Adds the outcome of a device's reads of memory; `labels` name the device.
fn far_reads(page: &mut Page, labels: &Labels, of: &FarReads) {
    page.add_counters(
        labels,
        [
            ("farlane_far_reads_hits", "Reads by the device answered from memory sent ahead", of.hits),
            ("farlane_far_reads_misses", "Reads by the device that the host answered", of.misses),
            ("farlane_far_reads_bytes_ahead", "Bytes of memory received ahead", of.bytes_ahead),
            ("farlane_far_reads_bytes_in_vain", "Bytes received ahead and not read", of.bytes_in_vain),
            ("farlane_far_reads_evicted", "Pieces of memory dropped for lack of room", of.evicted),
        ],
    );
}

/// Adds the data that a near end has sent ahead for its `commands`; nothing was if it does not look
/// ahead.
fn lookahead(page: &mut Page, labels: &Labels, commands: u64, of: Option<&Lookahead>) {
    let of = |count: fn(&Lookahead) -> u64| of.map_or(0, count);
    page.add_counters(
        labels,
        [
            ("farlane_lookahead_commands", "I/O commands that have completed", commands),
            (
                "farlane_lookahead_entries",
                "Commands sent ahead with their doorbell",
                of(|ahead| ahead.entries),
            ),
            ("farlane_lookahead_bytes", "Bytes of memory that were sent ahead", of(|ahead| ahead.bytes)),
            ("farlane_lookahead_given_up", "Doorbells sent without their memory", of(|ahead| ahead.given_up)),
            (
                "farlane_lookahead_without_room",
                "Commands whose data had no room",
                of(|ahead| ahead.over_budget),
            ),
        ],
    );
}
