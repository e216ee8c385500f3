//! The report of a measurement that ctrl-c interrupts.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::load::{assert_serves, verified};
use crate::support::running::{Running, signal, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed, unused_url};
use serde_json::Value;

/// The JSON and the exit status of a load that is interrupted once it has written something.
/// `start` starts it on the URL that it is given.
fn interrupted(start: impl FnOnce(&str) -> Running) -> (Value, Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let far = Export::start(&["--namespace", &format!("{},size=16MiB", path.display())]);
    let load = start(&far.url());
    wait_until("writes", || std::fs::metadata(&path).is_ok_and(|file| file.blocks() > 64));
    load.signal("INT");
    let output = load.output();
    assert_serves(&far.url());
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

#[test]
fn bench_reports_its_results_when_it_is_interrupted() {
    let (report, code) = interrupted(|url| {
        Running::start(&["bench", url, "--rw", "randwrite", "--iodepth", "4", "--runtime", "60s", "--json"])
    });
    assert_eq!((code, &report["interrupted"]), (Some(130), &true.into()), "{report}");
    let commands = report["commands"].as_u64().unwrap();
    assert!(commands > 0 && report["latency_ns"]["count"] == commands, "{report}");
    assert_eq!((&report["bytes"], &report["errors"]), (&(commands * 4096).into(), &0.into()), "{report}");
    let seconds = report["runtime_s"].as_f64().unwrap();
    assert!(seconds < 60.0, "the time is not the requested one: {report}");
}

#[test]
fn a_later_job_of_a_file_reports_its_results_when_it_is_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let [path, jobs] = ["disk.img", "jobs.fio"].map(|name| directory.path().join(name));
    let text = "[global]\ntime_based\n[first]\nrw=randread\nruntime=100ms\n\
                [second]\nstonewall\nrw=randwrite\nruntime=60s\n";
    std::fs::write(&jobs, text).unwrap();
    let far = Export::start(&["--namespace", &format!("{},size=16MiB", path.display())]);
    let load = Running::start(&["bench", &far.url(), "--job", jobs.to_str().unwrap(), "--json"]);
    wait_until("writes", || std::fs::metadata(&path).is_ok_and(|file| file.blocks() > 64));
    load.signal("INT");
    let output = load.output();
    let said = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let [first, second] = [0, 1].map(|job| &report["jobs"][job]);
    let known = (output.status.code(), &second["rw"], &second["interrupted"]);
    assert_eq!(known, (Some(130), &"randwrite".into(), &true.into()), "{said}");
    // The report of the job that had ended is not lost.
    assert_eq!((&first["rw"], &first["interrupted"]), (&"randread".into(), &false.into()), "{said}");
}

#[test]
fn an_interrupted_load_is_not_called_verified() {
    let (report, code) = interrupted(|url| verified(url, "60s", &[]));
    assert_eq!((code, &report["verified"]), (Some(130), &false.into()), "{report}");
}

#[test]
fn a_copy_reports_the_copied_bytes_when_it_is_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let far = Export::start(&["--namespace", &format!("{},size=16MiB", path.display())]);
    // An input that never ends.
    let mut command = Command::new(&*FARLANE);
    command.args(["use", "write", &far.url(), "--offset", "4096", "--json"]);
    let mut write =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = write.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &[7; 1 << 20]).unwrap();
    wait_until("writes", || std::fs::metadata(&path).is_ok_and(|file| file.blocks() >= 2048));
    // The program has to hear of it, and then waits for more.
    std::thread::sleep(Duration::from_secs(1));
    signal(write.id(), "INT");
    let output = write.wait_with_output().unwrap();
    drop(input);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(130), &true.into()), "{report}");
    assert_eq!((&report["bytes"], &report["sha256"]), (&(1 << 20).into(), &Value::Null), "{report}");
    // An output without a reader.
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read = Running::start(&["use", "read", &far.url(), "--output", pipe.to_str().unwrap()]);
    let _reader = std::fs::File::open(&pipe).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    read.signal("INT");
    let output = read.output();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("bytes read in") && said.contains("interrupted: --offset "), "{said}");
    assert!(said.contains("continues behind them, with another --output"), "it would be emptied: {said}");
    // The pipe has less room than the first write, which has not ended.
    assert!(said.starts_with("0 bytes read in"), "bytes that were not taken were not copied: {said}");
    assert_serves(&far.url());
}

#[test]
fn a_load_that_ends_by_itself_was_not_interrupted() {
    let far = Export::start(&["--ram", "1MiB"]);
    let report = json(&["bench", &far.url(), "--runtime", "100ms", "--json"]);
    assert_eq!(report["interrupted"], false, "{report}");
    assert_eq!(json(&["measure", "ping", &far.url(), "-c", "3", "--json"])["interrupted"], false);
}

#[test]
fn ping_reports_each_reply_and_its_results_when_it_is_interrupted() {
    let far = Export::start(&["--ram", "1MiB"]);
    let mut ping = Command::new(&*FARLANE)
        .args(["measure", "ping", &far.url(), "-i", "5ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(ping.stdout.take().unwrap());
    for number in 1..=3 {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("reply {number} from {}: ", far.url())), "{line}");
    }
    signal(ping.id(), "INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(ping.wait().unwrap().code(), Some(130), "{rest}");
    let replies = 3 + rest.lines().filter(|line| line.starts_with("reply ")).count();
    assert!(rest.contains(&format!("{replies} configuration reads of ")), "{rest}");
    assert!(rest.contains(&format!("({replies} samples)")), "{rest}");
}

#[test]
fn ping_prints_replies_for_people_only_when_asked() {
    let far = Export::start(&["--ram", "1MiB"]);
    let replies = |further: &[&str]| {
        let text = succeed(&[&["measure", "ping", &far.url(), "-c", "4"], further].concat());
        text.lines().filter(|line| line.starts_with("reply ")).count()
    };
    assert_eq!((replies(&["-i", "1ms"]), replies(&[])), (4, 0));
    assert_eq!(json(&["measure", "ping", &far.url(), "-c", "4", "-i", "1ms", "--json"])["count"], 4);
    let said = fail(&["measure", "ping", &far.url(), "-i", "1ms", "--rate", "5"]);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn no_result_is_printed_before_the_first_reply() {
    let ping = Running::start(&["measure", "ping", &unused_url(), "--timeout", "60s"]);
    wait_until("it reports that it waits", || ping.said().contains("trying for"));
    ping.signal("INT");
    let output = ping.output();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
}
