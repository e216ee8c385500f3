//! README.md's commands work, and so do all commands of the tutorial, `docs/start.md`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::tutorial::{commands, made, script};
use crate::support::{Export, FARLANE};

/// Address that the tutorial's recorder listens on.
const RECORDER: &str = "127.0.0.1:5000";
/// Address that the far end of README.md and of the tutorial listens on.
const ADDRESS: &str = "127.0.0.1:4430";
/// Address that the tutorial's target listens on.
const SUBSYSTEM: &str = "127.0.0.1:4420";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn program(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&*FARLANE);
    command.args(words).current_dir(directory).stdin(Stdio::null());
    command
}

/// An address without a listener.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// README.md says "three commands".
#[test]
fn the_three_commands_work() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let commands = commands(&text);
    let [make, export, bench] = commands[..] else { panic!("{commands:?}") };
    let built = made(make);
    let rest = |command: &str| {
        let rest = command.strip_prefix(&built).unwrap_or_else(|| panic!("{command}: {make} builds {built}"));
        rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let export: Vec<_> = rest(export).iter().map(|word| word.replace(ADDRESS, "127.0.0.1:0")).collect();
    let words: Vec<_> = export.iter().map(String::as_str).chain(["--json"]).collect();
    let far = Export::of(program(directory.path(), &words));
    assert!(bench.contains(ADDRESS), "{bench}");
    let bench: Vec<_> = rest(bench).iter().map(|word| word.replace(ADDRESS, &far.address)).collect();
    let words: Vec<_> = bench.iter().map(String::as_str).collect();
    let output = program(directory.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), far.said());
}

/// All of the tutorial that needs no root. A guest runs all of it: `tests/guest/start.rs`.
#[test]
fn the_tutorial_works_as_shown() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(&*FARLANE, bin.join("farlane")).unwrap();
    let lines = script();
    let lines = lines.lines().filter(|line| !line.starts_with("sudo "));
    let mut script = lines.collect::<Vec<_>>().join("\n");
    assert!(script.lines().count() > 20, "{script}");
    for address in [ADDRESS, SUBSYSTEM, RECORDER] {
        assert!(script.contains(address), "{address}: {script}");
        script = script.replace(address, &free_address());
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &format!("trap 'kill $(jobs -p) 2>/dev/null' EXIT\n{script}")])
        .current_dir(folder.path())
        .envs([("PATH", path.as_str()), ("XDG_RUNTIME_DIR", folder.path().to_str().unwrap())])
        .env("XDG_CONFIG_HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    for shown in ["exporting 1 namespace", "-[0000:00]-", "nqn.2026-01.io.farlane:start"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    for file in ["disk.img", "target.img", "flight.mcap", "copy.bin"] {
        assert!(folder.path().join(file).is_file(), "{file}: {said}");
    }
}

/// The last lines of the demo are for its reader to copy.
#[test]
fn what_the_demo_names_next_works_as_printed() {
    let shown = program(&root(), &["demo", "--size", "64KiB", "--runtime", "20ms"]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    let steps = shown.split("What next?").nth(1).expect(&shown);
    let steps: Vec<_> = steps.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert!((2..=3).contains(&steps.len()), "{steps:?}");
    assert!(steps.iter().all(|step| step.starts_with(&*FARLANE) && step.contains(ADDRESS)), "{steps:?}");
    // A shell ends its background jobs, and fails with the first that fails.
    let script =
        format!("set -e\ntrap 'kill $!' EXIT\n{}\n", steps.join("\n").replace(ADDRESS, &free_address()));
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{script}{said}");
    for shown in ["exporting 1 namespace", "-[0000:00]-", "commands a second"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
