//! The gallery of scenarios shows the output and the pictures of its commands.
//! `FARLANE_BLESS=1` writes what has changed anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::FARLANE;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files in `folder` with this extension, sorted by path.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    found.sort();
    found
}

/// The output of a command that runs in `directory`, where the scenarios are.
fn run(command: &str, directory: &Path) -> String {
    let words: Vec<_> = command.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"farlane"), "a page shows a command without a test: {command}");
    let output = Command::new(&*FARLANE)
        .args(&words[1..])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The page with its commands' current output, which is in the block of text that follows a block
/// of shell.
fn renewed(page: &str, directory: &Path) -> String {
    let (mut new, mut printed, mut language) = (String::new(), String::new(), None);
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(begins), None) => {
                language = Some(begins);
                let _ = writeln!(new, "{line}");
                if begins == "text" {
                    new += &std::mem::take(&mut printed);
                }
            }
            (Some(_), Some(_)) => {
                language = None;
                let _ = writeln!(new, "{line}");
            }
            (None, Some("text")) => {}
            (None, inside) => {
                if inside == Some("sh") {
                    printed = run(line, directory);
                }
                let _ = writeln!(new, "{line}");
            }
        }
    }
    new
}

/// Checks that a file has these bytes, or writes them when `FARLANE_BLESS` is set.
fn settle(path: &Path, bytes: &[u8]) {
    let name = path.file_name().unwrap().to_string_lossy();
    if std::env::var_os("FARLANE_BLESS").is_some() {
        std::fs::write(path, bytes).unwrap();
    } else if std::fs::read(path).ok().as_deref() != Some(bytes) {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let new = String::from_utf8_lossy(bytes);
        let differs = old.lines().zip(new.lines()).find(|(old, new)| old != new);
        panic!("{name} shows something else than its commands: {differs:?}; FARLANE_BLESS=1 writes it anew");
    }
}

#[test]
fn the_gallery_shows_every_scenario_with_the_output_and_pictures_of_its_commands() {
    let gallery = root().join("docs/scenarios.md");
    let shown = std::fs::read_to_string(&gallery).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("scenarios")).unwrap();
    for scenario in files(&root().join("scenarios"), "toml") {
        let name = scenario.file_name().unwrap();
        std::fs::copy(&scenario, directory.path().join("scenarios").join(name)).unwrap();
        let command = format!("farlane model sim scenarios/{}", name.to_string_lossy());
        assert!(shown.contains(&command), "{} does not show {command}", gallery.display());
    }
    settle(&gallery, renewed(&shown, directory.path()).as_bytes());
    for picture in files(directory.path(), "svg") {
        settle(
            &root().join("docs/scenarios").join(picture.file_name().unwrap()),
            &std::fs::read(&picture).unwrap(),
        );
    }
}
