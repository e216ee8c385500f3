//! The stage of a measurement: two network namespaces, emulated paths between them, and a far end
//! in one of them.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rows::{Link, Row};
use crate::support::farlane;

/// How long anything may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 4430;
/// Size of the far end's namespace. It fits into a processor's caches, so that the network is
/// measured.
const MEDIUM: &str = "16MiB";
/// Name of the subsystem, where the far end is a target of NVMe/TCP.
const NQN: &str = "nqn.2026-01.io.farlane:tail";

/// A program that is killed when this is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| error.to_string())?;
        let lines = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, lines })
    }

    /// The next line of JSON that the program prints.
    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two network namespaces. Each exists as long as a process that sleeps in it.
pub(crate) struct Namespaces([Running; 2]);

impl Namespaces {
    pub(crate) fn make() -> Result<Self, String> {
        Self([Self::one()?, Self::one()?]).usual()
    }

    fn one() -> Result<Running, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]);
        let mut sleeper = Running::start(command)?;
        let own = std::fs::read_link("/proc/self/ns/net").map_err(|error| error.to_string())?;
        let begun = Instant::now();
        while std::fs::read_link(path(&sleeper)).map_or(true, |there| there == own) {
            if sleeper.child.try_wait().is_ok_and(|ended| ended.is_some()) || begun.elapsed() > PATIENCE {
                return Err("unshare --net is refused".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(sleeper)
    }

    /// Chooses Linux's usual congestion control, regardless of this machine's.
    fn usual(self) -> Result<Self, String> {
        for sleeper in &self.0 {
            let write = "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control";
            let status = Command::new("nsenter")
                .arg(format!("--net={}", path(sleeper)))
                .args(["sh", "-c", write])
                .status();
            if !status.is_ok_and(|status| status.success()) {
                return Err("cubic can't be chosen".to_owned());
            }
        }
        Ok(self)
    }

    /// A command that runs the program within the namespace of one end.
    fn command(&self, end: usize) -> Command {
        let mut command = first();
        command.arg("nsenter").arg(format!("--net={}", path(&self.0[end]))).arg(farlane().get_program());
        command
    }
}

/// Runs a command ahead of all others that want the processors. It does not spin, so others hardly
/// notice.
fn first() -> Command {
    let mut command = Command::new("chrt");
    command.args(["--fifo", "10"]);
    command
}

fn path(sleeper: &Running) -> String {
    format!("/proc/{}/ns/net", sleeper.child.id())
}

/// The stage of a measurement. Fields are dropped in the order of their declaration.
pub(crate) struct Bed {
    export: Running,
    networks: Vec<Running>,
    namespaces: Namespaces,
    _directory: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn make(link: &Link, row: &Row) -> Result<Self, String> {
        let namespaces = Namespaces::make()?;
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = directory.path().join("link.toml");
        std::fs::write(&file, link.text).map_err(|error| error.to_string())?;
        let mut networks = Vec::new();
        for index in 0..row.paths {
            let mut command = first();
            command.arg(farlane().get_program());
            command.args([
                "model",
                "emulate",
                "--json",
                "--every",
                "0",
                "--spin",
                "0",
                "--subnet",
                &format!("10.77.{index}.0/24"),
            ]);
            command.args(["--seed", &(index + 1).to_string(), "--between"]);
            command.args(namespaces.0.each_ref().map(path)).arg("--link").arg(&file);
            let mut network = Running::start(command)?;
            network.line()?;
            networks.push(network);
        }
        let mut command = namespaces.command(1);
        let address = format!("0.0.0.0:{PORT}");
        if row.scheme == "nvme-tcp" {
            command.args(["target", "--nqn", NQN, "--control"]).arg(directory.path().join("control"));
        } else {
            // The network of this bench is its own.
            command.args(["export", "--insecure"]);
        }
        command.args(["--json", "--spin", "0", "--listen", &address, "--ram", MEDIUM]).args(row.far);
        let mut export = Running::start(command)?;
        export.line()?;
        Ok(Self { export, networks, namespaces, _directory: directory })
    }

    /// The report of `farlane bench` in the near namespace.
    pub(crate) fn near(&self, row: &Row, arguments: &[&str]) -> Result<Value, String> {
        let mut command = self.namespaces.command(0);
        let url = match row.scheme {
            "nvme-tcp" => format!("nvme-tcp://10.77.0.2:{PORT}/{NQN}{}", row.query),
            scheme => format!("{scheme}://10.77.0.2:{PORT}{}", row.query),
        };
        command.args(["bench", "--json", "--spin", "0", &url]).args(row.near).args(arguments);
        let output = command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }

    /// Ends the far end and the emulators. Returns the counters that the emulators print at their
    /// end.
    pub(crate) fn end(self) -> Vec<Value> {
        let Self { export, networks, .. } = self;
        drop(export);
        networks
            .into_iter()
            .filter_map(|mut network| {
                let interrupted =
                    Command::new("kill").args(["-INT", &network.child.id().to_string()]).status();
                interrupted.ok().filter(std::process::ExitStatus::success)?;
                network.line().ok()
            })
            .collect()
    }
}
