//! A far end with the device of another process: `farlane export --vfio-user`.

#[path = "../../../../pure/assemblies/src/external_device/tests/copy_engine.rs"]
#[allow(dead_code, reason = "the engine's own tests use the rest")]
mod copy_engine;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{Instant, Pool};
use live::sys::unix::{Listener, Received};
use tempfile::TempDir;
use vfio_user::server::Input;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, json, succeed};
use copy_engine::{CopyEngine, Wish};

/// The copy engine in a thread, at a socket, for one client.
struct CopyServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl CopyServer {
    fn start(path: &Path) -> Self {
        let listener = Listener::bind(path).unwrap();
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || serve(&listener, &stopped));
        Self { stop, thread: Some(thread) }
    }
    /// Ends the server. Returns how often the engine was reset.
    fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn serve(listener: &Listener, stop: &AtomicBool) -> u32 {
    let mut engine: CopyEngine<OwnedFd> = CopyEngine::new();
    let mut pool = Pool::default();
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(100));
        let now = Instant::from_nanos(1);
        let Some(client) = &mut connection else {
            connection = listener.accept().unwrap();
            if connection.is_some() {
                engine.handle_input(now, Input::Connected);
            }
            continue;
        };
        match client.receive(&mut pool) {
            Ok(Received::Data(bytes, descriptors)) => {
                engine.handle_input(now, Input::Received { bytes: &bytes, descriptors });
            }
            Ok(Received::Nothing) => {}
            Ok(Received::Closed) | Err(_) => {
                engine.handle_input(now, Input::Disconnected);
                connection = None;
                continue;
            }
        }
        while let Some(wish) = engine.poll(now) {
            match wish {
                Wish::Transmit(bytes) => client.send(bytes, Vec::new()).unwrap(),
                Wish::Signal(_) | Wish::Close => {}
            }
        }
        client.flush().unwrap();
    }
    engine.resets
}

/// A directory for a socket and a disk.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn socket(&self) -> PathBuf {
        self.0.path().join("device")
    }
    /// Starts `farlane offer device` with an SSD in a file.
    fn device(&self) -> Export {
        let disk = format!("{},size=8MiB", self.0.path().join("disk").display());
        let mut command = Command::new(&*FARLANE);
        command.args([
            "offer",
            "device",
            "--json",
            "--namespace",
            &disk,
            "--serial",
            "BESIDE",
            "--vfio-user",
        ]);
        Export::of({
            command.arg(self.socket());
            command
        })
    }
    fn export(&self) -> Export {
        Export::start(&["--vfio-user", self.socket().to_str().unwrap()])
    }
}

#[test]
fn a_host_sees_the_device_of_another_process() {
    let place = Place::new();
    let server = CopyServer::start(&place.socket());
    let far = place.export();
    let shown = succeed(&["observe", "lspci", "-v", &far.url()]);
    let device = shown.split("\n\n").find(|function| function.contains("[b0] MSI-X")).expect(&shown);
    assert!(device.contains("System peripheral") && device.contains("MSI-X: Count=20"), "{shown}");
    assert!(device.contains("01-23-45-67-89-ab-cd-ef"), "{shown}");
    // Commands that want an SSD find none.
    assert!(fail(&["nvme", "identify", &far.url()]).contains("no NVMe controller"), "{shown}");
    assert!(far.said().contains("[fa1a:00c0]"), "{}", far.said());
    assert!(server.end() > 0, "a session begins with a reset");
    far.wait_for("the link is down until it is back");
    let _again = CopyServer::start(&place.socket());
    wait_until("the device is back", || far.said().matches("the device is there").count() == 2);
    assert!(succeed(&["observe", "lspci", "-v", &far.url()]).contains("System peripheral"));
}

#[test]
fn an_ssd_of_another_process_is_used_like_any() {
    let place = Place::new();
    let _device = place.device();
    let far = place.export();
    let identified = json(&["nvme", "identify", &far.url(), "--json"]);
    assert_eq!(identified["controller"]["sn"].as_str().map(str::trim_end), Some("BESIDE"), "{identified}");
    for (bs, depth) in [("4k", "1"), ("4k", "32"), ("128k", "4")] {
        let load = ["--rw", "randrw", "--bs", bs, "--iodepth", depth, "--runtime", "300ms", "--verify"];
        let report = json(&[&["bench", &far.url(), "--json"][..], &load].concat());
        assert_eq!((&report["verified"], &report["errors"]), (&true.into(), &0.into()), "{report}");
    }
    // The device has its client: a second far end reports this.
    let socket = place.socket();
    let second = ["export", "--listen", "127.0.0.1:0", "--timeout", "300ms", "--vfio-user"];
    let said = fail(&[&second[..], &[socket.to_str().unwrap()]].concat());
    assert!(said.contains("it may have another client"), "{said}");
}

#[test]
fn a_device_that_is_killed_and_started_again_loses_nothing() {
    let place = Place::new();
    let mut device = place.device();
    let far = place.export();
    let load =
        ["--rw", "randwrite", "--iodepth", "8", "--runtime", "3s", "--timeout", "40s", "--verify", "--json"];
    let load = Running::start(&[&["bench", &far.url()][..], &load].concat());
    far.wait_for("link up");
    std::thread::sleep(Duration::from_millis(700));
    device.kill();
    far.wait_for("the link is down until it is back");
    // The system takes its time to give up what a killed process had under way.
    let disk = std::fs::File::open(place.0.path().join("disk")).unwrap();
    wait_until("the disk is free", || disk.try_lock().is_ok());
    drop(disk);
    let _again = place.device();
    let (report, said) = load.json();
    assert_eq!((&report["errors"], &report["verified"]), (&0.into(), &true.into()), "{said}");
    assert!(said.contains("has gone; it may"), "{said}");
}

#[test]
fn a_device_that_does_not_come_back_is_an_error() {
    let place = Place::new();
    let mut device = place.device();
    let far = place.export();
    let url = far.url();
    let load = ["--rw", "randread", "--runtime", "60s", "--timeout", "2s"];
    let load = Running::start(&[&["bench", &url][..], &load].concat());
    far.wait_for("link up");
    std::thread::sleep(Duration::from_millis(300));
    device.kill();
    let output = load.output();
    assert!(!output.status.success());
    // A host that comes while the device is away gets the reason for its wait.
    let said = fail(&["nvme", "identify", &url, "--timeout", "3s"]);
    assert!(said.contains("has gone; it may"), "{said}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let place = Place::new();
    let socket = place.socket();
    let start = ["export", "--listen", "127.0.0.1:0", "--timeout", "200ms", "--vfio-user"];
    let said = fail(&[&start[..], &[socket.to_str().unwrap()]].concat());
    assert!(said.contains("there is no device at") && said.contains("No such file"), "{said}");
    let both = fail(&["export", "--vfio-user", "x", "--ram", "1MiB"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let two = fail(&["export", "--vfio-user", "x", "--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2"]);
    assert!(two.contains("one host at a time may use a device"), "{two}");
}

#[test]
fn interrupts_of_a_device_reach_a_client_that_sleeps_until_they_come() {
    let place = Place::new();
    let _device = place.device();
    let far = place.export();
    let slot = place.0.path().join("slot");
    let mut command = Command::new(&*FARLANE);
    command.args(["attach", &far.url(), "--json", "--vfio-user"]).arg(&slot);
    let _attach = Export::of(command);
    let url = format!("vfio-user:{}", slot.display());
    let load = ["--rw", "randrw", "--iodepth", "4", "--runtime", "300ms", "--verify", "--spin", "0"];
    let report = json(&[&["bench", &url, "--json"][..], &load].concat());
    assert_eq!((&report["verified"], &report["errors"]), (&true.into(), &0.into()), "{report}");
    assert!(report["compared"].as_u64().unwrap() > 0, "{report}");
}
