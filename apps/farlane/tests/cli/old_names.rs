//! Old names of commands work, and one line on standard error has the new one.

use std::process::Output;

use serde_json::Value;

use crate::support::farlane;

const NOTE: &str = "note: farlane version is now farlane nvme version; the old name goes in 0.3\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a command, and its log.
fn said(output: &Output) -> (String, String) {
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_old_name_prints_the_same_and_logs_the_new_name_once() {
    let (new, quiet) = said(&farlane(&["nvme", "version"]));
    assert!(new.starts_with("farlane version ") && quiet.is_empty(), "{new}{quiet}");
    assert_eq!(said(&farlane(&["version"])), (new.clone(), NOTE.to_owned()));
    assert_eq!(said(&farlane(&["-v", "version"])), (new.clone(), NOTE.to_owned()));
    for words in [&["-q", "version"][..], &["version", "--quiet"], &["version", "-qq"]] {
        assert_eq!(said(&farlane(words)), (new.clone(), String::new()), "{words:?}");
    }
    // The second names of daily words are no old names.
    let (help, logged) = said(&farlane(&["measure", "demo", "--help"]));
    assert!(help.contains("Usage: farlane demo") && logged.is_empty(), "{help}{logged}");
}

#[test]
fn the_note_never_stands_between_what_programs_read() {
    let (printed, logged) = said(&farlane(&["list-subsys", "-o", "json"]));
    serde_json::from_str::<Value>(&printed).unwrap();
    assert_eq!(logged.lines().count(), 1, "{logged}");
    let (_, logged) = said(&farlane(&["--log", "json", "version"]));
    let event: Value = serde_json::from_str(&logged).unwrap();
    assert_eq!(format!("note: {}\n", event["message"].as_str().unwrap()), NOTE);
    // The last line of an error stays an object.
    for words in
        [&["ping", "nowhere", "--json"][..], &["ping", "tcp://127.0.0.1:1", "--timeout", "1ms", "--json"]]
    {
        let (printed, logged) = said(&farlane(words));
        let (note, object) = logged.trim_end().rsplit_once('\n').unwrap();
        assert!(printed.is_empty() && note.starts_with("note: farlane ping is now"), "{logged}");
        assert!(serde_json::from_str::<Value>(object).unwrap()["error"].is_object(), "{object}");
    }
}

#[test]
fn errors_and_help_of_an_old_name_are_those_of_the_new_one() {
    for (old, new) in [
        (&["ping", "nowhere"][..], &["measure", "ping", "nowhere"][..]),
        (&["key", "check", "missing"], &["setup", "key", "test", "missing"]),
        (&["verify-blocks", "--help"], &["nvme", "verify", "--help"]),
        (&["help", "trace", "export"], &["help", "observe", "trace", "convert"]),
    ] {
        let (old, new) = (farlane(old), farlane(new));
        assert_eq!(old.status, new.status);
        let ((printed, logged), (of_new, error)) = (said(&old), said(&new));
        assert_eq!(printed, of_new);
        let (note, rest) = logged.split_once('\n').unwrap();
        assert!(note.starts_with("note: farlane ") && rest == error, "{logged}\n{error}");
    }
}
