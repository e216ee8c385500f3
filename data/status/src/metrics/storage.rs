//! Metrics of SSDs, namespaces, and of what their commands did.

use super::{Kind, Labels, Page, count, seconds, with};
use crate::{Activity, ControllerCounts, Counts, Health, HostActivity, HostKinds, StatusCount, TimedCounts};

/// Adds the counts of an NVMe controller behind registers; `labels` name the controller.
pub(super) fn controller(page: &mut Page, labels: &Labels, of: &ControllerCounts) {
    let ControllerCounts { commands, fetches, pushed, interrupts } = *of;
    page.add_counters(
        labels,
        [
            ("farlane_controller_commands", "Commands that the controller took, of all queues", commands),
            ("farlane_controller_fetches", "Reads of submission queue entries in memory", fetches),
            ("farlane_controller_pushed", "Commands taken from the controller memory buffer", pushed),
            ("farlane_controller_interrupts", "Interrupts that the controller raised", interrupts),
        ],
    );
}

/// Adds the health of an SSD or a subsystem, which `labels` name.
pub(super) fn health(page: &mut Page, labels: &Labels, of: &Health) {
    let rows = [
        ("farlane_media_errors", "Reads and writes that the medium failed", count(of.media_errors)),
        ("farlane_space_errors", "Writes that found no space on the medium", count(of.space_errors)),
        ("farlane_error_entries", "Entries that the Error Information log had", count(of.error_entries)),
        ("farlane_busy_seconds", "Time in which I/O commands were under way", seconds(of.busy_ns)),
        ("farlane_power_on_seconds", "Time under power", seconds(of.power_on_ns)),
    ];
    page.add(labels, rows.map(|(name, help, value)| (Kind::Counter, name, help, value)));
}

/// Adds the counts and times of the commands of namespaces; `labels` name their subsystem.
pub(super) fn namespaces(page: &mut Page, labels: &Labels, activity: &[Activity]) {
    for of in activity {
        let Some(kinds) = &of.kinds else { continue };
        let labels = with(labels, "nsid", of.nsid.to_string());
        for (name, kind) in [("read", &kinds.read), ("write", &kinds.write), ("other", &kinds.other)] {
            commands(page, &with(&labels, "command", name), kind);
        }
        let help = "Writes of the namespace that found no space on the medium";
        page.add_counters(&labels, [("farlane_namespace_space_errors", help, of.space_errors)]);
        for StatusCount { status, count } in &of.statuses {
            let labels = with(&labels, "status", status);
            let help = "Commands that failed, by status";
            page.add_counters(&labels, [("farlane_namespace_statuses", help, *count)]);
        }
    }
}

/// Adds the counts and times of commands of one kind to one namespace.
fn commands(page: &mut Page, labels: &Labels, of: &TimedCounts) {
    let TimedCounts { counts: Counts { operations, bytes, errors }, link, medium, wait, whole } = of;
    page.add_counters(
        labels,
        [
            ("farlane_namespace_commands", "Commands that succeeded", *operations),
            ("farlane_namespace_bytes", "Bytes that commands transferred", *bytes),
            ("farlane_namespace_errors", "Commands that failed", *errors),
        ],
    );
    for (phase, latencies) in [("link", link), ("medium", medium), ("wait", wait), ("whole", whole)] {
        let help = "Time of commands: link, medium, wait, and the whole of it";
        let labels = with(labels, "phase", phase);
        page.add_latencies(&labels, ("farlane_namespace_seconds", help), latencies);
    }
}

/// Adds the counts of a host's commands; `labels` name the host.
pub(super) fn host(page: &mut Page, labels: &Labels, of: &HostActivity) {
    let Some(HostKinds { read, write, other }) = of.kinds else { return };
    for (name, Counts { operations, bytes, errors }) in [("read", read), ("write", write), ("other", other)] {
        page.add_counters(
            &with(labels, "command", name),
            [
                ("farlane_host_commands", "Commands of the host that succeeded", operations),
                ("farlane_host_bytes", "Bytes that these transferred", bytes),
                ("farlane_host_errors", "Commands of the host that failed", errors),
            ],
        );
    }
}
