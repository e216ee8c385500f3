//! `farlane bench` in fio's words: lengths, jobs, percentiles, job files, and fio's JSON.

use std::path::Path;

use serde_json::Value;

use crate::support::{Export, fail, json, succeed};

/// What fio 3.39 of Debian prints for a load of reads and writes (`--output-format=json`), without
/// the use of disks.
const FIO: &str = include_str!("fio.json");

fn far() -> Export {
    Export::start(&["--ram", "64MiB,block=4096"])
}

/// What `arguments` print, as several JSON texts one after the other.
fn texts(arguments: &[&str]) -> Vec<Value> {
    let said = succeed(arguments);
    serde_json::Deserializer::from_str(&said).into_iter().map(Result::unwrap).collect()
}

#[test]
fn operations_longer_than_a_transfer_are_cut_and_come_back() {
    let far = far();
    let url = far.url();
    for (length, bytes) in [("1MiB", 1 << 20), ("132KiB", 132 << 10), ("300KiB", 300 << 10)] {
        let load = ["--rw", "randrw", "--iodepth", "4", "--runtime", "500ms", "--verify", "--json"];
        let report = json(&[&["bench", &url, "--bs", length][..], &load].concat());
        assert_eq!((&report["errors"], &report["verified"]), (&0.into(), &true.into()), "{report}");
        let (commands, moved) = (report["commands"].as_u64().unwrap(), report["bytes"].as_u64().unwrap());
        assert!(commands > 4 && moved == commands * bytes, "{report}");
    }
}

#[test]
fn lengths_are_shared_as_asked_and_jobs_have_their_own_depth() {
    let far = far();
    let words =
        ["--bssplit", "4k/50:64k/50", "--numjobs", "3", "--iodepth", "2", "--runtime", "700ms", "--json"];
    let report = json(&[&["bench", &far.url(), "--rw", "randwrite"][..], &words].concat());
    assert_eq!((&report["numjobs"], &report["bssplit"]), (&3.into(), &"4096/50:65536/50".into()));
    let (commands, bytes) = (report["commands"].as_f64().unwrap(), report["bytes"].as_f64().unwrap());
    let mean = bytes / commands;
    assert!(commands > 100.0 && (30_000.0..40_000.0).contains(&mean), "{mean} B an operation: {report}");
}

#[test]
fn percentiles_are_those_that_were_asked_for() {
    let far = far();
    let words = ["--runtime", "200ms", "--percentile_list", "50:99.9", "--json"];
    let report = json(&[&["bench", &far.url()][..], &words].concat());
    let told = report["percentiles_ns"].as_object().unwrap();
    assert_eq!(told.keys().collect::<Vec<_>>(), ["50.000000", "99.900000"]);
    assert_eq!(told["50.000000"], report["latency_ns"]["p50"]);
}

#[test]
fn what_was_measured_so_far_is_told_now_and_then() {
    let far = far();
    let said = succeed(&["bench", &far.url(), "--runtime", "1s", "--status-interval", "300ms"]);
    assert!(said.lines().filter(|line| line.starts_with("after ")).count() >= 2, "{said}");
    let words = ["--runtime", "1s", "--status-interval", "300ms", "--output-format", "json"];
    let told = texts(&[&["bench", &far.url()][..], &words].concat());
    let ended = |one: &Value| one["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    assert!(told.len() >= 3 && told.windows(2).all(|pair| ended(&pair[0]) <= ended(&pair[1])), "{told:?}");
}

/// Names and kinds of values of `ours` that `theirs` does not have.
fn strangers(ours: &Value, theirs: &Value, place: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                match theirs.get(name) {
                    // Options are those of the command line.
                    _ if place == "/jobs/job options" => {}
                    Some(other) => strangers(value, other, &format!("{place}/{name}"), found),
                    None => found.push(format!("{place}/{name}")),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => strangers(&ours[0], &theirs[0], place, found),
        (Value::Number(_), Value::Number(_)) | (Value::String(_), Value::String(_)) => {}
        _ => found.push(format!("{place}: {ours}")),
    }
}

#[test]
fn json_has_the_names_of_fio_and_figures_that_fit_each_other() {
    let far = far();
    let words =
        ["--rw", "randrw", "--runtime", "1s", "--percentile_list", "50:99:99.9", "--output-format", "json"];
    let ours = texts(&[&["bench", &far.url(), "--iodepth", "4"][..], &words].concat()).remove(0);
    let theirs: Value = serde_json::from_str(FIO).unwrap();
    let mut found = Vec::new();
    strangers(&ours, &theirs, "", &mut found);
    assert_eq!(found, Vec::<String>::new(), "{ours:#}");
    for direction in ["read", "write"] {
        let of = |value: &Value| {
            let one = &value["jobs"][0][direction];
            let number = |name: &str| one[name].as_f64().unwrap();
            assert_eq!(one["clat_ns"]["N"], one["total_ios"], "{one}");
            let (ios, bytes) = (number("total_ios"), number("io_bytes"));
            assert!((bytes - ios * 4096.0).abs() < 1.0 && ios > 10.0, "{one}");
            // Rates are those of the runtime, which has whole milliseconds.
            let seconds = number("runtime") / 1e3;
            assert!((number("iops") * seconds / ios - 1.0).abs() < 0.05, "{one}");
            assert!((number("bw") * 1024.0 / number("bw_bytes") - 1.0).abs() < 0.01, "{one}");
            let percentiles = &one["clat_ns"]["percentile"];
            let [half, most] = ["50.000000", "99.900000"].map(|name| percentiles[name].as_u64().unwrap());
            assert!(half <= most, "{one}");
        };
        of(&ours);
        // The same holds for fio's own, so these are the meanings of its names.
        of(&theirs);
    }
}

fn job_file(folder: &Path, text: &str) -> String {
    let path = folder.join("jobs.fio");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn jobs_of_a_file_run_one_after_the_other() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[global]\nioengine=io_uring\ntime_based\nruntime=300ms\nbs=16k\n\
         [fill]\nrw=write\niodepth=4\n[mixed]\nstonewall\nrw=randrw\nrwmixread=100\nnumjobs=2\n",
    );
    let told = texts(&["bench", &far.url(), "--job", &file, "--output-format", "json"]);
    let names: Vec<_> = told.iter().map(|one| one["jobs"][0]["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["fill", "mixed"]);
    let count = |job: usize, direction: &str| told[job]["jobs"][0][direction]["total_ios"].as_u64().unwrap();
    assert!(count(0, "write") > 0 && count(0, "read") == 0);
    assert!(count(1, "read") > 0 && count(1, "write") == 0);
    assert_eq!(told[1]["jobs"][0]["job options"]["numjobs"], "2");
    // The command line comes first.
    let told = texts(&["bench", &far.url(), "--job", &file, "--rw", "randread", "--output-format", "json"]);
    assert_eq!(told[0]["jobs"][0]["write"]["total_ios"], 0);
}

/// fio's example basic-verify.fio, whose job has no runtime: it writes the whole size.
#[test]
fn a_job_without_a_runtime_covers_its_size_once() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[write-and-verify]\nrw=randwrite\nbs=4k\ndirect=1 ; as the device has it\nioengine=libaio\n\
         iodepth=16\nsize=4m\nverify=crc32c\n",
    );
    let report = json(&["bench", &far.url(), "--job", &file, "--json"]);
    assert_eq!((&report["bytes"], &report["verified"]), (&(4 << 20).into(), &true.into()), "{report}");
    // Each block was written once, and read back.
    assert_eq!((&report["compared"], &report["compared_bytes"]), (&1024.into(), &(4 << 20).into()));
    let report = json(&["bench", &far.url(), "--job", &file, "--json", "--rw", "write", "--size", "2m"]);
    assert_eq!((&report["bytes"], &report["compared"]), (&(2 << 20).into(), &512.into()), "{report}");
    let words = ["--rw", "randrw", "--io_size", "1m", "--numjobs", "2", "--json"];
    let report = json(&[&["bench", &far.url()][..], &words].concat());
    assert_eq!(report["bytes"], 2 << 20, "{report}");
    // All that is wrong is said at once.
    let file = job_file(folder.path(), "[one]\nrw=write\nzonemode=zbd\n[two]\nstonewall\nsteadystate=1\n");
    let said = fail(&["bench", &far.url(), "--job", &file]);
    assert!(said.contains("zonemode") && said.contains("steadystate"), "{said}");
}

#[test]
fn a_parameter_that_is_not_understood_is_named_and_nothing_runs() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(folder.path(), "[one]\nrw=write\n[two]\nstonewall\nzonemode=zbd\n");
    let said = fail(&["bench", &far.url(), "--job", &file]).replace('│', " ");
    assert!(said.contains("line 5, zonemode") && said.contains("docs/bench.md"), "{said}");
    let read = succeed(&["read", &far.url(), "--length", "4096", "--output", "-"]);
    assert!(read.bytes().all(|byte| byte == 0), "the first job has run");
}
