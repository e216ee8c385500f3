//! A target whose namespaces are those of other devices: a far PCIe device, or another target.

use std::fs::{self, File};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, farlane, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:front";
const BEHIND: &str = "nqn.2026-01.io.farlane:behind";
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        File::create(place.path("disk.img")).unwrap().set_len(32 << 20).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts a target called `name` at `address`.
    fn target(&self, name: &str, address: &str, namespaces: &[&str]) -> Export {
        let mut command = Command::new(&*FARLANE);
        let control = self.path(&name[name.rfind(':').unwrap() + 1..]);
        command.args(["target", "--json", "--listen", address, "--nqn", name, "--control", &control]);
        command.args(namespaces);
        Export::of(command)
    }

    /// Starts the device behind the target in front: a target of its own, or a far end.
    fn behind(&self, is_target: bool, address: &str) -> Export {
        let namespace = ["--namespace", &self.path("disk.img")];
        if is_target { self.target(BEHIND, address, &namespace) } else { Export::at(address, &namespace) }
    }

    /// Starts the target in front, with one namespace. Returns it and its URL.
    fn front(&self, namespace: &str) -> (Export, String) {
        let target = self.target(NQN, "127.0.0.1:0", &["--namespace", namespace]);
        let url = format!("nvme-tcp://{}/{NQN}", target.address);
        (target, url)
    }

    /// Writes a file with a pattern of bytes, and reads it back.
    fn copy(&self, url: &str) {
        let (source, copy) = (self.path("source"), self.path("copy"));
        let bytes: Vec<u8> =
            (0..700_416_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        fs::write(&source, &bytes).unwrap();
        succeed(&["use", "write", url, "--offset", "1MiB", "--input", &source]);
        let _ = fs::remove_file(&copy);
        succeed(&["use", "read", url, "--offset", "1MiB", "--length", "700416", "--output", &copy]);
        assert!(fs::read(&copy).unwrap() == bytes);
    }
}

fn verify(url: &str, length: &str) -> Running {
    let job = ["--rw", "randrw", "--bs", "16k", "--iodepth", "16", "--verify", "--runtime", length];
    Running::start(&[&["bench", url][..], &job[..]].concat())
}

fn ends_well(running: Running) {
    let output = running.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Size of the only namespace in logical blocks (NSZE).
fn size(url: &str) -> Value {
    let identified = json(&["nvme", "identify", url, "--json"]);
    identified["namespaces"][0]["nsze"].clone()
}

#[test]
fn a_far_pcie_device_is_a_namespace() {
    let place = Place::new();
    let far = Export::start(&["--ram", "24MiB,block=4096"]);
    let (mut front, url) = place.front(&far.url());
    assert_eq!(size(&url), (24 << 20) / 4096);
    place.copy(&url);
    ends_well(verify(&url, "1s"));
    // One host at a time has a far end. Another host gets this reason, and may use the far end once
    // the target has ended.
    let said = fail(&["use", "read", &far.url(), "--length", "4096", "--output", "/dev/null"]);
    assert!(said.contains("one host at a time"), "{said}");
    let (status, said) = front.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let copy = place.path("direct");
    succeed(&["use", "read", &far.url(), "--offset", "1MiB", "--length", "4096", "--output", &copy]);
    assert_eq!(fs::read(copy).unwrap().len(), 4096);
}

#[test]
fn a_target_that_was_killed_has_its_device_back() {
    let place = Place::new();
    let far = Export::start(&["--namespace", &place.path("disk.img")]);
    let (mut first, url) = place.front(&far.url());
    place.copy(&url);
    first.kill();
    let (_second, url) = place.front(&far.url());
    let copy = place.path("again");
    succeed(&["use", "read", &url, "--offset", "1MiB", "--length", "700416", "--output", &copy]);
    assert!(fs::read(&copy).unwrap() == fs::read(place.path("source")).unwrap());
}

#[test]
fn another_target_is_a_namespace() {
    let place = Place::new();
    let behind = place.target(BEHIND, "127.0.0.1:0", &["--ram", "8MiB", "--ram", "16MiB"]);
    let inner = format!("nvme-tcp://{}/{BEHIND}?queues=2", behind.address);
    let (_front, url) = place.front(&format!("{inner},nsid=2"));
    assert_eq!(size(&url), (16 << 20) / 512);
    place.copy(&url);
    ends_well(verify(&url, "1s"));
    let copy = place.path("direct");
    let words =
        ["read", &inner, "--namespace", "2", "--offset", "1MiB", "--length", "700416", "--output", &copy];
    succeed(&words);
    assert_eq!(fs::read(&copy).unwrap().len(), 700_416);
    // The front namespace takes its size from the other device.
    succeed(&["target", "resize", "--control", &place.path("behind"), "--nsid", "2", "--size", "20MiB"]);
    let front = place.path("front");
    wait_until("the target in front has heard of it", || {
        let said = farlane(&["target", "resize", "--control", &front, "--nsid", "1"]).stdout;
        String::from_utf8_lossy(&said).contains(&format!("{} B", 20 << 20))
    });
    // Add another namespace of the device while the first is used.
    succeed(&["target", "add", "--control", &front, "--namespace", &format!("{inner},nsid=1,readonly")]);
    succeed(&["use", "read", &url, "--namespace", "2", "--length", "4096", "--output", "/dev/null"]);
    let refused = fail(&["use", "write", &url, "--namespace", "2", "--input", &place.path("source")]);
    assert!(refused.contains("Write Protected"), "{refused}");
    succeed(&["target", "remove", "--control", &front, "--nsid", "2"]);
}

#[test]
fn a_device_that_is_killed_and_comes_back_costs_nothing_but_time() {
    let place = Place::new();
    for is_target in [false, true] {
        let mut far = place.behind(is_target, "127.0.0.1:0");
        let inner = if is_target { format!("nvme-tcp://{}/{BEHIND}", far.address) } else { far.url() };
        let (front, url) = place.front(&inner);
        let running = verify(&url, "4s");
        sleep(Duration::from_secs(1));
        let address = far.address.clone();
        far.kill();
        sleep(Duration::from_secs(1));
        let _again = place.behind(is_target, &address);
        ends_well(running);
        front.wait_for("is back");
        place.copy(&url);
    }
}

#[test]
fn commands_for_a_device_that_stays_away_fail_and_later_ones_do_not() {
    let place = Place::new();
    for is_target in [false, true] {
        let mut far = place.behind(is_target, "127.0.0.1:0");
        let inner = if is_target { format!("nvme-tcp://{}/{BEHIND}", far.address) } else { far.url() };
        let (front, url) = place.front(&format!("{inner},hold=1s"));
        let address = far.address.clone();
        far.kill();
        for _ in 0..2 {
            let started = Instant::now();
            let said = fail(&["use", "read", &url, "--length", "4096", "--output", "/dev/null"]);
            assert!(said.contains("Not Ready"), "{said}");
            assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
        }
        let _again = place.behind(is_target, &address);
        front.wait_for("is back");
        place.copy(&url);
    }
}

#[test]
fn a_missing_device_is_reported_in_words() {
    let place = Place::new();
    let front = |namespace: &str| {
        let control = place.path("front");
        let words = [
            "target",
            "--listen",
            "127.0.0.1:0",
            "--nqn",
            NQN,
            "--control",
            &control,
            "--namespace",
            namespace,
        ];
        fail(&words)
    };
    let unused_url = crate::support::unused_url();
    assert!(front(&unused_url).contains("no far end answers at"), "{}", front(&unused_url));
    let far = Export::start(&["--ram", "4MiB", "--ram", "4MiB"]);
    let said = front(&far.url());
    assert!(said.contains("which namespace?") && said.contains("1, 2"), "{said}");
    let said = front(&format!("{},nsid=3", far.url()));
    assert!(said.contains("there is no namespace 3"), "{said}");
    assert!(front("tcp://127.0.0.1").contains("expected"));
    // A running target waits for a device that is not there without disturbing its hosts for long.
    let target = place.target(NQN, "127.0.0.1:0", &["--ram", "4MiB"]);
    let said = fail(&["target", "add", "--control", &place.path("front"), "--namespace", &unused_url]);
    assert!(said.contains("no far end answers at"), "{said}");
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    assert!(farlane(&["use", "read", &url, "--length", "4096", "--output", "/dev/null"]).status.success());
}
