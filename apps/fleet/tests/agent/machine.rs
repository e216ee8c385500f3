//! A machine of the fleet: its agent, its target, and the end of the channel to its controller.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fleet::object::{Admission, Mode, Transport};
use fleet::slice::{HostAttachment, OwnedVolume, Seen, Wish};
use fleet::{Epoch, Name};
use fleetd::agent::{Devices, Record, Settings, Tunnels, find};
use fleetd::wire::{Credential, FromAgent, Report, Slice, ToAgent, Wire};

/// The variable with the settings of an agent's process.
pub(crate) const SETTINGS: &str = "FLEET_AGENT_UNDER_TEST";
/// How long a step may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const POOL: &str = "pool";
/// Ports for the far ends of all machines of all tests, below those that the system hands out.
const TUNNEL_PORTS: std::ops::RangeInclusive<u16> = 24_400..=24_999;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The program `farlane`; `None`, and a line that says so, if it is nowhere.
pub(crate) fn farlane() -> Option<PathBuf> {
    let given = std::env::var_os("FARLANE_UNDER_TEST").map(PathBuf::from);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["demo", "release", "debug"].map(|profile| target.join(profile).join("farlane"));
    let found = given.into_iter().chain(built).find(|path| path.exists());
    if found.is_none() {
        println!(
            "SKIPPED: there is no program farlane; set FARLANE_UNDER_TEST, or run cargo build -p farlane"
        );
    }
    found.map(|path| path.canonicalize().unwrap())
}

/// The settings in the text of the variable: folder, address, program, pool, node, encrypt, guest.
pub(crate) fn parse(text: &str) -> Settings {
    let parts: Vec<&str> = text.split('\n').collect();
    let [folder, listen, farlane, pool, node, encrypt, guest] = parts[..] else {
        panic!("seven lines: {text}")
    };
    let tunnels = Tunnels { address: [127, 0, 0, 1].into(), ports: TUNNEL_PORTS };
    Settings {
        folder: folder.into(),
        listen: vec![listen.parse().unwrap()],
        farlane: farlane.into(),
        pools: vec![(name(POOL), pool.into())],
        devices: if guest == "guest" { Devices::Guest } else { Devices::User },
        tunnels,
        encrypt: encrypt == "encrypt",
        node: name(node),
    }
}

/// What an agent has reported.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) report: fleet::slice::Report,
    pub(crate) credentials: Vec<Credential>,
}

impl Reported {
    pub(crate) fn volume(&self, volume: &str) -> Option<&fleet::slice::VolumeReport> {
        self.report.volumes.iter().find(|one| one.name == name(volume))
    }

    /// Whether the list of a volume with this epoch is enforced.
    pub(crate) fn enforces(&self, volume: &str, number: u64) -> bool {
        self.volume(volume).is_some_and(|one| one.enforced && one.epoch.number == number)
    }

    pub(crate) fn connects(&self, attachment: &str, number: u64) -> bool {
        let mut all = self.report.attachments.iter();
        all.any(|one| one.name == name(attachment) && one.connected && one.epoch.number == number)
    }
}

pub(crate) struct Machine {
    directory: tempfile::TempDir,
    pub(crate) node: String,
    pub(crate) farlane: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) encrypt: bool,
    pub(crate) has_guests: bool,
    agent: Option<(Child, ChildStdin, Receiver<FromAgent>)>,
    term: u64,
    revision: u64,
}

impl Machine {
    pub(crate) fn new(farlane: &Path, node: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("fa").tempdir().unwrap();
        std::fs::create_dir(directory.path().join(POOL)).unwrap();
        // The address is free, and stays so for long enough.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (node, farlane) = (node.to_owned(), farlane.to_owned());
        let (encrypt, has_guests) = (false, false);
        Self { directory, node, farlane, address, encrypt, has_guests, agent: None, term: 0, revision: 0 }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.directory.path().join(POOL)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("agent.log")
    }

    /// The messages of all agents of the machine.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Starts an agent, and asks it in a term of its own.
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        let encrypt = if self.encrypt { "encrypt" } else { "" };
        let guest = if self.has_guests { "guest" } else { "" };
        let [folder, pool] = [self.folder(), self.pool()].map(|path| path.display().to_string());
        let [address, farlane] = [self.address.to_string(), self.farlane.display().to_string()];
        let settings = [&folder, &address, &farlane, &pool, &self.node, encrypt, guest].join("\n");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "agent_process", "--nocapture"]).env(SETTINGS, settings);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                // The harness writes lines of its own.
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        self.agent = Some((child, input, receiver));
        self.ask();
    }

    /// A new controller asks.
    pub(crate) fn ask(&mut self) {
        self.term += 1;
        self.send(&ToAgent::Ask { term: self.term });
    }

    fn send(&mut self, message: &ToAgent) {
        let (_, input, _) = self.agent.as_mut().unwrap();
        // An agent that was killed reads nothing.
        let _ = writeln!(input, "{}", serde_json::to_string(message).unwrap());
    }

    pub(crate) fn kill_agent(&mut self) {
        if let Some((mut child, ..)) = self.agent.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a slice of the present term.
    pub(crate) fn slice(
        &mut self,
        volumes: Vec<OwnedVolume>,
        attachments: Vec<HostAttachment>,
        credentials: &[Credential],
    ) {
        self.revision += 1;
        let seen = Seen { incarnation: 0, term: self.term, revision: self.revision };
        let slice = Slice::wire(&fleet::slice::Slice { seen, volumes, attachments, copies: Vec::new() });
        self.send(&ToAgent::Slice { slice, credentials: credentials.to_vec() });
    }

    /// Waits for a report of the present term that `is_it`.
    pub(crate) fn await_report(&mut self, what: &str, is_it: impl Fn(&Reported) -> bool) -> Reported {
        let until = Instant::now() + PATIENCE;
        let mut last = None;
        loop {
            let (_, _, receiver) = self.agent.as_ref().unwrap();
            let message = receiver.recv_timeout(until.saturating_duration_since(Instant::now()));
            let Ok(message) = message else {
                let target = std::fs::read_to_string(self.folder().join("target.log")).unwrap_or_default();
                panic!("{what} was not reported: {last:#?}\n{}\n{target}", self.logged());
            };
            let FromAgent::Report { report, credentials } = message else { continue };
            let report = Report::pure(report).unwrap();
            if report.term != self.term {
                continue;
            }
            let reported = Reported { report, credentials };
            if is_it(&reported) {
                return reported;
            }
            last = Some(reported);
        }
    }

    /// Has the volume `v` serve these hosts from this epoch on, and waits until that is enforced.
    pub(crate) fn enforce(&mut self, number: u64, admitted: &[Admission]) -> Reported {
        self.slice(vec![volume("v", number, admitted)], Vec::new(), &[]);
        self.await_report(&format!("epoch {number}"), |reported| reported.enforces("v", number))
    }

    /// Connects this machine to the volume `v` of `owner`, and waits until it is connected.
    pub(crate) fn connect(&mut self, owner: &Self, one: &Admission, credentials: &[Credential]) -> Record {
        self.slice(Vec::new(), vec![attachment(owner, one, Wish::Connect)], credentials);
        let (text, number) = (one.attachment.to_string(), one.epoch.number);
        self.await_report(&text, |reported| reported.connects(&text, number));
        find(&self.folder(), &one.attachment).unwrap().expect("the record of a connected attachment")
    }

    /// The identifier of the process of the target, by its control socket.
    pub(crate) fn target(&self) -> Option<u32> {
        let answer =
            live::drivers::control::ask(&self.folder().join("target.sock"), r#"{"command":"status"}"#);
        let answer: serde_json::Value = serde_json::from_str(&answer.ok()?).unwrap();
        Some(u32::try_from(answer["done"]["pid"].as_u64().unwrap()).unwrap())
    }

    pub(crate) fn kill_target(&self) {
        if let Some(target) = self.target() {
            signal(target, "-KILL");
        }
    }

    /// The process of each far end or attachment whose control socket is in this folder of the
    /// agent's.
    pub(crate) fn processes(&self, folder: &str) -> Vec<u32> {
        let sockets = std::fs::read_dir(self.folder().join(folder)).into_iter().flatten();
        let sockets = sockets.map(|entry| entry.unwrap().path());
        let sockets = sockets.filter(|path| path.extension().is_some_and(|ending| ending == "sock"));
        let process = |path: PathBuf| {
            let answer = live::drivers::control::ask(&path, r#"{"command":"status"}"#).ok()?;
            let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
            u32::try_from(answer["done"]["pid"].as_u64()?).ok()
        };
        sockets.filter_map(process).collect()
    }

    /// Kills them.
    pub(crate) fn kill_processes(&self, folder: &str) {
        self.processes(folder).into_iter().for_each(|process| signal(process, "-KILL"));
    }

    /// Stops them: they listen, and do not answer.
    pub(crate) fn stop_processes(&self, folder: &str) {
        self.processes(folder).into_iter().for_each(|process| signal(process, "-STOP"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_agent();
        self.kill_target();
        self.kill_processes("exports");
        self.kill_processes("attachments");
    }
}

/// Sends a signal to a process of this test.
fn signal(process: u32, signal: &str) {
    assert!(process > 1);
    Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
}

pub(crate) fn epoch(number: u64) -> Epoch {
    Epoch { incarnation: 0, number }
}

pub(crate) fn admission(attachment: &str, node: &str, mode: Mode, number: u64) -> Admission {
    let transport = Transport::NvmeTcp;
    Admission { attachment: name(attachment), node: name(node), mode, epoch: epoch(number), transport }
}

/// The only host of a volume, by tunnel.
pub(crate) fn by_tunnel(attachment: &str, node: &str, number: u64) -> Admission {
    Admission { transport: Transport::Tunnel, ..alone(attachment, node, number) }
}

pub(crate) fn alone(attachment: &str, node: &str, number: u64) -> Admission {
    admission(attachment, node, Mode::Exclusive, number)
}

/// A volume of 8 MiB.
pub(crate) fn volume(text: &str, number: u64, admitted: &[Admission]) -> OwnedVolume {
    OwnedVolume {
        name: name(text),
        pool: name(POOL),
        bytes: 8 << 20,
        epoch: epoch(number),
        admitted: admitted.to_vec(),
        delete: false,
    }
}

pub(crate) fn attachment(owner: &Machine, one: &Admission, wish: Wish) -> HostAttachment {
    HostAttachment {
        name: one.attachment.clone(),
        volume: name("v"),
        epoch: one.epoch,
        mode: one.mode,
        transport: one.transport,
        owner: name(&owner.node),
        addresses: vec![owner.address.to_string()],
        wish,
    }
}

/// Runs `farlane` on the volume of a record.
pub(crate) fn use_volume(farlane: &Path, record: &Record, words: &[&str], options: &[&str]) -> Output {
    start_use(farlane, record, words, options).wait_with_output().unwrap()
}

pub(crate) fn start_use(farlane: &Path, record: &Record, words: &[&str], options: &[&str]) -> Child {
    let mut command = Command::new(farlane);
    command.args(words).arg(&record.url).args(options).args(record.secrets());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether the host of a record is let in.
pub(crate) fn logs_in(farlane: &Path, record: &Record) -> Result<(), String> {
    let output = use_volume(farlane, record, &["measure", "ping"], &["--count", "1", "--timeout", "3s"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}
