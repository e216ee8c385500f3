//! Messages when the disk below a namespace is full, truncated or read-only.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};

const MIB: u64 = 1 << 20;

fn file(path: &Path, bytes: u64) -> String {
    File::create(path).unwrap().set_len(bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Checks that writes to `far` from `offset` on fail for want of space, and that everything else
/// goes on.
fn assert_full_beyond(far: &Export, offset: &str) {
    let url = &far.url();
    let said = Running::fed(&["use", "write", url, "--offset", offset], vec![7; 1 << 20]).fail();
    assert!(said.contains("a write ended with") && said.contains("Capacity Exceeded"), "{said}");
    let load = ["bench", url, "--rw", "randwrite", "--runtime", "200ms", "--json"];
    let output = Running::start(&load).output();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["errors"].as_u64().unwrap() > 0, "{report}");
    assert!(report["first_error"].as_str().unwrap().contains("Capacity Exceeded"), "{report}");

    let (written, _) = Running::fed(&["use", "write", url, "--json"], vec![9; 1 << 20]).json();
    let read = json(&["use", "read", url, "--length", "1MiB", "--output", "/dev/null", "--json"]);
    assert_eq!(read["sha256"], written["sha256"]);
    assert_eq!(json(&["measure", "ping", url, "--count", "10", "--json"])["count"], 10);
}

#[test]
fn a_write_beyond_the_size_that_a_file_may_have_fails_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory.path().join("disk.img"), 64 * MIB);
    // 8192 blocks of 512 B, a POSIX shell's unit, are 4 MiB.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8192 && exec \"$0\" \"$@\"", &FARLANE]);
    limited.args(["export", "--listen", "127.0.0.1:0", "--json", "--namespace", &path]);
    let far = Export::of(limited);
    assert_full_beyond(&far, "8MiB");
}

/// A file system of its own, unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn at(path: &'a Path, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(path))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // The far end may not be gone yet.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_fails_writes_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::at(directory.path(), "size=4m") else {
        eprintln!("SKIPPED: no file system can be mounted here, so there is no full disk to write to");
        return;
    };
    let path = file(&mounted.0.join("disk.img"), 64 * MIB);
    let control = directory.path().join("control");
    let control = control.to_str().unwrap();
    let mut far = Export::start(&["--namespace", &path, "--control", control]);
    // The beginning gets its room, then the rest is filled. Failures here are checked below.
    let _ = Running::fed(&["use", "write", &far.url()], vec![1; 1 << 20]).output();
    let _ = Running::fed(&["use", "write", &far.url(), "--offset", "32MiB"], vec![1; 8 << 20]).output();
    assert_full_beyond(&far, "48MiB");
    // The far end says so in its log, its status and its health.
    far.wait_for("there is no space left for a write");
    let status = json(&["observe", "status", control, "--json"]);
    assert!(status["far_ends"][0]["space_errors"].as_u64() > Some(0), "{status}");
    assert!(succeed(&["observe", "status", control]).contains("the medium is full"));
    let health = json(&["nvme", "smart-log", &far.url(), "--json"]);
    assert_eq!((&health["critical_warning"], &health["avail_spare"]), (&1.into(), &0.into()), "{health}");
    far.kill();
}

#[test]
fn a_file_that_is_truncated_fails_what_is_beyond_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory.path().join("disk.img"), 16 * MIB);
    let far = Export::start(&["--namespace", &path]);
    let url = &far.url();
    let (written, _) = Running::fed(&["use", "write", url, "--json"], vec![5; 16 << 20]).json();
    assert_eq!(written["bytes"], 16 * MIB);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();

    for (offset, byte) in [("4MiB", 4 * MIB), ("15MiB", 15 * MIB)] {
        let said =
            fail(&["use", "read", url, "--offset", offset, "--length", "64k", "--output", "/dev/null"]);
        assert!(said.contains("a read ended with"), "{said}");
        assert!(said.contains(&format!("65536 B at byte {byte} of the namespace")), "{said}");
    }
    let read = json(&["use", "read", url, "--length", "4MiB", "--output", "/dev/null", "--json"]);
    assert_eq!(read["bytes"], 4 * MIB);
    assert_eq!(json(&["measure", "ping", url, "--count", "10", "--json"])["count"], 10);
}

#[test]
fn a_read_only_namespace_refuses_writes_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    std::fs::write(&path, &bytes).unwrap();
    let far = Export::start(&["--namespace", &format!("{},readonly", path.display())]);
    let url = &far.url();
    let said = Running::fed(&["use", "write", url], vec![7; 4096]).fail();
    assert!(said.contains("Namespace is Write Protected"), "{said}");
    let said = Running::start(&["bench", url, "--rw", "write", "--runtime", "100ms"]).fail();
    assert!(said.contains("Namespace is Write Protected"), "{said}");
    let copy = directory.path().join("copy.img");
    succeed(&["use", "read", url, "--output", copy.to_str().unwrap()]);
    assert_eq!(std::fs::read(&copy).unwrap(), bytes);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// A number of /proc/meminfo in bytes.
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_that_the_machine_has_not_is_refused_with_both_numbers_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket").display().to_string();
    let (total, nqn) = (memory("MemTotal:"), "nqn.2026-01.io.farlane:large");
    let too_large = (total / MIB + 1) * MIB;
    let (all, half) = (too_large.to_string(), ((total / 2 / MIB + 1) * MIB).to_string());
    let config = directory.path().join("target.toml");
    let text = format!(
        "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{nqn}\"\n\
         [[subsystem.namespace]]\nid = 1\nram = \"{half}\"\n[[subsystem.namespace]]\nid = 2\nram = \"{half}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let starts: [Vec<&str>; 8] = [
        [&["export"][..], &listen, &["--ram", &all]].concat(),
        [&["export"][..], &listen, &["--pool", &all]].concat(),
        [&["export"][..], &listen, &["--ram", &half, "--ram", &half]].concat(),
        [&["export"][..], &listen, &["--ram", &half], &listen, &["--ram", &half]].concat(),
        [&["target", "--nqn", nqn][..], &listen, &["--ram", &all]].concat(),
        [&["target", "--nqn", nqn][..], &listen, &["--ram", &half, "--pool", &half]].concat(),
        vec!["target", "--config", config.to_str().unwrap()],
        vec!["device", "--vfio-user", &socket, "--ram", &all],
    ];
    for words in starts {
        let said = fail(&words);
        let said = said.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("memory for namespaces of"), "{words:?}: {said}");
        assert!(said.contains("at most") && said.contains("--namespace PATH,size=SIZE"), "{words:?}: {said}");
    }
    let limit = ["target", "--nqn", nqn, "--ram", "1MiB", "--memory-max", &all];
    let said = fail(&[&limit[..], &listen].concat());
    assert!(said.contains("--memory-max") && said.contains("the memory of this machine"), "{said}");
    // So is a namespace that is added to a running far end, or resized there.
    let control = directory.path().join("control").display().to_string();
    let _far = Export::start(&["--ram", "1MiB", "--control", &control]);
    for words in [&["add", "--ram", &all][..], &["resize", "--nsid", "1", "--size", &all]] {
        let said = fail(&[&["export"], words, &["--control", &control]].concat());
        assert!(said.contains("the memory of this machine"), "{words:?}: {said}");
    }
}

#[test]
fn a_file_that_its_disk_has_no_space_for_is_served_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::at(directory.path(), "size=8m") else { return };
    let path = directory.path().join("disk.img").display().to_string();
    // tmpfs takes a length of any size.
    let spec = format!("{path},size=64MiB");
    let far = Running::start(&["export", "--listen", "127.0.0.1:0", "--namespace", &spec]);
    wait_until("the far end listens", || !far.printed().is_empty());
    far.signal("TERM");
    let output = far.output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected =
        format!("it still needs {} B of space, and its file system has {} B free", 64 * MIB, 8 * MIB);
    assert!(said.contains(&expected) && said.contains("free some space"), "{said}");
    // A file that fits is served without a word, until it is made longer.
    let control = tempfile::tempdir().unwrap();
    let control = control.path().join("control").display().to_string();
    let far = Export::start(&["--namespace", &format!("{path}2,size=4MiB"), "--control", &control]);
    assert!(!far.said().contains("still needs"), "{}", far.said());
    succeed(&["export", "resize", "--nsid", "1", "--size", "64MiB", "--control", &control]);
    far.wait_for(&expected);
}

#[test]
fn a_target_shows_which_of_its_namespaces_has_no_space_left() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::at(directory.path(), "size=4m") else { return };
    let full = file(&mounted.0.join("disk.img"), 64 * MIB);
    let outside = tempfile::tempdir().unwrap();
    let control = outside.path().join("control").display().to_string();
    let nqn = "nqn.2026-01.io.farlane:full";
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", nqn, "--control", &control]);
    command.args(["--metrics", "127.0.0.1:0", "--namespace", &full, "--ram", "4MiB"]);
    let target = Export::of(command);
    let url = format!("nvme-tcp://{}/{nqn}", target.address);
    let status = || json(&["target", "status", "--json", "--control", &control])["subsystems"][0].clone();
    let errors = |status: &serde_json::Value| {
        let namespaces = status["namespaces"].as_array().unwrap();
        namespaces.iter().map(|one| one["space_errors"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(errors(&status()), [0, 0]);
    let shown = || succeed(&["target", "status", "--control", &control]);
    assert!(!shown().contains("no space"));
    let write = Running::fed(&["use", "write", &url, "--namespace", "1"], vec![1; 8 << 20]);
    assert!(!write.output().status.success());
    let status = status();
    crate::support::schema::holds(
        "target-status",
        &json(&["target", "status", "--json", "--control", &control]),
    );
    let [first, second] = errors(&status)[..] else { panic!("{status}") };
    assert!(first > 0 && second == 0 && status["space_errors"] == first, "{status}");
    let line = format!("no space: namespace 1: {first} writes failed, because the medium is full");
    assert!(shown().contains(&line), "{}", shown());
}
