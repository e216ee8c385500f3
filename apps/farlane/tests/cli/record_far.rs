//! Recordings in namespaces of other devices: over the tunnel, NVMe/TCP and vfio-user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::running::{Running, signal, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:recorder";

/// The last event of a recording that has ended well.
fn end_of(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(end["event"], "end", "{end}");
    end
}

fn record(arguments: &[&str]) -> Value {
    end_of(succeed(&[&["record", "--json"], arguments].concat()).as_bytes())
}

/// Bytes that no part of repeats.
fn noise(length: u32) -> Vec<u8> {
    (0..length / 4).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn a_namespace_takes_a_recording_as_a_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (source, copy, socket) = (path("source"), path("copy"), path("socket"));
    let bytes = noise(20_000_004);
    fs::write(&source, &bytes).unwrap();
    let far = Export::start(&["--ram", "64MiB"]);
    let served = |arguments: &[&str]| {
        let mut command = Command::new(&*FARLANE);
        command.args(arguments);
        Export::of(command)
    };
    let target = served(&["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "64MiB", "--json"]);
    let device = served(&["offer", "device", "--vfio-user", &socket, "--ram", "64MiB", "--json"]);
    let nvme_tcp = format!("nvme-tcp://{}/{NQN}", target.address);
    let vfio_user = format!("vfio-user:{socket}");
    for url in [far.url(), nvme_tcp, vfio_user] {
        let from = format!("file:{source}");
        let end = record(&["--from", &from, "--to", &url]);
        assert_eq!(
            (&end["bytes_stored"], &end["bytes_lost"]),
            (&20_000_004.into(), &0.into()),
            "{url}: {end}"
        );
        let proof = json(&["recording", "verify", &url, "--json"]);
        assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]), "{url}");
        succeed(&["recording", "replay", &url, "--to", &copy, "--speed", "max"]);
        assert!(fs::read(&copy).unwrap() == bytes, "{url}");
        // Present data are not lost by mistake.
        let why = fail(&["record", "--from", &from, "--to", &url]);
        assert!(why.contains("has contents already"), "{why}");
        let again = record(&["--from", &from, "--to", &url, "--force"]);
        assert_eq!(again["sha256"], end["sha256"]);
    }
    drop((target, device));
}

#[test]
fn a_recording_is_striped_over_a_file_a_far_ssd_and_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let far = Export::start(&["--ram", "64MiB"]);
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "64MiB", "--json"]);
    let target = Export::of(command);
    let members = [path("member"), far.url(), format!("nvme-tcp://{}/{NQN}", target.address)];
    let bytes = noise(20_000_004);
    fs::write(path("source"), &bytes).unwrap();
    let from = format!("file:{}", path("source"));
    let [file, ssd, disk] = members.each_ref().map(String::as_str);
    let end = record(&["--from", &from, "--to", file, "--to", ssd, "--to", disk]);
    assert_eq!((&end["bytes_stored"], &end["bytes_lost"]), (&20_000_004.into(), &0.into()), "{end}");
    let share = fs::metadata(file).unwrap().len();
    assert!((6_000_000..8_000_000).contains(&share), "the file has {share} bytes");
    let proof = json(&["recording", "verify", disk, file, ssd, "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
    succeed(&["recording", "replay", file, ssd, disk, "--to", &path("copy"), "--speed", "max"]);
    assert!(fs::read(path("copy")).unwrap() == bytes);
    let why = fail(&["recording", "verify", file, disk]);
    assert!(why.contains("over 3 members"), "{why}");
    drop(far);
    let why = fail(&["recording", "info", file, ssd, disk]);
    assert!(why.contains("127.0.0.1"), "{why}");
}

#[test]
fn a_namespace_that_is_too_small_says_where_the_recording_ended() {
    let far = Export::start(&["--ram", "8MiB"]);
    let end = record(&["--from", "generate:200MB", "--to", &far.url(), "--for", "10s"]);
    assert_eq!(end["reason"], "medium full");
    let count = |name: &str| end[name].as_u64().unwrap();
    assert_eq!(count("bytes_in"), count("bytes_stored") + count("bytes_lost"));
    assert!(count("bytes_stored") > 7 << 20, "{end}");
    let proof = json(&["recording", "verify", &far.url(), "--json"]);
    assert_eq!((&proof["ok"], &proof["gaps"]), (&true.into(), &end["gaps"]));
}

#[test]
fn a_far_end_that_is_killed_and_comes_back_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let namespace = format!("{},size=256MiB", disk.display());
    let mut far = Export::start(&["--namespace", &namespace]);
    let (url, address) = (far.url(), far.address.clone());
    // The buffer bridges the time without a far end.
    let mut recorder = Command::new(&*FARLANE);
    recorder.args(["record", "--json", "--from", "generate:10MB", "--for", "4s", "--buffer", "64MiB"]);
    let recorder =
        recorder.args(["--to", &url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("something is recorded", || fs::metadata(&disk).is_ok_and(|file| file.blocks() > 2_048));
    far.kill();
    std::thread::sleep(Duration::from_millis(500));
    let far = Export::at(&address, &["--namespace", &namespace]);
    let output = recorder.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("is back"), "{said}");
    let end = end_of(&output.stdout);
    assert_eq!((&end["bytes_lost"], &end["certified"]), (&0.into(), &true.into()), "{end}");
    let proof = json(&["recording", "verify", &far.url(), "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
}

/// A disk of 25 MB/s stands still for 50 ms in each second, while 80 % of that comes.
#[test]
fn a_disk_that_pauses_each_second_loses_nothing() {
    let host = "nqn.2014-08.org.example:recorder";
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "256MiB", "--json"]);
    command.args(["--host", &format!("{host},bandwidth=25MB")]);
    let target = Export::of(command);
    let url = format!("nvme-tcp://{}/{NQN}?hostnqn={host}", target.address);
    // With --rate, what finds no room is lost.
    let arguments = ["record", "--json", "--from", "generate:20MB", "--rate", "20MB", "--pause", "2s"];
    let recorder = Running::start(&[&arguments[..], &["--for", "4s", "--to", &url]].concat());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(950));
        signal(target.id(), "STOP");
        std::thread::sleep(Duration::from_millis(50));
        signal(target.id(), "CONT");
    }
    let output = recorder.output();
    let text = String::from_utf8_lossy(&output.stdout);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let longest = events.iter().filter_map(|event| event["longest_pause_ns"].as_u64()).max();
    assert!(longest.unwrap() >= 40_000_000, "the disk never paused: {text}");
    let end = end_of(&output.stdout);
    assert_eq!((&end["bytes_lost"], &end["certified"]), (&0.into(), &true.into()), "{end}");
    let proof = json(&["recording", "verify", &url, "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
}
