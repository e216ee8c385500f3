//! Several targets run at once: the target that has the subsystem is asked.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Export, FARLANE};
use serde_json::Value;

const FIRST: &str = "nqn.2024-01.io.farlane:first";
const SECOND: &str = "nqn.2024-01.io.farlane:second";

/// The program, in a runtime folder of the test's own.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).env("XDG_RUNTIME_DIR", folder);
    command
}

fn target(folder: &Path, nqn: &str) -> Export {
    let listen = ["--listen", "127.0.0.1:0", "--json", "--no-sandbox"];
    let offer = ["target", "--nqn", nqn, "--ram", "4MiB", "--ana-groups", "2"];
    Export::of(command(folder, &[&offer[..], &listen].concat()))
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The sizes of the namespaces of each subsystem that runs, in the order of the names.
fn namespaces(folder: &Path) -> Vec<(String, Vec<u64>)> {
    let list: Value = serde_json::from_str(&said(folder, &["list", "--json"])).unwrap();
    let daemons = list["daemons"].as_array().unwrap().iter();
    let subsystems = daemons.flat_map(|daemon| daemon["subsystems"].as_array().unwrap());
    let mut all: Vec<_> = subsystems
        .map(|one| {
            let sizes = one["namespaces"].as_array().unwrap().iter().map(|it| it["bytes"].as_u64().unwrap());
            (one["nqn"].as_str().unwrap().to_owned(), sizes.collect())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn of_several_targets_the_one_that_has_the_subsystem_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _running = [target(at, FIRST), target(at, SECOND)];
    let (small, large) = (4 << 20, 8 << 20);
    let added = said(at, &["target", "add", "--nqn", SECOND, "--ram", "8MiB"]);
    assert_eq!(added, format!("added namespace 2 to {SECOND}\n"));
    assert_eq!(namespaces(at), [(FIRST.into(), vec![small]), (SECOND.into(), vec![small, large])]);
    let resized = said(at, &["target", "resize", "--nqn", FIRST, "--nsid", "1", "--size", "8MiB"]);
    assert_eq!(resized, format!("namespace 1 of {FIRST} has {large} B\n"));
    let ana = ["--group", "2", "--state", "inaccessible"];
    let ana = said(at, &[&["target", "ana", "--nqn", SECOND][..], &ana].concat());
    assert_eq!(ana, format!("group 2 of {SECOND} is inaccessible\n"));
    let removed = said(at, &["target", "remove", "--nqn", SECOND, "--nsid", "2"]);
    assert_eq!(removed, format!("removed namespace 2 from {SECOND}\n"));
    assert_eq!(namespaces(at), [(FIRST.into(), vec![large]), (SECOND.into(), vec![small])]);
}

#[test]
fn a_subsystem_that_none_or_several_targets_have_is_named_with_their_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _running = [target(at, FIRST), target(at, SECOND), target(at, SECOND)];
    let add = |more: &[&str]| refused(at, &[&["target", "add", "--ram", "1MiB"][..], more].concat());
    let none = add(&["--nqn", "nqn.2024-01.io.farlane:third"]);
    let why = "none of the running processes has the subsystem nqn.2024-01.io.farlane:third";
    assert!(none.contains(why) && none.matches(".sock").count() >= 3, "{none}");
    // Only the targets that have it are offered.
    let several = add(&["--nqn", SECOND]);
    assert!(several.contains("--control") && several.matches("/target-").count() == 2, "{several}");
    let any = add(&[]);
    assert!(any.contains("--control") && any.matches("/target-").count() == 3, "{any}");
    let status = refused(at, &["target", "status"]);
    assert!(status.contains("--control") && status.matches("/target-").count() == 3, "{status}");
    assert!(namespaces(at).iter().all(|(_, sizes)| sizes.len() == 1), "nothing was added");
}
