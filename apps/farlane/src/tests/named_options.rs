//! Every option that a message, a help text or a page names is one that its command has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{commands, options, pages, root};

/// The commands and their options.
struct Known(Vec<(Vec<String>, BTreeSet<String>)>);

impl Known {
    fn new() -> Self {
        let of = |(names, command): (Vec<String>, clap::Command)| {
            let mut own: BTreeSet<_> =
                options(&command).into_iter().map(|(_, long)| long.to_owned()).collect();
            let aliases = command.get_arguments().filter_map(clap::Arg::get_all_aliases).flatten();
            own.extend(aliases.map(str::to_owned));
            own.extend(["help", "version"].map(str::to_owned));
            (names, own)
        };
        Self(commands().into_iter().map(of).collect())
    }

    /// How many of `words` name a subcommand, from the program's name on.
    fn names(&self, words: &[&str]) -> Option<usize> {
        let lengths = (2..=words.len().min(4)).rev();
        lengths.into_iter().find(|length| self.options(&words[..*length]).is_some())
    }

    /// The options of the subcommand with these names.
    fn options(&self, names: &[&str]) -> Option<&BTreeSet<String>> {
        let named = self.0.iter().find(|(known, _)| known.len() > 1 && known == names);
        named.map(|(_, own)| own)
    }

    fn has(&self, option: &str) -> bool {
        self.0.iter().any(|(_, own)| own.contains(option))
    }
}

/// The programs of others whose options are named beside ours.
const OTHERS: [&str; 23] = [
    "cargo",
    "dpkg",
    "ethtool",
    "ib_send_bw",
    "ib_write_lat",
    "ip",
    "make",
    "man",
    "numactl",
    "nvme",
    "openssl",
    "perftest",
    "phc2sys",
    "podman",
    "qemu-system-x86_64",
    "rping",
    "setcap",
    "strace",
    "sudo",
    "systemctl",
    "tc",
    "tshark",
    "unshare",
];
/// Options of others that stand alone in a list of words.
const FOREIGN: [&str; 2] = ["map-root-user", "net"];

/// The faults in the options that `text` names. An option belongs to the last command that is named
/// before it in the same part of a sentence; where none is, any command may have it.
fn faults(known: &Known, text: &str) -> Vec<String> {
    let separators = [". ", ": ", ", ", " | ", "; ", "`", "\n"];
    let mut parts = vec![text];
    for separator in separators {
        parts = parts.into_iter().flat_map(|part| part.split(separator)).collect();
    }
    parts.into_iter().flat_map(|part| faults_in(known, part)).collect()
}

fn faults_in(known: &Known, part: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_edge = |one: char| !one.is_alphanumeric() && one != '-';
    let words: Vec<&str> = part.split_whitespace().map(|word| word.trim_matches(is_edge)).collect();
    let mut command: Vec<&str> = Vec::new();
    let mut is_foreign = false;
    for (at, word) in words.iter().enumerate() {
        let deeper = [&command[..], &[word]].concat();
        if let Some(length) = known.names(&words[at..]) {
            (command, is_foreign) = (words[at..at + length].to_vec(), false);
        } else if known.options(&deeper).is_some() {
            // A subcommand behind a value, as in `farlane record ctl SOCKET pin`.
            command = deeper;
        } else if OTHERS.contains(word) {
            is_foreign = true;
        }
        let Some(option) = word.strip_prefix("--").filter(|_| !is_foreign) else { continue };
        let is_end = |one: char| !one.is_ascii_alphanumeric() && one != '-' && one != '_';
        let option = option.split(is_end).next().unwrap_or_default();
        let is_there = match known.options(&command) {
            Some(own) => own.contains(option),
            None => known.has(option) || FOREIGN.contains(&option),
        };
        if !is_there && !option.is_empty() {
            found.push(format!("{} has --{option}: {}", command.join(" "), part.trim()));
        }
    }
    found
}

/// The text literals in a Rust source, without those of its tests.
pub(super) fn literals(source: &str) -> Vec<String> {
    let product = source.split("#[cfg(test)]").next().unwrap();
    let mut found = Vec::new();
    let mut literal: Option<String> = None;
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in lines {
        let mut escaped = false;
        for one in line.chars() {
            match (&mut literal, one) {
                (Some(_), '\\') if !escaped => {
                    escaped = true;
                    continue;
                }
                (Some(text), '"') if !escaped => found.push(core::mem::take(text)),
                (Some(text), 'n') if escaped => text.push('\n'),
                (Some(text), _) => text.push(one),
                (None, '"') => {}
                (None, _) => continue,
            }
            if one == '"' && !escaped {
                literal = if literal.is_some() { None } else { Some(String::new()) };
            }
            escaped = false;
        }
        // A backslash at the end joins lines without the white space between them.
        if let Some(text) = &mut literal
            && !escaped
        {
            text.push('\n');
        }
    }
    found
}

/// The sources of the program and of the parts whose errors it reports.
pub(super) fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![root("apps/farlane/src"), root("worlds/live/src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 200, "{}", found.len());
    found
}

#[test]
fn options_in_messages_are_there() {
    let known = Known::new();
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        // The old spellings are there.
        if path.ends_with("args/names.rs") {
            continue;
        }
        // The variables of a style sheet look like options.
        for literal in literals(&source).into_iter().filter(|text| !text.contains("var(--")) {
            wrong
                .extend(faults(&known, &literal).into_iter().map(|why| format!("{}: {why}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn options_in_help_texts_are_there() {
    let known = Known::new();
    let mut wrong = Vec::new();
    for (names, command) in commands() {
        let mut texts: Vec<String> = [command.get_about(), command.get_long_about()]
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        for arg in command.get_arguments() {
            texts
                .extend([arg.get_help(), arg.get_long_help()].into_iter().flatten().map(ToString::to_string));
        }
        for text in texts {
            wrong.extend(
                faults(&known, &text.replace('\n', " "))
                    .into_iter()
                    .map(|why| format!("{} --help: {why}", names.join(" "))),
            );
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn options_in_the_documentation_are_there() {
    let known = Known::new();
    let mut wrong = Vec::new();
    for (path, text) in pages() {
        // The program of fleets checks its own.
        let is_ours = |span: &&str| span.starts_with("farlane ") && !span.starts_with("farlane fleet");
        for span in text.split('`').skip(1).step_by(2).filter(is_ours) {
            wrong.extend(
                faults(&known, &span.replace('\n', " ")).into_iter().map(|why| format!("{path}: {why}")),
            );
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The program's answers to wrong command lines, which its tests keep.
#[test]
fn a_remedy_names_no_option_that_the_refused_command_lacks() {
    let known = Known::new();
    let kept = std::fs::read_to_string(root("apps/farlane/tests/cli/wrong_arguments.txt")).unwrap();
    let mut wrong = Vec::new();
    for one in kept.split("\n$ ").skip(1) {
        let (line, reported) = one.split_once('\n').unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let Some(own) = known.names(&words).and_then(|length| known.options(&words[..length])) else {
            continue;
        };
        for remedy in reported.lines().filter_map(|line| line.trim().strip_prefix("help: ")) {
            for sentence in remedy.split([';', ':']).filter(|sentence| !sentence.contains("farlane ")) {
                let named = sentence.split_whitespace().filter_map(|word| word.strip_prefix("--"));
                for option in named {
                    let option = option.trim_end_matches(|one: char| !one.is_alphanumeric());
                    if !own.contains(option) {
                        wrong.push(format!("{line}\n    {remedy}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn an_option_that_is_not_there_is_found() {
    let known = Known::new();
    assert_eq!(faults(&known, "give --ram SIZE, or farlane setup key show FILE").len(), 0);
    assert_eq!(faults(&known, "use ip netns --all, or unshare --user").len(), 0);
    assert_eq!(
        faults(&known, "name it with farlane setup key show --key FILE")[0].split(':').next(),
        Some("farlane setup key show has --key")
    );
    assert_eq!(faults(&known, "give --volume loud").len(), 1);
    assert_eq!(literals("f(\"a --b \\\n    c\", \"d\\\"e\")"), ["a --b     c", "d\"e"]);
}
