//! A running recorder answers requests at its control socket, and ends on one.

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, json, succeed};

#[test]
fn a_recorder_reports_its_progress_and_ends_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (control, recording) = (at("control"), at("a.rec"));
    let error = fail(&["record", "ctl", &control, "status"]);
    assert!(error.contains("no daemon answers") && error.contains("--control"), "{error}");

    let arguments = ["record", "--from", "generate:5MB", "--to", &recording, "--control", &control, "--json"];
    let recorder = Running::start(&arguments);
    let ask = |what: &str| json(&["record", "ctl", &control, what, "--json"]);
    wait_for_listener(&control);
    wait_until("something is durable", || ask("status")["bytes_acknowledged"].as_u64() > Some(1 << 20));
    let status = ask("status");
    let number = |key: &str| status[key].as_u64().unwrap();
    assert_eq!((&status["kind"], &status["state"]), (&"record".into(), &"running".into()));
    assert_eq!((number("start_address"), number("bytes_lost")), (0, 0), "{status}");
    assert!(number("maximum_address") == status["medium"]["bytes"].as_u64().unwrap(), "{status}");
    assert!(number("last_address") > number("bytes_stored"), "{status}");
    assert!(number("last_address") < number("maximum_address"), "{status}");
    assert!(number("fill_bytes") <= number("high_water_bytes"), "{status}");
    assert!(number("high_water_bytes") <= number("buffer_bytes"), "{status}");
    let text = succeed(&["record", "ctl", &control, "status"]);
    assert!(text.starts_with("running: ") && text.contains("writes from 0 up to"), "{text}");

    let error = fail(&["record", "--from", "generate:1MB", "--to", &at("b.rec"), "--control", &control]);
    assert!(error.contains("another process listens there already"), "{error}");
    assert_eq!(ask("stop")["stopping"], true);
    let output = recorder.output();
    let end = String::from_utf8(output.stdout).unwrap();
    let end: serde_json::Value = serde_json::from_str(end.lines().last().unwrap()).unwrap();
    assert_eq!((&end["reason"], &end["certified"]), (&"asked to end".into(), &true.into()));
    assert!(!std::path::Path::new(&control).exists(), "the socket is gone");
    assert_eq!(json(&["recording", "verify", &recording, "--json"])["ok"], true);
}

#[test]
fn a_recorder_needs_a_source_and_a_place_unless_another_one_is_asked() {
    let error = fail(&["record", "--from", "generate:1MB"]);
    assert!(error.contains("--to"), "{error}");
    let error = fail(&["record", "ctl", "/nowhere", "dance"]);
    assert!(error.contains("dance"), "{error}");
}

#[test]
fn a_replay_begins_and_ends_on_request_any_number_of_times() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (control, recording, out) = (at("control"), at("a.rec"), at("out"));
    succeed(&["record", "--from", "generate:2MB", "--to", &recording, "--size", "6MB"]);
    let arguments = ["replay", &recording, "--to", &out, "--on-demand", "--control", &control, "--json"];
    let replayer = Running::start(&arguments);
    let ask = |what: &str| json(&["record", "ctl", &control, what, "--json"]);
    wait_for_listener(&control);
    assert_eq!((&ask("status")["kind"], &ask("status")["state"]), (&"replay".into(), &"idle".into()));
    for _ in 0..2 {
        assert_eq!(ask("start")["starting"], true);
        wait_until("bytes go out", || ask("status")["bytes_in"].as_u64() > Some(500_000));
        let error = fail(&["record", "ctl", &control, "start"]);
        assert!(error.contains("under way"), "{error}");
        let status = ask("status");
        let number = |key: &str| status[key].as_u64().unwrap();
        assert!(number("start_address") < number("last_address"), "{status}");
        assert!(number("last_address") < number("maximum_address"), "{status}");
        ask("stop");
        wait_until("it has ended", || ask("status")["state"] == "ended");
    }
    replayer.signal("INT");
    let output = String::from_utf8(replayer.output().stdout).unwrap();
    let replays: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&output).into_iter().map(Result::unwrap).collect();
    assert_eq!(replays.len(), 2, "{output}");
    let sent = replays[1]["bytes"].as_u64().unwrap();
    assert!((500_000..6_000_000).contains(&sent), "{output}");
    // The sent bytes are the stream's start, whole.
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(bytes.len() as u64, sent);
    let places = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    assert!(places.eq(0..sent / 8), "the generator's words are in order");
}
