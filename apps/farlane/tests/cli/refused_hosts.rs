//! A host that a target refuses for good: its I/O fails at once, and goes on when it is let in
//! again. What passes by itself, such as a restart, is no refusal.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, farlane, succeed};

const FRONT: &str = "nqn.2026-01.io.farlane:front";
const BEHIND: &str = "nqn.2026-01.io.farlane:behind";
const HOST: &str = "nqn.2014-08.org.example:front-host";
/// Far less than the time for which I/O waits for a device that is away.
const AT_ONCE: Duration = Duration::from_secs(30);

/// A target in front whose namespace is that of a target behind it.
struct Chain {
    folder: tempfile::TempDir,
    address: String,
}

impl Chain {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { folder: tempfile::tempdir().unwrap(), address: free.local_addr().unwrap().to_string() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes the file of the target behind, with these keys at its top and these subsystems.
    fn write(&self, top: &str, subsystems: &str) {
        let text = format!("{top}\n[[port]]\nlisten = \"{}\"\n{subsystems}", self.address);
        fs::write(self.path("behind.toml"), text).unwrap();
    }

    /// The subsystem of the target behind, with these lines.
    fn subsystem(&self, lines: &str) -> String {
        let disk = self.path("disk.img");
        format!(
            "[[subsystem]]\nnqn = \"{BEHIND}\"\n{lines}\n[[subsystem.namespace]]\npath = \"{disk}\"\n\
             size = \"8MiB\"\n"
        )
    }

    fn behind(&self) -> Export {
        let mut command = Command::new(&*FARLANE);
        let (file, control) = (self.path("behind.toml"), self.path("behind"));
        command.args(["target", "--json", "--config", &file, "--control", &control]);
        Export::of(command)
    }

    fn reload(&self) {
        succeed(&["target", "reload", "--control", &self.path("behind")]);
    }

    /// Starts the target in front, which reaches the one behind with `settings`. Returns its URL,
    /// too.
    fn front(&self, settings: &str) -> (Export, String) {
        let inner = format!("nvme-tcp://{}/{BEHIND}?hostnqn={HOST}{settings},hold=10min", self.address);
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", FRONT]);
        command.args(["--control", &self.path("front"), "--namespace", &inner]);
        let front = Export::of(command);
        let url = format!("nvme-tcp://{}/{FRONT}", front.address);
        (front, url)
    }
}

fn read(url: &str) -> std::process::Output {
    farlane(&["use", "read", url, "--length", "4096", "--output", "/dev/null"])
}

/// Reads fail from now on, without waiting for the device.
fn fails_at_once(url: &str) {
    for _ in 0..2 {
        let began = Instant::now();
        let said = String::from_utf8_lossy(&read(url).stderr).into_owned();
        assert!(said.contains("Not Ready"), "{said}");
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    }
}

#[test]
fn io_of_a_refused_host_fails_until_it_is_let_in_again() {
    let chain = Chain::new();
    let admitted = chain.subsystem(&format!("hosts = [\"{HOST}\"]"));
    let not_admitted = chain.subsystem("hosts = [\"nqn.2014-08.org.example:other\"]");
    let secret = chain.path("secret");
    succeed(&["setup", "key", "dhchap", &secret]);
    let keyed =
        chain.subsystem(&format!("[[subsystem.host]]\nnqn = \"{HOST}\"\ndhchap-secret-file = \"{secret}\""));
    let elsewhere = admitted.replace(BEHIND, "nqn.2026-01.io.farlane:elsewhere");
    chain.write("", &admitted);
    let _behind = chain.behind();
    let (front, url) = chain.front("");
    assert!(read(&url).status.success());
    for (refusing, why) in [
        (&not_admitted, "refuses this host: Connect of queue 0 was refused: Connect Invalid Host"),
        (&elsewhere, "Connect Invalid Parameters (SUBNQN)"),
        (&keyed, "authentication of queue 0 failed"),
    ] {
        chain.write("", refusing);
        chain.reload();
        front.wait_for(why);
        fails_at_once(&url);
        let times = front.said().matches("is back").count();
        chain.write("", &admitted);
        chain.reload();
        wait_until("the host is let in again", || front.said().matches("is back").count() > times);
        assert!(read(&url).status.success());
    }
}

#[test]
fn a_key_that_the_other_end_refuses_fails_io() {
    let chain = Chain::new();
    let [key, other] = ["key", "other"].map(|name| chain.path(name));
    for path in [&key, &other] {
        succeed(&["setup", "key", "tls", path]);
    }
    let with = |key: &str| {
        chain.subsystem(&format!("[[subsystem.host]]\nnqn = \"{HOST}\"\ntls-key-file = \"{key}\""))
    };
    chain.write("", &with(&key));
    let _behind = chain.behind();
    let (front, url) = chain.front(&format!("&tls-key-file={key}"));
    assert!(read(&url).status.success());
    chain.write("", &with(&other));
    chain.reload();
    front.wait_for("refuses this host: TLS: the target has ended the handshake (alert 40)");
    fails_at_once(&url);
    chain.write("", &with(&key));
    chain.reload();
    front.wait_for("is back");
    assert!(read(&url).status.success());
}

#[test]
fn a_target_that_is_not_complete_or_restarts_refuses_no_host() {
    let chain = Chain::new();
    let offered = chain.subsystem(&format!("hosts = [\"{HOST}\"]"));
    chain.write("", &offered);
    let mut behind = chain.behind();
    let (front, url) = chain.front("");
    let running = Running::start(&[
        "bench",
        &url,
        "--rw",
        "randrw",
        "--bs",
        "16k",
        "--iodepth",
        "4",
        "--verify",
        "--runtime",
        "6s",
    ]);
    // Files that leave something out, one by its own word and one because a disk is not there.
    chain.write("partial = true", "");
    chain.reload();
    std::thread::sleep(Duration::from_millis(500));
    behind.kill();
    chain.write("partial = true", "");
    let mut again = chain.behind();
    std::thread::sleep(Duration::from_millis(500));
    let missing = offered.replace("disk.img", "missing/disk.img");
    chain.write("", &missing);
    chain.reload();
    again.wait_for("can't be offered");
    std::thread::sleep(Duration::from_millis(500));
    chain.write("", &offered);
    chain.reload();
    // A target that ends in good order, with its hosts at work, and starts again.
    std::thread::sleep(Duration::from_secs(1));
    again.end_by("TERM");
    let _last = chain.behind();
    let output = running.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!front.said().contains("refuses this host"), "{}", front.said());
}
