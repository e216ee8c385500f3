//! A recording of its own for each source, in one process.

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::schema::holds;
use crate::support::{fail, json, succeed};
use serde_json::Value;

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn each_source_has_a_recording_of_its_own_and_one_report_has_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (at("a.rec"), at("b.rec"));
    std::fs::write(at("file"), vec![7; 300_000]).unwrap();
    let file = format!("file:{}", at("file"));
    let record = ["record", "--each", "--from", "generate:50MB", "--to", &a, "--from", &file, "--to", &b];
    let end = last(&succeed(&[&record[..], &["--size", "1MiB", "--json"]].concat()));
    let recordings = end["recordings"].as_array().unwrap();
    assert_eq!((recordings.len(), &end["certified"]), (2, &true.into()), "{end}");
    assert_eq!(end["bytes_in"], 1_048_576 + 300_000);
    assert_eq!(
        (&recordings[0]["reason"], &recordings[1]["reason"]),
        (&"limit reached".into(), &"source ended".into())
    );
    for (recording, path) in recordings.iter().zip([&a, &b]) {
        assert_eq!(recording["to"], **path);
        let proof = json(&["recording", "verify", path, "--json"]);
        assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &recording["sha256"]), "{proof}");
    }
    assert_eq!(recordings[1]["from"], *file);
    let text = succeed(&[&record[..], &["--size", "1MiB", "--force"]].concat());
    assert!(text.contains("all: 1348576 B in, 1348576 B stored, 0 B in declared gaps"), "{text}");

    // No source is recorded where one place is taken.
    let error = fail(&[&record[..], &["--size", "1MiB"]].concat());
    assert!(error.contains("has contents already"), "{error}");
    let error = fail(&["record", "--each", "--from", "generate:1MB", "--to", &a, "--to", &b]);
    assert!(error.contains("--each with 1 --from and 2 --to") && error.contains("as many"), "{error}");
}

#[test]
fn one_control_socket_reports_all_and_ends_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (a, b, control) = (at("a.rec"), at("b.rec"), at("control"));
    let recorder = Running::start(&[
        "record",
        "--each",
        "--from",
        "generate:4MB",
        "--to",
        &a,
        "--from",
        "generate:8MB",
        "--to",
        &b,
        "--pre-trigger",
        "200ms",
        "--control",
        &control,
        "--json",
    ]);
    wait_for_listener(&control);
    let ask = |what: &str| json(&["record", "ctl", &control, what, "--json"]);
    wait_until("both keep enough", || ask("status")["kept_ns"].as_u64() > Some(200_000_000));
    assert_eq!(ask("trigger")["triggered"], true);
    wait_until("both record", || ask("status")["bytes_stored"].as_u64() > Some(3_000_000));
    ask("stop");
    let output = String::from_utf8(recorder.output().stdout).unwrap();
    let end = last(&output);
    let trigger = output.lines().find(|line| line.contains("\"event\":\"trigger\""));
    let trigger = trigger.unwrap_or_else(|| panic!("no trigger: {output}"));
    holds("record-trigger", &serde_json::from_str(trigger).unwrap());
    for recording in end["recordings"].as_array().unwrap() {
        assert!(recording["triggered"]["before_ns"].as_u64() > Some(150_000_000), "{recording}");
        assert_eq!(json(&["recording", "verify", recording["to"].as_str().unwrap(), "--json"])["ok"], true);
    }
}
