//! The shell commands of README.md and of the tutorial, `docs/start.md`.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the shell code in a page, without comments.
pub(crate) fn commands(text: &str) -> Vec<&str> {
    let mut shell = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => shell = language == "sh",
            None if shell => commands.push(line.split(" #").next().unwrap_or_default().trim()),
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

/// The program that `make JOB` builds, as the Makefile names it.
pub(crate) fn made(command: &str) -> String {
    let job = command.strip_prefix("make ").unwrap_or_else(|| panic!("{command}"));
    assert!(jobs().iter().any(|known| known == job), "no job in the Makefile: {command}");
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let built = "target/demo/farlane";
    assert!(makefile.contains(&format!("{built} {job}")), "{command} does not build {built}");
    built.to_owned()
}

/// The tutorial's commands in order, as one script. A reader types more slowly than a script runs:
/// a program started in the background is there when the next command is typed.
pub(crate) fn script() -> String {
    let text = std::fs::read_to_string(root().join("docs/start.md")).unwrap();
    let mut script = String::from("set -ex\n");
    let mut is_built = false;
    for command in commands(&text) {
        match command.split_once(' ').unwrap_or((command, "")) {
            ("make", _) => is_built = made(command) == "target/demo/farlane",
            ("git", _) => {
                assert!(command.starts_with("git clone https://github.com/farlane/farlane "), "{command}")
            }
            // The script runs in a folder of its own, with the program on the search path.
            ("mkdir" | "cd", _) => assert!(command.contains("~/farlane-tutorial"), "{command}"),
            _ if command.starts_with("PATH=") => {
                assert!(is_built && command == "PATH=$PWD/target/demo:$PATH", "{command}");
            }
            _ => {
                script += &format!("{command}\n");
                if command.contains(" & ") {
                    script += "sleep 1\n";
                }
            }
        }
    }
    script
}
