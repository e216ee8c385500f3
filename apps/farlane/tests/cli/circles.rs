//! The rooms of a crate import each other in one direction only.
//!
//! A room is a module with all its parts. Where two rooms need the same thing, it belongs into a
//! third one below both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::tidy::{is_test, sources, without_tests};

/// The crates whose rooms are checked, and the modules of each whose children are rooms themselves.
const CRATES: [(&str, &[&str]); 2] = [("apps/farlane/src/", &["commands"]), ("worlds/live/src/", &[])];

/// Arrows of a crate that close a circle. An arrow that is gone must leave this table. A namespace
/// of another device is a medium that a client reaches.
const OPEN: [(&str, &str, &str); 1] = [("worlds/live/src/", "media", "client")];

/// The modules that the command line uses: none that runs a command.
const BELOW_THE_COMMAND_LINE: [&str; 3] = ["args", "error", "plan_file"];

/// A module's path below its crate, such as `commands`, `status`.
type Module = Vec<String>;

/// The product code of each module of the crate at `folder`.
fn modules(folder: &str) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    for (name, text) in sources(folder).into_iter().filter(|(name, _)| !is_test(name)) {
        let path = name.strip_prefix(folder).and_then(|path| path.strip_suffix(".rs")).unwrap();
        let mut module: Module = path.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        let code = without_tests(&text);
        let code: Vec<_> = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        modules.insert(module, code.join("\n"));
    }
    assert!(modules.len() >= 50, "{folder} was not found");
    modules
}

/// Adds the paths of a `use` tree that begins with `before`.
fn add_paths(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, within)) = tree.split_once('{') else {
        return paths.push(format!("{before}{}", tree.trim()));
    };
    let before = format!("{before}{}", head.trim());
    let within = within.rsplit_once('}').map_or(within, |(within, _)| within);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in within.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                add_paths(&before, &within[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    add_paths(&before, &within[start..], paths);
}

/// All paths that a module's code names, in its imports and elsewhere.
fn paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let statements = code.split(';').filter_map(|statement| statement.rsplit_once("use "));
    for (_, tree) in statements.filter(|(_, tree)| tree.contains("::")) {
        add_paths("", tree, &mut paths);
    }
    let words = code.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
    // What ends with `::` begins a tree.
    paths.extend(words.filter(|word| word.contains("::") && !word.ends_with("::")).map(str::to_owned));
    paths
}

/// The module that `path` means where `module` names it, with what follows it in the path.
fn resolved(modules: &BTreeMap<Module, String>, module: &Module, path: &str) -> Option<Module> {
    if path.trim().starts_with("::") {
        // Another crate.
        return None;
    }
    let mut parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).peekable();
    let mut found = match *parts.peek()? {
        "crate" => Vec::new(),
        "super" | "self" => module.clone(),
        child => {
            let child = module.iter().map(String::as_str).chain([child]).map(str::to_owned).collect();
            return modules.contains_key::<Module>(&child).then_some(child);
        }
    };
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => drop(found.pop()),
            part => found.push(part.to_owned()),
        }
    }
    while !found.is_empty() && !modules.contains_key(&found) {
        found.pop();
    }
    (!found.is_empty()).then_some(found)
}

/// The room of a module.
fn room(divided: &[&str], module: &Module) -> String {
    let depth = if divided.contains(&module[0].as_str()) { 2 } else { 1 };
    module[..module.len().min(depth)].join("/")
}

/// Each room with the rooms that it imports.
fn arrows(folder: &str, divided: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules(folder);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, code) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        let from = room(divided, module);
        let named = paths(code);
        let to = named.iter().filter_map(|path| resolved(&modules, module, path));
        let to = to.map(|module| room(divided, &module)).filter(|to| *to != from);
        arrows.entry(from.clone()).or_default().extend(to);
    }
    arrows
}

/// Takes away each room that imports none of the others, and each that none of them imports, until
/// circles are left, or nothing.
fn circles(mut arrows: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let before = arrows.len();
        let rooms: BTreeSet<_> = arrows.keys().cloned().collect();
        let imported: BTreeSet<_> = arrows.values().flatten().cloned().collect();
        arrows.retain(|room, to| {
            to.retain(|to| rooms.contains(to));
            !to.is_empty() && imported.contains(room)
        });
        if arrows.len() == before {
            return arrows;
        }
    }
}

#[test]
fn rooms_import_each_other_in_one_direction() {
    for (folder, divided) in CRATES {
        let mut arrows = arrows(folder, divided);
        for (_, from, to) in OPEN.into_iter().filter(|(of, ..)| *of == folder) {
            let is_there = arrows.get_mut(from).is_some_and(|all| all.remove(to));
            assert!(is_there, "{from} does not import {to} any more: strike it from OPEN");
        }
        let mut found = String::new();
        for (from, to) in circles(arrows) {
            let to: Vec<_> = to.into_iter().collect();
            writeln!(found, "  {from} -> {}", to.join(", ")).unwrap();
        }
        assert!(found.is_empty(), "{folder}: rooms that import each other:\n{found}");
    }
}

#[test]
fn the_command_line_imports_no_command() {
    let (folder, divided) = CRATES[0];
    let arrows = arrows(folder, divided);
    let above: Vec<_> =
        arrows["args"].iter().filter(|room| !BELOW_THE_COMMAND_LINE.contains(&room.as_str())).collect();
    assert!(above.is_empty(), "args imports {above:?}: options and their values belong below commands");
}

#[test]
fn a_circle_is_found() {
    let of = |arrows: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        circles(all).into_keys().collect::<Vec<_>>()
    };
    assert!(of(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]), ["b", "c"]);
    let names = paths("use crate::commands::{control, served::{self, room}};\nlet x = super::list::of(1);");
    let expected = [
        "crate::commands::control",
        "crate::commands::served::self",
        "crate::commands::served::room",
        "super::list::of",
    ];
    assert_eq!(names, expected);
}
