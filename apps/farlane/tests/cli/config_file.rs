//! Options from files, and files that are checked before their use.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Export, FARLANE, fail, farlane, json, succeed};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const BOX: &str = "[[export]]
listen = \"127.0.0.1:0\"
ram = [\"1MiB\", \"2MiB\"]
hold = \"5s\"

[[export]]
listen = \"127.0.0.1:0\"
ram = \"4MiB\"
";

#[test]
fn far_ends_of_a_file_are_those_of_a_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "box.toml", BOX);
    let mut command = Command::new(&*FARLANE);
    let mut far = Export::of({
        command.args(["export", "--config", &path, "--json"]);
        command
    });
    let sizes = |url: &str| -> Vec<u64> {
        let all = json(&["nvme", "identify", url, "--json"])["namespaces"].as_array().unwrap().clone();
        all.iter().map(|one| (one["nsze"].as_u64().unwrap() * 512) >> 20).collect()
    };
    assert_eq!(sizes(&far.url()), [1, 2]);
    assert_eq!(sizes(&far.next_url()), [4]);
}

#[test]
fn the_command_line_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[export]\nram = \"1MiB\"\nserial = \"FILE\"\nhold = \"5s\"\n";
    let path = write(folder.path(), "box.toml", text);
    let mut command = Command::new(&*FARLANE);
    command.args([
        "export",
        "--listen",
        "127.0.0.1:0",
        "--serial=LINE",
        &format!("--config={path}"),
        "--json",
    ]);
    let far = Export::of(command);
    assert_eq!(far.announcement["serial"], "LINE");
}

#[test]
fn a_wrong_option_is_reported_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let reported = |text: &str| {
        let path = write(folder.path(), "box.toml", text);
        let checked = fail(&["setup", "check", &path]);
        let started = fail(&["export", "--config", &path]);
        assert_eq!(farlane(&["setup", "check", &path]).status.code(), Some(2));
        (checked, started)
    };
    let (checked, started) = reported("[export]\nlisten = \"127.0.0.1:0\"\nram = \"much\"\n");
    assert!(checked.contains("box.toml: line 3, column 7: invalid value 'much'"), "{checked}");
    assert_eq!(checked, started);
    let (checked, started) = reported("[export]\nspeed = 7\n");
    assert!(checked.contains("line 2, column 1: there is no option --speed"), "{checked}");
    assert_eq!(checked, started);
    let (checked, _) = reported("[export]\nlisten = \"127.0.0.1:0\"\n");
    assert!(checked.contains("required"), "{checked}");
    let missing = folder.path().join("missing").display().to_string();
    assert!(fail(&["export", "--config", &missing]).contains("missing"));
}

#[test]
fn each_kind_of_file_is_known_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/plain.toml");
    let target =
        "[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:x\"\n[[subsystem.namespace]]\nram = \"1MiB\"\n";
    let files = [
        write(folder.path(), "box.toml", BOX),
        write(folder.path(), "link.toml", "[link]\nlatency = \"1ms\"\n"),
        scenario.display().to_string(),
        write(folder.path(), "target.toml", target),
    ];
    let paths: Vec<_> = files.iter().map(String::as_str).collect();
    let said = succeed(&[&["setup", "check"][..], &paths].concat());
    let kinds: Vec<_> = said.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(
        kinds,
        ["options of farlane export", "a model of a network", "a scenario", "offers of a target"]
    );
    let checked = json(&[&["setup", "check", "--json"][..], &paths].concat());
    assert_eq!(checked["files"].as_array().unwrap().len(), 4);
    for text in ["[link]\nspeed = 1\n", "[[task]]\nkind = 1\n", "[[subsystem]]\nnqn = 1\n", "[link\n", "\0"] {
        let path = write(folder.path(), "wrong.toml", text);
        let said = fail(&["setup", "check", &path]);
        assert!(said.contains("line 1") || said.contains("line 2"), "{text}: {said}");
    }
}
