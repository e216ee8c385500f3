//! Files in folders that other users may write: files that another user has planted there are
//! neither written nor read, and new files there are private.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, fail, farlane, json, succeed};

/// An unprivileged user.
const OTHER: u32 = 65_534;
const VICTIMS: &str = "the victim's";

/// Whether this test runs as root, which alone can give a file to another user.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("SKIPPED: only root can give files to another user");
    }
    is_root
}

/// A folder of another user, which every user may write, and beside it a file that must not change.
struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new(mode: u32) -> Self {
        let ground = Self { folder: tempfile::tempdir().unwrap() };
        // Processes that are not root's get to it as well.
        fs::set_permissions(ground.folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(ground.shared()).unwrap();
        fs::set_permissions(ground.shared(), Permissions::from_mode(mode)).unwrap();
        chown(ground.shared(), Some(OTHER), None).unwrap();
        fs::write(ground.victim(), VICTIMS).unwrap();
        ground
    }

    fn shared(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    fn victim(&self) -> PathBuf {
        self.folder.path().join("victim")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.shared().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A symbolic link of another user to the victim.
    fn plant(&self, name: &str) {
        symlink(self.victim(), self.path(name)).unwrap();
        lchown(self.path(name), Some(OTHER), None).unwrap();
    }

    fn assert_whole(&self, after: &str) {
        assert_eq!(fs::read_to_string(self.victim()).unwrap(), VICTIMS, "after {after}");
        let metadata = fs::metadata(self.victim()).unwrap();
        assert_eq!((metadata.uid(), metadata.nlink()), (0, 1), "after {after}");
    }
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::symlink_metadata(path).unwrap();
    assert!(metadata.is_file(), "{} is no file", path.display());
    metadata.permissions().mode() & 0o7777
}

fn export(arguments: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--json", "--listen", "127.0.0.1:0"]).args(arguments);
    Export::of(command)
}

/// A recording of 1 MiB.
fn record(to: &str, more: &[&str]) -> std::process::Output {
    farlane(&[&["record", "--from", "generate:1GB", "--size", "1MiB", "--to", to], more].concat())
}

#[test]
fn a_daemon_keeps_its_state_beside_planted_links_and_warns_once_of_the_folder() {
    if !is_root() {
        return;
    }
    // The sandbox keeps a daemon from files elsewhere, but not from those of the same folder.
    for (shared, more) in [(0o1777, &["--no-sandbox"][..]), (0o777, &[])] {
        let ground = Ground::new(shared);
        let (state, disk, pool) = (ground.at("ssd.state"), ground.at("disk.img"), ground.at("pool.img"));
        let planted = ["ssd.state.new", "ssd.state.old", "ssd.state.damaged", "control.lock"];
        planted.iter().for_each(|name| ground.plant(name));
        let (disk, pool) = (format!("{disk},size=1MiB"), format!("{pool},size=1MiB"));
        let control = ground.at("control");
        let arguments = ["--namespace", &disk, "--pool", &pool, "--state", &state, "--control", &control];
        let arguments = [&arguments[..], more].concat();
        let mut far = export(&arguments);
        succeed(&["nvme", "identify", &far.url()]);
        let (status, said) = far.end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
        ground.assert_whole("the first start");
        let warned = said.matches("other users may write the folder").count();
        assert!(warned == 1 && said.contains(ground.shared().to_str().unwrap()), "{said}");
        // The present file is replaced beside the planted name.
        ground.plant("ssd.state.new");
        let mut far = export(&arguments);
        succeed(&["nvme", "identify", &far.url()]);
        let (status, said) = far.end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
        ground.assert_whole("the second start");
        for name in ["ssd.state", "disk.img", "pool.img", "ssd.state.old"] {
            assert_eq!(mode(&ground.path(name)), 0o600, "{name}");
        }
        assert!(fs::read_to_string(&state).unwrap().starts_with("# The state of a Farlane"));
    }
}

#[test]
fn the_state_of_another_user_is_not_taken_for_an_own_one() {
    if !is_root() {
        return;
    }
    let ground = Ground::new(0o1777);
    let state = ground.at("ssd.state");
    drop(export(&["--ram", "1MiB", "--state", &state]));
    let sound = fs::read_to_string(&state).unwrap();
    for name in ["ssd.state", "ssd.state.old"] {
        let _ = fs::remove_file(ground.path(name));
        fs::write(ground.path(name), &sound).unwrap();
        chown(ground.path(name), Some(OTHER), None).unwrap();
    }
    let said = fail(&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--state", &state]);
    assert!(said.contains("another user") && said.contains("65534"), "{said}");
    // Nor for the generation before an own one that is damaged.
    fs::remove_file(&state).unwrap();
    fs::write(&state, "farlane-state = 2\n").unwrap();
    let said = fail(&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--state", &state]);
    assert!(said.contains("cut off") && !said.contains("is used"), "{said}");
}

#[test]
fn no_output_follows_a_link_of_another_user() {
    if !is_root() {
        return;
    }
    let far = Export::start(&["--ram", "1MiB"]);
    let url = far.url();
    let own = tempfile::tempdir().unwrap();
    let own = |name: &str| own.path().join(name).to_str().unwrap().to_owned();
    let (recording, scenario, control) = (own("a.rec"), own("one.toml"), own("control"));
    assert!(record(&recording, &[]).status.success());
    fs::write(
        &scenario,
        "[link]\nlatency = \"100us\"\nrate = \"1Gbit/s\"\n\n[[task]]\nkind = \"read\"\ncount = 3\n",
    )
    .unwrap();
    let daemon = export(&["--ram", "1MiB", "--control", &control]);
    for shared in [0o1777, 0o777] {
        let ground = Ground::new(shared);
        let names =
            ["out", "out.pcapng", "out.csv", "out.svg", "out.html", "out.raw", "out.parquet", "farlane.1"];
        names.iter().for_each(|name| ground.plant(name));
        let at = |name: &str| ground.at(name);
        let namespace = format!("{},size=1MiB", at("out"));
        let shared = ground.shared().to_str().unwrap().to_owned();
        let commands: [&[&str]; 14] = [
            &["ping", &url, "--count", "10", "--capture", &at("out.pcapng")],
            &["lspci", &url, "--capture", &at("out.pcapng")],
            &["read", &url, "--output", &at("out")],
            &["record", "--from", "generate:1GB", "--size", "1MiB", "--to", &at("out")],
            &["record", "--from", "generate:1GB", "--size", "1MiB", "--force", "--to", &at("out")],
            &["recover", &at("out")],
            &["replay", &recording, "--speed", "max", "--to", &at("out")],
            &["recording", "convert", &recording, "--to", &at("out.raw")],
            &["capture", &control, "--out", &at("out.pcapng"), "--time", "100ms"],
            &["capture", &control, "--out", &at("out.pcapng"), "--time", "100ms", "--kind", "read"],
            &["sim", &scenario, "--capture", &at("out.pcapng")],
            &["sim", &scenario, "--timeline", &at("out.csv")],
            &["export", "--listen", "127.0.0.1:0", "--namespace", &namespace],
            &["man", "--to", &shared],
        ];
        for command in commands {
            let said = fail(command);
            assert!(said.contains("another user"), "{command:?}: {said}");
            ground.assert_whole(&command.join(" "));
        }
    }
    drop(daemon);
}

#[test]
fn files_with_data_state_and_captures_are_private_unless_a_mode_widens_them() {
    let own = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "1MiB"]);
    let url = far.url();
    let control = own.path().join("control").to_str().unwrap().to_owned();
    let daemon = export(&["--ram", "1MiB", "--control", &control]);
    let recording = own.path().join("source.rec").to_str().unwrap().to_owned();
    assert!(record(&recording, &[]).status.success());
    for (more, expected) in [(&[][..], 0o600), (&["--mode", "0640"], 0o640), (&["--mode", "666"], 0o666)] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let with = |command: &[&str]| succeed(&[command, more].concat());
        let (disk, pool) = (format!("{},size=1MiB", at("disk")), format!("{},size=1MiB", at("pool")));
        let served = ["--namespace", &disk, "--pool", &pool, "--state", &at("state")];
        let second = export(&[&served[..], more].concat());
        succeed(&["nvme", "identify", &second.url()]);
        drop(second);
        with(&["measure", "ping", &url, "--count", "10", "--capture", &at("ping.pcapng")]);
        with(&["use", "read", &url, "--output", &at("read")]);
        let [one, two] = ["one.rec", "two.rec"].map(at);
        with(&["record", "--from", "generate:1GB", "--size", "1MiB", "--to", &one, "--to", &two]);
        with(&["recording", "replay", &recording, "--speed", "max", "--to", &at("replayed")]);
        with(&["recording", "convert", &recording, "--to", &at("exported.raw")]);
        with(&["observe", "capture", &control, "--out", &at("all.pcapng"), "--time", "100ms"]);
        with(&[
            "observe",
            "capture",
            &control,
            "--out",
            &at("some.pcapng"),
            "--time",
            "100ms",
            "--kind",
            "read",
        ]);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert!(names.len() >= 10, "{names:?}");
        for path in names {
            assert_eq!(mode(&path), expected, "{}", path.display());
        }
    }
    drop(daemon);
}

#[test]
fn a_file_that_is_there_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let far = Export::start(&["--ram", "1MiB"]);
    for name in ["trace.pcapng", "read", "a.rec"] {
        fs::write(at(name), "before").unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(0o644)).unwrap();
    }
    succeed(&[
        "measure",
        "ping",
        &far.url(),
        "--count",
        "10",
        "--capture",
        &at("trace.pcapng"),
        "--mode",
        "0600",
    ]);
    succeed(&["use", "read", &far.url(), "--output", &at("read")]);
    assert!(record(&at("a.rec"), &["--force"]).status.success());
    for name in ["trace.pcapng", "read", "a.rec"] {
        assert_eq!(mode(Path::new(&at(name))), 0o644, "{name}");
    }
    assert_eq!(fs::metadata(at("read")).unwrap().len(), 1 << 20);
}

#[test]
fn a_mode_that_takes_something_from_the_owner_is_refused() {
    for text in ["0440", "0700", "4600", "rw", "0o9", ""] {
        let output = farlane(&["export", "--listen", "127.0.0.1:0", "--ram", "1MiB", "--mode", text]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("0640"), "{text}: {said}");
    }
}

#[test]
fn an_options_file_has_the_mode_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = format!("[export]\nnamespace = [\"{},size=1MiB\"]\nmode = \"0640\"\n", at("disk"));
    fs::write(at("export.toml"), text).unwrap();
    drop(export(&["--config", &at("export.toml")]));
    assert_eq!(mode(Path::new(&at("disk"))), 0o640);
}

#[test]
fn outputs_that_are_no_files_are_written_as_before() {
    let far = Export::start(&["--ram", "1MiB"]);
    let url = far.url();
    for place in ["/dev/null", "/dev/stderr"] {
        succeed(&["measure", "ping", &url, "--count", "10", "--capture", place]);
        succeed(&["use", "read", &url, "--output", place, "--json"]);
    }
    let copied = farlane(&["use", "read", &url, "--output", "/dev/stdout", "--length", "4096"]);
    assert!(copied.status.success() && copied.stdout.starts_with(&[0; 4096]));
    // The file that a shell makes of `>(...)`.
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let script = format!("'{}' read {url} --output >(wc -c >'{}')", &*FARLANE, count.display());
    let ran = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    wait_until("the pipe's reader", || fs::read_to_string(&count).is_ok_and(|text| text.trim() == "1048576"));
    // A file to which a shell has turned the output.
    let file = folder.path().join("file");
    let script = format!("'{}' read {url} --output /dev/stdout >'{}'", &*FARLANE, file.display());
    let ran = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(fs::metadata(&file).unwrap().len() >= 1 << 20);
}

#[test]
fn what_is_made_before_a_daemon_becomes_another_user_belongs_to_that_user() {
    if !is_root() {
        return;
    }
    // A folder of the user, in which a link of the user's and one of root's lead on.
    let ground = Ground::new(0o755);
    fs::create_dir(ground.path("real")).unwrap();
    chown(ground.path("real"), Some(OTHER), None).unwrap();
    symlink("real", ground.path("state")).unwrap();
    lchown(ground.path("state"), Some(OTHER), None).unwrap();
    let (disk, state) = (format!("{},size=1MiB", ground.at("disk")), ground.at("state/ssd.state"));
    for _ in 0..3 {
        let mut far = export(&["--namespace", &disk, "--state", &state, "--user", "nobody"]);
        succeed(&["nvme", "identify", &far.url()]);
        let (status, said) = far.end_by("TERM");
        assert_eq!(status, Some(0), "{said}");
        assert!(!said.contains("other users may write"), "{said}");
    }
    for name in ["disk", "real/ssd.state", "real/ssd.state.old"] {
        assert_eq!(
            (fs::metadata(ground.path(name)).unwrap().uid(), mode(&ground.path(name))),
            (OTHER, 0o600),
            "{name}"
        );
    }
    assert_eq!(fs::read_dir(ground.path("real")).unwrap().count(), 2, "nothing is left beside");
}

#[test]
fn a_folder_of_this_user_alone_needs_no_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec").to_str().unwrap().to_owned();
    let said = record(&path, &[]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.contains("other users may write"), "{said}");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let said = record(&path, &["--force"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("other users may write") && said.contains("1777"), "{said}");
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
}
