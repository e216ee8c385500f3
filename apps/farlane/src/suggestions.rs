//! Suggestions for a mistyped command.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::names;

/// Commands that destroy data or interrupt others. A mistyped word hardly meant one of them.
const DESTRUCTIVE: [&str; 16] = [
    "format",
    "sanitize",
    "write",
    "write-zeroes",
    "write-uncor",
    "copy",
    "dsm",
    "create-ns",
    "delete-ns",
    "detach-ns",
    "fw-commit",
    "disconnect",
    "reset",
    "subsystem-reset",
    "virt-mgmt",
    "lockdown",
];

/// Most commands that are suggested.
const MAX: usize = 3;

/// The error with the commands that a mistyped word may have meant, wherever they are, without
/// destructive commands.
pub(crate) fn with_suggestions(
    mut error: clap::Error,
    root: &clap::Command,
    words: &[OsString],
) -> clap::Error {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return error;
    };
    let found = similar(word, &spellings(root, words));
    match found.is_empty() {
        true => drop(error.remove(ContextKind::SuggestedSubcommand)),
        false => drop(error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(found))),
    }
    error
}

/// The commands that a word at this place of a command line may have meant, and their spellings: a
/// command of this place by its name, any other in full.
fn spellings(root: &clap::Command, words: &[OsString]) -> BTreeMap<String, String> {
    let mut spellings = BTreeMap::new();
    let names = names::names_in(root, words);
    let here = names::find(root, &names).unwrap_or(root);
    let shown = |one: &&clap::Command| !one.is_hide_set() && one.get_name() != "help";
    for one in here.get_subcommands().filter(shown) {
        spellings.insert(one.get_name().to_owned(), one.get_name().to_owned());
    }
    // The command nearer to the top comes first, and stays.
    let mut next: VecDeque<_> =
        root.get_subcommands().filter(shown).map(|one| (String::new(), one)).collect();
    while let Some((place, one)) = next.pop_front() {
        let name = one.get_name();
        let full = format!("{place} {name}");
        if !names::is_second(full.trim_start()) {
            spellings.entry(name.to_owned()).or_insert_with(|| format!("farlane{full}"));
            next.extend(one.get_subcommands().filter(shown).map(|one| (full.clone(), one)));
        }
    }
    for one in names::RENAMED.iter().filter(|one| !one.old.contains(' ')) {
        spellings.entry(one.old.to_owned()).or_insert_with(|| format!("farlane {}", one.new));
    }
    spellings
}

/// The commands whose names are similar to `word`, the most similar one first.
fn similar(word: &str, spellings: &BTreeMap<String, String>) -> Vec<String> {
    let far = (word.chars().count() / 3).max(1);
    let near = |name: &String| Some(distance(word, name)).filter(|distance| *distance <= far);
    let mut found: Vec<_> =
        spellings.iter().filter_map(|(name, spelling)| Some((near(name)?, spelling))).collect();
    // Of a word that is right but elsewhere, others are not similar.
    if found.iter().any(|(distance, _)| *distance == 0) {
        found.retain(|(distance, _)| *distance == 0);
    }
    found.retain(|(_, spelling)| !destroys(spelling));
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found.into_iter().take(MAX).map(|(_, spelling)| spelling.clone()).collect()
}

/// How many letters are missing, too many, wrong, or exchanged with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (at, letter) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (place, wanted) in other.iter().enumerate() {
            let change = rows[at][place] + usize::from(letter != wanted);
            let mut least = change.min(rows[at][place + 1] + 1).min(row[place] + 1);
            let is_exchanged = at > 0 && place > 0 && *letter == other[place - 1] && one[at - 1] == *wanted;
            if is_exchanged {
                least = least.min(rows[at - 1][place - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
}

/// Whether a command destroys data or interrupts others.
fn destroys(spelling: &str) -> bool {
    spelling.rsplit(' ').next().is_some_and(|name| DESTRUCTIVE.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a wrong command.
    fn said(words: &str) -> String {
        let words: Vec<_> = format!("farlane {words}").split(' ').map(OsString::from).collect();
        let root = crate::command_line();
        let error = root.clone().try_get_matches_from(&words).unwrap_err();
        with_suggestions(error, &root, &words).render().to_string()
    }

    #[test]
    fn no_suggestion_destroys_anything() {
        let frob = said("frobnicate");
        assert!(frob.contains("'frobnicate'") && !frob.contains("'format'"), "{frob}");
        assert!(!said("formt").contains("'format'") && !said("sanitise").contains("'sanitize'"));
        assert!(!said("nvme formt").contains("'format'") && !said("use wriet").contains("'write'"));
        assert!(!said("setup dsm").contains("nvme dsm"));
        assert!(said("exprot").contains("'export'"));
    }

    #[test]
    fn a_command_elsewhere_is_suggested_by_its_full_spelling() {
        for (words, tip) in [
            ("id-ctlr", "'farlane nvme id-ctrl'"),
            ("smart-log", "'farlane nvme smart-log'"),
            ("convert", "'farlane recording convert'"),
            ("offer bench", "'farlane bench'"),
            ("nvme ping", "'farlane measure ping'"),
            ("nvme id-ctlr", "'id-ctrl'"),
            ("verify-blocsk", "'farlane nvme verify'"),
            ("setup key sohw", "'show'"),
        ] {
            assert!(said(words).contains(tip), "{words}: {}", said(words));
        }
    }

    #[test]
    fn letters_are_missing_or_wrong_or_exchanged() {
        let expected =
            [("", "a", 1), ("list", "list", 0), ("lsit", "list", 1), ("lst", "list", 1), ("ping", "pong", 1)];
        for (one, other, expected) in expected {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
