//! Running programs are asked for their status.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};
use serde_json::Value;

fn status(control: &Path) -> Value {
    json(&["observe", "status", control.to_str().unwrap(), "--json"])
}

#[test]
fn both_ends_report_the_link_and_lookahead() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (far, near, socket) = (place("far"), place("near"), place("ssd"));
    let export = Export::start(&["--ram", "16MiB", "--control", far.to_str().unwrap()]);
    let absent = status(&far);
    assert_eq!((&absent["kind"], &absent["far_ends"][0]["link"]["peer"]), (&"export".into(), &Value::Null));
    assert!(succeed(&["observe", "status", far.to_str().unwrap()]).contains("no host is connected"));

    let mut attach = Command::new(&*FARLANE);
    attach.args(["attach", &export.url(), "--json", "--vfio-user"]).arg(&socket);
    let _attach = Export::of({
        attach.arg("--control").arg(&near);
        attach
    });
    let url = format!("vfio-user:{}", socket.display());
    let load = ["bench", &url, "--rw", "randwrite", "--runtime", "1s", "--json"];
    let report: Value = serde_json::from_slice(&Running::start(&load).output().stdout).unwrap();
    let commands = report["commands"].as_u64().unwrap();
    assert_eq!(report["errors"], 0, "{report}");

    // The near end learns the far end's counters with each Pong.
    wait_until("the far end has reported its counts", || {
        status(&near)["far_reads"]["hits"].as_u64() > Some(commands)
    });
    let (ours, theirs) = (status(&near), status(&far)["far_ends"][0].clone());
    assert!(ours["commands"].as_u64() >= Some(commands), "{ours} {commands}");
    assert!(ours["lookahead"]["entries"].as_u64() >= Some(commands), "{ours} {commands}");
    assert_eq!(ours["link"]["connected"], true, "{ours}");
    let trips = ours["round_trips"].as_f64().unwrap();
    assert!((1.0..1.5).contains(&trips), "{ours}");
    assert!(theirs["far_reads"]["hits"].as_u64() >= ours["far_reads"]["hits"].as_u64(), "{ours} {theirs}");
    assert_eq!(theirs["link"]["connected"], true, "{theirs}");
    let (kept, most) = (&theirs["link"]["unacknowledged_bytes"], &theirs["link"]["unacknowledged_bytes_max"]);
    assert!(most == 16 << 20 && kept.as_u64() <= most.as_u64(), "{theirs}");
    let reported = succeed(&["observe", "status", near.to_str().unwrap()]);
    assert!(
        reported.contains("round trips each") && reported.contains("commands sent ahead in"),
        "{reported}"
    );
    assert!(reported.contains("until they are acknowledged, 16777216 B at most"), "{reported}");
}

#[test]
fn what_cannot_be_asked_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let error = fail(&["observe", "status", path.to_str().unwrap()]);
    assert!(error.contains("no daemon answers") && error.contains("--control"), "{error}");

    let export = Export::start(&["--ram", "8MiB", "--control", path.to_str().unwrap()]);
    let mut stranger = UnixStream::connect(&path).unwrap();
    stranger.write_all(b"\x00\xff what?\n").unwrap();
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("invalid request"), "{answer}");
    // A second export can't have the same control socket.
    let error =
        fail(&["export", "--listen", "127.0.0.1:0", "--ram", "8MiB", "--control", path.to_str().unwrap()]);
    assert!(error.contains("control"), "{error}");
    // A bench of the device itself counts its own round trips.
    let load =
        ["bench", &export.url(), "--no-lookahead", "--rw", "randwrite", "--runtime", "300ms", "--json"];
    let report = json(&load);
    assert!((2.9..3.1).contains(&report["round_trips"].as_f64().unwrap()), "{report}");
    let load = ["bench", &export.url(), "--rw", "randread", "--runtime", "300ms", "--json"];
    let report = json(&load);
    assert!((1.0..1.1).contains(&report["round_trips"].as_f64().unwrap()), "{report}");
}

/// A daemon of another version is rejected with its kind and both versions, and hides no other one.
#[test]
fn a_daemon_of_an_unknown_kind_is_named_and_hides_no_other() {
    let runtime = tempfile::tempdir().unwrap();
    let folder = runtime.path().join("farlane");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let newer = UnixListener::bind(folder.join("teleport-7.sock")).unwrap();
    std::thread::spawn(move || {
        for client in newer.incoming().map_while(Result::ok) {
            BufReader::new(&client).read_line(&mut String::new()).unwrap();
            let status = r#"{"schema_version":1,"farlane":"9.8.7","pid":7,"kind":"teleport"}"#;
            let _ = writeln!(&client, "{{\"done\":{status}}}");
        }
    });
    let mut export = Command::new(&*FARLANE);
    export.args(["export", "--listen", "127.0.0.1:0", "--ram", "8MiB", "--json"]);
    let _export = Export::of({
        export.env("XDG_RUNTIME_DIR", runtime.path());
        export
    });
    for arguments in [&["status"][..], &["list"], &["status", "--json"], &["list", "--json"]] {
        let mut command = Command::new(&*FARLANE);
        let output = command.args(arguments).env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap();
        let [out, reported] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {reported}");
        assert!(out.contains("export") || out.contains("tcp://127.0.0.1:"), "{arguments:?}: {out}");
        for words in ["teleport-7.sock", "farlane 9.8.7", env!("CARGO_PKG_VERSION"), "kind"] {
            assert!(reported.contains(words), "{arguments:?}: {reported}");
        }
        let is_coded = reported.contains("\"code\":\"unreadable-status\"");
        assert_eq!(is_coded, arguments.contains(&"--json"), "{reported}");
    }
    // Commands for daemons of one kind pass it by.
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "status"]).env("XDG_RUNTIME_DIR", runtime.path());
    let output = command.output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && reported.contains("teleport"), "{reported}");
}
