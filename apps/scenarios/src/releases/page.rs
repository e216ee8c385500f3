//! The page as Markdown.

use super::measure::{self, FILE_MIB, Measured, OPERATIONS, PERCENTILES, TIMEOUTS, millis};
use super::{Effort, Estimate, RELEASES, REMEDIES, Release, Remedy};

/// Number of operations of each kind behind a fingerprint.
const FINGERPRINT_COUNT: u64 = 50;

const INTRODUCTION: &str = "# NVMe over 5G, release by release

`make releases` writes this page. Each network is a scenario of `scenarios/releases`, which
`farlane model sim` plays alone. A host and an SSD are behind a 5G device each; frames go up to the
base station, through one UPF, and down to the other device. Host, SSD and switch are the same
everywhere: those of the published experiments
([published.md](https://github.com/farlane/farlane/blob/main/docs/published.md)).

- `campus` is fitted to measurements. All other networks follow the standard, and nothing in them is
  fitted; the tables below name the source of each value. Values that no standard gives are called
  assumed, with their range.
- The modems are ideal: their own time, their drivers' and that of USB are left out.
- One device, always in coverage: other devices, handover and fading are not modelled.
- `rel17-tdd` equals `rel16-tdd` event for event: where each slot has both directions, a report on a
  second carrier comes no earlier than the next downlink needs it.
- A value is the mean over the replications, ± half of its 95 % confidence interval (Student's t).
  A replication determines a percentile if one operation at least exceeds it.

Remedies: **RTO floor**, TCP's retransmission timeout is 5 ms at least instead of 200 ms
(`--rto-min`); **lookahead**, the switch sends ahead what the SSD is about to read; **two paths**, each
frame takes two such networks and the first copy counts (IEEE 802.1CB; in Release 16 redundant user
planes, TS 23.501 5.33.2.1).
";

/// Measures everything on `threads` threads, and writes the page.
///
/// # Errors
/// The scenario that cannot be played, and why.
pub fn page(effort: Effort, threads: usize) -> Result<String, String> {
    let measured = measure::all(effort, threads)?;
    let Effort { replications, registers, commands, file_mib } = effort;
    let mut text = format!(
        "{INTRODUCTION}\n{replications} replications of each combination, each with {registers} register \
         reads, {commands} reads and\n{commands} writes of 4 KiB at a depth of 1, and {file_mib} MiB of the \
         file.\n"
    );
    text += &boots(&measured, replications);
    for (place, (operation, _)) in OPERATIONS.iter().enumerate() {
        text += &format!("\n## {}\n\nMilliseconds.\n\n", capital(operation));
        text += &times(&measured, place);
    }
    text += &file(&measured);
    text += &changes(&measured);
    text += "\n## The networks\n";
    for release in &RELEASES {
        text += &elements(release);
    }
    text += &format!(
        "\n## Fingerprints\n\nThe first {FINGERPRINT_COUNT} operations of each kind with seed 1: medians in \
         ms, and a digest of all events. A test\ncomputes this table again, so that the page cannot go \
         stale.\n\n| network | remedy | register read | 4 KiB read | 4 KiB write | boots | events |\n|{}\n",
        "---|".repeat(7)
    );
    for release in &RELEASES {
        for remedy in &REMEDIES {
            text += &fingerprint(release, *remedy)?;
        }
    }
    Ok(text)
}

/// The line of the page that shows the first operations of a network with a remedy.
///
/// # Errors
/// The scenario that cannot be played, and why.
pub fn fingerprint(release: &Release, remedy: Remedy) -> Result<String, String> {
    let played = measure::operations(release, remedy, [FINGERPRINT_COUNT; 2], 1)?;
    let medians = played.tasks.iter().map(|task| {
        let mut times = task.outcome.times.clone();
        times.sort_unstable();
        format!("{:.3}", times.get(times.len() / 2).copied().map_or(0.0, millis))
    });
    let mut boots = Vec::new();
    for timeout in TIMEOUTS {
        if measure::boots_with(release, remedy, timeout, 1)? {
            boots.push(timeout);
        }
    }
    let boots = if boots.is_empty() { "no".to_owned() } else { boots.join(", ") };
    let medians: Vec<_> = medians.collect();
    let digest = played.digest;
    let medians = medians.join(" | ");
    Ok(format!("| {} | {} | {medians} | {boots} | {digest:016x} |\n", release.name, remedy.name))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A value with as many decimals as its interval leaves, four significant digits at most.
fn shown(estimate: &Estimate) -> String {
    let decimals = match estimate.mean {
        mean if mean < 10.0 => 3,
        mean if mean < 100.0 => 2,
        _ => 1,
    };
    format!("{:.decimals$} ± {:.decimals$}", estimate.mean, estimate.half)
}

/// The lines of a table: one for each network and remedy.
fn table(head: &[String], measured: &[Measured], cells: impl Fn(&Measured) -> Vec<String>) -> String {
    let mut text =
        format!("| network | remedy | {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len() + 2));
    for of in measured {
        text += &format!("| {} | {} | {} |\n", of.release.name, of.remedy.name, cells(of).join(" | "));
    }
    text
}

fn boots(measured: &[Measured], replications: u64) -> String {
    let head = TIMEOUTS.iter().map(|timeout| (*timeout).replace("us", " µs").replace("ms", " ms"));
    let head: Vec<_> = head.chain(["boot at 64 s, ms".to_owned()]).collect();
    let rows = table(&head, measured, |of| {
        let boots = of.boots.iter().map(|boots| match *boots {
            0 => "no".to_owned(),
            all if all == replications => "yes".to_owned(),
            some => format!("{some} of {replications}"),
        });
        boots.chain([shown(&of.boot)]).collect()
    });
    format!(
        "\n## Does a host boot?\n\nA host gives up a completion after its completion timeout; the default \
         range is 50 µs to 50 ms. The\ncolumns are the longest times of the ranges.\n\n{rows}"
    )
}

fn times(measured: &[Measured], operation: usize) -> String {
    let known = |place: &usize| measured.iter().any(|of| of.times[operation][*place].is_some());
    let places: Vec<_> = (0..PERCENTILES.len()).filter(known).collect();
    let head: Vec<_> = places.iter().map(|place| PERCENTILES[*place].0.to_owned()).collect();
    table(&head, measured, |of| {
        let estimates = places.iter().map(|place| of.times[operation][*place].as_ref());
        estimates.map(|estimate| estimate.map_or("-".to_owned(), shown)).collect()
    })
}

fn file(measured: &[Measured]) -> String {
    let head = ["Mbit/s".to_owned(), "1 GiB takes, s".to_owned()];
    let bits = f64::from(u32::try_from(FILE_MIB << 3).unwrap_or(u32::MAX)) * 1.048_576;
    let rows = table(&head, measured, |of| vec![shown(&of.rate), format!("{:.0}", bits / of.rate.mean)]);
    format!(
        "\n## A file of 1 GiB\n\nIt is written in commands of 128 KiB, eight at a time. The rate is that of \
         the part that was simulated;\nthe time follows from the mean rate.\n\n{rows}"
    )
}

/// How much faster each network is than the first one that follows the standard.
fn changes(measured: &[Measured]) -> String {
    let mut text = String::from(
        "\n## What a release changes\n\nWithout a remedy, as a share of `rel15-embb`; below 1 is faster. The \
         last column is the file's rate.\n\n| network | register read, p50 | p99.9 | 4 KiB read, p50 | p99.9 \
         | 4 KiB write, p50 | p99.9 | file |\n|---|---|---|---|---|---|---|---|\n",
    );
    let plain: Vec<_> = measured.iter().filter(|of| of.remedy.name == Remedy::NONE.name).collect();
    let Some(base) = plain.iter().find(|of| of.release.name == "rel15-embb") else { return text };
    for of in &plain {
        let mut cells = Vec::new();
        for operation in 0..OPERATIONS.len() {
            for place in [0, 2] {
                let pair = of.times[operation][place].as_ref().zip(base.times[operation][place].as_ref());
                cells.push(pair.map_or("-".to_owned(), |(own, base)| format!("{:.2}", own.mean / base.mean)));
            }
        }
        cells.push(format!("{:.2}", of.rate.mean / base.rate.mean));
        text += &format!("| {} | {} |\n", of.release.name, cells.join(" | "));
    }
    text
}

fn elements(release: &Release) -> String {
    let mut text =
        format!("\n### {}\n\n{}\n\n| value | source |\n|---|---|\n", release.name, release.title());
    for element in release.elements() {
        text += &format!("| `{}` | {} |\n", element.setting, element.source);
    }
    text
}
