//! A device in another process, used by the same commands as a far end.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::running::Running;
use crate::support::{Export, FARLANE, fail, json, succeed};

fn device(socket: &Path, more: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["offer", "device", "--json", "--vfio-user"]).arg(socket).args(more);
    Export::of(command)
}

fn url(socket: &Path) -> String {
    format!("vfio-user:{}", socket.display())
}

#[test]
fn commands_reach_it_as_they_reach_a_far_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let _device = device(&socket, &["--ram", "8MiB", "--serial", "BESIDE"]);
    let url = url(&socket);
    let identified = json(&["nvme", "identify", &url, "--json"]);
    assert_eq!(identified["controller"]["sn"].as_str().map(str::trim_end), Some("BESIDE"), "{identified}");
    assert_eq!(identified["namespaces"][0]["nsze"], 16384);
    assert!(succeed(&["nvme", "smart-log", &url]).contains("at vfio-user:"));
    assert_eq!(json(&["measure", "ping", &url, "--count", "100", "--json"])["count"], 100);
    // The copy ends in the middle of a block.
    let (input, output) = (directory.path().join("in"), directory.path().join("out"));
    let text: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    std::fs::write(&input, &text).unwrap();
    let written =
        json(&["use", "write", &url, "--input", input.to_str().unwrap(), "--offset", "64k", "--json"]);
    let out = output.to_str().unwrap();
    let read = ["read", &url, "--offset", "64k", "--length", "3000001", "--output", out, "--json"];
    assert_eq!(json(&read)["sha256"], written["sha256"]);
    assert!(std::fs::read(&output).unwrap() == text, "the data read equal the data written");
}

#[test]
fn loads_are_verified_whether_it_spins_or_sleeps() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    for (cores, server) in [
        ("1", &["--spin", "0"][..]),
        ("1", &["--spin", "100us"]),
        ("1", &["--poll-doorbells"]),
        ("4", &["--spin", "0"]),
        ("4", &["--poll-doorbells"]),
    ] {
        let _device = device(&socket, &[&["--ram", "8MiB", "--cores", cores], server].concat());
        for (client, bs, depth) in
            [("0", "4k", "1"), ("1ms", "4k", "1"), ("100us", "128k", "8"), ("0", "512", "64")]
        {
            let load = ["--rw", "randrw", "--bs", bs, "--iodepth", depth, "--runtime", "300ms", "--verify"];
            let report = json(&[&["bench", &url(&socket), "--spin", client, "--json"][..], &load].concat());
            assert_eq!((&report["verified"], &report["errors"]), (&true.into(), &0.into()), "{report}");
            assert!(report["compared"].as_u64().unwrap() > 0, "{report}");
        }
    }
}

#[test]
fn a_device_that_is_killed_ends_its_user_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut device = device(&socket, &["--ram", "1MiB"]);
    for (spin, next) in [("0", "--poll-doorbells"), ("10s", "--poll-doorbells"), ("10s", "--spin=0")] {
        let running = Running::start(&["bench", &url(&socket), "--runtime", "60s", "--spin", spin]);
        device.wait_for("a client has come");
        std::thread::sleep(Duration::from_millis(300));
        let started = Instant::now();
        device.kill();
        let output = running.output();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("has gone"), "{said}");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        device = self::device(&socket, &["--ram", "1MiB", next]);
    }
}

#[test]
fn a_user_goes_on_soon_after_the_far_end_behind_its_function_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut far = Export::start(&["--ram", "8MiB", "--serial", "BEHIND"]);
    let mut attach = Command::new(&*FARLANE);
    attach.args(["attach", &far.url(), "--json", "--vfio-user"]).arg(&socket);
    let attach = Export::of(attach);
    let running = Running::start(&["bench", &url(&socket), "--rw", "randread", "--runtime", "5s", "--json"]);
    attach.wait_for("a client has come");
    std::thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    far.kill();
    let _far = Export::at(&far.address, &["--ram", "8MiB", "--serial", "BEHIND"]);
    let (report, said) = running.json();
    assert!(said.contains("is no longer enabled"), "{said}");
    assert_eq!(report["errors"], 0, "{report}");
    assert!(started.elapsed() < Duration::from_secs(20), "a command waited for its time-out: {report}");
}

#[test]
fn one_user_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let device = device(&socket, &["--ram", "1MiB"]);
    let running = Running::start(&["bench", &url(&socket), "--runtime", "2s", "--json"]);
    device.wait_for("a client has come");
    assert!(fail(&["nvme", "identify", &url(&socket)]).contains("one client at a time"));
    assert!(running.output().status.success());
}

#[test]
fn a_file_that_is_no_device_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let said = fail(&["nvme", "identify", &url(&socket)]);
    assert!(
        said.contains("no process listens at") && said.contains("farlane offer device --vfio-user"),
        "{said}"
    );
    assert!(fail(&["nvme", "identify", "vfio-user:"]).contains("expected vfio-user:SOCKET"));
    // Something else listens there: it answers nonsense, or leaves after the greeting, or says
    // nothing.
    let listener = UnixListener::bind(&socket).unwrap();
    let stranger = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 512]);
            stream.write_all(answer).unwrap();
            if !answer.is_empty() {
                let _ = stream.read(&mut [0; 512]);
            }
        }
        let (stream, _) = listener.accept().unwrap();
        std::thread::sleep(Duration::from_secs(30));
        drop(stream);
    });
    assert!(fail(&["nvme", "identify", &url(&socket)]).contains("does not speak vfio-user"));
    assert!(fail(&["nvme", "identify", &url(&socket)]).contains("ended at once"));
    assert!(fail(&["nvme", "identify", &url(&socket), "--timeout", "1s"]).contains("1 s"));
    drop(stranger);
}
