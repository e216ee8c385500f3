//! The published experiments come out as published, and equal in each run.

use std::collections::BTreeMap;
use std::path::Path;

use scenarios::file::scenario::Scenario;
use scenarios::published::{self, Kind};

/// The fingerprint of all events of each experiment and scenario.
const DIGESTS: &str = include_str!("digests.txt");

/// A run with seed 1 is the same as when `digests.txt` was written, on another machine and perhaps
/// in another build.
fn are_as_always(digests: &BTreeMap<&str, u64>) {
    let known: BTreeMap<_, _> = DIGESTS.lines().filter_map(|line| line.split_once(' ')).collect();
    let changed = digests.iter().map(|(name, digest)| (*name, format!("{digest:016x}")));
    let changed = changed.filter(|(name, digest)| known.get(name).copied() != Some(digest.as_str()));
    let changed: Vec<_> = changed.map(|(name, digest)| format!("{name} {digest}")).collect();
    assert!(
        changed.is_empty(),
        "other events than always. Where a model or an engine was to change, put this into \
         apps/scenarios/tests/digests.txt:\n{}",
        changed.join("\n")
    );
}

#[test]
fn every_calibrated_row_is_within_three_percent_and_a_seed_gives_the_same_bytes() {
    let mut digests = BTreeMap::new();
    for (name, _) in published::EXPERIMENTS {
        let report = published::run(name, 1).unwrap();
        for row in &report.rows {
            let error = row.error_percent();
            println!("{name} {}: {:?} {} {} {error:?}", row.row, row.published, row.ours, row.unit);
            if row.kind == Kind::Calibrated {
                assert!(error.is_some_and(|error| error.abs() <= 3.0), "{row:?}: {error:?} %");
            }
        }
        assert_eq!(published::run(name, 1).unwrap(), report);
        digests.insert(name, report.digest);
    }
    are_as_always(&digests);
}

/// Of rows that no parameter was fitted to, one has no explanation: reads of a single chunk.
#[test]
fn predicted_rates_of_the_streamer_are_within_fifteen_percent() {
    let report = published::run("streamer", 1).unwrap();
    let calibrated = report.rows.iter().filter(|row| row.kind == Kind::Calibrated).count();
    assert_eq!((report.fitted.len(), calibrated, report.rows.len()), (8, 8, 26));
    let off = report.rows.iter().filter(|row| row.error_percent().is_none_or(|error| error.abs() > 15.0));
    assert_eq!(off.map(|row| row.row.as_str()).collect::<Vec<_>>(), ["read: 1 chunk a session"]);
}

/// Two constants, two rows; and the published bounds come out of the others.
#[test]
fn the_network_of_nvme_over_fabrics_takes_less_than_the_published_bounds() {
    let report = published::run("nvmf", 1).unwrap();
    let calibrated = report.rows.iter().filter(|row| row.kind == Kind::Calibrated).count();
    assert_eq!((report.fitted.len(), calibrated), (2, 2));
    let bounds: Vec<_> = report.rows.iter().filter(|row| row.row.contains("published: below")).collect();
    assert_eq!(bounds.len(), 2);
    for row in bounds {
        assert!(row.published.is_some_and(|below| row.ours < below && row.ours > below / 2.0), "{row:?}");
    }
}

#[test]
fn every_scenario_of_the_gallery_plays() {
    let gallery = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut count = 0;
    let folders = [gallery.join("fabrics"), gallery];
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let scenario = Scenario::read(&path).unwrap();
        let played = scenario.play(scenario.seed, false).unwrap();
        for task in &played.tasks {
            assert!(
                task.outcome.failed == 0 && !task.outcome.times.is_empty(),
                "{}: {}",
                path.display(),
                task.name
            );
        }
        count += 1;
    }
    assert!(count >= 7);
}
