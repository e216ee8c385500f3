//! A target that answers requests on its control socket while hosts use it.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Export, FARLANE, fail, json, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:target-test";

/// The folder of a target's files and of its control socket.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts a target with `file` as its configuration, in which `DIR` stands for the folder.
    fn offer(&self, file: &str) -> Export {
        self.write(file);
        self.target(&["--config", &self.path("target.toml")])
    }

    fn write(&self, file: &str) {
        fs::write(self.path("target.toml"), file.replace("DIR", self.0.path().to_str().unwrap())).unwrap();
    }

    fn target(&self, arguments: &[&str]) -> Export {
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--control", &self.path("control")]).args(arguments);
        Export::of(command)
    }

    /// Sends a request to the running target, which must succeed. Returns the answer.
    fn ask(&self, words: &[&str]) -> String {
        succeed(&[&["target"], words, &["--control", &self.path("control")]].concat())
    }

    /// Sends a request to the running target, which must refuse it. Returns the reason.
    fn refused(&self, words: &[&str]) -> String {
        fail(&[&["target"], words, &["--control", &self.path("control")]].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).unwrap()
    }

    /// Identifier and size in bytes of each namespace of the first subsystem.
    fn namespaces(&self) -> Vec<(u64, u64)> {
        let status = self.status();
        let namespaces = status["subsystems"][0]["namespaces"].as_array().unwrap();
        let of = |one: &Value| (one["nsid"].as_u64().unwrap(), one["bytes"].as_u64().unwrap());
        namespaces.iter().map(of).collect()
    }
}

fn url(target: &Export) -> String {
    format!("nvme-tcp://{}/{NQN}", target.address)
}

/// Two ports of this machine without listeners.
fn free_ports() -> [u16; 2] {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    taken.map(|listener| listener.local_addr().unwrap().port())
}

#[test]
fn namespaces_are_resized_while_they_are_used() {
    let place = Place::new();
    let disk = place.path("disk.img");
    let target = place.target(&["--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "4MiB"]);
    place.ask(&["add", "--namespace", &format!("{disk},size=4MiB,block=4096")]);
    let data = place.path("data");
    fs::write(&data, vec![7; 1 << 20]).unwrap();
    let write = |namespace: &str, offset: &str| {
        let at = ["--namespace", namespace, "--offset", offset, "--input", &data];
        succeed(&[&["use", "write", &url(&target)][..], &at[..]].concat());
    };
    for namespace in ["1", "2"] {
        write(namespace, "3MiB");
    }
    // Memory gets the size that it is given. A file may also get the length that it has by now.
    let longer = place.ask(&["resize", "--nsid", "1", "--size", "8MiB"]);
    assert_eq!(longer, format!("namespace 1 of {NQN} has {} B\n", 8 << 20));
    OpenOptions::new().write(true).open(&disk).unwrap().set_len(6 << 20).unwrap();
    let answer: Value = serde_json::from_str(&place.ask(&["resize", "--nsid", "2", "--json"])).unwrap();
    assert_eq!(answer["bytes"], 6 << 20);
    assert_eq!(place.namespaces(), [(1, 8 << 20), (2, 6 << 20)]);
    write("1", "7MiB");
    write("2", "5MiB");
    // A namespace that is made shorter loses what lies beyond its end.
    place.ask(&["resize", "--nsid", "1", "--size", "3584KiB"]);
    place.ask(&["resize", "--nsid", "2", "--size", "3584KiB"]);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 3584 << 10);
    let copy = place.path("copy");
    for namespace in ["1", "2"] {
        let at = ["--namespace", namespace, "--offset", "3MiB"];
        let read = |length: &str| {
            let _ = fs::remove_file(&copy);
            [&["read", &url(&target)][..], &at[..], &["--length", length, "--output", &copy]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let words = read("512KiB");
        succeed(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(fs::read(&copy).unwrap() == vec![7; 512 << 10]);
        let words = read("1MiB");
        fail(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for (words, why) in [
        (&["resize", "--nsid", "3"][..], "there is no namespace 3"),
        (&["resize", "--nsid", "1"], "memory has no length of its own"),
        (&["resize", "--nsid", "1", "--size", "1000"], "not a positive multiple of the block size, 512 B"),
        (&["resize", "--nsid", "1", "--size", "32TiB"], "at most"),
        (&["resize", "--nsid", "2", "--size", "512"], "not a positive multiple of the block size, 4096 B"),
        (&["resize", "--nqn", "nqn.2026-01.io.farlane:none", "--nsid", "1"], "there is no subsystem"),
        (&["add", "--ram", "32TiB"], "at most"),
    ] {
        let said = place.refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert_eq!(place.namespaces(), [(1, 3584 << 10), (2, 3584 << 10)]);
}

#[test]
fn the_file_of_a_removed_namespace_is_free() {
    let place = Place::new();
    let disk = place.path("disk.img");
    let target = place.target(&["--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "4MiB"]);
    for _ in 0..3 {
        place.ask(&["add", "--namespace", &format!("{disk},size=4MiB")]);
        json(&["bench", &url(&target), "--namespace", "2", "--runtime", "20ms", "--rw", "randrw", "--json"]);
        place.ask(&["remove", "--nsid", "2"]);
        let open = fs::read_dir(format!("/proc/{}/fd", target.id())).unwrap();
        let is_disk = |entry: fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.to_str() == Some(disk.as_str()))
        };
        assert!(!open.filter_map(Result::ok).any(is_disk), "it is closed");
    }
}

#[test]
fn a_reload_resizes_and_says_how_groups_are_reached() {
    let place = Place::new();
    let [one, other] = free_ports();
    let file = format!(
        "[[port]]\nlisten = \"127.0.0.1:{one}\"\n[[port]]\nlisten = \"127.0.0.1:{other}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nana-groups = 2\n\
         [[subsystem.ana]]\nport = \"127.0.0.1:{one}\"\nstate = \"inaccessible\"\n\
         [[subsystem.namespace]]\nram = \"4MiB\"\n\
         [[subsystem.namespace]]\nram = \"4MiB\"\nana-group = 2\n"
    );
    let _target = place.offer(&file);
    // The first port is inaccessible for the first group, but not for the second.
    let reading = |port: u16, namespace: &str| {
        let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}");
        let mut command = Command::new(&*FARLANE);
        command.args([
            "use",
            "read",
            &url,
            "--namespace",
            namespace,
            "--length",
            "4096",
            "--output",
            "/dev/null",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let reads = |port: u16, namespace: &str| assert!(reading(port, namespace).wait().unwrap().success());
    // A host waits until the path is better.
    let waits = |port: u16, namespace: &str| {
        let mut child = reading(port, namespace);
        sleep(Duration::from_secs(1));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ended, None);
    };
    waits(one, "1");
    reads(one, "2");
    reads(other, "1");
    let both = format!("nvme-tcp://127.0.0.1:{one},127.0.0.1:{other}/{NQN}");
    json(&["bench", &both, "--runtime", "20ms", "--rw", "randrw", "--verify", "--json"]);
    let ana = place.status()["subsystems"][0]["ana"].clone();
    assert_eq!(ana.as_array().unwrap().len(), 4, "{ana}");
    assert_eq!(ana[0]["state"], "inaccessible");
    // Set the states by request.
    let port = format!("127.0.0.1:{other}");
    let said = place.ask(&["ana", "--port", &port, "--state", "inaccessible"]);
    assert_eq!(said, format!("group 1 of {NQN} is inaccessible\n"));
    waits(other, "1");
    place.ask(&["ana", "--state", "non-optimized", "--json"]);
    reads(one, "1");
    reads(other, "1");
    for (words, why) in [
        (&["ana", "--group", "3", "--state", "change"][..], "3 is not one of its 2 ANA groups"),
        (&["ana", "--port", "127.0.0.1:1", "--state", "change"], "no process listens on 127.0.0.1:1"),
        (&["ana", "--controller", "7", "--state", "change"], "has no controller 7"),
        (&["add", "--ram", "4MiB", "--ana-group", "3"], "3 is not one of its 2 ANA groups"),
    ] {
        let said = place.refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    // A changed file overrides the settings of requests.
    let text =
        file.replacen("4MiB", "8MiB", 1).replace(&format!("port = \"127.0.0.1:{one}\"\n"), "group = 2\n");
    place.write(&text);
    let said = place.ask(&["reload"]);
    for words in ["namespace 1 has 8388608 B", "reached in other ways"] {
        assert!(said.contains(words), "{said}");
    }
    reads(one, "1");
    waits(other, "2");
    assert_eq!(place.namespaces(), [(1, 8 << 20), (2, 4 << 20)]);
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
}

#[test]
fn a_subsystem_that_gets_another_name_has_its_file_after_one_reload() {
    let place = Place::new();
    let file = |name: &str| {
        format!(
            "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{name}\"\n\
             [[subsystem.namespace]]\npath = \"DIR/a.img\"\nsize = \"2MiB\"\n"
        )
    };
    let _target = place.offer(&file(NQN));
    let other = format!("{NQN}-renamed");
    place.write(&file(&other));
    let said = place.ask(&["reload"]);
    for words in [format!("{NQN} is no longer offered"), format!("{other} is offered")] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert_eq!(place.namespaces(), [(1, 2 << 20)]);
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
}

const SAVED: &str = "# ours
[[port]]
listen = \"127.0.0.1:0\"

[[subsystem]]
nqn = \"nqn.2026-01.io.farlane:target-test\" # the box
ana-groups = 2

[[subsystem.namespace]]
path = \"DIR/a.img\" # the first
size = \"2MiB\"

[[subsystem.namespace]]
ram = \"1MiB\"
";

#[test]
fn what_was_changed_is_saved_and_the_next_start_offers_the_same() {
    let place = Place::new();
    let read = || fs::read_to_string(place.path("target.toml")).unwrap();
    let mut target = place.offer(SAVED);
    let before = read();
    assert!(place.ask(&["save"]).contains("is up to date already"));
    place.ask(&["add", "--namespace", &format!("{},size=4MiB,block=4096", place.path("b.img"))]);
    place.ask(&["resize", "--nsid", "1", "--size", "3MiB"]);
    place.ask(&["remove", "--nsid", "2"]);
    place.ask(&["ana", "--group", "2", "--state", "inaccessible"]);
    assert_eq!(read(), before, "nothing is written before that is asked for");
    assert!(place.ask(&["save"]).starts_with("saved to "));
    let saved = read();
    for kept in ["# ours", "# the box", "# the first", "state = \"inaccessible\"", "id = 3"] {
        assert!(saved.contains(kept), "{kept}: {saved}");
    }
    assert!(place.ask(&["save"]).contains("is up to date already"), "{}", read());
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
    let offered = place.namespaces();
    assert_eq!(offered, [(1, 3 << 20), (3, 4 << 20)]);
    target.end_by("TERM");
    let _again = place.target(&["--config", &place.path("target.toml")]);
    assert_eq!(place.namespaces(), offered);
    let states = place.status()["subsystems"][0]["ana"].clone();
    assert_eq!(states[1]["state"], "inaccessible", "{states}");
    // Without a file there is nothing to write to.
    let other = Place::new();
    let _target = other.target(&["--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "1MiB"]);
    assert!(other.refused(&["save"]).contains("was not started with --config"));
}

#[test]
fn a_subsystem_is_put_and_dropped_and_saved_and_no_other_is_touched() {
    let place = Place::new();
    let mut target = place.offer(SAVED);
    let (put, other) = (place.path("put.toml"), "nqn.2026-01.io.farlane:put");
    let text = |size: &str, more: &str| {
        let disk = place.path("put.img");
        let text = format!(
            "[[subsystem]]\nnqn = \"{other}\"\nserial = \"PUT\"\n{more}\n[[subsystem.namespace]]\n\
             path = \"{disk}\"\nsize = \"{size}\"\n"
        );
        fs::write(&put, text).unwrap();
    };
    // A host of another subsystem is at work meanwhile.
    let load = ["bench", &url(&target), "--rw", "randrw", "--verify", "--runtime", "4s"];
    let running = crate::support::running::Running::start(&load);
    sleep(Duration::from_millis(500));
    text("2MiB", "");
    assert_eq!(place.ask(&["put", &put]), format!("{other} is offered\n"));
    assert_eq!(place.ask(&["put", &put]), format!("{other} is as before\n"));
    let of_put = format!("nvme-tcp://{}/{other}", target.address);
    let read = ["use", "read", &of_put, "--length", "4096", "--output", "/dev/null"];
    succeed(&read);
    text("4MiB", "hosts = [\"nqn.2014-08.org.example:one\"]");
    let said = place.ask(&["put", &put]);
    assert!(said.contains("has other hosts") && said.contains("4194304 B"), "{said}");
    assert!(fail(&read).contains("Connect Invalid Host"));
    // Dropped, its file is free, and it may be put again.
    assert_eq!(place.ask(&["drop", other]), format!("{other} is no longer offered\n"));
    assert!(fail(&read).contains("Connect Invalid Parameters (SUBNQN)"));
    assert!(place.refused(&["drop", other]).contains(&format!("there is no subsystem {other}")));
    text("4MiB", "");
    place.ask(&["put", &put]);
    for (bad, why) in [
        ("[[port]]\nlisten = \"127.0.0.1:0\"\n", "port"),
        (
            "[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:x\"\n[[subsystem.namespace]]\npath = \"x\"\n",
            "absolute",
        ),
        ("[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:x\"\nports = [\"127.0.0.1:9\"]\n", "no [[port]]"),
        ("[[subsystem]]\nnqn = \"x\"\n", "line 2"),
    ] {
        fs::write(place.path("bad.toml"), bad).unwrap();
        let said = place.refused(&["put", &place.path("bad.toml")]);
        assert!(said.contains(why), "{bad}: {said}");
    }
    let output = running.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What was put is saved, and what was dropped is saved, too.
    place.ask(&["save"]);
    assert!(place.ask(&["save"]).contains("is up to date already"));
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
    place.ask(&["drop", NQN]);
    place.ask(&["save"]);
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
    target.end_by("TERM");
    let target = place.target(&["--config", &place.path("target.toml")]);
    let saved = fs::read_to_string(place.path("target.toml")).unwrap();
    assert!(saved.contains("# ours") && !saved.contains(NQN), "{saved}");
    succeed(&[
        "use",
        "read",
        &format!("nvme-tcp://{}/{other}", target.address),
        "--length",
        "4096",
        "--output",
        "/dev/null",
    ]);
    // Without save, the next reload offers what the file says.
    place.ask(&["drop", other]);
    assert_eq!(place.ask(&["reload"]), format!("{other} is offered\n"));
}
