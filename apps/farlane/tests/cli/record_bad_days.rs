//! Days on which disks go, producers stall and files are damaged, as who records sees them.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::running::{Running, signal, wait_until};
use crate::support::{Export, FARLANE, fail, farlane, json, succeed};
use serde_json::Value;

const CHUNK: usize = 131_072;
fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn last(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("nothing was printed"))).unwrap()
}

/// The last event of a recording, whose account must be true.
fn end_of(output: &[u8]) -> Value {
    let end = last(output);
    assert_eq!(end["event"], "end", "{end}");
    assert_eq!(number(&end, "bytes_in"), number(&end, "bytes_stored") + number(&end, "bytes_lost"), "{end}");
    let declared: u64 = end["gaps"].as_array().unwrap().iter().map(|gap| number(gap, "bytes")).sum();
    assert_eq!(declared, number(&end, "bytes_lost"), "{end}");
    end
}

/// A recorder that listens, and where.
fn listening(path: &str, more: &[&str]) -> (Running, String) {
    let arguments = ["record", "--from", "tcp-listen://127.0.0.1:0", "--to", path, "--json"];
    let recorder = Running::start(&[&arguments[..], more].concat());
    let mut address = String::new();
    wait_until("the recorder listens", || {
        let said = recorder.said();
        let at = said.lines().find_map(|line| line.trim().split_once("waiting for a connection at "));
        address = at.map(|(_, address)| address.to_owned()).unwrap_or_default();
        !address.is_empty()
    });
    (recorder, address)
}

fn acknowledged(path: &str) -> u64 {
    let output = farlane(&["recording", "verify", path, "--json"]).stdout;
    if output.is_empty() { 0 } else { last(&output)["bytes"].as_u64().unwrap_or(0) }
}

/// Waits until the recorder, which prints JSON, reports bytes on its medium.
fn wait_for_bytes(recorder: &Running) {
    wait_until("something is recorded", || {
        let printed = recorder.printed();
        let mut events = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.any(|event| event["bytes_acknowledged"].as_u64() > Some(0))
    });
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A block device over a file.
struct Loop(String);

impl Loop {
    fn of(file: &Path, bytes: u64) -> Option<Self> {
        std::fs::File::create(file).ok()?.set_len(bytes).ok()?;
        run("losetup", &["--find", "--show", file.to_str()?]).map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// A file system, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn at(folder: &Path, arguments: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(folder).ok()?;
        let mounted = run("mount", &[arguments, &[folder.to_str()?]].concat());
        mounted.map(|_| Self(folder.to_owned()))
    }

    /// Bytes that a file may still occupy.
    fn free(&self) -> u64 {
        let reported = run("stat", &["-f", "-c", "%a %S", self.0.to_str().unwrap()]).unwrap();
        reported.split(' ').map(|number| number.parse::<u64>().unwrap()).product()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap_or_default()]);
    }
}

fn assert_filled(mounted: &Mounted) {
    let path = mounted.0.join("a.rec").to_str().unwrap().to_owned();
    let arguments = ["record", "--from", "generate:100MB", "--to", &path, "--for", "20s", "--json"];
    let output = farlane(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let end = end_of(&output.stdout);
    assert_eq!((&end["reason"], &end["certified"]), (&"medium full".into(), &true.into()), "{end}");
    let gaps = end["gaps"].as_array().unwrap();
    assert!(gaps.iter().all(|gap| gap["where"] == "disk" && gap["why"] == "full"), "{end}");
    assert!(mounted.free() < CHUNK as u64, "{} bytes are free", mounted.free());
    let proof = json(&["recording", "verify", &path, "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]), "{proof}");
}

#[test]
fn a_recorder_continues_when_its_events_lose_their_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let mut command = Command::new(&*FARLANE);
    command.args(["record", "--from", "generate:4MB", "--to", &path, "--for", "60s", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut recorder = command.spawn().unwrap();
    drop(recorder.stdout.take());
    wait_until("something is recorded", || acknowledged(&path) > 0);
    let before = acknowledged(&path);
    // So many bytes take as long as several events.
    wait_until("the recording goes on", || acknowledged(&path) > before + 4_000_000);
    signal(recorder.id(), "INT");
    assert!(recorder.wait().unwrap().success());
    assert_eq!(json(&["recording", "info", &path, "--json"])["ended"], "asked to end");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}

#[test]
fn a_failed_proof_fails_the_command_although_its_output_has_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    succeed(&["record", "--from", "generate:100MB", "--to", &path, "--size", "1MB"]);
    let verify = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(&*FARLANE);
        command
            .args(["recording", "verify", &path])
            .stdout(writer)
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code()
    };
    assert_eq!(verify(), Some(0));
    // The first byte of a stream's payload is another one.
    let mut medium = std::fs::read(&path).unwrap();
    medium[3 * CHUNK + 128] ^= 1;
    std::fs::write(&path, medium).unwrap();
    assert_eq!(verify(), Some(1));
}

#[test]
fn a_recorder_whose_terminal_is_gone_certifies_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
    let control = directory.path().join("control");
    // The recorder ends by itself should it not notice the end of its terminal. Tests that run
    // under nohup ignore SIGHUP.
    let recorder = format!(
        "exec env --default-signal=HUP {} record --from generate:1MB --to {path} --for 60s --control {}",
        *FARLANE,
        control.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--command", &recorder, "/dev/null"]);
    terminal.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut terminal = terminal.spawn().unwrap();
    wait_until("something is recorded", || acknowledged(&path) > 0);
    // The terminal goes with the program that made it.
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    wait_until("the recorder has ended", || !control.exists());
    wait_until("the recording is certified", || {
        json(&["recording", "info", &path, "--json"])["ended"].is_string()
    });
    assert_eq!(json(&["recording", "info", &path, "--json"])["ended"], "asked to end");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}

#[test]
fn a_file_system_that_is_full_has_all_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let Some(mounted) = Mounted::at(&small, &["-t", "tmpfs", "-o", "size=24m", "tmpfs"]) else {
        return eprintln!("SKIPPED: no file system can be mounted here, so there is none that is full");
    };
    assert_filled(&mounted);
    // One in which space is given ahead of writes, and that writes bypass the page cache of.
    let disk = Loop::of(&folder.path().join("disk"), 48 << 20);
    let made = disk.as_ref().and_then(|disk| run("mkfs.ext4", &["-q", "-m", "0", &disk.0]));
    let (Some(disk), Some(_)) = (disk, made) else {
        return eprintln!("SKIPPED: neither loop devices nor ext4 here");
    };
    let mounted = Mounted::at(&folder.path().join("ext4"), &[&disk.0]).expect("ext4 is mounted");
    assert_filled(&mounted);
}

#[test]
fn a_second_recorder_on_a_block_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Loop::of(&folder.path().join("disk"), 64 << 20) else {
        return eprintln!("SKIPPED: no loop device can be made here");
    };
    let device = disk.0.as_str();
    let recorder = Running::start(&["record", "--from", "generate:1MB", "--to", device, "--json"]);
    wait_for_bytes(&recorder);
    let refused = fail(&["record", "--from", "generate:1MB", "--to", device, "--force"]);
    assert!(refused.contains("another recorder writes to it"), "{refused}");
    recorder.signal("INT");
    let end = end_of(&recorder.output().stdout);
    assert_eq!((&end["bytes_lost"], &end["certified"]), (&0.into(), &true.into()), "{end}");
    assert_eq!(json(&["recording", "verify", device, "--json"])["sha256"], end["sha256"]);
}

#[test]
fn a_disk_that_is_gone_ends_the_recording_which_says_so() {
    let mut far = Export::start(&["--ram", "256MiB"]);
    let to = format!("{},hold=500ms", far.url());
    let recorder = Running::start(&["record", "--from", "generate:20MB", "--to", &to, "--json"]);
    wait_for_bytes(&recorder);
    far.kill();
    let output = recorder.output();
    assert_eq!(output.status.code(), Some(1));
    let end = end_of(&output.stdout);
    assert_eq!((&end["reason"], &end["certified"]), (&"medium failed".into(), &false.into()), "{end}");
    assert!(number(&end, "bytes_stored") > 0 && number(&end, "bytes_lost") > 0, "{end}");
    assert!(end["gaps"].as_array().unwrap().iter().all(|gap| gap["where"] == "disk"), "{end}");
}

/// A link of 4 MB a second cannot take 200 MB a second. Bytes without room are declared lost, as
/// long as this lasts, and memory stays where it was.
#[test]
fn a_source_that_is_faster_than_the_disk_loses_what_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.toml");
    std::fs::write(&link, "[link]\nrate = \"32Mbit/s\"\n").unwrap();
    let far = Export::start(&["--ram", "256MiB"]);
    let arguments = ["emulate", "--listen", "127.0.0.1:0", "--connect", &far.address, "--json", "--link"];
    let mut slow = Command::new(&*crate::support::FARLANE);
    slow.args(arguments).arg(&link);
    let slow = Export::of(slow);
    let to = format!("{},hold=30s", slow.url());
    let from = ["--from", "generate:200MB", "--on-full", "drop", "--for", "3s", "--buffer", "8MiB"];
    let recorder = Running::start(&[&["record", "--json", "--to", &to][..], &from].concat());
    let output = recorder.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let end = end_of(&output.stdout);
    assert!(number(&end, "bytes_lost") > number(&end, "bytes_stored"), "{end}");
    assert!(end["gaps"].as_array().unwrap().iter().all(|gap| gap["where"] == "ring"), "{end}");
    assert!(number(&end, "high_water_bytes") <= 8 << 20, "{end}");
    let proof = json(&["recording", "verify", &far.url(), "--json"]);
    assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
}

#[test]
fn a_producer_that_stalls_has_its_bytes_acknowledged_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec").to_str().unwrap().to_owned();
    let (recorder, address) = listening(&path, &[]);
    let mut producer = TcpStream::connect(address).unwrap();
    producer.write_all(&[7; 1_000]).unwrap();
    wait_until("the bytes are on the medium", || acknowledged(&path) == 1_000);
    // A while later, it goes on.
    std::thread::sleep(Duration::from_millis(1_200));
    producer.write_all(&[8; 1_000]).unwrap();
    wait_until("the next bytes are on the medium", || acknowledged(&path) == 2_000);
    recorder.signal("TERM");
    let end = end_of(&recorder.output().stdout);
    assert_eq!((&end["reason"], number(&end, "bytes_stored")), (&"asked to end".into(), 2_000), "{end}");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}

#[test]
fn a_recording_that_is_being_written_can_be_looked_at_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (path, copy) = (at("a.rec"), at("copy"));
    let recorder = Running::start(&["record", "--from", "generate:20MB", "--to", &path, "--json"]);
    wait_until("something is recorded", || acknowledged(&path) > 0);
    let about = json(&["recording", "info", &path, "--json"]);
    assert_eq!((&about["being_written"], &about["ended"]), (&true.into(), &Value::Null), "{about}");
    let replayed = json(&["recording", "replay", &path, "--to", &copy, "--speed", "max", "--json"]);
    let bytes = std::fs::read(&copy).unwrap();
    assert_eq!((number(&replayed, "bytes"), bytes.is_empty()), (bytes.len() as u64, false));
    // A chunk may be missing that was under way, but none is wrong.
    for (at, word) in bytes.chunks_exact(8).enumerate().take(16_368) {
        assert_eq!(word, (at as u64).to_le_bytes(), "byte {}", at * 8);
    }
    recorder.signal("INT");
    let end = end_of(&recorder.output().stdout);
    assert_eq!((&end["reason"], &end["bytes_lost"]), (&"asked to end".into(), &0.into()), "{end}");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}

#[test]
fn a_damaged_index_costs_nothing_but_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec").to_str().unwrap().to_owned();
    succeed(&["record", "--from", "generate:100MB", "--to", &path, "--size", "3MB"]);
    let before = json(&["recording", "verify", &path, "--json"]);
    let mut medium = std::fs::read(&path).unwrap();
    let slots = medium.len().div_ceil(CHUNK);
    // Kind 4 is an index.
    let index = (3..slots).find(|slot| medium[slot * CHUNK + 10] == 4).expect("there is an index");
    for (harm, place) in [("payload", 140), ("header", 40), ("magic", 0)] {
        medium[index * CHUNK + place] ^= 0x20;
        std::fs::write(&path, &medium).unwrap();
        let copy = format!("{path}.copy");
        let replayed = json(&["recording", "replay", &path, "--to", &copy, "--speed", "max", "--json"]);
        assert_eq!((number(&replayed, "bytes"), number(&replayed, "bad_chunks")), (3 << 20, 0), "{harm}");
        let proof = last(&farlane(&["recording", "verify", &path, "--json"]).stdout);
        assert_eq!((&proof["ok"], &proof["bad_chunks"][0]["slot"]), (&false.into(), &index.into()), "{harm}");
        assert_eq!((&proof["bytes"], &proof["sha256"]), (&before["bytes"], &before["sha256"]), "{harm}");
        let repaired = json(&["recording", "recover", &path, "--json"]);
        assert_eq!((&repaired["bytes"], &repaired["new_gaps"]), (&before["bytes"], &Value::Array(vec![])));
        assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true, "{harm}");
    }
}

#[test]
fn a_second_recorder_in_a_namespace_is_refused() {
    let far = Export::start(&["--ram", "64MiB"]);
    let target = ["target", "--listen", "127.0.0.1:0", "--nqn", "nqn.2026-01.io.farlane:two"];
    let mut served = Command::new(&*crate::support::FARLANE);
    served.args(target).args(["--ram", "64MiB", "--json"]);
    let served = Export::of(served);
    let shared = format!("nvme-tcp://{}/nqn.2026-01.io.farlane:two", served.address);
    for url in [far.url(), shared] {
        let recorder = Running::start(&["record", "--from", "generate:1MB", "--to", &url, "--json"]);
        wait_for_bytes(&recorder);
        let refused = fail(&["record", "--from", "generate:1MB", "--to", &url]);
        assert!(refused.contains("has contents already") || refused.contains("in use"), "{refused}");
        recorder.signal("INT");
        let end = end_of(&recorder.output().stdout);
        assert_eq!((&end["bytes_lost"], &end["certified"]), (&0.into(), &true.into()), "{end}");
        assert_eq!(json(&["recording", "verify", &url, "--json"])["ok"], true);
    }
}
