//! The house rules that a compiler does not check, such as which crate may use which, and how long
//! a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most lines of a source file without the tests in it.
const FILE_LINES_MAX: usize = 600;
/// Most columns of a line of a comment.
const COMMENT_COLUMNS_MAX: usize = 100;
/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// How many values a function may take, `self` and the parts of tuples included.
const ARGUMENTS_MAX: usize = 7;
/// Words of comments whose sentences have no named subject or no precise verb, and their number in
/// the whole tree. The numbers only fall.
const VAGUE_WORDS: [(&str, usize); 10] = [
    ("anybody", 0),
    ("mend", 0),
    ("mended", 0),
    ("nobody", 0),
    ("somebody", 0),
    ("tell", 0),
    ("telling", 0),
    ("tells", 0),
    ("told", 0),
    ("whoever", 0),
];
/// From this many lines on, the document of a member has a blank line before it.
const DOCUMENT_LINES_LONG: usize = 4;

/// The external crates that a crate of `pure/` may use: cryptography and checksums without an
/// operating system.
const ARITHMETIC: [(&str, &str); 9] = [
    ("pure/datagrams", "sha2"),
    ("pure/nvme", "crc"),
    ("pure/nvme-fabrics", "crypto-bigint"),
    ("pure/nvme-fabrics", "hmac"),
    ("pure/nvme-fabrics", "sha2"),
    ("pure/nvme-fabrics", "subtle"),
    ("pure/nvme-fabrics", "zeroize"),
    ("pure/record", "blake3"),
    ("pure/record", "sha2"),
];

/// Libraries of which the program has two versions, and who holds the older one.
const TWICE: [(&str, &str); 12] = [
    ("crypto-common", "digest, below"),
    ("darling", "enumset 1.1, of mcap 0.26"),
    ("darling_core", "darling"),
    ("darling_macro", "darling"),
    ("digest", "crc-fast 1.10"),
    ("getrandom", "ahash 0.8, of parquet 60"),
    ("miniz_oxide", "png 0.18, of tiny-skia 0.12; its flate2 has the newer one"),
    ("signal-hook", "crossterm 0.29, of ratatui 0.30"),
    ("spin", "flume 0.12, of mdns-sd 0.21"),
    ("syn", "half of all macros: those of clap, serde and thiserror have the newer one"),
    ("unicode-width", "miette 7.6"),
    ("untrusted", "aws-lc-rs 1.19; rustls-webpki 0.103 has the newer one"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every crate's manifest by the crate's place: `pure/engine`, `worlds/live` and so on.
fn crates() -> BTreeMap<String, toml::Table> {
    let mut crates = BTreeMap::new();
    for storey in ["pure", "data", "worlds", "apps", "tools"] {
        for entry in fs::read_dir(root().join(storey)).unwrap() {
            let folder = entry.unwrap().path();
            if let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) {
                let name = folder.file_name().unwrap().to_str().unwrap();
                crates.insert(format!("{storey}/{name}"), manifest.parse().unwrap());
            }
        }
    }
    assert!(crates.len() >= 10, "the workspace was not found: {crates:?}");
    crates
}

fn dependencies<'a>(manifest: &'a toml::Table, table: &str) -> impl Iterator<Item = &'a str> {
    manifest
        .get(table)
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(|table| table.keys().map(String::as_str))
}

/// Names and texts of the Rust sources below `folder`. Names are relative to the root; generated
/// sources are left out.
pub(super) fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // A build's `target` folder has no sources, but a module may have that name.
                let inside = path.strip_prefix(root()).unwrap();
                if !inside.ends_with("target") || inside.iter().any(|name| name == "src") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// A file's text without its test modules, each of which ends at the next `}` at the beginning of a
/// line. Lines of the rest keep their numbers where tests come last.
pub(super) fn without_tests(text: &str) -> String {
    let mut product = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_module = |next: &&str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(is_module) {
            lines.by_ref().find(|line| *line == "}");
        } else {
            product += line;
            product.push('\n');
        }
    }
    product
}

pub(super) fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs") || name.contains("/tests/") || name.contains("/benches/")
}

/// Libraries that crates in `pure` may use: computations that need no operating system, and the
/// form of states.
const PURE_LIBRARIES: [&str; 2] = ["base64", "serde"];

#[test]
fn arrows_run_from_apps_to_worlds_to_data_to_pure() {
    let crates = crates();
    // A program may have the name of its engines, which are the lower storey.
    let storey_of = |dependency: &str| {
        crates.keys().rev().find_map(|place| {
            let (storey, name) = place.split_once('/')?;
            (name == dependency).then_some(storey)
        })
    };
    for (place, manifest) in &crates {
        let storey = place.split('/').next().unwrap();
        for dependency in dependencies(manifest, "dependencies") {
            let allowed: &[Option<&str>] = match storey {
                "pure" if PURE_LIBRARIES.contains(&dependency) => &[None],
                // Only crates in `pure`, and cryptography where it is the subject.
                "pure" if ARITHMETIC.contains(&(place.as_str(), dependency)) => &[None],
                "pure" => &[Some("pure")],
                // Types alone: no engine, and nothing that does I/O.
                "data" if place == "data/status" => {
                    let allowed = ["schemars", "serde", "serde_json"].contains(&dependency);
                    assert!(allowed, "{place} may not depend on {dependency}");
                    &[None]
                }
                "data" => &[Some("pure"), Some("data"), None],
                "worlds" => &[Some("pure"), Some("data"), Some("worlds"), None],
                // The simulator that people run is a library of two programs.
                "apps" if dependency == "scenarios" => &[Some("apps")],
                _ => &[Some("pure"), Some("data"), Some("worlds"), None],
            };
            assert!(allowed.contains(&storey_of(dependency)), "{place} may not depend on {dependency}");
        }
        for (one, other) in [
            ("worlds/live", "sim"),
            ("worlds/sim", "live"),
            ("worlds/live", "gateware"),
            ("worlds/sim", "gateware"),
            ("worlds/campaigns", "gateware"),
            ("worlds/live", "daemon"),
            ("worlds/daemon", "sim"),
            ("worlds/live", "campaigns"),
            ("pure/tunnel", "nvme"),
            ("pure/tunnel", "nvme-lookahead"),
            ("pure/nvme-lookahead", "tunnel"),
        ] {
            for table in ["dependencies", "dev-dependencies"] {
                let crossed = place == one && dependencies(manifest, table).any(|name| name == other);
                assert!(!crossed, "{one} and {other} must not know each other");
            }
        }
    }
}

#[test]
fn pure_crates_cannot_touch_the_world() {
    for (place, _) in crates().iter().filter(|(place, _)| place.starts_with("pure/")) {
        let library = fs::read_to_string(root().join(place).join("src/lib.rs")).unwrap();
        let is_pure =
            ["#![no_std]", "#![cfg_attr(not(test), no_std)]"].iter().any(|one| library.contains(one));
        assert!(is_pure, "{place}/src/lib.rs is not #![no_std]");
        for (name, text) in sources(&format!("{place}/src")) {
            for (number, line) in
                text.lines().enumerate().filter(|(_, line)| line.contains("extern crate std"))
            {
                let before = text.lines().nth(number.wrapping_sub(1)).unwrap_or_default();
                assert!(before.contains("cfg(test)"), "{name}:{}: {line}", number + 1);
            }
        }
    }
}

#[test]
fn only_the_live_world_and_the_calls_of_circuits_have_unsafe_code() {
    for (name, text) in sources("worlds/gateware") {
        let calls = name.starts_with("worlds/gateware/src/ffi/");
        assert!(calls || !words(&text).any(|word| word == "unsafe"), "{name} has unsafe code");
    }
    let safe = |place: &str| !["worlds/live", "worlds/gateware"].contains(&place);
    for (place, _) in crates().iter().filter(|(place, _)| safe(place)) {
        let is_root = |name: &str| ["lib.rs", "main.rs"].contains(&name) || name.starts_with("bin/");
        let folder = format!("{place}/src");
        let roots = sources(&folder).into_iter().filter(|(name, _)| is_root(&name[folder.len() + 1..]));
        let roots: Vec<_> = roots.collect();
        assert!(!roots.is_empty(), "{place} has no root");
        for (name, text) in roots {
            assert!(text.contains("#![forbid(unsafe_code)]"), "{name} lacks #![forbid(unsafe_code)]");
        }
    }
}

/// The recorder's session settles its engine by itself: the writes of several turns are submitted
/// together.
#[test]
fn the_pump_alone_drives_engines_in_the_live_world() {
    let mut found = Vec::new();
    for (name, text) in sources("worlds/live/src").iter().filter(|(name, _)| !is_test(name)) {
        if name.ends_with("reactor/pump.rs") || name.contains("/drivers/record/") {
            continue;
        }
        for (number, line) in without_tests(text).lines().enumerate() {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let uses = line.starts_with("use engine::")
                && words.any(|word| ["drain", "fire", "next_wake", "settle"].contains(&word));
            if uses || line.contains("while let") && line.contains("poll_output") {
                found.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "put the engine into a Pump:\n{}", found.join("\n"));
}

#[test]
fn files_and_functions_are_small_enough_to_hold() {
    let mut long = Vec::new();
    for storey in ["pure", "data", "worlds", "apps", "tools"] {
        for (name, text) in sources(storey).iter().filter(|(name, _)| !is_test(name)) {
            let body = without_tests(text);
            let lines = body.lines().count();
            if lines > FILE_LINES_MAX {
                long.push(format!("{name}: {lines} lines without its tests, {FILE_LINES_MAX} at most"));
            }
            long.extend(long_functions(&body).into_iter().map(|(start, lines)| {
                format!("{name}:{start}: a function of {lines} lines, {FUNCTION_LINES_MAX} at most")
            }));
        }
    }
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

/// First line and length of each function that is too long. The end of a function is found by
/// rustfmt's indentation: the next `}` at the depth of its `fn`.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        let words = code.split('(').next().unwrap_or_default();
        if !words.split_whitespace().any(|word| word == "fn") || code.starts_with("//") || code.ends_with(';')
        {
            continue;
        }
        // A declaration in a trait has no body.
        let head = lines[start..].iter().find(|line| line.ends_with(['{', ';', '}']));
        if head.is_some_and(|line| line.ends_with(';')) {
            continue;
        }
        let close = format!("{}}}", " ".repeat(depth));
        let end = lines[start..].iter().position(|line| *line == close).unwrap_or(0);
        if end + 1 > FUNCTION_LINES_MAX {
            found.push((start + 1, end + 1));
        }
    }
    found
}

/// Clippy counts a tuple as one argument: so a function that takes too much could hide it.
#[test]
fn no_function_takes_more_than_it_shows() {
    let mut found = Vec::new();
    for storey in ["pure", "data", "worlds", "apps", "tools"] {
        for (name, text) in sources(storey).iter().filter(|(name, _)| !is_test(name)) {
            for (function, count) in functions(&without_tests(text)) {
                if count > ARGUMENTS_MAX {
                    found.push(format!("{name}: {function} takes {count} values, {ARGUMENTS_MAX} at most"));
                }
            }
        }
    }
    assert!(found.is_empty(), "give them a type of their own:\n{}", found.join("\n"));
    let example = "fn one(&self, (a, b): (u8, u8), c: Vec<(u8, u8)>) {}\nfn two<T>(many: [T; 2]) {}";
    assert_eq!(functions(example), [("one".to_owned(), 4), ("two".to_owned(), 1)]);
}

/// Each function's name, and how many values it takes: those in a tuple count one by one.
fn functions(text: &str) -> Vec<(String, usize)> {
    let starts = text.match_indices("fn ").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|before| before.is_whitespace())
            && !text[..*at].lines().next_back().is_some_and(|line| line.trim_start().starts_with("//"))
    });
    starts
        .filter_map(|(at, _)| {
            let head = &text[at + 3..];
            let end = head.find(|one: char| !one.is_alphanumeric() && one != '_')?;
            let (name, rest) = head.split_at(end);
            let open = if rest.starts_with('<') { after_generics(rest)? } else { 0 };
            let rest = rest[open..].strip_prefix('(').filter(|_| !name.is_empty())?;
            let values = parts(rest).into_iter().map(|part| {
                let tuple = part.split_once(": (").map(|(_, tuple)| parts(tuple).len());
                tuple.unwrap_or(1)
            });
            Some((name.to_owned(), values.sum()))
        })
        .collect()
}

/// How many bytes the generic parameters at the beginning of `text` take.
fn after_generics(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, one) in text.char_indices() {
        match one {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = one;
    }
    None
}

/// The parts between commas, up to the bracket that closes the one in which `text` begins.
fn parts(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth, mut before) = (Vec::new(), 0, 0, ' ');
    for (at, one) in text.char_indices() {
        match one {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(&text[start..at]);
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' && before != '=' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = one;
    }
    found.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A long document without a blank line before it hides where the next member begins.
#[test]
fn long_documents_of_members_have_a_blank_line_before_them() {
    let mut found = Vec::new();
    for storey in ["pure", "data", "worlds", "apps", "tools"] {
        for (name, text) in sources(storey) {
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let is_document = |line: &&str| line.starts_with("///");
            for (number, pair) in lines.windows(2).enumerate() {
                let begins = is_document(&pair[1]) && !is_document(&pair[0]);
                let follows = pair[0].ends_with([',', '}', ';']);
                let length = lines[number + 1..].iter().take_while(|line| is_document(line)).count();
                if begins && follows && length >= DOCUMENT_LINES_LONG {
                    found.push(format!("{name}:{}: {length} lines", number + 2));
                }
            }
        }
    }
    assert!(found.is_empty(), "put a blank line before:\n{}", found.join("\n"));
}

/// A module's own file is where its parts are.
#[test]
fn a_module_with_parts_is_one_folder() {
    let folders = ["pure", "data", "worlds", "apps", "tools", "examples", "fuzz/fuzz_targets"];
    let mut beside = Vec::new();
    for (name, _) in folders.into_iter().flat_map(sources) {
        let folder = name.strip_suffix(".rs").unwrap();
        if root().join(folder).is_dir() {
            beside.push(format!("{name} stands beside {folder}/; move it to {folder}/mod.rs"));
        }
    }
    assert!(beside.is_empty(), "\n{}", beside.join("\n"));
}

/// The path shows whether a file is a part of the product.
#[test]
fn code_for_tests_alone_says_so_in_its_path() {
    let mut unnamed = Vec::new();
    for (name, text) in ["pure", "data", "worlds", "apps", "tools"].into_iter().flat_map(sources) {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let module = pair[1].strip_suffix(';').and_then(|line| line.split_once("mod "));
            if let Some((_, module)) = module
                && !["tests", "test_bench"].contains(&module)
            {
                unnamed.push(format!("{name}: `{module}` is for tests; call it `tests` or `test_bench`"));
            }
        }
    }
    assert!(unnamed.is_empty(), "\n{}", unnamed.join("\n"));
}

#[test]
fn comments_are_narrow_enough_to_read() {
    let folders = ["pure", "data", "worlds", "apps", "tools", "examples", "fuzz/fuzz_targets"];
    for (name, text) in folders.into_iter().flat_map(sources) {
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            let is_comment = line.trim_start().starts_with("//");
            assert!(!is_comment || columns <= COMMENT_COLUMNS_MAX, "{name}:{number}: {columns} columns");
        }
    }
}

#[test]
fn comments_name_their_subjects() {
    let mut counts = VAGUE_WORDS.map(|(word, _)| (word, 0));
    for (_, text) in ["pure", "data", "worlds", "apps", "tools", "examples"].into_iter().flat_map(sources) {
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        for word in comments.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')) {
            for (_, count) in counts.iter_mut().filter(|(vague, _)| word.eq_ignore_ascii_case(vague)) {
                *count += 1;
            }
        }
    }
    assert_eq!(counts, VAGUE_WORDS, "name the component that acts; where a number fell, lower it here");
}

/// The words of a text's code, without comments.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

/// The compiler finds dead functions within a crate, but not among those that the crate offers
/// to others.
#[test]
fn no_public_function_is_unused() {
    let files: Vec<_> =
        ["pure", "data", "worlds", "apps", "tools", "fuzz"].into_iter().flat_map(sources).collect();
    let mut counts = BTreeMap::<&str, usize>::new();
    for word in files.iter().flat_map(|(_, text)| words(text)) {
        *counts.entry(word).or_default() += 1;
    }
    let mut dead = Vec::new();
    for (file, text) in &files {
        for line in text.lines().filter(|line| line.trim_start().starts_with("pub ")) {
            let name = line.split_once("fn ").and_then(|(_, rest)| words(rest).next());
            if let Some(name) = name.filter(|name| counts[name] == 1) {
                dead.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(dead.is_empty(), "these are not called; remove them:\n{}", dead.join("\n"));
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    // The words are spelled in two halves so that this file does not find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("/ro", "ot/")];
    for storey in ["pure", "data", "worlds", "apps", "tools"] {
        for (name, text) in sources(storey) {
            for (number, line) in text.lines().enumerate() {
                for word in words {
                    assert!(!line.contains(word), "{name}:{}: {line}", number + 1);
                }
            }
        }
    }
}

/// Paths and texts of the pages in `folder` and in the folders below it.
fn pages(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn the_documentation_names_what_exists() {
    let code: String = ["pure", "data", "worlds", "apps", "tools"]
        .into_iter()
        .flat_map(sources)
        .map(|(_, text)| text)
        .collect::<Vec<_>>()
        .join("\n");
    let mut missing = Vec::new();
    let documented =
        ["docs", "pure", "data", "worlds", "apps", "tools"].map(|folder| pages(&root().join(folder)));
    for (path, text) in documented.into_iter().flatten() {
        let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let constants = text.split('`').skip(1).step_by(2);
        for name in constants.filter(|name| name.contains('_') && name.chars().all(capital)) {
            if !code.contains(&format!("const {name}:")) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let elsewhere = link.is_empty() || link.contains("://");
            if !elsewhere && !path.parent().unwrap().join(link).exists() {
                missing.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn every_external_dependency_has_its_reason() {
    for place in crates().keys() {
        let text = fs::read_to_string(root().join(place).join("Cargo.toml")).unwrap();
        let mut reason = false;
        let mut within = false;
        for line in text.lines() {
            if line.starts_with('[') {
                within = line.contains("dependencies");
                reason = false;
            } else if line.starts_with('#') {
                reason = true;
            } else if line.is_empty() {
                reason = false;
            } else if within && !line.contains("workspace = true") && !line.starts_with([' ', ']', '}']) {
                assert!(reason, "{place}/Cargo.toml: say above it why this is needed: {line}");
            }
        }
    }
}

#[test]
fn every_licence_allows_use_under_ours() {
    let allowed = [
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    ];
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 20, "only {} packages were found", packages.len());
    for package in packages {
        // "A OR B" is a choice and "A AND B" is both. Older manifests write a choice as "A/B".
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        let acceptable = licence.split(" OR ").any(|choice| {
            choice.split(" AND ").all(|part| allowed.contains(&part.trim_matches(['(', ')', ' '])))
        });
        assert!(acceptable, "{} {}: {licence}", package["name"], package["version"]);
    }
}

#[test]
fn no_library_is_built_in_two_versions_without_a_reason() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "farlane", "--edges", "normal,build", "--prefix", "none"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--no-dedupe", "--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        versions.entry(words.next().unwrap()).or_default().insert(words.next().unwrap());
    }
    assert!(versions.len() > 100, "only {} packages were found", versions.len());
    versions.retain(|_, versions| versions.len() > 1);
    for (name, versions) in &versions {
        let is_known = TWICE.iter().any(|(known, _)| known == name);
        assert!(is_known, "{name} is there as {versions:?}: have one, or say in TWICE who holds the older");
    }
    for (name, holder) in TWICE {
        assert!(versions.contains_key(name), "{name} is there once: TWICE need not name it ({holder})");
    }
}
