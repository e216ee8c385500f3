//! Finding the daemons of this machine without knowing where their control sockets are.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE};
use serde_json::Value;

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A user's own folder for sockets.
struct Runtime(tempfile::TempDir);

impl Runtime {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&*FARLANE);
        command.env("XDG_RUNTIME_DIR", self.0.path()).args(arguments);
        command
    }

    fn daemon(&self, arguments: &[&str]) -> Export {
        Export::of(self.command(&[arguments, &["--json"]].concat()))
    }

    /// What a command prints: on standard output when it succeeds, else on standard error.
    fn said(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn list(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_str(&self.said(&["list", "--json"]).unwrap()).unwrap();
        listed["daemons"].as_array().unwrap().clone()
    }

    fn folder(&self) -> std::path::PathBuf {
        self.0.path().join("farlane")
    }
}

const TARGET: [&str; 7] =
    ["target", "--listen", "127.0.0.1:0", "--nqn", "nqn.2024-01.io.farlane:listed", "--ram", "1MiB"];

#[test]
fn each_kind_is_listed_with_its_place_and_its_socket() {
    let user = Runtime::new();
    assert!(user.list().is_empty());
    assert!(user.said(&["list"]).unwrap().contains("no daemon of this user"));
    let target = user.daemon(&TARGET);
    let far = user.daemon(&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"]);
    let (slot, own) = (user.0.path().join("slot"), user.0.path().join("own"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let url = format!("tcp://{}", far.address);
    let _attach = user.daemon(&["attach", &url, "--vfio-user", &path(&slot)]);
    let _device = user.daemon(&["device", "--ram", "1MiB", "--vfio-user", &path(&own)]);
    let recording = path(&user.0.path().join("a.rec"));
    let mut recorder =
        user.command(&["record", "--from", "generate:1MB", "--to", &recording, "--for", "60s"]);
    let _recorder = Killed(recorder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut listed = Vec::new();
    // A recorder answers before it records.
    wait_until("all are listed, and the recorder runs", || {
        listed = user.list();
        listed.len() == 5 && listed.iter().any(|one| one["kind"] == "record" && one["state"] == "running")
    });
    let of = |kind: &str| listed.iter().find(|one| one["kind"] == kind).unwrap().clone();
    assert_eq!(of("target")["pid"], target.id());
    assert_eq!(of("export")["far_ends"][0]["listening"], far.address.as_str());
    assert_eq!(of("attach")["url"], url.as_str());
    assert_eq!(of("attach")["vfio_user"], path(&slot).as_str());
    assert_eq!(of("device")["client"], false);
    assert_eq!(of("record")["state"], "running");
    let text = user.said(&["list"]).unwrap();
    for words in [
        format!("{} (NVMe/TCP)", target.address),
        format!("{url} as vfio-user:{}", slot.display()),
        "1 subsystem, 0 hosts".to_owned(),
        "no guest".to_owned(),
        of("target")["socket"].as_str().unwrap().to_owned(),
    ] {
        assert!(text.contains(&words), "{words} in:\n{text}");
    }
    // Without a path, all are asked.
    let all = user.said(&["status"]).unwrap();
    assert!(all.contains("listening at") && all.contains("the far end: "), "{all}");
}

#[test]
fn a_killed_daemons_socket_goes_and_requests_find_the_only_target() {
    let user = Runtime::new();
    let missing = user.said(&["target", "status"]).unwrap_err();
    assert!(
        missing.contains("no farlane target of this user") && missing.contains("farlane list"),
        "{missing}"
    );
    let mut first = user.daemon(&TARGET);
    let added = user.said(&["target", "add", "--ram", "1MiB"]).unwrap();
    assert!(added.contains("added namespace 2"), "{added}");
    let second = user.daemon(&TARGET);
    let which = user.said(&["target", "status"]).unwrap_err();
    assert!(which.contains("there are 2 of farlane target"), "{which}");
    first.kill();
    // What is killed leaves its socket.
    assert_eq!(std::fs::read_dir(user.folder()).unwrap().count(), 2);
    assert_eq!(user.list()[0]["pid"], second.id());
    assert_eq!(std::fs::read_dir(user.folder()).unwrap().count(), 1);
    // Whatever else is in the folder stays as it is.
    std::fs::write(user.folder().join("note.sock"), "not a socket").unwrap();
    std::fs::write(user.folder().join("note"), "no socket").unwrap();
    assert_eq!(user.list().len(), 1);
    assert_eq!(std::fs::read_to_string(user.folder().join("note.sock")).unwrap(), "not a socket");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(user.folder()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700, "the folder is its user's alone");
}

#[test]
fn what_answers_with_something_else_is_no_daemon() {
    let user = Runtime::new();
    std::fs::create_dir(user.folder()).unwrap();
    let listener = UnixListener::bind(user.folder().join("other.sock")).unwrap();
    let other = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        BufReader::new(&socket).read_line(&mut String::new()).unwrap();
        socket.write_all(b"{\"done\":[]}\n").unwrap();
    });
    assert!(user.list().is_empty());
    other.join().unwrap();
}
