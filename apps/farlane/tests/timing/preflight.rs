//! Preflight as a user sees it: a file, a namespace, refused requests, and the recorder's messages.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::schema::holds;
use crate::support::{Export, FARLANE};
use serde_json::Value;

/// Runs the program with its state in `directory`.
fn run(directory: &Path, arguments: &[&str]) -> (Output, String) {
    let state = directory.join("state");
    let output = Command::new(&*FARLANE).env("XDG_STATE_HOME", state).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_file_is_measured_beside_it_and_nothing_is_left_there() {
    let directory = tempfile::tempdir().unwrap();
    let media = directory.path().join("media");
    std::fs::create_dir(&media).unwrap();
    let path = media.join("flight.rec");
    let path = path.to_str().unwrap();
    let measure = ["--measure-size", "24MiB", "--json"];
    let (output, said) = run(
        directory.path(),
        &[&["preflight", "--rate", "1kB/s", "--for", "10s", path], &measure[..]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{said}");
    let reported = json(&output);
    assert_eq!((&reported["answer"], &reported["fits"]), (&"fits".into(), &true.into()), "{reported}");
    assert_eq!(reported["measured"]["bytes"], 24 << 20, "{reported}");
    assert_eq!(reported["measured"]["latency_ns"]["count"], 192, "{reported}");
    assert_eq!(reported["model"]["fitted_to_writes"], 192, "{reported}");
    assert_eq!(reported["model"]["extrapolated_bytes"], 0, "{reported}");
    let burst = reported["measured"]["burst_bytes_per_second"].as_u64().unwrap();
    assert!(burst > 100_000, "{reported}");
    assert_eq!(std::fs::read_dir(&media).unwrap().count(), 0, "nothing is left");
    // No disk takes a terabyte a second.
    let fast = ["preflight", "--rate", "1TB/s", "--for", "2s", path];
    let (output, said) = run(directory.path(), &[&fast, &measure[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("does not fit"), "{said}");
    let reported = json(&output);
    assert_eq!(reported["answer"], "overflows", "{reported}");
    let at = reported["at_ns"].as_u64().unwrap();
    assert!(at > 0 && at < 1_000_000_000, "{reported}");
    assert!(reported["largest_rate"].as_u64().unwrap() < 1_000_000_000_000, "{reported}");
    // The recorder of a file beside it knows.
    let other = media.join("other.rec");
    let record = ["record", "--from", "generate:1MB", "--for", "1s", "--to", other.to_str().unwrap()];
    let (output, said) = run(directory.path(), &[&record[..], &["--rate", "1TB"]].concat());
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("by the preflight") && said.contains("overflows after"), "{said}");
    let record = [&record[..], &["--rate", "1kB", "--force"]].concat();
    let (output, said) = run(directory.path(), &record);
    assert_eq!((output.status.code(), said.contains("preflight")), (Some(0), false), "{said}");
}

#[test]
fn without_a_preflight_the_recorder_looks_at_the_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let record = ["record", "--from", "generate:10MB", "--size", "1MB", "--to", path.to_str().unwrap()];
    let (_, said) = run(directory.path(), &[&record[..], &["--rate", "10MB"]].concat());
    assert!(said.is_empty(), "{said}");
    let long = ["--force", "--rate", "1PB", "--for", "1s"];
    let record = ["record", "--from", "generate:10MB", "--to", path.to_str().unwrap()];
    let (output, said) = run(directory.path(), &[&record[..], &long].concat());
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("is full after") && said.contains("farlane recording preflight"), "{said}");
}

#[test]
fn a_namespace_is_measured_only_if_it_may_be_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "4MiB"]);
    let wish = ["preflight", "--rate", "100kB/s", "--for", "5s", "--measure-size", "6MiB"];
    let url = far.url();
    let (output, said) = run(directory.path(), &[&wish[..], &[&url]].concat());
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("overwrites its contents") && said.contains("--overwrite"), "{said}");
    let (output, said) = run(directory.path(), &[&wish[..], &[&url, "--overwrite", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{said}");
    let reported = json(&output);
    assert_eq!(
        (&reported["room_bytes"], &reported["measured"]["bytes"]),
        (&(4 << 20).into(), &(6 << 20).into())
    );
    // 5 s of a megabyte a second are more than there is room for.
    let (output, said) = run(
        directory.path(),
        &["preflight", "--rate", "1MB/s", "--for", "5s", "--measure-size", "2MiB", "--overwrite", &url],
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("it does not fit") && text.contains("is full after 3."), "{text}");
}

/// The figures are noisy: the test checks that they fit each other.
#[test]
fn the_highest_rate_of_datagrams_is_found_and_the_limit_named() {
    let directory = tempfile::tempdir().unwrap();
    let media = directory.path().join("media");
    std::fs::create_dir(&media).unwrap();
    let quick = ["--trial", "30ms", "--datagram", "4096", "--digest", "none"];
    let path = media.join("flight.rec");
    let path = path.to_str().unwrap();
    let (output, said) =
        run(directory.path(), &[&["preflight", "--udp", "3", path, "--json"], &quick[..]].concat());
    let reported = json(&output);
    holds("preflight-udp", &reported);
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{reported}"));
    assert_eq!((number(&reported["streams"]), number(&reported["datagram_bytes"])), (3, 4_096));
    let parts = [
        "sender",
        "network of this host",
        "receiver's processor",
        "sockets' buffers",
        "processor for digests",
        "ring",
        "disk",
        "room on the disk",
    ];
    let limit = reported["limit"]["part"].as_str().unwrap();
    assert!(parts.contains(&limit), "{reported}");
    let trials = reported["trials"].as_array().unwrap();
    let (first, last) = (&trials[0], trials.last().unwrap());
    assert_eq!(number(&first["rate"]), 16_000_000, "{reported}");
    for trial in trials {
        // Each datagram that was sent came, was dropped at a socket, or vanished, which is a limit.
        let lost = trial["lost"].as_object().unwrap();
        let dropped = lost.get("socket").map_or(0, |lost| number(&lost["packets"]));
        let reported = number(&trial["received_datagrams"]) + dropped;
        assert!(reported <= number(&trial["sent_datagrams"]), "{trial}");
        assert!(trial["limit"].is_string() || lost.is_empty(), "{trial}");
    }
    match number(&reported["rate"]) {
        0 => assert_eq!(
            (output.status.code(), said.contains("datagrams are lost at any rate")),
            (Some(1), true)
        ),
        rate => {
            assert_eq!(output.status.code(), Some(0), "{said}");
            // The rate has stood the last trial, which was three times as long.
            assert_eq!((number(&last["rate"]), &last["limit"]), (rate, &Value::Null), "{reported}");
            assert!(number(&last["time_ns"]) >= 90_000_000, "{reported}");
        }
    }
    assert_eq!(std::fs::read_dir(&media).unwrap().count(), 0, "nothing is left");
}

#[test]
fn datagrams_overwrite_a_namespace_only_if_they_may_and_its_room_bounds_the_rate() {
    let directory = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "2MiB"]);
    let (url, quick) = (far.url(), ["--udp", "1", "--trial", "100ms"]);
    let (output, said) = run(directory.path(), &[&["preflight"], &quick[..], &[&url]].concat());
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--overwrite"), "{said}");
    let (output, said) =
        run(directory.path(), &[&["preflight"], &quick[..], &[&url, "--overwrite", "--json"]].concat());
    let reported = json(&output);
    // Nine tenths of 2 MiB in 300 ms are 6.3 MB a second.
    let rate = reported["rate"].as_u64().unwrap();
    assert!(rate < 6_300_000, "{said}: {reported}");
    let all = reported["trials"].as_array().unwrap();
    assert!(all.iter().all(|trial| trial["rate"].as_u64().unwrap() < 6_300_000), "{reported}");
}

#[test]
fn an_impossible_measurement_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--rate", "fast", "--for", "1s", there], &["'fast'", "--rate", "100MB/s"]),
        (&["--rate", "1MB", "--for", "0", there], &["'0'", "--for"]),
        (&["--rate", "1MB", "--for", "1s", there, "--model", "860"], &["'860'", "970-evo"]),
        (
            &["--rate", "1MB", "--for", "1s", there, "--measure-size", "1k"],
            &["--measure-size", "1024", "two chunks"],
        ),
        (&["--udp", "2", "--rate", "1MB", there], &["--udp", "--rate"]),
        (&["--udp", "65", there], &["65", "1..=64"]),
        (&["--udp", "2", "--datagram", "0", there], &["--datagram", "1..=65507"]),
        (&["--udp", "2", "--chunk", "16k", there], &["--chunk", "72 KiB"]),
        (&["--udp", "2", "/nonexistent/a.rec"], &["/nonexistent/a.rec", "check the path"]),
        (&["--trial", "1s", "--rate", "1MB", "--for", "1s", there], &["--trial", "--rate"]),
        (&["--rate", "1MB", "--for", "1s", "/nonexistent/a.rec"], &["/nonexistent/a.rec", "check the path"]),
    ];
    for (arguments, words) in cases {
        let (output, said) = run(directory.path(), &[&["preflight"], *arguments].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        for word in *words {
            assert!(said.contains(word), "{arguments:?}: {word}: {said}");
        }
    }
}
