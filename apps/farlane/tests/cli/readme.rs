//! Every command that README.md shows does what a reader expects of it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Export, FARLANE};

/// Address that README.md's recorder listens on.
const RECORDER: &str = "127.0.0.1:5000";
/// Address that README.md's far end listens on.
const ADDRESS: &str = "127.0.0.1:4430";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the shell code in README.md, without comments.
fn commands(text: &str) -> Vec<&str> {
    let mut shell = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => shell = language == "sh",
            None if shell => commands.push(line.split('#').next().unwrap_or_default().trim()),
            None => {}
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// The jobs that `make help` lists.
fn jobs() -> Vec<String> {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let job = |line: &str| Some(line.split_once(": ")?.0).filter(|_| line.contains("##")).map(str::to_owned);
    makefile.lines().filter_map(job).collect()
}

fn program(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&*FARLANE);
    command.args(words).current_dir(directory).stdin(Stdio::null());
    command
}

/// Processes in the background, as a shell has them.
#[derive(Default)]
struct Jobs {
    children: Vec<Child>,
}

impl Jobs {
    /// Starts a job. One that listens is ready for its peer then.
    fn start(&mut self, mut command: Command, listens: bool) {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        if listens {
            let mut said = String::new();
            BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
            assert!(said.contains("waiting"), "{said}");
        }
        self.children.push(child);
    }

    /// Kills the job with this number; the first is 1.
    fn kill(&mut self, number: usize) {
        let child = &mut self.children[number - 1];
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An address on which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn every_command_works() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(root().join("README.md"), directory.path().join("README.md")).unwrap();
    let jobs = jobs();
    let mut far: Option<Export> = None;
    let mut subcommands = Vec::new();
    let (mut background, recorder) = (Jobs::default(), free_address());
    for command in commands(&text) {
        let words: Vec<_> = command.split_whitespace().collect();
        match words[..] {
            ["make", job] => {
                assert!(jobs.iter().any(|known| known == job), "no job in the Makefile: {command}")
            }
            // Here, the program is named by its path.
            [setting] if setting.starts_with("PATH=") => {
                let built = setting.trim_start_matches("PATH=$PWD/").trim_end_matches(":$PATH");
                let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
                assert!(
                    makefile.contains(&format!("{built}/farlane demo")),
                    "make demo builds another: {command}"
                );
            }
            ["sleep", seconds] => std::thread::sleep(Duration::from_secs(seconds.parse().unwrap())),
            ["kill", "-9", job] => background.kill(job.strip_prefix('%').unwrap().parse().unwrap()),
            ["farlane", .., "&"] => {
                let here = command.replace(RECORDER, &recorder);
                let words: Vec<_> = here.trim_end_matches('&').split_whitespace().skip(1).collect();
                background.start(program(directory.path(), &words), here.contains("-listen://"));
            }
            ["farlane", "export", ..] if !command.contains(" --to ") => {
                assert!(command.contains(ADDRESS), "{command}");
                let command = command.replace(ADDRESS, "127.0.0.1:0");
                let words: Vec<_> = command.split_whitespace().skip(1).chain(["--json"]).collect();
                // The previous far end makes room for this one.
                drop(far.take());
                far = Some(Export::of(program(directory.path(), &words)));
            }
            ["farlane", subcommand, ..] => {
                let far = far.as_ref().expect("a far end comes first");
                let here = command.replace(ADDRESS, &far.address);
                let words: Vec<_> = here.split_whitespace().skip(1).collect();
                let output = program(directory.path(), &words).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{command}: {said}\n{}", far.said());
                subcommands.push(subcommand.to_owned());
            }
            _ => panic!("README.md shows a command that nobody tries: {command}"),
        }
    }
    for subcommand in [
        "lspci",
        "identify",
        "smart-log",
        "ping",
        "write",
        "read",
        "bench",
        "recover",
        "verify",
        "replay",
        "export",
    ] {
        assert!(subcommands.iter().any(|shown| shown == subcommand), "README.md does not show {subcommand}");
    }
    let copy = std::fs::read(directory.path().join("copy.md")).unwrap();
    let length = copy.len().min(text.len());
    assert_eq!(String::from_utf8_lossy(&copy[..length]), String::from_utf8_lossy(&text.as_bytes()[..length]));
}

/// What the demo prints last is for its reader to copy.
#[test]
fn what_the_demo_names_next_works_as_printed() {
    let shown = program(&root(), &["demo", "--size", "64KiB", "--runtime", "20ms"]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    let steps = shown.split("What next?").nth(1).expect(&shown);
    let steps: Vec<_> = steps.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert!((2..=3).contains(&steps.len()), "{steps:?}");
    assert!(steps.iter().all(|step| step.starts_with(&*FARLANE) && step.contains(ADDRESS)), "{steps:?}");
    // A shell ends what it has in the background, and fails with the first that fails.
    let script =
        format!("set -e\ntrap 'kill $!' EXIT\n{}\n", steps.join("\n").replace(ADDRESS, &free_address()));
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{script}{said}");
    for shown in ["exporting 1 namespace", "-[0000:00]-", "commands a second"] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
