//! Metrics of emulated networks, network cards, and servers of RDMA measurements.

use super::{Labels, Page, count, with};
use crate::{Emulate, Nic, Rdma};

/// Adds the metrics of the traffic there and back.
pub(super) fn emulated(page: &mut Page, network: &Emulate) {
    for (name, way) in [("there", &network.there), ("back", &network.back)] {
        let labels: Labels = vec![("way", name.to_owned())];
        page.add_counters(
            &labels,
            [
                ("farlane_emulated_frames", "Frames that were sent", way.frames),
                ("farlane_emulated_frame_bytes", "Bytes of these frames", way.frame_bytes),
                ("farlane_emulated_lost_frames", "Frames that were lost", way.lost),
                ("farlane_emulated_bytes", "Bytes that have arrived", way.bytes),
            ],
        );
        let under_way = count(way.under_way);
        page.add_gauges(
            &labels,
            [("farlane_emulated_under_way", "Frames in queues or on the line", under_way)],
        );
    }
}

/// Adds the metrics of a network card.
pub(super) fn card(page: &mut Page, card: &Nic) {
    let none = Labels::new();
    page.add_counters(
        &none,
        [
            ("farlane_nic_sent_packets", "Packets sent to the wire", card.sent),
            ("farlane_nic_sent_bytes", "Bytes of these packets", card.sent_bytes),
            ("farlane_nic_received_packets", "Packets sent to the host", card.received),
            ("farlane_nic_received_bytes", "Bytes of these packets", card.received_bytes),
            ("farlane_nic_faults", "Queues stopped by a fault", card.faults),
        ],
    );
    let lost = [
        ("link_down", card.link_down),
        ("unwanted", card.unwanted),
        ("misshapen", card.misshapen),
        ("no_room", card.no_room),
    ];
    for (reason, packets) in lost {
        let help = "Packets that were lost, by the reason";
        let labels = with(&none, "reason", reason);
        page.add_counters(&labels, [("farlane_nic_lost_packets", help, packets)]);
    }
}

/// Adds the metrics of a server of RDMA measurements.
pub(super) fn measurements(page: &mut Page, server: &Rdma) {
    let connections = count(server.connections);
    let help = "Connections of clients that measure";
    page.add_gauges(&Labels::new(), [("farlane_rdma_connections", help, connections)]);
}
