//! A fleet of processes on this machine: controllers, agents with targets, and hosts.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with its owner.
pub(crate) struct Process {
    child: Child,
    pub(crate) log: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let output = file.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(output).stderr(file).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")), log }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Kills the process as a power failure would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the process ends by itself; its success.
    pub(crate) fn wait(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} has not ended within {patience:?}", self.log.display());
    }

    /// Waits until the process ends by itself; its text, as an error if it has failed.
    pub(crate) fn wait_for_text(mut self) -> Result<String, String> {
        let is_well = self.wait(Duration::from_secs(60));
        if is_well { Ok(self.text()) } else { Err(self.text()) }
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(status.unwrap().success(), "kill -{name} {process}");
}

/// A port of loopback that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Addresses of controllers.
fn addresses_of(controllers: usize) -> Vec<String> {
    (0..controllers).map(|_| format!("127.0.0.1:{}", free_port())).collect()
}

/// The program `farlane`; none if it was not built.
pub(crate) fn farlane() -> Option<PathBuf> {
    let given = std::env::var_os("FARLANE_UNDER_TEST").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_BIN_EXE_farlane-fleet")).with_file_name("farlane");
    let found = given.into_iter().chain([beside]).find(|path| path.exists());
    if found.is_none() {
        println!("SKIPPED without the program farlane (cargo build --package farlane --bin farlane)");
    }
    found
}

/// The programs of one version.
pub(crate) struct Version {
    farlane: PathBuf,
    fleet: PathBuf,
}

impl Version {
    /// The programs that are tested; none if `farlane` was not built.
    pub(crate) fn current() -> Option<Self> {
        Some(Self { farlane: farlane()?, fleet: env!("CARGO_BIN_EXE_farlane-fleet").into() })
    }

    /// Those of the version before, in the folder that `FARLANE_BEFORE` names. Without it, those
    /// that are tested.
    pub(crate) fn before() -> Option<Self> {
        let Some(folder) = std::env::var_os("FARLANE_BEFORE").map(PathBuf::from) else {
            println!("SKIPPED the version before: FARLANE_BEFORE names no folder with its programs");
            return Self::current();
        };
        Some(Self { farlane: folder.join("farlane"), fleet: folder.join("farlane-fleet") })
    }

    fn install(&self, folder: &Path) {
        for (path, name) in [(&self.farlane, "farlane"), (&self.fleet, "farlane-fleet")] {
            let link = folder.join(format!("{name}.new"));
            std::os::unix::fs::symlink(path.canonicalize().unwrap(), &link).unwrap();
            std::fs::rename(&link, folder.join(name)).unwrap();
        }
    }
}

/// An agent of a machine.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) address: String,
    pub(crate) agent: Option<Process>,
}

/// A fleet.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    /// Links to the programs that are installed: `farlane` and `farlane-fleet`.
    programs: PathBuf,
    pub(crate) farlane: PathBuf,
    pub(crate) controllers: Vec<Option<Process>>,
    addresses: Vec<String>,
    store: String,
    pub(crate) machines: Vec<Machine>,
}

impl Stage {
    /// A fleet whose controllers share a store, with so many machines. `None` without `farlane`.
    pub(crate) fn new(store: Option<String>, controllers: usize, machines: usize) -> Option<Self> {
        let installed = Version::current()?;
        Some(Self::with(&installed, store, controllers, machines))
    }

    /// The same with programs of another version.
    pub(crate) fn with(
        version: &Version,
        store: Option<String>,
        controllers: usize,
        machines: usize,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("fleet").tempdir().unwrap();
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        version.install(&programs);
        let farlane = programs.join("farlane");
        let store = store.unwrap_or_else(|| format!("file:{}", folder.path().join("store").display()));
        let (addresses, none) = (addresses_of(controllers), Vec::new());
        let mut stage =
            Self { folder, programs, farlane, controllers: none, addresses, store, machines: Vec::new() };
        for index in 0..controllers {
            stage.controllers.push(None);
            stage.start_controller(index);
        }
        stage.eventually("a controller leads", |stage| stage.try_fleet(&["get", "fleet"]).is_ok());
        for index in 0..machines {
            stage.join(&format!("m{index}"), &format!("site=s{index}"));
        }
        stage
    }

    /// Installs the programs of a version in the place of those before. What runs goes on.
    pub(crate) fn install(&self, version: &Version) {
        version.install(&self.programs);
    }

    /// `farlane-fleet`, as it is installed.
    fn program(&self) -> Command {
        Command::new(self.programs.join("farlane-fleet"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn start_controller(&mut self, index: usize) {
        let mut command = self.program();
        command.args(["controller", "--store", &self.store, "--listen", &self.addresses[index]]);
        command.args(["--advertise", &self.addresses.join(",")]);
        command.arg("--identity").arg(self.path("controller.pem"));
        command.arg("--control").arg(self.path(&format!("c{index}.sock")));
        command.arg("--audit").arg(self.path("audit.jsonl"));
        let process = Process::start(&mut command, self.path(&format!("c{index}.log")));
        self.controllers[index] = Some(process);
    }

    /// Enrols a machine with a pool of its name, and starts its agent.
    pub(crate) fn join(&mut self, name: &str, label: &str) {
        let address = format!("127.0.0.1:{}", free_port());
        let folder = self.path(name);
        let token = self.fleet(&["token", name])["token"].as_str().unwrap().to_owned();
        let mut command = self.program();
        command.args(["join", &token, "--address", &address, "--label", label, "--folder"]).arg(&folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let pool = self.path(&format!("{name}-pool"));
        std::fs::create_dir(&pool).unwrap();
        self.machines.push(Machine { name: name.to_owned(), folder, address, agent: None });
        self.start_agent(self.machines.len() - 1);
        let path = pool.display().to_string();
        self.fleet(&["pool", "create", name, "--node", name, "--path", &path, "--size", "1TiB"]);
    }

    pub(crate) fn start_agent(&mut self, index: usize) {
        let machine = &self.machines[index];
        let mut command = self.program();
        command.env("FARLANE", &self.farlane).args(["agent", "--devices", "user", "--folder"]);
        command.arg(&machine.folder).args(["--listen", &machine.address]);
        command.arg("--pool").arg(format!(
            "{}={}",
            machine.name,
            self.path(&format!("{}-pool", machine.name)).display()
        ));
        let log = self.path(&format!("{}.log", machine.name));
        self.machines[index].agent = Some(Process::start(&mut command, log));
    }

    /// Runs a command of `farlane fleet`, whichever controller leads.
    pub(crate) fn try_fleet(&self, words: &[&str]) -> Result<Value, String> {
        let running: Vec<_> =
            (0..self.controllers.len()).filter(|one| self.controllers[*one].is_some()).collect();
        let leads = |index: &&usize| running.len() == 1 || self.health(**index)["leads"] == true;
        let leader = *running.iter().find(leads).ok_or("no controller leads")?;
        let output = self.command(leader, words).output().unwrap();
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            return Ok(serde_json::from_str(text.trim()).unwrap_or(Value::Null));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// What one controller says of itself.
    pub(crate) fn health(&self, controller: usize) -> Value {
        let output = self.command(controller, &["status"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn command(&self, controller: usize, words: &[&str]) -> Command {
        let socket = self.path(&format!("c{controller}.sock"));
        let mut command = self.program();
        command.args(words).args(["--json", "--controllers"]).arg(format!("unix:{}", socket.display()));
        command
    }

    /// Runs a command of `farlane fleet`, which must succeed.
    pub(crate) fn fleet(&self, words: &[&str]) -> Value {
        self.try_fleet(words)
            .unwrap_or_else(|error| panic!("farlane fleet {words:?}: {error}\n{}", self.logs()))
    }

    /// The last lines of all logs.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        let names = (0..self.controllers.len()).map(|index| format!("c{index}.log"));
        let of_machines = self.machines.iter().flat_map(|machine| {
            let name = &machine.name;
            [format!("{name}.log"), format!("{name}/target.log")]
        });
        for name in names.chain(of_machines) {
            let log = std::fs::read_to_string(self.path(&name)).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            text += &format!("-- {name}\n{}\n", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
        for kind in ["volume", "attachment"] {
            text += &format!("-- {kind}: {:?}\n", self.try_fleet(&["get", kind]));
        }
        for (index, machine) in self.machines.iter().enumerate() {
            if let Some(target) = self.target_of(index) {
                let files = std::fs::read_dir(format!("/proc/{target}/fd")).into_iter().flatten().flatten();
                let files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
                let files: Vec<_> = files
                    .filter(|path| path.ends_with("raw") || path.to_string_lossy().contains(".raw"))
                    .collect();
                text += &format!("-- {} has {files:?}\n", machine.name);
            }
            let state = std::fs::read_to_string(machine.folder.join("state.json")).unwrap_or_default();
            let mut command = Command::new(&self.farlane);
            command.args(["target", "status", "--json", "--control"]).arg(machine.folder.join("target.sock"));
            let target = command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            text += &format!("-- {}: {state}\n{target:?}\n", machine.name);
        }
        text
    }

    /// Waits until something is so.
    pub(crate) fn eventually(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The record of an attachment at a machine, once the machine has it.
    pub(crate) fn record(&mut self, machine: usize, attachment: &str) -> Record {
        let path = self.machines[machine].folder.join(format!("attachments/{attachment}.json"));
        self.eventually(&format!("{} has {attachment}", self.machines[machine].name), |_| path.exists());
        let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        // The secret's file goes with the attachment: a host that has read it keeps its copy.
        let copy = self.path(&format!("{attachment}-{}.secret", text("epoch")));
        let by_tunnel = value["transport"] == "tunnel";
        let (key, option) =
            if by_tunnel { ("key_file", "--key") } else { ("dhchap_secret_file", "--dhchap-secret-file") };
        std::fs::copy(text(key), &copy).unwrap();
        Record { url: text("url"), secret: copy, option }
    }

    /// A load with verification on an attachment.
    pub(crate) fn load(&self, name: &str, record: &Record, options: &[&str]) -> Process {
        let mut command = Command::new(&self.farlane);
        let patient = if record.url.starts_with("nvme-tcp:") { "&ctrl-loss-tmo=off" } else { "" };
        command.args(["bench", &format!("{}{patient}", record.url), record.option]);
        command.arg(&record.secret).args(options);
        Process::start(&mut command, self.path(&format!("{name}.bench")))
    }

    /// One read at an attachment, without patience.
    pub(crate) fn read_once(&self, record: &Record) -> Output {
        let mut command = Command::new(&self.farlane);
        command.args(["bench", &record.url, record.option]).arg(&record.secret);
        command.args(["--io_size", "4k", "--timeout", "3s"]).output().unwrap()
    }

    /// The identifier of a machine's target.
    pub(crate) fn target_of(&self, machine: usize) -> Option<u32> {
        self.daemons_of(machine, "target").first().copied()
    }

    /// The identifiers of a machine's daemons of this kind.
    pub(crate) fn daemons_of(&self, machine: usize, kind: &str) -> Vec<u32> {
        let folder = self.machines[machine].folder.display().to_string();
        let found =
            Command::new("pgrep").args(["-f", &format!("farlane.* {kind} .*{folder}")]).output().unwrap();
        String::from_utf8_lossy(&found.stdout).lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Stage {
    /// Targets and far ends outlive their agents: they are ended here.
    fn drop(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.agent = None);
        for machine in 0..self.machines.len() {
            let exports = self.daemons_of(machine, "export");
            for daemon in self.daemons_of(machine, "target").into_iter().chain(exports) {
                signal(daemon, "KILL");
            }
        }
    }
}

/// Where a program finds the volume of an attachment.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) url: String,
    pub(crate) secret: PathBuf,
    /// The option that names the secret's file.
    option: &'static str,
}
