//! Upgrades in place: `farlane upgrade`.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::load::assert_verified;
use crate::support::running::{Running, signal};
use crate::support::{Export, fail, json, succeed};

/// The most milliseconds for which a far end may rest while it is upgraded. The issue's aim is 250
/// on a machine that has nothing else to do.
const PAUSE_MAX: u64 = 2_000;

/// A far end, and the folder with its control socket and its files.
struct Far {
    export: Export,
    folder: TempDir,
    /// The process that goes on in its place by now. It is no child of the test.
    successor: Cell<Option<u32>>,
}

impl Far {
    fn of(offer: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("far");
        let mut arguments = vec!["--control", control.to_str().unwrap()];
        arguments.extend(offer);
        Self { export: Export::start(&arguments), folder, successor: Cell::new(None) }
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("far")
    }

    fn upgrade(&self) {
        let report = json(&["upgrade", self.control().to_str().unwrap(), "--json"]);
        let before = self.successor.get().unwrap_or(self.export.id());
        assert_eq!(report["predecessor"], before, "{report}");
        let process = report["process"].as_u64().and_then(|process| u32::try_from(process).ok());
        self.successor.set(Some(process.unwrap()));
    }

    /// A verified load at depth 32.
    fn load(&self, runtime: &str) -> Running {
        let url = self.export.url();
        let load = ["--rw", "randrw", "--iodepth", "32", "--size", "4MiB", "--verify", "--timeout", "60s"];
        let mut arguments = vec!["bench", &url, "--runtime", runtime, "--json"];
        arguments.extend(load);
        Running::start(&arguments)
    }

    /// For how many milliseconds the far end rested at each upgrade.
    fn pauses(&self) -> Vec<u64> {
        let said = self.export.said();
        let pauses = said.lines().filter_map(|line| line.split_once("goes on in the place of process "));
        let pauses =
            pauses.filter_map(|(_, rest)| rest.rsplit_once(" after ")?.1.split(' ').next()?.parse().ok());
        pauses.collect()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(process) = self.successor.get() {
            signal(process, "KILL");
        }
    }
}

/// How many upgrades there are: `FARLANE_UPGRADES` makes them more than a test may take.
fn upgrades() -> usize {
    std::env::var("FARLANE_UPGRADES").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[test]
fn a_far_end_is_upgraded_again_and_again_and_no_command_fails() {
    let far = Far::of(&["--ram", "4MiB", "--hosts", "2"]);
    let url = far.export.url();
    let seconds = format!("{}s", 2 + upgrades());
    let load = far.load(&seconds);
    far.export.wait_for("link up");
    for _ in 0..upgrades() {
        std::thread::sleep(Duration::from_millis(300));
        far.upgrade();
    }
    // The successor takes a further host, whose place was free before.
    assert_eq!(json(&["measure", "ping", &url, "--count", "10", "--json"])["count"], 10);
    assert_verified(load);
    let pauses = far.pauses();
    assert_eq!(pauses.len(), upgrades(), "{}", far.export.said());
    assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
    println!("pauses in ms: {pauses:?}");
}

#[test]
fn files_states_and_memories_go_on_with_a_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (disk, state) = (format!("{},size=1MiB", path("disk")), path("state"));
    let far = Far::of(&["--namespace", &disk, "--ram", "1MiB", "--state", &state]);
    let url = far.export.url();
    std::fs::write(path("written"), [0x5a; 8192]).unwrap();
    for nsid in ["1", "2"] {
        succeed(&["use", "write", &url, "--namespace", nsid, "--input", &path("written")]);
    }
    far.upgrade();
    for nsid in ["1", "2"] {
        let read = path(nsid);
        succeed(&["use", "read", &url, "--namespace", nsid, "--length", "8KiB", "--output", &read]);
        assert_eq!(std::fs::read(read).unwrap(), [0x5a; 8192], "namespace {nsid}");
    }
}

#[test]
fn a_far_end_goes_on_if_no_successor_takes_over() {
    let far = Far::of(&["--ram", "4MiB"]);
    let load = far.load("3s");
    far.export.wait_for("link up");
    // A program that ends at once, and one that ends with the state in its hands.
    let said = fail(&["upgrade", far.control().to_str().unwrap(), "--program", "/bin/false"]);
    assert!(said.contains("was not replaced"), "{said}");
    let (own, theirs) = UnixStream::pair().unwrap();
    let control = far.control();
    let asking = std::thread::spawn(move || {
        let request = r#"{"command":"leave"}"#;
        live::drivers::control::ask_with(&control, request, &[theirs.as_fd()]).unwrap()
    });
    std::thread::sleep(Duration::from_millis(200));
    drop(own);
    let answer = asking.join().unwrap();
    assert!(answer.contains("has ended without taking over"), "{answer}");
    assert_verified(load);
    // And a later upgrade is as good as any.
    far.upgrade();
    assert_eq!(json(&["measure", "ping", &far.export.url(), "--count", "10", "--json"])["count"], 10);
}

#[test]
fn an_upgrade_that_is_not_possible_names_the_reason() {
    let far = Far::of(&["--ram", "1MiB", "--udp", "127.0.0.1:0"]);
    let control = far.control();
    let said = fail(&["upgrade", control.to_str().unwrap()]);
    assert!(said.contains("was not replaced"), "{said}");
    far.export.wait_for("by another way than TCP");
    assert_eq!(json(&["measure", "ping", &far.export.url(), "--count", "10", "--json"])["count"], 10);
    let nothing = fail(&["upgrade", "no-such-kind"]);
    assert!(nothing.contains("0 running daemons are meant by \"no-such-kind\""), "{nothing}");
}
