//! A subsystem whose I/O queues are on several threads.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, farlane, json};

const NQN: &str = "nqn.2026-01.io.farlane:cores";

/// A target with a file for its namespace, in a folder of its own.
struct Target {
    export: Option<Export>,
    folder: PathBuf,
}

impl Target {
    fn start(name: &str, cores: usize) -> Self {
        let exe = std::env::current_exe().unwrap();
        let folder = exe.parent().unwrap().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut target = Self { export: None, folder };
        target.configure(cores);
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--cores", "2", "--config"]).arg(target.file());
        command.arg("--control").arg(target.socket());
        target.export = Some(Export::of(command));
        target
    }

    fn file(&self) -> PathBuf {
        self.folder.join("target.toml")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Writes a configuration with this number of cores.
    fn configure(&self, cores: usize) {
        let disk = self.folder.join("disk.raw");
        let offer = format!(
            "cores = {cores}\n[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nram = \"32MiB\"\n[[subsystem.namespace]]\npath = \"{}\"\n\
             size = \"32MiB\"\n",
            disk.display()
        );
        fs::write(self.file(), offer).unwrap();
    }

    fn url(&self, queues: u32) -> String {
        format!("nvme-tcp://{}/{NQN}?queues={queues}", self.export.as_ref().unwrap().address)
    }

    fn status(&self) -> Value {
        json(&["target", "status", "--json", "--control", self.socket().to_str().unwrap()])
    }

    /// The number of I/O queues on each core.
    fn io_queues(&self) -> Vec<u64> {
        let status = self.status();
        let cores = status["cores"].as_array().unwrap();
        cores.iter().map(|core| core["io_queues"].as_u64().unwrap()).collect()
    }

    fn load(&self, queues: u32, namespace: &str, runtime: &str) -> Running {
        let url = self.url(queues);
        let shape = ["--rw", "randrw", "--bs", "4k", "--iodepth", "16", "--namespace", namespace];
        Running::start(&[&["bench", &url, "--verify", "--runtime", runtime][..], &shape].concat())
    }

    fn end(mut self) -> String {
        let (status, said) = self.export.take().unwrap().end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        fs::remove_dir_all(&self.folder).unwrap();
        said
    }
}

fn assert_verified(load: Running) {
    let output = load.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_queues_of_one_host_are_spread_over_the_cores() {
    let target = Target::start("queues-on-cores", 2);
    for namespace in ["1", "2"] {
        let load = target.load(4, namespace, "2s");
        wait_until("each core serves two queues", || target.io_queues() == [2, 2]);
        let status = target.status();
        let controllers = status["subsystems"][0]["controllers"].as_array().unwrap();
        let queues = controllers[0]["queues"].as_array().unwrap();
        let numbers: Vec<_> = queues.iter().map(|queue| queue["queue"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4], "a host's queues are listed wherever they are");
        assert_verified(load);
        wait_until("the host has left", || target.io_queues() == [0, 0]);
    }
    // What lanes have counted is all there.
    let status = target.status();
    for index in 0..2 {
        let activity = &status["subsystems"][0]["activity"][index];
        assert!(activity["writes"].as_u64().unwrap() > 0, "{activity}");
    }
    target.end();
}

#[test]
fn a_reload_takes_cores_away_and_gives_them_back_under_load() {
    let target = Target::start("fewer-cores", 2);
    let load = target.load(4, "1", "6s");
    wait_until("each core serves two queues", || target.io_queues() == [2, 2]);
    let socket = target.socket();
    let reload = |cores: usize, says: &str| {
        target.configure(cores);
        let output = farlane(&["target", "reload", "--control", socket.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(says), "{output:?}");
    };
    reload(1, "1 of 2 threads execute commands");
    wait_until("one core serves all queues", || target.io_queues() == [4, 0]);
    reload(2, "2 of 2 threads execute commands");
    assert_verified(load);
    let load = target.load(4, "1", "1s");
    wait_until("both cores serve again", || target.io_queues() == [2, 2]);
    assert_verified(load);
    let said = target.end();
    assert!(said.contains("another thread is to serve the queue"), "{said}");
}

#[test]
fn a_host_that_is_killed_leaves_no_queue_on_any_core() {
    let target = Target::start("killed-on-cores", 2);
    for _ in 0..3 {
        let load = target.load(4, "2", "60s");
        wait_until("each core serves two queues", || target.io_queues() == [2, 2]);
        load.signal("KILL");
        drop(load);
        wait_until("no core has a queue", || target.io_queues() == [0, 0]);
    }
    let load = target.load(2, "2", "1s");
    assert_verified(load);
    target.end();
}

/// A subsystem whose queues were on both cores is offered no longer: no core keeps its file open,
/// so that it can be offered again at once.
#[test]
fn a_subsystem_that_is_offered_no_longer_has_its_file_open_on_no_core() {
    let target = Target::start("gone-from-cores", 2);
    let disk = target.folder.join("disk.raw");
    let process = target.status()["pid"].as_u64().unwrap();
    let is_open = || {
        let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|path| path == disk)
    };
    let offer = fs::read_to_string(target.file()).unwrap();
    let other =
        "[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:other\"\n[[subsystem.namespace]]\nram = \"1MiB\"\n";
    let without = offer.split("[[subsystem]]").next().unwrap().to_owned() + other;
    for _ in 0..3 {
        let load = target.load(4, "2", "60s");
        wait_until("each core serves two queues", || target.io_queues() == [2, 2]);
        assert!(is_open());
        for text in [&without, &offer] {
            fs::write(target.file(), text).unwrap();
            let output = farlane(&["target", "reload", "--control", target.socket().to_str().unwrap()]);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && !said.contains("can't be offered"), "{output:?}");
            if text == &without {
                wait_until("the file is let go", || !is_open());
            }
        }
        load.signal("KILL");
    }
    target.end();
}
