//! The logs of services: levels, forms, and the origin of the time.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::support::running::{signal, wait_until};
use crate::support::{Export, FARLANE, farlane, succeed};
use serde_json::Value;

const LOGGED: &str = "farlane: only this machine can reach";

/// A far end with further options and variables.
fn export(options: &[&str], variables: &[(&str, &str)]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--listen", "127.0.0.1:0", "--json", "--ram", "1MiB"]).args(options);
    command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM").envs(variables.iter().copied());
    Export::of(command)
}

#[test]
fn lines_of_a_service_have_the_time_before_them() {
    let mut far = export(&[], &[]);
    let said = far.end_by("TERM").1;
    let line = said.lines().find(|line| line.contains(LOGGED)).unwrap();
    let (stamp, rest) = line.split_once(' ').unwrap();
    assert!(rest.starts_with(LOGGED), "{line}");
    // Such as 2026-01-31T23:59:59.123Z.
    let form: String = stamp.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z");
    assert!(said.ends_with("farlane: the far end has shut down\n"), "{said}");
}

#[test]
fn each_line_is_an_object_with_log_json() {
    let mut far = export(&["--log", "json", "-v"], &[]);
    let url = far.url();
    succeed(&["measure", "ping", &url, "--count", "1"]);
    let said = far.end_by("TERM").1;
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |words: &str| {
        let has = |line: &&Value| line["message"].as_str().unwrap().contains(words);
        lines.iter().find(has).unwrap_or_else(|| panic!("{words}: {said}"))
    };
    assert_eq!(of("only this machine can reach")["level"], "info");
    let connected = of(": connected");
    assert_eq!(connected["level"], "debug");
    assert!(connected["fields"]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{connected}");
    assert!(connected["module"].as_str().unwrap().contains("far"), "{connected}");
    assert!(lines.iter().all(|line| line["time"].as_str().unwrap().ends_with('Z')), "{said}");
}

#[test]
fn options_and_the_variable_choose_the_logged_events() {
    let said = |options: &[&str], variables: &[(&str, &str)]| {
        let mut far = export(options, variables);
        succeed(&["measure", "ping", &far.url(), "--count", "1"]);
        far.end_by("TERM").1
    };
    assert_eq!(said(&["-q"], &[]), "");
    assert_eq!(said(&[], &[("RUST_LOG", "warn")]), "");
    assert!(!said(&[], &[]).contains(": connected\n"));
    assert!(said(&["-v"], &[("RUST_LOG", "off")]).contains(": connected\n"));
    assert!(said(&[], &[("RUST_LOG", "live=debug")]).contains(": connected\n"));
}

#[test]
fn a_journal_adds_the_time_and_gets_the_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = File::create(&path).unwrap();
    let metadata = journal.metadata().unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"]).stdout(Stdio::null());
    command.env("JOURNAL_STREAM", format!("{}:{}", metadata.st_dev(), metadata.st_ino()));
    let mut child = command.stderr(journal).spawn().unwrap();
    let said = || fs::read_to_string(&path).unwrap();
    wait_until("the service logs", || said().contains(LOGGED));
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    assert!(said().lines().all(|line| line.starts_with("<6>farlane: ")), "{}", said());
}

#[test]
fn what_cannot_be_is_refused() {
    let mut command = Command::new(&*FARLANE);
    command.args(["observe", "list"]).env("RUST_LOG", "farlane=loud");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("farlane=loud") && said.contains("farlane=debug"), "{said}");
    if !std::path::Path::new("/run/systemd/journal/socket").exists() {
        let output = farlane(&["observe", "list", "--log", "journal"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--log json is left"), "{said}");
    }
}

#[test]
fn errors_are_objects_with_json_and_events_with_log_json() {
    let error = |arguments: &[&str]| {
        let output = farlane(arguments);
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        (output.status.code().unwrap(), last)
    };
    let (exit, of) = error(&["measure", "ping", "tcp://127.0.0.1:1", "--timeout", "200ms", "--json"]);
    assert_eq!((exit, &of["error"]["code"], &of["error"]["exit"]), (1, &"unreachable".into(), &1.into()));
    assert!(of["error"]["message"].as_str().unwrap().contains("127.0.0.1:1"), "{of}");
    assert!(of["error"]["help"].as_str().unwrap().contains("farlane export"), "{of}");
    let (exit, of) = error(&["measure", "ping", "tcp://127.0.0.1:1", "--count", "-1", "--json"]);
    assert_eq!((exit, &of["error"]["code"], &of["error"]["exit"]), (2, &"usage".into(), &2.into()));
    assert!(of["error"]["message"].as_str().unwrap().contains("'-1'"), "{of}");
    let (exit, of) = error(&["nvme", "id-ctrl", "tcp://127.0.0.1:1", "--timeout", "200ms", "-o", "json"]);
    assert_eq!((exit, &of["error"]["code"]), (1, &"unreachable".into()));
    let (exit, of) = error(&["measure", "ping", "tcp://127.0.0.1:1", "--timeout", "200ms", "--log", "json"]);
    assert_eq!((exit, &of["level"], &of["fields"]["code"]), (1, &"error".into(), &"unreachable".into()));
}
