//! Every spelling of release 0.1 does the same as then, and logs which spelling it has now.

use std::ffi::OsString;

use clap::FromArgMatches;

use super::{pages, root};
use crate::args::names::{self, Modern, RENAMED, RENAMED_OPTIONS, SECOND};
use crate::args::{Cli, overview};

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("farlane").chain(line.split(' ')).map(OsString::from).collect()
}

fn modern(line: &str) -> Modern {
    names::modern(&crate::command_line(), words(line))
}

/// The arguments that a command line has, as text.
fn parsed(line: &str) -> String {
    let matches = crate::command_line().try_get_matches_from(modern(line).words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_or_else(|error| panic!("{line}: {error}"), |cli| format!("{cli:?}"))
}

/// The commands of release 0.1 and their spellings of today.
fn pairs() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root("apps/farlane/src/tests/old_spellings.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| line.split_once(" | ").map(|(old, new)| (old.to_owned(), new.to_owned()));
    lines.map(|line| pair(line).unwrap()).collect()
}

#[test]
fn every_old_spelling_is_parsed_to_the_same_arguments() {
    let pairs = pairs();
    assert!(pairs.len() >= 140, "{}", pairs.len());
    for (old, new) in &pairs {
        assert_eq!(parsed(old), parsed(new), "{old}");
        assert_eq!(modern(new).note, None, "{new}");
        assert_eq!(modern(new).words, words(new), "{new}");
        assert_eq!(modern(old).note.is_some(), old != new, "{old}");
    }
    for one in RENAMED {
        let used = pairs
            .iter()
            .filter(|(old, new)| old != new && format!("{old} ").contains(&format!("{} ", one.old)));
        assert!(used.count() > 0, "{} is in no pair", one.old);
    }
}

#[test]
fn the_note_names_both_spellings_and_the_release() {
    for (line, note) in [
        ("id-ctrl x", "farlane id-ctrl is now farlane nvme id-ctrl; the old name goes in 0.3"),
        (
            "-v trace export x",
            "farlane trace export is now farlane observe trace convert; the old name goes in 0.3",
        ),
        ("help key check", "farlane key check is now farlane setup key test; the old name goes in 0.3"),
        (
            "bench x --trace=y",
            "farlane bench --trace is now farlane bench --capture; the old spelling goes in 0.3",
        ),
        (
            "ping x --trace y",
            "farlane ping --trace is now farlane measure ping --capture; the old spelling goes in 0.3",
        ),
    ] {
        assert_eq!(modern(line).note.as_deref(), Some(note), "{line}");
    }
}

#[test]
fn words_that_are_no_old_spelling_stay() {
    for line in [
        "measure",
        "measure --help",
        "measure ping tcp://a:1",
        "measure pnig",
        "help measure",
        "help export",
        "export save --to file",
        "export --ram 1GiB -- --to",
        "nvme id-ctrl tcp://a:1",
        "record ctl status trigger",
        "observe capture --trace x",
        "bench x -- --trace",
        "frobnicate",
        "",
        "-- id-ctrl",
        "--log",
    ] {
        assert_eq!(modern(line), Modern { words: words(line), note: None }, "{line}");
    }
}

#[test]
fn second_spellings_are_the_same_commands_without_a_note() {
    for (second, first) in SECOND {
        let is = modern(&format!("-v {second} --help"));
        assert_eq!(is, Modern { words: words(&format!("-v {first} --help")), note: None });
        let help = modern(&format!("help {second}"));
        assert_eq!(help.words, words(&format!("help {first}")));
        let command = crate::command_line();
        assert!(names::find(&command, second).is_some(), "{second}: no help and no completions");
    }
    let daily = |name: &&&str| SECOND.iter().any(|(_, first)| *first == **name);
    assert_eq!(overview::DAILY.iter().filter(daily).count(), overview::DAILY.len());
}

#[test]
fn no_old_spelling_is_one_of_today_and_every_new_one_is() {
    let root = crate::command_line();
    for one in RENAMED {
        assert!(names::find(&root, one.new).is_some(), "{}", one.new);
        // export and measure have another meaning, too.
        let is_there = names::find(&root, one.old).is_some();
        assert_eq!(is_there, ["export", "measure"].contains(&one.old), "{}", one.old);
    }
}

/// Names in texts that are no commands: `farlane read` is no command of today.
fn old_in(text: &str) -> Vec<String> {
    let joined = text.replace(['`', '*'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, _) in joined.match_indices("farlane ") {
        let rest = &joined[at..];
        let is_word =
            at == 0 || !joined[..at].ends_with(|one: char| one.is_alphanumeric() || "-_/.".contains(one));
        let names: Vec<_> = rest.split(' ').skip(1).take(3).collect();
        let clean = |name: &str| name.trim_end_matches(|one: char| !one.is_alphanumeric()).to_owned();
        let old = |one: &&names::Renamed| {
            let count = one.old.split(' ').count();
            let given: Vec<_> = names.iter().take(count).map(|name| clean(name)).collect();
            !["export", "measure"].contains(&one.old) && given.join(" ") == one.old
        };
        found.extend(RENAMED.iter().find(old).filter(|_| is_word).map(|one| format!("farlane {}", one.old)));
    }
    found
}

#[test]
fn messages_help_and_pages_have_the_spellings_of_today() {
    let mut wrong = Vec::new();
    for (path, source) in super::named_options::sources() {
        if path.ends_with("args/names.rs") {
            continue;
        }
        // A line that nvme-cli prints is no command.
        let literals = super::named_options::literals(&source).into_iter();
        for literal in literals.filter(|literal| !literal.starts_with("farlane version {")) {
            wrong.extend(old_in(&literal).into_iter().map(|old| format!("{}: {old}", path.display())));
        }
    }
    for (names, command) in super::commands() {
        let mut texts: Vec<_> = [command.get_about(), command.get_long_about(), command.get_after_help()]
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        for arg in command.get_arguments() {
            let helps = [arg.get_help(), arg.get_long_help()];
            texts.extend(helps.into_iter().flatten().map(ToString::to_string));
        }
        for text in texts {
            wrong.extend(old_in(&text).into_iter().map(|old| format!("{} --help: {old}", names.join(" "))));
        }
    }
    for (path, text) in pages().into_iter().filter(|(path, _)| path != "docs/commands.md") {
        for span in text.split('`').skip(1).step_by(2) {
            wrong.extend(old_in(span).into_iter().map(|old| format!("{path}: {old}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_page_of_old_names_has_the_whole_table() {
    let page = std::fs::read_to_string(root("docs/commands.md")).unwrap();
    let commands = RENAMED.iter().map(|one| format!("| `farlane {}` | `farlane {}` |", one.old, one.new));
    let options = RENAMED_OPTIONS.iter().map(|(old, new)| format!("| `{old}` | `{new}` |"));
    let missing: Vec<_> = commands.chain(options).filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "docs/commands.md lacks\n{}", missing.join("\n"));
}
