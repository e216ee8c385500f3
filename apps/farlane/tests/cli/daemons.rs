//! Finding the daemons of this machine without knowing where their control sockets are.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, stripped};
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

    /// The output of a command: on standard output when it succeeds, else on standard error.
    fn said(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn list(&self) -> Vec<Value> {
        let listed: Value =
            serde_json::from_str(&self.said(&["observe", "list", "--json"]).unwrap()).unwrap();
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
    assert!(user.said(&["observe", "list"]).unwrap().contains("no daemon of this user"));
    let target = user.daemon(&TARGET);
    let far = user.daemon(&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"]);
    let (slot, own) = (user.0.path().join("slot"), user.0.path().join("own"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let url = format!("tcp://{}", far.address);
    let _attach = user.daemon(&["attach", &url, "--vfio-user", &path(&slot)]);
    let _device = user.daemon(&["offer", "device", "--ram", "1MiB", "--vfio-user", &path(&own)]);
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
    let text = user.said(&["observe", "list"]).unwrap();
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
    let all = user.said(&["observe", "status"]).unwrap();
    assert!(all.contains("listening at") && all.contains("the far end: "), "{all}");
}

#[test]
fn a_killed_daemons_socket_goes_and_requests_find_the_only_target() {
    let user = Runtime::new();
    let missing = user.said(&["target", "status"]).unwrap_err();
    assert!(
        missing.contains("no farlane target of this user") && missing.contains("farlane observe list"),
        "{missing}"
    );
    let mut first = user.daemon(&TARGET);
    let added = user.said(&["target", "add", "--ram", "1MiB"]).unwrap();
    assert!(added.contains("added namespace 2"), "{added}");
    let second = user.daemon(&TARGET);
    let which = user.said(&["target", "status"]).unwrap_err();
    assert!(which.contains("there are 2 of farlane target"), "{which}");
    first.kill();
    // A killed daemon leaves its socket.
    assert_eq!(std::fs::read_dir(user.folder()).unwrap().count(), 2);
    assert_eq!(user.list()[0]["pid"], second.id());
    assert_eq!(std::fs::read_dir(user.folder()).unwrap().count(), 1);
    // Other files in the folder stay as they are.
    std::fs::write(user.folder().join("note.sock"), "not a socket").unwrap();
    std::fs::write(user.folder().join("note"), "no socket").unwrap();
    assert_eq!(user.list().len(), 1);
    assert_eq!(std::fs::read_to_string(user.folder().join("note.sock")).unwrap(), "not a socket");
    let mode = fs::metadata(user.folder()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700, "the folder is its user's alone");
}

#[test]
fn what_answers_with_something_else_is_no_daemon() {
    let user = Runtime::new();
    DirBuilder::new().mode(0o700).create(user.folder()).unwrap();
    let listener = UnixListener::bind(user.folder().join("other.sock")).unwrap();
    let other = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        BufReader::new(&socket).read_line(&mut String::new()).unwrap();
        socket.write_all(b"{\"done\":[]}\n").unwrap();
    });
    assert!(user.list().is_empty());
    other.join().unwrap();
}

#[test]
fn where_no_daemon_runs_the_answer_says_where_it_looked_and_what_starts_one() {
    let user = Runtime::new();
    for command in ["status", "list"] {
        let reported = user.said(&[command]).unwrap();
        let folder = user.folder().display().to_string();
        for words in [folder.as_str(), "farlane export --listen 127.0.0.1:4430 --ram 1GiB", "--control"] {
            assert!(reported.contains(words), "{command}, {words}: {reported}");
        }
        let printed: Value = serde_json::from_str(&user.said(&[command, "--json"]).unwrap()).unwrap();
        assert_eq!(printed["daemons"].as_array().map(Vec::len), Some(0), "{command}: {printed}");
    }
    // To look is not to make anything.
    assert!(!user.folder().exists());
}

/// A user without a folder for sockets, as after `su`.
struct Bare {
    folder: tempfile::TempDir,
    program: PathBuf,
    uid: u32,
}

impl Bare {
    /// A user of no other process here; none unless this test may become that user.
    fn new() -> Option<Self> {
        let uid = 61_234;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        if fs::metadata("/proc/self").unwrap().uid() != 0 || chown(folder.path(), Some(0), None).is_err() {
            eprintln!("SKIPPED: only root may become a user without a folder");
            return None;
        }
        let program = stripped(folder.path());
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let bare = Self { folder, program, uid };
        match bare.command(&["--version"]).output() {
            Ok(output) if output.status.success() => Some(bare),
            other => {
                eprintln!("SKIPPED: another user can't run the program here: {other:?}");
                None
            }
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.uid(self.uid).gid(self.uid).current_dir("/").env("TMPDIR", self.folder.path());
        command.env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CONFIG_HOME").env_remove("HOME");
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn sockets(&self) -> PathBuf {
        self.folder.path().join(format!("farlane-{}", self.uid))
    }
}

const FAR: [&str; 6] = ["export", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--json"];

#[test]
fn a_user_without_a_runtime_folder_finds_daemons_as_well() {
    let Some(user) = Bare::new() else { return };
    let far = Export::of(user.command(&FAR));
    let made = fs::metadata(user.sockets()).unwrap();
    assert_eq!((made.mode() & 0o777, made.uid()), (0o700, user.uid));
    let listed: Value = serde_json::from_slice(&user.run(&["observe", "list", "--json"]).stdout).unwrap();
    assert_eq!(listed["daemons"][0]["pid"], far.id(), "{listed}");
    assert!(user.run(&["observe", "status"]).status.success());
    let examined = String::from_utf8(user.run(&["setup", "doctor", "serving"]).stdout).unwrap();
    assert!(examined.contains(&format!("in {}", user.sockets().display())), "{examined}");
    // A variable that was left over from another user changes nothing.
    let other = tempfile::tempdir().unwrap();
    let output =
        user.command(&["observe", "list", "--json"]).env("XDG_RUNTIME_DIR", other.path()).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["daemons"][0]["pid"], far.id(), "{listed}");
}

#[test]
fn sockets_are_neither_made_nor_looked_for_where_other_users_may_put_some() {
    let Some(user) = Bare::new() else { return };
    let elsewhere = user.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    chown(&elsewhere, Some(user.uid), None).unwrap();
    let refused = |why: &str| {
        for command in ["list", "status", "top", "capture"] {
            let arguments = if command == "capture" { &["capture", "--out", "-"][..] } else { &[command] };
            let output = user.run(arguments);
            let reported = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command}: {reported}");
            assert!(
                reported.contains(why) && reported.contains("XDG_RUNTIME_DIR"),
                "{command}, {why}: {reported}"
            );
        }
        // A daemon serves nevertheless, and says what it lacks.
        let far = Export::of(user.command(&FAR));
        far.wait_for("no control socket in");
        assert!(far.said().contains(why) && far.said().contains("--control"), "{}", far.said());
        let recording = elsewhere.join("a.rec");
        let recording = recording.to_str().unwrap();
        let recorder = ["record", "--from", "generate:1MB", "--to", recording, "--for", "50ms", "--force"];
        let recorded = user.run(&recorder);
        let reported = String::from_utf8_lossy(&recorded.stderr);
        assert!(recorded.status.success() && reported.contains("no control socket in"), "{reported}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1, "only the recording is there");
    };
    symlink(&elsewhere, user.sockets()).unwrap();
    refused("symbolic link");
    fs::remove_file(user.sockets()).unwrap();
    fs::create_dir(user.sockets()).unwrap();
    refused("another user");
    chown(user.sockets(), Some(user.uid), None).unwrap();
    fs::set_permissions(user.sockets(), Permissions::from_mode(0o777)).unwrap();
    refused("mode 0777");
    fs::set_permissions(user.sockets(), Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(user.folder.path(), Permissions::from_mode(0o777)).unwrap();
    refused("sticky");
}
