//! Shared memory between two ends of one machine: used, refused and interrupted.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::load::{assert_serves, assert_verified, verified};
use crate::support::running::{signal, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};

/// A far end at a socket in a directory of its own.
struct Far {
    export: Export,
    directory: tempfile::TempDir,
}

fn export(further: &[&str]) -> Far {
    let directory = tempfile::tempdir().unwrap();
    let export = at(directory.path(), further);
    Far { export, directory }
}

fn at(directory: &Path, further: &[&str]) -> Export {
    let socket = directory.join("far").display().to_string();
    Export::start(&[&["--shm", &socket], further].concat())
}

impl Far {
    fn url(&self) -> String {
        format!("shm:{}", self.directory.path().join("far").display())
    }
}

/// Clock ticks (100 a second) that a process has used.
fn ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn every_command_reaches_a_far_end_in_shared_memory() {
    let far = export(&["--ram", "16MiB"]);
    let url = far.url();
    assert_eq!(format!("shm:{}", far.export.announcement["shm"].as_str().unwrap()), url);
    assert_eq!(json(&["measure", "ping", &url, "--count", "10", "--json"])["count"], 10);
    assert!(!assert_verified(verified(&url, "1s", &[])).contains("interrupted"));
    assert!(succeed(&["observe", "lspci", &url]).contains("Non-Volatile memory controller"));
    assert!(!succeed(&["nvme", "identify", &url]).is_empty());
    assert!(!succeed(&["nvme", "smart-log", &url]).is_empty());
    assert!(!succeed(&["nvme", "id-ctrl", &url]).is_empty());
    let (input, output) = (far.directory.path().join("input"), far.directory.path().join("output"));
    let bytes: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    fs::write(&input, &bytes).unwrap();
    let [from, to] = [&input, &output].map(|path| path.display().to_string());
    succeed(&["use", "write", &url, "--input", &from, "--length", "3MiB"]);
    succeed(&["use", "read", &url, "--length", "3MiB", "--output", &to]);
    assert!(fs::read(&output).unwrap() == bytes, "other bytes came back");
    // The same far end over TCP.
    assert_serves(&far.export.url());
    // The far end as the namespace of another SSD.
    let front = Export::start(&["--namespace", &format!("{url},readonly")]);
    assert_serves(&front.url());
}

#[test]
fn a_guests_slot_reaches_it_and_sleeps_when_nothing_happens() {
    let far = export(&["--ram", "16MiB", "--spin", "0s"]);
    let slot = far.directory.path().join("slot").display().to_string();
    let mut command = Command::new(&*FARLANE);
    command.args(["attach", &far.url(), "--json", "--spin", "0s", "--vfio-user", &slot]);
    let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("the slot", || Path::new(&slot).exists());
    far.export.wait_for("link up");
    assert_serves(&format!("vfio-user:{slot}"));
    let both = [far.export.id(), process.id()];
    sleep(Duration::from_millis(300));
    let before = both.map(ticks);
    sleep(Duration::from_secs(2));
    let used = [0, 1].map(|one| ticks(both[one]) - before[one]);
    process.kill().unwrap();
    process.wait().unwrap();
    // An end that spun would have used 200.
    assert!(used.iter().all(|ticks| *ticks < 40), "{used:?} of 200 ticks went by in sleep");
}

#[test]
fn a_far_end_that_is_killed_and_started_again_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    let spec = format!("{},size=16MiB", disk.display());
    let arguments = ["--namespace", &spec, "--hold", "1s"];
    let mut far = at(directory.path(), &arguments);
    let url = format!("shm:{}", directory.path().join("far").display());
    let load = verified(&url, "2s", &[]);
    wait_until("writes", || {
        fs::metadata(&disk).is_ok_and(|file| std::os::unix::fs::MetadataExt::blocks(&file) > 64)
    });
    far.kill();
    sleep(Duration::from_millis(200));
    let _far = at(directory.path(), &arguments);
    let said = assert_verified(load);
    assert!(said.contains("interrupted: the connection was lost"), "{said}");
    assert_serves(&url);
}

#[test]
fn a_far_end_that_is_stopped_for_a_while_loses_nothing() {
    let far = export(&["--ram", "16MiB"]);
    let load = verified(&far.url(), "2s", &[]);
    far.export.wait_for("link up");
    signal(far.export.id(), "STOP");
    sleep(Duration::from_millis(700));
    signal(far.export.id(), "CONT");
    assert_verified(load);
}

#[test]
fn a_host_that_is_killed_makes_room_for_the_next() {
    let far = export(&["--ram", "16MiB", "--hold", "100ms"]);
    let load = verified(&far.url(), "60s", &[]);
    far.export.wait_for("link up");
    // Another host has the device already.
    let errors = fail(&["measure", "ping", &far.url(), "--timeout", "3s"]);
    assert!(errors.contains("use"), "{errors}");
    drop(load);
    far.export.wait_for("link down");
    assert_serves(&far.url());
}

#[test]
fn strangers_do_no_harm() {
    let far = export(&["--ram", "16MiB"]);
    let load = verified(&far.url(), "1s", &[]);
    far.export.wait_for("link up");
    let path = far.directory.path().join("far");
    for length in 0..300 {
        let mut stranger = UnixStream::connect(&path).unwrap();
        // The far end may have hung up already.
        let _ = stranger.write_all(&vec![b'f'; length]);
        let _ = stranger.write_all(b"farlane lines 1\n");
    }
    assert!(!assert_verified(load).contains("interrupted"));
    assert_serves(&far.url());
}

#[test]
fn what_can_not_be_is_said() {
    let far = export(&["--ram", "1MiB"]);
    let with =
        |further: &[&str]| fail(&[&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"], further].concat());
    let taken = far.directory.path().join("far").display().to_string();
    let free = far.directory.path().join("free").display().to_string();
    assert!(with(&["--shm", &taken]).contains(&taken));
    assert!(with(&["--shm", &free, "--listen", "127.0.0.1:0", "--ram", "1MiB"]).contains("2 far ends"));
    let key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let said = with(&["--shm", &free, "--allow", key]);
    assert!(said.contains("has no key"), "{said}");
    assert!(fail(&["measure", "ping", "shm:"]).contains("shm:PATH"));
    let started = Instant::now();
    let said = fail(&["measure", "ping", &format!("shm:{free}"), "--timeout", "400ms"]);
    assert!(said.contains(&free), "{said}");
    assert!(started.elapsed() < Duration::from_secs(30), "it waited for a miracle");
    let said = fail(&["measure", "ping", &far.url(), "--second-path", "127.0.0.1:1"]);
    assert!(said.contains("--second-path"), "{said}");
}

#[test]
fn the_demo_runs_over_it() {
    let arguments = ["demo", "--size", "1MiB", "--runtime", "50ms", "--json", "--carrier"];
    for carrier in ["tcp", "shm"] {
        let demo = json(&[&arguments[..], &[carrier]].concat());
        assert_eq!((&demo["carrier"], &demo["verified"]), (&carrier.into(), &true.into()), "{demo}");
        for side in ["floor", "direct", "tunnel"] {
            assert!(demo[side]["config_read_ns"]["p50"].as_u64().unwrap() > 0, "{demo}");
        }
    }
    assert!(fail(&["demo", "--carrier", "shm", "--link", "x"]).contains("--link"));
}
