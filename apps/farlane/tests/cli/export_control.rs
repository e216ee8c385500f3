//! Far ends whose namespaces are added, removed and resized while a host uses others, and the file
//! that says so afterwards.

use std::fs::{self, OpenOptions};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::running::{Running, signal};
use crate::support::{CONFIGURATION, Export, FARLANE, fail, json, succeed};

/// The folder of a far end's files and of its control socket.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts far ends with `arguments`.
    fn offer(&self, arguments: &[&str]) -> Export {
        let mut command = Command::new(&*FARLANE);
        command.env("XDG_CONFIG_HOME", CONFIGURATION);
        command.args(["export", "--json", "--control", &self.path("control")]).args(arguments);
        Export::of(command)
    }

    /// Writes the far ends' file, in which `DIR` stands for the folder. Returns its path.
    fn write(&self, text: &str) -> String {
        let path = self.path("box.toml");
        fs::write(&path, text.replace("DIR", self.0.path().to_str().unwrap())).unwrap();
        path
    }

    fn read(&self) -> String {
        fs::read_to_string(self.path("box.toml")).unwrap().replace(self.0.path().to_str().unwrap(), "DIR")
    }

    /// Sends a request to the running far ends, which must succeed. Returns the answer.
    fn ask(&self, words: &[&str]) -> String {
        succeed(&[&["export"], words, &["--control", &self.path("control")]].concat())
    }

    /// Sends a request to the running far ends, which must refuse it. Returns the reason.
    fn refused(&self, words: &[&str]) -> String {
        fail(&[&["export"], words, &["--control", &self.path("control")]].concat())
    }
}

/// Identifier and length in bytes of each namespace that a host finds.
fn seen(url: &str) -> Vec<(u64, u64)> {
    let identified = json(&["nvme", "identify", url, "--json"]);
    let of = |one: &Value| (one["nsid"].as_u64().unwrap(), one["nsze"].as_u64().unwrap() * block(one));
    identified["namespaces"].as_array().unwrap().iter().map(of).collect()
}

fn block(namespace: &Value) -> u64 {
    namespace["block_bytes"].as_u64().or_else(|| namespace["block"].as_u64()).unwrap_or(512)
}

const MIB: u64 = 1 << 20;

#[test]
fn namespaces_come_go_and_change_their_size_while_a_host_uses_another() {
    let place = Place::new();
    let disk = place.path("disk.img");
    let far = place.offer(&["--listen", "127.0.0.1:0", "--ram", "4MiB"]);
    let url = far.url();
    let load =
        ["bench", &url, "--namespace", "1", "--rw", "randwrite", "--verify", "--runtime", "4s", "--json"];
    let load = Running::start(&load);
    std::thread::sleep(Duration::from_millis(500));
    for round in 0..5 {
        let added = place.ask(&["add", "--namespace", &format!("{disk},size=4MiB")]);
        assert_eq!(added, format!("added namespace 2 to {url}\n"), "round {round}");
        assert_eq!(place.ask(&["add", "--ram", "1MiB"]), format!("added namespace 3 to {url}\n"));
        assert_eq!(place.ask(&["remove", "--nsid", "2"]), format!("removed namespace 2 from {url}\n"));
        let longer = place.ask(&["resize", "--nsid", "3", "--size", "2MiB"]);
        assert_eq!(longer, format!("namespace 3 of {url} has {} B\n", 2 * MIB));
        place.ask(&["remove", "--nsid", "3"]);
    }
    place.ask(&["add", "--namespace", &format!("{disk},size=4MiB")]);
    let output = load.output();
    assert!(output.status.success(), "the host's own namespace: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(seen(&url), [(1, 4 * MIB), (2, 4 * MIB)]);
    // The added namespace holds data, and a file gets the length that it has by now.
    let sevens = vec![7; 1 << 20];
    fs::write(place.path("data"), &sevens).unwrap();
    OpenOptions::new().write(true).open(&disk).unwrap().set_len(6 * MIB).unwrap();
    let answer: Value = serde_json::from_str(&place.ask(&["resize", "--nsid", "2", "--json"])).unwrap();
    assert_eq!(answer["bytes"], 6 * MIB);
    let at = ["--namespace", "2", "--offset", "5MiB", "--input", &place.path("data")];
    succeed(&[&["use", "write", &url][..], &at].concat());
    assert!(fs::read(&disk).unwrap().ends_with(&sevens));
    let status = json(&["export", "status", "--json", "--control", &place.path("control")]);
    assert_eq!(status["far_ends"][0]["namespaces"][1]["bytes"], 6 * MIB);
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    let place = Place::new();
    let state = place.path("state");
    let pool = ["--pool", "8MiB", "--state", &state, "--listen", "127.0.0.1:0", "--ram", "1MiB"];
    let far = place.offer(&[&["--listen", "127.0.0.1:0", "--ram", "1MiB"][..], &pool].concat());
    let control = place.path("control");
    let one = far.address.clone();
    for (words, why) in [
        (&["add", "--ram", "1MiB"][..], "choose one with --far-end"),
        (&["remove", "--far-end", "127.0.0.1:1", "--nsid", "1"], "no far end listens on 127.0.0.1:1"),
        (&["remove", "--far-end", &one, "--nsid", "7"], "has no namespace 7 of its own"),
        (&["resize", "--far-end", &one, "--nsid", "1", "--size", "1000"], "multiple of the block size"),
        (&["resize", "--far-end", &one, "--nsid", "9", "--size", "1MiB"], "there is no namespace 9"),
        (&["resize", "--far-end", &one, "--nsid", "1"], "memory has no length of its own"),
        (&["add", "--far-end", &one, "--namespace", "/nowhere/at/all,size=1MiB"], "/nowhere/at/all"),
        (&["save"], "was not started with --config"),
        (&["reload"], "was not started with --config"),
    ] {
        let said = place.refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    // A wrong command line is rejected before any request.
    assert!(place.refused(&["add"]).contains("--namespace"));
    assert!(place.refused(&["add", "--ram", "1MiB", "--namespace", "a"]).contains("cannot be used with"));
    for garbage in ["", "{", "{\"command\":\"add\"}", "{\"command\":\"fly\"}", &"x".repeat(70_000)] {
        let answer = live_ask(&control, garbage);
        assert!(!answer.contains("done"), "{garbage}: {answer}");
    }
    assert_eq!(seen(&far.url()), [(1, MIB)]);
    for _ in 0..31 {
        place.ask(&["add", "--far-end", &one, "--ram", "1MiB"]);
    }
    let said = place.refused(&["add", "--far-end", &one, "--ram", "1MiB"]);
    assert!(said.contains("32"), "{said}");
}

/// Sends a line to a control socket; returns the answer, which may be nothing.
fn live_ask(control: &str, line: &str) -> String {
    use std::io::{Read, Write};
    let mut socket = std::os::unix::net::UnixStream::connect(control).unwrap();
    let mut answer = String::new();
    // The far end closes the connection in the middle of a request that is too long.
    let _ = socket.write_all(format!("{line}\n").as_bytes());
    let _ = socket.read_to_string(&mut answer);
    answer
}

const FILE: &str = "# our box
[[export]]
listen = \"127.0.0.1:0\" # the system chooses
hold = \"5s\"
namespace = [
  \"DIR/a.img,size=2MiB\", # the first
  \"DIR/b.img,size=2MiB\",
]
";

#[test]
fn a_reload_applies_what_the_file_says_by_now() {
    let place = Place::new();
    let path = place.write(FILE);
    let mut far = place.offer(&["--config", &path]);
    let url = far.url();
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
    place.write(
        &FILE.replace("b.img,size=2MiB", "c.img,size=1MiB").replace("a.img,size=2MiB", "a.img,size=3MiB"),
    );
    let said = place.ask(&["reload"]);
    for change in ["namespace 1 has 3145728 B", "namespace 2 no more", "has namespace 2"] {
        assert!(said.contains(change), "{change}: {said}");
    }
    assert_eq!(seen(&url), [(1, 3 * MIB), (2, MIB)]);
    // By a signal, as a service manager or a person asks; other options wait for a new start.
    place.write(&FILE.replace("5s", "7s").replace("  \"DIR/b.img,size=2MiB\",\n", ""));
    signal(far.id(), "HUP");
    far.wait_for("--hold has changed");
    far.wait_for("makes nothing shorter");
    assert_eq!(far.said().matches(" has changed: ").count(), 1, "{}", far.said());
    assert_eq!(seen(&url), [(1, 3 * MIB)]);
    // A wrong file changes nothing, and the far end goes on.
    place.write("[[export]]\nspeed = 7\n");
    assert!(place.refused(&["reload"]).contains("line 2, column 1: there is no option --speed"));
    signal(far.id(), "HUP");
    far.wait_for("nothing has changed");
    assert_eq!(seen(&url), [(1, 3 * MIB)]);
    let (status, _) = far.end_by("TERM");
    assert_eq!(status, Some(0));
}

#[test]
fn what_was_changed_is_saved_and_the_next_start_offers_the_same() {
    let place = Place::new();
    let path = place.write(FILE);
    let mut far = place.offer(&["--config", &path]);
    assert!(place.ask(&["save"]).contains("is up to date already"));
    assert_eq!(place.read(), FILE);
    let new = place.path("new.img");
    place.ask(&["add", "--namespace", &format!("{new},size=4MiB,block=4096")]);
    place.ask(&["add", "--ram", "1MiB"]);
    place.ask(&["resize", "--nsid", "1", "--size", "3MiB"]);
    place.ask(&["remove", "--nsid", "2"]);
    let copy = place.path("copy.toml");
    place.ask(&["save", "--to", &copy]);
    assert_eq!(place.read(), FILE, "a copy was asked for");
    assert_eq!(place.ask(&["save"]), format!("saved to {path}\n"));
    let saved = "# our box
[[export]]
listen = \"127.0.0.1:0\" # the system chooses
hold = \"5s\"
namespace = [
  \"DIR/a.img,size=3145728\", # the first
  \"DIR/new.img,size=4194304,block=4096\",
]
ram = [\"1048576\"]
";
    assert_eq!(place.read(), saved);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
    assert_eq!(place.ask(&["reload"]), "nothing has changed\n");
    succeed(&["setup", "check", &path]);
    let sizes = |url: &str| seen(url).iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
    let before = sizes(&far.url());
    far.end_by("TERM");
    let again = place.offer(&["--config", &path]);
    assert_eq!(sizes(&again.url()), before);
}

#[test]
fn what_the_command_line_adds_to_the_file_is_not_saved_into_it() {
    let place = Place::new();
    let path = place.write("[export]\nlisten = \"127.0.0.1:0\"\nram = \"1MiB\"\n");
    let far = place.offer(&["--config", &path, "--ram", "2MiB"]);
    assert_eq!(seen(&far.url()).len(), 2);
    assert!(place.refused(&["save"]).contains("put them into the file"));
    // The daemon has no right to write the file; the command may lack it, too.
    let place = Place::new();
    let path = place.write("[export]\nlisten = \"127.0.0.1:0\"\nram = \"1MiB\"\n");
    let _far = place.offer(&["--config", &path]);
    place.ask(&["add", "--ram", "1MiB"]);
    fs::remove_file(&path).unwrap();
    assert!(place.refused(&["save"]).contains("box.toml"));
}

#[test]
fn of_several_exports_the_one_with_the_address_is_asked() {
    let runtime = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(&*FARLANE);
        command.env("XDG_RUNTIME_DIR", runtime.path()).env("XDG_CONFIG_HOME", CONFIGURATION);
        // The second far end of each listens on all addresses.
        command.args(["export", "--json", "--listen", "127.0.0.1:0", "--ram", "1MiB"]);
        command.args(["--listen", "0.0.0.0:0", "--insecure", "--ram", "1MiB"]);
        Export::of(command)
    };
    let mut exports = [start(), start()];
    let ask = |words: &[&str]| {
        let mut command = Command::new(&*FARLANE);
        let output =
            command.env("XDG_RUNTIME_DIR", runtime.path()).arg("export").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap().replace('│', " "))
    };
    for export in &mut exports {
        let port = export.next_url().rsplit_once(':').unwrap().1.to_owned();
        for far_end in [export.address.clone(), format!("0.0.0.0:{port}"), format!("127.0.0.1:{port}")] {
            let (done, said) = ask(&["add", "--far-end", &far_end, "--ram", "2MiB"]);
            assert!(done && said.contains("added namespace 2"), "{said}");
            let (done, said) = ask(&["resize", "--far-end", &far_end, "--nsid", "2", "--size", "3MiB"]);
            assert!(done && said.contains("3145728 B"), "{said}");
            let (done, said) = ask(&["remove", "--far-end", &far_end, "--nsid", "2"]);
            assert!(done && said.contains("removed namespace 2"), "{said}");
        }
        assert_eq!(seen(&export.url()), [(1, 1 << 20)]);
    }
    let (done, said) = ask(&["add", "--far-end", "127.0.0.1:1", "--ram", "2MiB"]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!done && said.contains("a far end that listens on 127.0.0.1:1: "), "{said}");
    assert!(said.matches(".sock").count() == 2, "{said}");
    // Without an address, it is not known which one is meant.
    let (done, said) = ask(&["add", "--ram", "2MiB"]);
    assert!(!done && said.contains("--control"), "{said}");
}
