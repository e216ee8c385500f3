//! The command line and its documentation agree.

mod headings;
mod named_options;
mod old_spellings;
mod overview;
mod schemas;
mod shell;
mod shown_commands;

use std::path::{Path, PathBuf};

use clap::{Arg, Command};

/// A file or folder of the repository.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The pages of the documentation: their paths from the root, and their texts.
fn pages() -> Vec<(String, String)> {
    let mut paths = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned).to_vec();
    let mut folders =
        ["docs", "apps/farlane/benches", "apps/farlane/tests", "apps/scenarios"].map(str::to_owned).to_vec();
    for members in ["pure", "data", "tools", "worlds"] {
        let entries = std::fs::read_dir(root(members)).unwrap().map(|entry| entry.unwrap().file_name());
        folders.extend(entries.map(|name| format!("{members}/{}", name.to_str().unwrap())));
    }
    for folder in folders {
        let entries = std::fs::read_dir(root(&folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = entries.map(|name| format!("{folder}/{}", name.to_str().unwrap()));
        paths.extend(names.filter(|name| name.ends_with(".md")));
    }
    paths.sort();
    assert!(paths.len() > 50, "{paths:?}");
    let read = |path: String| {
        let text = std::fs::read_to_string(root(&path)).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// Each command of the command line, with its names from the program's on.
fn commands() -> Vec<(Vec<String>, Command)> {
    fn walk(names: &[String], command: Command, found: &mut Vec<(Vec<String>, Command)>) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            walk(&[names, &[inner.get_name().to_owned()]].concat(), inner.clone(), found);
        }
        found.push((names.to_owned(), command));
    }
    let mut found = Vec::new();
    let mut command = crate::command_line();
    command.build();
    walk(&["farlane".to_owned()], command, &mut found);
    assert!(found.len() > 90, "{}", found.len());
    found
}

/// The long options of a command, without their dashes.
fn options(command: &Command) -> Vec<(&Arg, &str)> {
    command.get_arguments().filter_map(|arg| Some((arg, arg.get_long()?))).collect()
}
