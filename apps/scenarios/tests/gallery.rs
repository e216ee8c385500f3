//! The gallery's files of published experiments give the same results as the experiments.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use scenarios::file::link::Link;
use scenarios::file::scenario::Scenario;
use scenarios::published;

#[test]
fn the_files_of_nvme_tsn_give_the_figures_of_the_experiment() {
    let report = published::run("nvme-tsn", 1).unwrap();
    for (file, topology) in [("direct", "direct"), ("tcp", "tcp_1g"), ("tsn", "tsn_1g")] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/nvme-tsn-{file}.toml"));
        let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let played = scenario.play(1, false).unwrap();
        for (task, row) in played.tasks.iter().zip(["config_read_rtt", "read_4k", "write_4k"]) {
            let row = format!("{row} {topology}");
            let expected = report.rows.iter().find(|known| known.row == row).unwrap().ours;
            let times = &task.outcome.times;
            let sum: u64 = times.iter().map(|time| time.get()).sum();
            let (mean, expected) = (sum / times.len() as u64, format!("{:.0}", expected.floor()));
            assert_eq!(mean.to_string(), expected, "{row}");
        }
    }
}

#[test]
fn the_networks_of_the_gallery_are_link_files_too() {
    let gallery = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut links = 0;
    let folders = [gallery.join("fabrics"), gallery];
    for entry in folders.iter().flat_map(|folder| folder.read_dir().unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let has_link = std::fs::read_to_string(&path).unwrap().contains("[link");
            links += u32::from(has_link);
            assert_eq!(Link::read(&path).is_ok(), has_link, "{}", path.display());
        }
    }
    assert!(links >= 8);
}
