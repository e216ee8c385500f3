//! The help of the program and of its groups.

use std::collections::BTreeSet;

use clap::Command;

use crate::args::overview::{DAILY, GROUPS};

fn help(name: &str) -> String {
    let mut root = crate::command_line();
    root.build();
    let command = if name.is_empty() { &mut root } else { root.find_subcommand_mut(name).unwrap() };
    command.render_long_help().to_string()
}

fn assert_fits(text: &str, lines: usize) {
    assert!(text.trim_end().lines().count() <= lines, "{} lines:\n{text}", text.lines().count());
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_help_of_the_program_fits_on_a_screen() {
    let text = help("");
    assert_fits(&text, 24);
    for name in DAILY.iter().chain(GROUPS.iter().map(|(name, _)| name)) {
        assert!(text.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}\n{text}");
    }
}

#[test]
fn the_help_of_a_group_fits_on_a_screen() {
    for (name, _) in GROUPS {
        assert_fits(&help(name), if name == "nvme" { 84 } else { 24 });
    }
}

/// The commands that people see.
fn shown(command: &Command) -> BTreeSet<String> {
    let inner = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    inner.map(|one| one.get_name().to_owned()).collect()
}

#[test]
fn each_command_stands_under_a_heading_once() {
    let root = crate::command_line();
    let top: Vec<_> = DAILY.iter().chain(GROUPS.iter().map(|(name, _)| name)).collect();
    assert_eq!(shown(&root), top.iter().map(|name| (**name).to_owned()).collect());
    for (group, headings) in GROUPS {
        let names: Vec<_> = headings.iter().flat_map(|(_, names)| names.iter()).collect();
        let listed: BTreeSet<_> = names.iter().map(|name| (**name).to_owned()).collect();
        assert_eq!(names.len(), listed.len(), "{group} lists a command twice");
        assert_eq!(shown(root.find_subcommand(group).unwrap()), listed, "{group}");
    }
}

#[test]
fn each_command_of_a_group_shows_an_example() {
    let root = crate::command_line();
    for (group, _) in GROUPS {
        for command in root.find_subcommand(group).unwrap().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = crate::args::names::first_name(&format!("farlane-{group}-{}", command.get_name()));
            let plain = help.replace('-', " ");
            assert!(plain.contains(&name.replace('-', " ")), "{name}: {help}");
        }
    }
}
