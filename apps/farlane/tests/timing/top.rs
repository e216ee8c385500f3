//! The display of running daemons: in a terminal, and without one.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support::running::{Said, signal, wait_until};
use crate::support::{Export, FARLANE};
use serde_json::Value;

/// A far end, and a load on it.
struct Stage {
    folder: tempfile::TempDir,
    load: Child,
    far: Export,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&*FARLANE);
        command.args(["export", "--listen", "127.0.0.1:0", "--ram", "4MiB", "--json"]);
        command.env("XDG_RUNTIME_DIR", folder.path());
        let far = Export::of(command);
        let mut load = Command::new(&*FARLANE);
        load.args(["bench", &far.url(), "--rw", "randrw", "--rate_iops", "1000", "--runtime", "120s"]);
        let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        far.wait_for("link up");
        Self { folder, load, far }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

/// A terminal, which is closed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The screen of a terminal of 20 lines after `bytes`: it moves its cursor (CUP) and writes.
fn screen(bytes: &str) -> String {
    let mut lines = vec![vec![' '; 160]; 20];
    let (mut line, mut column) = (0, 0);
    let mut rest = bytes.chars();
    while let Some(one) = rest.next() {
        if one != '\u{1b}' {
            if let Some(cell) = lines.get_mut(line).and_then(|line: &mut Vec<char>| line.get_mut(column)) {
                *cell = one;
            }
            column += 1;
            continue;
        }
        let mut sequence: String = rest.by_ref().skip(1).take_while(|one| !one.is_alphabetic()).collect();
        // The letter that ends a sequence is gone: only CUP has two numbers alone.
        sequence.retain(|one| one != '?');
        if let Some((to_line, to_column)) = sequence.split_once(';')
            && let (Ok(to_line), Ok(to_column)) = (to_line.parse::<usize>(), to_column.parse::<usize>())
        {
            (line, column) = (to_line.saturating_sub(1), to_column.saturating_sub(1));
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>() + "\n").collect()
}

fn top(runtime: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(&*FARLANE);
    command.arg("top").args(arguments).env("XDG_RUNTIME_DIR", runtime).output().unwrap()
}

#[test]
fn without_a_terminal_it_looks_twice_and_ends() {
    let stage = Stage::set();
    let mut rates = Value::Null;
    // The first look may be long before the load's first command.
    wait_until("the load is seen from the first look to the second", || {
        let output = top(stage.folder.path(), &["--json", "--every", "500ms"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        rates = serde_json::from_slice(&output.stdout).unwrap();
        let commands = rates["far_ends"][0]["commands_s"].as_str().and_then(|text| text.parse::<f64>().ok());
        let is_busy = commands.is_some_and(|rate| rate > 100.0);
        is_busy && rates["far_ends"][0]["link"] == "up" && rates["namespaces"][0]["reads_s"] != "0"
    });
    let number = |view: &str, name: &str| rates[view][0][name].as_str().unwrap().parse::<f64>().unwrap();
    assert!(number("far_ends", "commands_s") > 100.0, "{rates}");
    assert!(number("namespaces", "writes_s") > 10.0 && number("namespaces", "read_mb_s") > 0.0, "{rates}");
    assert!(rates["namespaces"][0]["p99"].as_str().unwrap().starts_with(['<', '>']), "{rates}");
    assert_eq!(rates["hosts"].as_array().unwrap().len(), 1);
    let text = String::from_utf8(top(stage.folder.path(), &["--every", "100ms"]).stdout).unwrap();
    for words in ["far ends (1)", "namespaces (1)", "hosts (1)", &stage.far.url()] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let absent = tempfile::tempdir().unwrap();
    let text = String::from_utf8(top(absent.path(), &["--once", "--every", "10ms"]).stdout).unwrap();
    assert!(text.starts_with("far ends (0)\n"), "{text}");
}

#[test]
fn in_a_terminal_each_key_shows_its_view() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: script (util-linux), which makes a terminal, is not here");
        return;
    }
    let stage = Stage::set();
    let mut command = Command::new("script");
    let line = format!("stty rows 20 columns 160; exec {} observe top --every 200ms", *FARLANE);
    command.args(["-qefc", &line, "/dev/null"]).env("XDG_RUNTIME_DIR", stage.folder.path());
    command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shown = Killed(command.spawn().unwrap());
    let mut said = Said::by(shown.0.stdout.take().unwrap());
    let mut keys = shown.0.stdin.take().unwrap();
    let views = [("", "far ends (1)"), ("n", "namespaces (1)"), ("h", "hosts (1)"), ("f", "far ends (1)")];
    for (key, words) in views {
        keys.write_all(key.as_bytes()).unwrap();
        // The screen may come in pieces, the title before the rows.
        wait_until(words, || {
            let shown = screen(&said.so_far());
            shown.contains(&format!("farlane: {words}")) && shown.contains(&stage.far.url())
        });
    }
    keys.write_all(b"q").unwrap();
    let mut status = None;
    wait_until("the view ends", || {
        status = shown.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{}", said.all());
    // The terminal is as it was: the other screen is left, and the cursor is there.
    assert!(said.all().contains("\u{1b}[?1049l"));
    signal(stage.far.id(), "TERM");
}
