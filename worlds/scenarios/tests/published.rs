//! The published experiments come out as published, and the same each time.

use scenarios::published::{self, Kind};

#[test]
fn every_calibrated_row_is_within_three_percent_and_a_seed_gives_the_same_bytes() {
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
    }
}

#[test]
fn every_scenario_of_the_gallery_plays() {
    let gallery = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(gallery).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = scenarios::file::scenario::Scenario::parse(&text).unwrap();
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
    assert!(count >= 4);
}
