//! A server neither stops nor grows, however its clients behave.

use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::support::running::{Running, signal, wait_until};
use crate::support::{Export, FARLANE, json};

/// Bytes that a pipe holds before a reader has to read; see pipe(7).
const PIPE_BYTES: usize = 64 << 10;
/// Number of strangers who come and go, each of whom is reported.
const STRANGERS: usize = 3000;
const NQN: &str = "nqn.2026-01.io.farlane:overload";

/// A server whose standard error is a full pipe without a reader.
struct Muted {
    child: Child,
    address: String,
    errors: PipeReader,
}

impl Muted {
    fn start(arguments: &[&str]) -> Self {
        let (errors, mut writer) = pipe().unwrap();
        writer.write_all(&[b'\n'; PIPE_BYTES]).unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(arguments).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { child, address: said["listening"].as_str().unwrap().to_owned(), errors }
    }

    /// Runs a verified load at `url` while strangers come and go, then ends the server by SIGTERM.
    fn serves(mut self, url: &str, stranger: impl Fn(&str)) {
        let load = ["bench", url, "--rw", "randrw", "--bs", "4k", "--iodepth", "4"];
        let run = ["--runtime", "3s", "--verify", "--json"];
        let bench = Running::start(&[&load[..], &run].concat());
        // A device has one client at a time, the first to come: let the load be first. A load that
        // waits for its turn takes no more time of the processor than its start.
        sleep(Duration::from_secs(1));
        wait_until("the load runs", || bench.ticks() > 3);
        for _ in 0..STRANGERS {
            stranger(&self.address);
        }
        let (result, said) = bench.json();
        assert!(result["verified"] != false, "{result} {said}");
        signal(self.child.id(), "TERM");
        let mut status = None;
        wait_until("it ends, although its output has no reader", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(0));
        // The pipe was full until the end.
        let mut said = Vec::new();
        self.errors.read_to_end(&mut said).unwrap();
        assert!(said.len() >= PIPE_BYTES && said[..PIPE_BYTES].iter().all(|byte| *byte == b'\n'));
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects like a browser with the wrong address.
fn browse(address: &str) {
    let mut stranger = TcpStream::connect(address).unwrap();
    // The server may end the connection while the request is on its way.
    let _ = stranger.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
}

fn knock(path: &str) {
    // The socket's backlog may be full.
    drop(UnixStream::connect(Path::new(path)));
}

#[test]
fn a_far_end_whose_errors_have_no_reader_serves_on_and_ends() {
    let export = Muted::start(&["export", "--listen", "127.0.0.1:0", "--ram", "16MiB"]);
    let url = format!("tcp://{}", export.address);
    export.serves(&url, browse);
}

#[test]
fn a_target_whose_errors_have_no_reader_serves_on_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let target = ["target", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"];
    let target = Muted::start(&[&target[..], &["--control", control.to_str().unwrap()]].concat());
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    target.serves(&url, browse);
}

#[test]
fn a_device_and_a_guests_end_whose_errors_have_no_reader_serve_on_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device");
    let device =
        Muted::start(&["offer", "device", "--vfio-user", socket.to_str().unwrap(), "--ram", "16MiB"]);
    let url = format!("vfio-user:{}", device.address);
    device.serves(&url, knock);
    let export = Export::start(&["--ram", "16MiB"]);
    let socket = folder.path().join("attached");
    let attach = Muted::start(&["attach", &export.url(), "--vfio-user", socket.to_str().unwrap()]);
    let url = format!("vfio-user:{}", attach.address);
    attach.serves(&url, knock);
}

#[test]
fn strangers_by_the_thousand_are_counted_rather_than_listed() {
    let mut export = Export::start(&["--ram", "1MiB"]);
    for _ in 0..STRANGERS {
        browse(&export.address);
    }
    // The far end has seen all strangers by the time it has served a later host.
    json(&["nvme", "identify", &export.url(), "--json"]);
    let (status, said) = export.end_by("TERM");
    assert_eq!(status, Some(0));
    assert!(said.contains(" more like it in the last 10 s)"), "{said}");
    assert!(said.lines().count() < 200, "{} lines", said.lines().count());
}

/// Bytes of the process's memory that are resident and belong to no file; see proc_pid_status(5).
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_namespace_in_memory_takes_no_more_than_its_size_whatever_the_lengths_of_writes() {
    const DISK: u64 = 256 << 20;
    let export = Export::start(&["--ram", "256MiB"]);
    let url = export.url();
    let bench = |rw: &str, bs: &str, depth: &str| {
        let load = ["bench", &url, "--rw", rw, "--bs", bs, "--iodepth", depth, "--runtime", "1s", "--json"];
        json(&load);
    };
    for size in ["4k", "128k"] {
        let whole = std::iter::repeat_n(0x5a, usize::try_from(DISK).unwrap()).collect();
        Running::fed(&["use", "write", &url, "--bs", size, "--iodepth", "32", "--json"], whole).output();
        for (rw, bs, depth) in [
            ("randrw", "4k", "32"),
            ("randwrite", "64k", "32"),
            ("randrw", "16k", "16"),
            ("randrw", "512", "64"),
        ] {
            bench(rw, bs, depth);
        }
        bench("randrw", "128k", "32");
        let taken = resident(export.id());
        assert!(taken >= DISK, "{taken} B: it was not written");
        assert!(taken <= DISK / 100 * 105, "{taken} B of {DISK} after writes of {size}");
    }
}
