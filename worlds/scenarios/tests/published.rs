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
