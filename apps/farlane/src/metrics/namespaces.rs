//! The figures of namespaces and of hosts: the counts of commands, and their times.

use nvme::subsystem::{Counters, HostTally, Kind as Command, NamespaceTally, Phase};
use nvme::wire::NamespaceId;

use crate::counters::without_space;
use daemon::metrics::{Kind, Labels, Page, seconds};

/// The most namespaces whose figures are taken in one job, which then takes a loop less than
/// 100 µs.
const PER_JOB: usize = 64;

/// The tallies of some of a subsystem's namespaces.
pub(crate) type Namespaces = Vec<(NamespaceId, NamespaceTally)>;

/// The next of `tallies` after `after`, as many as one job takes.
pub(crate) fn next_namespaces<'a>(
    tallies: impl Iterator<Item = (NamespaceId, &'a NamespaceTally)>,
    after: NamespaceId,
) -> Namespaces {
    let next = tallies.filter(|(id, _)| *id > after).take(PER_JOB);
    next.map(|(id, tally)| (id, tally.clone())).collect()
}

/// Adds the counts of commands for all namespaces of a subsystem. `next` asks the loop for the next
/// ones after an identifier; it returns `None` when the loop has ended, and so does this function.
pub(crate) fn add_all_namespaces(
    page: &mut Page,
    labels: &Labels,
    next: impl Fn(NamespaceId) -> Option<Namespaces>,
) -> Option<()> {
    let mut after = NamespaceId(0);
    loop {
        let some = next(after)?;
        let Some((last, _)) = some.last() else { return Some(()) };
        after = *last;
        add_namespaces(page, labels, &some);
    }
}

const fn name(command: Command) -> &'static str {
    match command {
        Command::Read => "read",
        Command::Write => "write",
        Command::Other => "other",
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Link => "link",
        Phase::Medium => "medium",
        Phase::Wait => "wait",
        Phase::Whole => "whole",
    }
}

fn with(labels: &Labels, key: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((key, value.to_owned()));
    labels
}

fn add_namespaces(page: &mut Page, labels: &Labels, namespaces: &Namespaces) {
    for (id, tally) in namespaces {
        let labels = with(labels, "nsid", &id.0.to_string());
        for command in Command::ALL {
            let labels = with(&labels, "command", name(command));
            let rows = [
                ("farlane_namespace_commands", "Commands that succeeded", tally.of(command).operations),
                ("farlane_namespace_bytes", "Bytes that commands transferred", tally.of(command).bytes),
                ("farlane_namespace_errors", "Commands that failed", tally.of(command).errors),
            ];
            page.add_rows(&labels, rows.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
            for phase in Phase::ALL {
                let help = "Time of commands: link, medium, wait, and the whole of it";
                let labels = with(&labels, "phase", phase_name(phase));
                let family = page.family(Kind::Histogram, "farlane_namespace_seconds", help);
                family.add_latencies(&labels, tally.latencies(command, phase));
            }
        }
        let help = "Writes of the namespace that found no space on the medium";
        let full = without_space(tally) as f64;
        page.family(Kind::Counter, "farlane_namespace_space_errors", help).add(&labels, full);
        let statuses = tally.statuses().iter().map(|(code, count)| (code.to_string(), *count));
        let others = Some(("other".to_owned(), tally.other_statuses())).filter(|(_, count)| *count > 0);
        for (status, count) in statuses.chain(others) {
            let family =
                page.family(Kind::Counter, "farlane_namespace_statuses", "Commands that failed, by status");
            family.add(&with(&labels, "status", &status), count as f64);
        }
    }
}

/// Adds the counts of a host's commands; `labels` name the host.
pub(crate) fn add_host(page: &mut Page, labels: &Labels, host: &HostTally) {
    for command in Command::ALL {
        let tally = host.of(command);
        let labels = with(labels, "command", name(command));
        let rows = [
            ("farlane_host_commands", "Commands of the host that succeeded", tally.operations),
            ("farlane_host_bytes", "Bytes that these transferred", tally.bytes),
            ("farlane_host_errors", "Commands of the host that failed", tally.errors),
        ];
        page.add_rows(&labels, rows.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
    }
}

/// Adds the health of an SSD, which its SMART log has too; `labels` say which it is.
pub(crate) fn add_health(page: &mut Page, labels: &Labels, health: &Counters) {
    let rows = [
        ("farlane_media_errors", "Reads and writes that the medium failed", health.media_errors as f64),
        ("farlane_space_errors", "Writes that found no space on the medium", health.space_errors as f64),
        ("farlane_error_entries", "Entries that the Error Information log had", health.error_entries as f64),
        ("farlane_busy_seconds", "Time in which I/O commands were under way", seconds(health.busy)),
        ("farlane_power_on_seconds", "Time under power", seconds(health.power_on)),
    ];
    page.add_rows(labels, rows.map(|(name, help, value)| (Kind::Counter, name, help, value)));
}
