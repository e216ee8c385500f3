//! Servers of etcd on loopback, each with a folder of its own.

pub(crate) mod controller;
pub(crate) mod proxy;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet::Name;
use fleetd::store::etcd::{Settings, open};

use controller::Controller;

/// Where a program of etcd is: in the folder `FARLANE_ETCD`, where scripts/setup puts it, or where
/// Debian does.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/strangers/etcd/usr/bin");
    let own = std::env::var_os("FARLANE_ETCD").map(PathBuf::from);
    let folders = own.into_iter().chain([fetched, "/usr/bin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

/// A port that is free now.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server of etcd, which ends with the test.
pub(crate) struct Etcd {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) port: u16,
    data: String,
    arguments: Vec<String>,
    scheme: &'static str,
    child: Child,
}

impl Etcd {
    /// A server that is a cluster by itself.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(tempfile::tempdir().unwrap(), "http", &[])
    }

    /// The same, with more arguments.
    pub(crate) fn start_with(
        folder: tempfile::TempDir,
        scheme: &'static str,
        arguments: &[&str],
    ) -> Option<Self> {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let peer = port();
        let ring = format!("one=http://127.0.0.1:{peer}");
        let etcd = Self::begin(folder, scheme, "one", port(), peer, &ring, arguments)?;
        etcd.wait();
        Some(etcd)
    }

    /// A server that is one of a ring; it serves no client before most of them run.
    pub(crate) fn begin(
        folder: tempfile::TempDir,
        scheme: &'static str,
        name: &str,
        port: u16,
        peer: u16,
        ring: &str,
        more: Vec<String>,
    ) -> Option<Self> {
        if program("etcd").is_none() {
            println!("SKIPPED: etcd is not here; `scripts/setup --tests` fetches it");
            return None;
        }
        let own = format!("{scheme}://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut arguments = vec![
            format!("--name={name}"),
            format!("--listen-client-urls={own}"),
            format!("--advertise-client-urls={own}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={ring}"),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        arguments.extend(more);
        let data = "data".to_owned();
        let child = spawn(folder.path(), &data, &arguments);
        Some(Self { folder, port, data, arguments, scheme, child })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(vec![self.endpoint()])
    }

    /// A controller of the fleet "test".
    pub(crate) async fn controller(&self) -> Controller {
        Controller::new(open(self.settings()).await.unwrap())
    }

    /// etcdctl with the endpoint of this server. Fails the test if etcdctl fails.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.try_control(arguments);
        assert!(ok, "etcdctl {arguments:?}: {text}");
        text
    }

    pub(crate) fn try_control(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(program("etcdctl").expect("etcdctl comes with etcd"));
        let command = command.env("ETCDCTL_API", "3").current_dir(self.folder.path());
        let endpoint = format!("--endpoints={}://{}", self.scheme, self.endpoint());
        let output = command.arg(endpoint).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Waits until the server accepts connections.
    pub(crate) fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "etcd does not listen on port {}", self.port);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a server that was killed.
    pub(crate) fn again(&mut self) {
        self.child = spawn(self.folder.path(), &self.data, &self.arguments);
        self.wait();
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Makes a data folder from a snapshot, with which the server starts again.
    pub(crate) fn restore(&mut self, snapshot: &str) {
        self.data = format!("{}-again", self.data);
        let tool = program("etcdutl").or_else(|| program("etcdctl")).unwrap();
        let ring = |name: &str| self.arguments.iter().find(|one| one.starts_with(name)).unwrap().as_str();
        let mut command = Command::new(tool);
        let command = command.env("ETCDCTL_API", "3").current_dir(self.folder.path());
        let command = command.args(["snapshot", "restore", snapshot, "--name=one"]);
        let command = command.args([ring("--initial-cluster="), ring("--initial-advertise-peer-urls=")]);
        let output = command.arg(format!("--data-dir={}", self.data)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, data: &str, arguments: &[String]) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program("etcd").unwrap());
    let command = command.current_dir(folder).arg(format!("--data-dir={data}")).args(arguments);
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

pub(crate) fn settings(endpoints: Vec<String>) -> Settings {
    Settings { endpoints, cluster: Name::new("test").unwrap(), tls: None, user: None }
}
