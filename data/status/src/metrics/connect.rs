//! Metrics of a block device.

use super::{Labels, Page, count, flag, storage, with};
use crate::{BlockQueue, Connect, FarEndState, Requests, Way};

/// Adds the metrics of a block device: of its requests, or of the commands that the kernel makes of
/// them.
pub(super) fn block_device(page: &mut Page, of: &Connect) {
    let device = of.device.as_deref().unwrap_or_default();
    let labels: Labels = vec![("device", device.trim_start_matches("/dev/").to_owned())];
    let is_refused = flag(of.way.refusal().is_some());
    let help = "Whether the far end refuses this host, so that I/O fails";
    page.add_gauges(&labels, [("farlane_block_far_end_refused", help, is_refused)]);
    let Way::Ublk { far_end, under_way, requests, queues, .. } = &of.way else {
        return storage::namespaces(page, &Labels::new(), &of.activity);
    };
    let is_here = flag(*far_end == FarEndState::Here);
    page.add_gauges(
        &labels,
        [
            ("farlane_block_under_way", "Requests that were not answered yet", count(*under_way)),
            ("farlane_block_far_end_here", "Whether the far end can be reached", is_here),
        ],
    );
    for BlockQueue { queue, far_end, under_way, counts } in queues {
        let labels = with(&labels, "queue", queue.to_string());
        let is_here = flag(*far_end == FarEndState::Here);
        page.add_gauges(
            &labels,
            [
                (
                    "farlane_block_queue_under_way",
                    "Requests of the queue that were not answered yet",
                    count(*under_way),
                ),
                (
                    "farlane_block_queue_far_end_here",
                    "Whether the queue's thread can reach the far end",
                    is_here,
                ),
            ],
        );
        page.add_counters(
            &labels,
            [
                ("farlane_block_queue_requests", "Requests of the queue that succeeded", counts.operations),
                ("farlane_block_queue_errors", "Requests of the queue that failed", counts.errors),
            ],
        );
    }
    for Requests { request, counts, latencies } in requests {
        let labels = with(&labels, "request", request);
        page.add_counters(
            &labels,
            [
                ("farlane_block_requests", "Requests that succeeded", counts.operations),
                ("farlane_block_bytes", "Bytes that these were about", counts.bytes),
                ("farlane_block_errors", "Requests that failed", counts.errors),
            ],
        );
        let help = "Time from the kernel's request to the answer";
        page.add_latencies(&labels, ("farlane_block_seconds", help), latencies);
    }
}
