//! `farlane bench` in fio's words: lengths, jobs, percentiles, job files, and fio's JSON.

use std::path::Path;

use serde_json::Value;

use crate::support::{Export, fail, farlane, json, succeed};

/// The output of fio 3.39 of Debian for a load of reads and writes (`--output-format=json`),
/// without the use of disks.
const FIO: &str = include_str!("fio.json");

fn far() -> Export {
    Export::start(&["--ram", "64MiB,block=4096"])
}

/// The output of `arguments`, as several JSON texts one after the other.
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
    let reported = report["percentiles_ns"].as_object().unwrap();
    assert_eq!(reported.keys().collect::<Vec<_>>(), ["50.000000", "99.900000"]);
    assert_eq!(reported["50.000000"], report["latency_ns"]["p50"]);
}

#[test]
fn intermediate_results_are_reported_now_and_then() {
    let far = far();
    let said = succeed(&["bench", &far.url(), "--runtime", "1s", "--status-interval", "300ms"]);
    assert!(said.lines().filter(|line| line.starts_with("after ")).count() >= 2, "{said}");
    let words = ["--runtime", "1s", "--status-interval", "300ms", "--output-format", "json"];
    let reported = texts(&[&["bench", &far.url()][..], &words].concat());
    let ended = |one: &Value| one["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    assert!(
        reported.len() >= 3 && reported.windows(2).all(|pair| ended(&pair[0]) <= ended(&pair[1])),
        "{reported:?}"
    );
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

/// The one text that is printed with fio's names.
fn fio(arguments: &[&str]) -> Value {
    let mut reported = texts(&[arguments, &["--output-format", "json"]].concat());
    assert_eq!(reported.len(), 1, "{reported:?}");
    reported.remove(0)
}

#[test]
fn jobs_of_a_file_run_one_after_the_other_or_together() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[global]\nioengine=io_uring\ntime_based\nruntime=300ms\nbs=16k\n\
         [fill]\nrw=write\niodepth=4\n[mixed]\nstonewall\nrw=randrw\nrwmixread=100\nnumjobs=2\n\
         [beside]\nrw=randwrite\nbs=4k\n",
    );
    let reported = fio(&["bench", &far.url(), "--job", &file]);
    let jobs = reported["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|one| one["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["fill", "mixed", "beside"]);
    let count = |job: usize, direction: &str| jobs[job][direction]["total_ios"].as_u64().unwrap();
    assert!(count(0, "write") > 0 && count(0, "read") == 0);
    assert!(count(1, "read") > 0 && count(1, "write") == 0 && count(2, "write") > 0);
    assert_eq!(jobs[1]["job options"]["numjobs"], "2");
    assert_eq!([&jobs[0]["groupid"], &jobs[1]["groupid"], &jobs[2]["groupid"]], [0, 1, 1]);
    // The two began together, after the first one.
    let began = |job: usize| jobs[job]["job_start"].as_u64().unwrap();
    assert!(began(1).abs_diff(began(2)) < 250 && began(1) >= began(0) + 250, "{reported:#}");
    // The names of both jobs, and of their common part, are those of fio.
    let mut found = Vec::new();
    let theirs: Value = serde_json::from_str(FIO).unwrap();
    for job in jobs {
        strangers(job, &theirs["jobs"][0], "/jobs", &mut found);
    }
    found.retain(|name| !name.contains("percentile"));
    assert_eq!(found, Vec::<String>::new());
    // The command line comes first.
    let reported = fio(&["bench", &far.url(), "--job", &file, "--rw", "randread"]);
    assert_eq!(reported["jobs"][0]["write"]["total_ios"], 0);
    // Our own names, and the text, have a part for each job.
    let report = json(&["bench", &far.url(), "--job", &file, "--json"]);
    assert_eq!((report["jobs"].as_array().unwrap().len(), &report["jobs"][1]["name"]), (3, &"mixed".into()));
    assert!(report["jobs"].as_array().unwrap().iter().all(|job| job["commands"].as_u64().unwrap() > 0));
    let said = succeed(&["bench", &far.url(), "--job", &file]);
    for part in ["fill: write, 16384 B", "mixed: randrw, 16384 B", "beside: randwrite, 4096 B"] {
        assert!(said.contains(part), "{said}");
    }
}

/// Each example is of fio's, made small.
#[test]
fn jobs_wait_end_each_other_and_share_by_weight() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let run =
        |text: &str| fio(&["bench", &far.url(), "--job", &job_file(folder.path(), text)])["jobs"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    // flow.fio: one write for each eight reads.
    let jobs =
        run("[global]\ntime_based\nruntime=500ms\niodepth=16\nsize=16m\nbs=8k\n[job2]\nrw=write\nflow=1\n\
         [job1]\nrw=randread\nflow=8\n");
    let share = number(&jobs[1]["read"]["total_ios"]) / number(&jobs[0]["write"]["total_ios"]);
    assert!((7.0..9.0).contains(&share), "{share}");
    // waitfor.fio: readers begin when writers have ended.
    let jobs = run(
        "[global]\nsize=4m\nbs=64k\n[writers]\nrw=write\nnumjobs=2\nthinktime=5ms\n[readers]\nwait_for=writers\n\
         rw=randread\n[delayed]\nrw=read\nstartdelay=300ms\nio_size=64k\n",
    );
    let began = |job: usize| jobs[job]["job_start"].as_u64().unwrap();
    assert!(began(1) >= began(0) + jobs[0]["job_runtime"].as_u64().unwrap() / 2, "{jobs:#}");
    assert!(began(2) >= began(0) + 250, "{jobs:#}");
    assert_eq!(number(&jobs[0]["write"]["io_bytes"]), 8.0 * 1024.0 * 1024.0);
    // exitwhat.fio: the job of 10 operations ends the one without end, and all that follow.
    let jobs = run("[global]\nexitall\n[short]\nrw=read\nnumber_ios=10\nthinktime=2000\nexit_what=all\n\
         [endless]\nrw=randread\ntime_based\nruntime=1h\n[never]\nstonewall\nrw=read\n");
    assert_eq!((jobs.as_array().unwrap().len(), number(&jobs[0]["read"]["total_ios"])), (2, 10.0));
}

#[test]
fn rates_pauses_and_loops_are_as_asked() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let run =
        |text: &str| fio(&["bench", &far.url(), "--job", &job_file(folder.path(), text)])["jobs"].clone();
    let ios = |job: &Value, direction: &str| job[direction]["total_ios"].as_f64().unwrap();
    let jobs = run(
        "[global]\ntime_based\nruntime=1s\n[bytes]\nrw=randrw\nrate=400k,200k\n[operations]\nrw=read\nrate_iops=150\n\
         numjobs=2\n[pause]\nrw=read\nthinktime=20ms\nthinktime_blocks=2\n",
    );
    // A busy machine does less, and none does more.
    let near = |found: f64, wanted: f64| (wanted * 0.2..=wanted * 1.05 + 2.0).contains(&found);
    assert!(near(ios(&jobs[0], "read"), 100.0) && near(ios(&jobs[0], "write"), 50.0), "{jobs:#}");
    assert!(near(ios(&jobs[1], "read"), 300.0), "{jobs:#}");
    assert!((10.0..=102.0).contains(&ios(&jobs[2], "read")), "{jobs:#}");
    let jobs = run("[a]\nrw=randwrite\nsize=1m\nbs=4k\nloops=3\nfsync=16\nend_fsync\niodepth=4\n");
    assert_eq!(ios(&jobs[0], "write"), 768.0);
    assert_eq!(jobs[0]["sync"]["total_ios"], 51, "{jobs:#}");
    // The rate of the command line is in bytes, as fio's.
    let report = json(&["bench", &far.url(), "--rate", "400k", "--runtime", "1s", "--json"]);
    assert!(near(report["commands"].as_f64().unwrap(), 100.0), "{report}");
}

/// fio's example steadystate.fio: a job ends when its figures are steady.
#[test]
fn a_job_ends_when_it_is_steady() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[ss]\nrw=randread\nrate_iops=200\ntime_based\nruntime=60s\nss=iops:50%\nss_dur=600ms\nss_interval=200ms\n",
    );
    let report = json(&["bench", &far.url(), "--job", &file, "--json"]);
    assert!(report["steady"] == true && report["runtime_s"].as_f64().unwrap() < 30.0, "{report}");
    let words = ["--steadystate_duration", "10s", "--runtime", "300ms", "--json"];
    let report = json(&[&["bench", &far.url(), "--job", &file][..], &words].concat());
    assert_eq!(report.get("steady").and_then(Value::as_bool), Some(false), "{report}");
}

#[test]
fn trims_deallocate_and_are_counted() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let url = far.url();
    succeed(&["bench", &url, "--rw", "write", "--io_size", "1m", "--size", "1m"]);
    let file = job_file(
        folder.path(),
        "[global]\nbs=64k\n[trim]\nrw=trim\nsize=25%\noffset=0\nio_size=512k\n[both]\nstonewall\nrw=trimwrite\n\
         offset=50%\nsize=1m\n[ranges]\nstonewall\nrw=randtrim\nnum_range=8\noffset=75%\nsize=4m\n",
    );
    let jobs = fio(&["bench", &url, "--job", &file])["jobs"].clone();
    let sums = |job: usize, direction: &str| {
        let one = &jobs[job][direction];
        (one["total_ios"].as_u64().unwrap(), one["io_bytes"].as_u64().unwrap())
    };
    assert_eq!((sums(0, "trim"), sums(0, "write")), ((8, 512 << 10), (0, 0)));
    assert_eq!((sums(1, "trim"), sums(1, "write")), ((16, 1 << 20), (16, 1 << 20)));
    assert_eq!(sums(2, "trim"), (8, 4 << 20));
    // Trimmed blocks read as zeros on this medium; blocks that were only written do not.
    let read = |offset: &str| {
        let path = folder.path().join("read");
        let out = path.to_str().unwrap();
        succeed(&["use", "read", &url, "--offset", offset, "--length", "64k", "--output", out]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes.iter().all(|byte| *byte == 0)
    };
    assert_eq!([read("0"), read("448k"), read("512k"), read("32m")], [true, true, false, false]);
}

#[test]
fn jobs_that_check_what_they_write_do_not_disturb_each_other() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[global]\nsize=4m\niodepth=8\n[plain]\nrw=randwrite\nbs=8k\ntime_based\nruntime=400ms\n\
         [checked]\nrw=randrw\nbs=4k\nverify=crc32c\nverify_backlog=64\ntime_based\nruntime=400ms\n\
         [other]\nrw=write\nbs=16k\nverify=md5\nloops=2\n",
    );
    let output = farlane(&["bench", &far.url(), "--job", &file, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "[plain] uses bytes 0 to 4194304",
        "[checked] uses bytes 4194304 to 8388608",
        "[other] uses bytes 8388608",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for job in 1..3 {
        assert_eq!(report["jobs"][job]["verified"], true, "{report:#}");
    }
    assert_eq!(report["jobs"][2]["compared"], 512, "each of 256 chunks after each of two loops");
    // Parts that the file itself gives, and that overlap, are refused.
    let file = job_file(
        folder.path(),
        "[global]\nsize=4m\noffset=1m\n[a]\nrw=write\nbs=8k\n[b]\nrw=write\nbs=4k\nverify=md5\n",
    );
    let said = fail(&["bench", &far.url(), "--job", &file]);
    assert!(said.contains("[a] and [b]"), "{said}");
}

/// fio's example surface-scan.fio: one job writes, and a later one checks.
#[test]
fn a_job_checks_what_an_earlier_one_has_written() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let text = "[global]\nthread\nbs=64k\ndirect=1\nioengine=sync\nverify=meta\nverify_pattern=0xaa555aa5\n\
                verify_interval=512\nsize=8m\n[write-phase]\nrw=write\nfill_device=1\ndo_verify=0\n[verify-phase]\n\
                stonewall\nrw=read\ndo_verify=1\n";
    let file = job_file(folder.path(), text);
    let report = json(&["bench", &far.url(), "--job", &file, "--json"]);
    assert_eq!((&report["jobs"][0]["compared"], &report["jobs"][0]["verified"]), (&0.into(), &Value::Null));
    let second = &report["jobs"][1];
    assert_eq!((&second["compared"], &second["verified"]), (&128.into(), &true.into()), "{report:#}");
    // A job between them that writes over it is no corruption: its data are unknown.
    let between = text
        .replace("[verify-phase]", "[between]\nstonewall\nverify=0\nrw=randwrite\nsize=4m\n[verify-phase]");
    let file = job_file(folder.path(), &between);
    let report = json(&["bench", &far.url(), "--job", &file, "--json"]);
    assert_eq!(report["jobs"][2]["verified"], true, "{report:#}");
}

#[test]
fn words_without_effect_are_named_once() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(
        folder.path(),
        "[global]\nioengine=libaio\ndirect=1\nthread\n[a]\nrw=read\nsize=64k\n[b]\nioengine=psync\nrw=read\nsize=64k\n",
    );
    let output = farlane(&["bench", &far.url(), "--job", &file]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("without effect") && said.contains("ioengine, direct, thread"), "{said}");
    assert_eq!(said.matches("ioengine").count(), 1, "{said}");
    let words =
        ["--ioengine=io_uring", "--direct=1", "--group_reporting", "--time_based", "--runtime", "100ms"];
    let output = farlane(&[&["bench", &far.url()][..], &words].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("--ioengine, --direct, --group_reporting"), "{said}");
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
    let file = job_file(folder.path(), "[one]\nrw=write\nzonemode=zbd\n[two]\nstonewall\nsprandom=1\n");
    let said = fail(&["bench", &far.url(), "--job", &file]);
    assert!(said.contains("zonemode") && said.contains("sprandom"), "{said}");
}

#[test]
fn a_parameter_that_is_not_understood_is_named_and_nothing_runs() {
    let (far, folder) = (far(), tempfile::tempdir().unwrap());
    let file = job_file(folder.path(), "[one]\nrw=write\n[two]\nstonewall\nzonemode=zbd\n");
    let said = fail(&["bench", &far.url(), "--job", &file]).replace('│', " ");
    assert!(said.contains("line 5, zonemode") && said.contains("docs/bench.md"), "{said}");
    let read = succeed(&["use", "read", &far.url(), "--length", "4096", "--output", "-"]);
    assert!(read.bytes().all(|byte| byte == 0), "the first job has run");
}
