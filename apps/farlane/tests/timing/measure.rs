//! `farlane measure report`: many samples of several points, and a report that stands alone.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, farlane, json, succeed};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

/// Options of a short measurement.
const SHORT: [&str; 8] = ["--time", "30ms", "--samples", "50", "--sizes", "512,4k", "--load", "4"];

fn measure(url: &str, more: &[&str]) -> Value {
    json(&[&["measure", "report", url, "--json"][..], &SHORT, more].concat())
}

#[test]
fn each_point_has_its_samples_with_and_without_outliers() {
    let far = Export::start(&["--ram", "16MiB"]);
    let report = measure(&far.url(), &["--rw", "read,write"]);
    let points = report["points"].as_array().unwrap();
    let named: Vec<_> = points
        .iter()
        .map(|point| {
            let [bytes, depth] = ["bytes", "depth"].map(|key| point[key].as_u64().unwrap());
            (point["operation"].as_str().unwrap(), bytes, depth)
        })
        .collect();
    let commands = ["read", "write"].into_iter().flat_map(|operation| {
        [(operation, 512, 1), (operation, 512, 4), (operation, 4096, 1), (operation, 4096, 4)]
    });
    let expected: Vec<_> = [("round trip", 0, 1)].into_iter().chain(commands).collect();
    assert_eq!(named, expected);
    for point in points {
        let [all, kept] = ["latency_ns", "filtered_ns"].map(|key| &point[key]);
        let count = |of: &Value| of["count"].as_u64().unwrap();
        assert!(count(all) >= 50, "{point}");
        assert_eq!(count(all) - count(kept), point["left_out"].as_u64().unwrap(), "{point}");
        assert!(kept["max"].as_f64() <= all["max"].as_f64(), "{point}");
        assert!(point["elapsed_s"].as_f64().unwrap() >= 0.03, "{point}");
    }
    // A tunnel's reads are followed hop by hop.
    let hops = &report["devices"][0]["hops"];
    assert_eq!(hops["of_read_4k"].as_array().unwrap().len(), 9, "{hops}");
    assert!(hops["clock_error_ns"].as_u64().unwrap() > 0, "{hops}");
    assert!(report["machine"]["kernel"].as_str().unwrap().contains('.'), "{report}");
}

#[test]
fn devices_take_turns_and_the_report_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "16MiB"]);
    let nqn = "nqn.2026-01.io.farlane:measured";
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", nqn, "--ram", "16MiB"]);
    command.arg("--control").arg(folder.path().join("control"));
    let target = Export::of(command);
    let fabric = format!("nvme-tcp://{}/{nqn}", target.address);
    let paths: Vec<_> = ["html", "csv", "parquet", "svg", "png"]
        .iter()
        .map(|extension| folder.path().join(format!("report.{extension}")))
        .collect();
    let to = paths.iter().flat_map(|path| ["--to", path.to_str().unwrap()]);
    let beside = [&["--beside", &fabric][..], &to.collect::<Vec<_>>()].concat();
    let report = measure(&far.url(), &beside);
    assert_eq!(report["points"].as_array().unwrap().len(), 10, "{report}");
    assert_eq!(report["devices"][1]["hops"], Value::Null, "a fabric has no tunnel");
    let read = |path: &Path| std::fs::read(path).unwrap();
    let page = String::from_utf8(read(&paths[0])).unwrap();
    for part in ["<!doctype html>", &far.url(), &fabric, "<svg", "hop by hop", "</html>"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // The page fetches no resource from elsewhere.
    for part in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(part), "{part}");
    }
    let table = String::from_utf8(read(&paths[1])).unwrap();
    assert_eq!(table.lines().count(), 11, "{table}");
    let rows = SerializedFileReader::new(std::fs::File::open(&paths[2]).unwrap()).unwrap();
    assert_eq!(rows.get_row_iter(None).unwrap().count(), 10);
    assert!(read(&paths[3]).starts_with(b"<svg") && read(&paths[4]).starts_with(b"\x89PNG"));
    let shown = succeed(&[&["measure", "report", &far.url(), "--beside", &fabric][..], &SHORT].concat());
    assert!(shown.contains("doorbell goes down") && shown.contains("of pairs"), "{shown}");
}

#[test]
fn a_device_that_fails_costs_nothing_of_what_was_measured_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let far = Export::start(&["--namespace", &format!("{},readonly", path.display())]);
    let output =
        farlane(&[&["measure", "report", &far.url(), "--json", "--rw", "read,write"][..], &SHORT].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("a command failed"), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Round trips, and reads of two sizes, idle and under load.
    let points = report["points"].as_array().unwrap().len();
    assert_eq!((points, &report["interrupted"]), (5, &true.into()), "{report}");
}

#[test]
fn a_capture_has_the_measurement_and_not_what_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    let far = Export::start(&["--ram", "16MiB"]);
    let short = ["--time", "30ms", "--samples", "50", "--sizes", "8k", "--load", "1"];
    let trace = ["--capture", path.to_str().unwrap()];
    json(&[&["measure", "report", &far.url(), "--json"][..], &short, &trace].concat());
    let shown =
        succeed(&["observe", "trace", "show", path.to_str().unwrap(), "--level", "command", "--json"]);
    // Reads that are followed hop by hop have 4 KiB.
    assert!(shown.contains("\"bytes\":8192"), "{shown}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is() {
    let far = Export::start(&["--ram", "16MiB"]);
    let url = far.url();
    let refused = fail(&["measure", "report", &url, "--sizes", "1000"]);
    assert!(
        refused.contains("--sizes 1000") && refused.contains("multiples of the block size 512"),
        "{refused}"
    );
    for huge in ["1TiB", "15EiB"] {
        let refused = fail(&["measure", "report", &url, "--sizes", huge]);
        assert!(refused.contains("--sizes times --load") && refused.contains("at most"), "{refused}");
    }
    let refused = fail(&["measure", "report", &url, "--to", "report.pdf"]);
    assert!(refused.contains("report.pdf") && refused.contains(".html"), "{refused}");
    let refused = fail(&["measure", "report", &url, "--to", "/nonexistent/report.html"]);
    assert!(refused.contains("/nonexistent/report.html"), "{refused}");
    let refused = fail(&["measure", "report", &url, "--beside", "tcp://127.0.0.1:1", "--timeout", "1s"]);
    assert!(refused.contains("127.0.0.1:1"), "{refused}");
}

#[test]
fn the_time_is_reported_and_ctrl_c_keeps_the_complete_points_and_names_the_missing_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let far = Export::start(&["--ram", "16MiB"]);
    let to = path.to_str().unwrap();
    let words = ["--sizes", "4k", "--load", "2", "--samples", "10", "--to", to, "--json"];
    let start = |time| {
        let load = Running::start(&[&["measure", "report", &far.url(), "--time", time][..], &words].concat());
        wait_until("the measurement begins", || load.said().contains("measuring 3 points"));
        load
    };
    let load = start("3s");
    // The second of three points is under way.
    std::thread::sleep(Duration::from_millis(4_500));
    load.signal("INT");
    let output = load.output();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("measuring 3 points of 1 device for 3 s each takes 9s or longer"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let done = report["points"].as_array().unwrap().len();
    assert!((1..3).contains(&done), "{report}");
    let missing: Vec<_> =
        report["missing"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let hops = format!("hops of {}", far.url());
    assert_eq!(missing, ["read 4 KiB, idle", "read 4 KiB, 2 at once", &hops][done - 1..]);
    assert_eq!((&report["interrupted"], &report["expected_s"]), (&true.into(), &9.0.into()));
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page.contains("ended early. Missing: ") && page.contains("read 4 KiB, 2 at once; hops of"),
        "{page}"
    );
    // Within the first point, there is nothing to report.
    std::fs::remove_file(&path).unwrap();
    let load = start("1h");
    load.signal("INT");
    let output = load.output();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no report is written"));
    assert!(output.stdout.is_empty() && !path.exists());
}

#[test]
fn a_quick_measurement_has_five_points_and_other_options_stay_possible() {
    let far = Export::start(&["--ram", "16MiB"]);
    let report = json(&["measure", "report", &far.url(), "--quick", "--time", "300ms", "--json"]);
    let sizes: Vec<_> =
        report["points"].as_array().unwrap().iter().map(|point| point["bytes"].clone()).collect();
    assert_eq!(sizes, [0, 4096, 4096, 65_536, 65_536].map(Value::from));
    assert!(report["points"][0]["latency_ns"]["count"].as_u64().unwrap() >= 1_000, "{report}");
    assert!(report["method"].as_str().unwrap().contains("At least 1000 samples"), "{report}");
    assert_eq!(report["missing"], Value::Array(Vec::new()));
}
