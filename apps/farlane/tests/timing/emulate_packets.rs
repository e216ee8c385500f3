//! `farlane model emulate --between`: the kernel's own TCP over a modelled path between two network
//! namespaces. A test that is not allowed to make namespaces says so and does nothing.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::support::running::{signal, wait_until};
use crate::support::schema::holds;
use crate::support::{Export, FARLANE, fail};
use serde_json::Value;

/// A network namespace, which exists as long as a process that sleeps in it.
struct Namespace(Child);

impl Namespace {
    /// Makes a network namespace; none where that is not allowed.
    fn make() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "300"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .inspect_err(|error| {
                eprintln!("skipped: no network namespace can be made here: unshare: {error}")
            })
            .ok()?;
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let mut failed = false;
        wait_until("the namespace is there", || {
            failed = child.try_wait().unwrap().is_some();
            let there = std::fs::read_link(format!("/proc/{}/ns/net", child.id()));
            failed || there.is_ok_and(|there| there != own)
        });
        if failed {
            eprintln!("skipped: no network namespace can be made here: unshare --net is refused");
            return None;
        }
        Some(Self(child))
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A command that runs a program in the namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An emulator between two network namespaces.
struct Emulated {
    child: Child,
    lines: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

impl Emulated {
    /// Starts an emulator; none where it may not make interfaces, or the system has no such
    /// interfaces.
    fn between(near: &Namespace, far: &Namespace, subnet: &str, link: &str) -> Option<Self> {
        let (directory, path) = file(link);
        let mut child = Command::new(&*FARLANE)
            .args([
                "model",
                "emulate",
                "--json",
                "--between",
                &near.path(),
                &far.path(),
                "--subnet",
                subnet,
                "--link",
            ])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("network interface"), "{said}");
            eprintln!("skipped: {said}");
            return None;
        }
        let said: Value = serde_json::from_str(&line).unwrap();
        holds("emulate-interfaces", &said);
        assert_eq!(said["between"][0], near.path());
        assert_eq!(said["addresses"][1], subnet.replace(".0/24", ".2"));
        Some(Self { child, lines, _directory: directory })
    }

    /// Interrupts the emulator, as a person would. Returns its last counters.
    fn end(mut self) -> Value {
        signal(self.child.id(), "INT");
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has counters at its end");
            let counters: Value = serde_json::from_str(&line).unwrap();
            holds("emulate-packets-progress", &counters);
            if counters["end"] == true {
                assert_eq!(self.child.wait().unwrap().code(), Some(0));
                return counters;
            }
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A link file whose text is `link`, and its directory.
fn file(link: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link.toml");
    std::fs::write(&path, link).unwrap();
    (directory, path)
}

fn interfaces(namespace: &Namespace) -> String {
    let Output { stdout, .. } = namespace.command("cat").arg("/proc/self/net/dev").output().unwrap();
    String::from_utf8(stdout).unwrap()
}

#[test]
fn two_paths_between_the_same_namespaces_take_their_own_times() {
    let (Some(near), Some(far)) = (Namespace::make(), Namespace::make()) else { return };
    let link = |latency: u32| format!("[link]\nlatency = \"{latency}ms\"\nrate = \"1Gbit/s\"\nmtu = 1400\n");
    let Some(short) = Emulated::between(&near, &far, "10.77.0.0/24", &link(5)) else { return };
    let Some(long) = Emulated::between(&near, &far, "10.77.1.0/24", &link(50)) else { return };
    let mut command = far.command(&FARLANE);
    command.args(["export", "--insecure", "--listen", "0.0.0.0:4430", "--ram", "1MiB", "--json"]);
    let export = Export::of(command);
    for (host, least, most) in
        [("10.77.0.2", 10_000_000, 60_000_000), ("10.77.1.2", 100_000_000, 160_000_000)]
    {
        let ping = near
            .command(&FARLANE)
            .args(["measure", "ping", &format!("tcp://{host}:4430"), "--count", "5", "--json"])
            .output()
            .unwrap();
        let ping: Value = serde_json::from_slice(&ping.stdout).unwrap();
        let median = ping["latency_ns"]["p50"].as_u64().unwrap();
        assert!((least..most).contains(&median), "{ping}");
    }
    assert_eq!(interfaces(&near).matches("farlane").count(), 2);
    drop(export);
    for emulated in [short, long] {
        let counters = emulated.end();
        assert!(counters["there"]["frames"].as_u64().unwrap() >= 5, "{counters}");
        assert!(counters["late_ns"]["p50"].as_u64().unwrap() > 0, "{counters}");
        assert_eq!(counters["strange"], 0);
    }
    // The interfaces are gone with the processes that made them.
    assert_eq!(interfaces(&near).matches("farlane").count(), 0);
}

#[test]
fn a_namespace_that_is_not_there_is_said_with_the_remedy() {
    let (_directory, path) = file("[link]\nlatency = \"1ms\"\n");
    let path = path.to_str().unwrap();
    let said = fail(&["model", "emulate", "--between", "no-such-namespace", "no-other", "--link", path]);
    assert!(said.contains("ip netns add no-such-namespace"), "{said}");
    let said =
        fail(&["model", "emulate", "--between", "one", "two", "--connect", "127.0.0.1:1", "--link", path]);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = fail(&["model", "emulate", "--link", path]);
    assert!(said.contains("--connect"), "{said}");
}

#[test]
fn a_user_without_the_right_gets_the_remedy() {
    let Some(near) = Namespace::make() else { return };
    let (_directory, path) = file("[link]\nlatency = \"1ms\"\n");
    // In a user namespace of its own, the program may not change networks outside of it.
    let output = Command::new("unshare")
        .args(["--user", &FARLANE, "emulate", "--between", &near.path(), &near.path(), "--link"])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare") && !said.contains("CAP_NET_ADMIN") {
        return eprintln!("skipped: no user namespace can be made here: {said}");
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("sudo"), "{said}");
}
