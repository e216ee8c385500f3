//! `farlane setup check`: whether files can be used, without using them.

use std::path::Path;

use scenarios::file::link::Link;
use schemars::JsonSchema;
use serde::Serialize;

use super::{print, print_json, sim, target};
use crate::args::CheckFileArgs;
use crate::error::Error;
use crate::{config_file, whole_file};

/// Files that can be used, and their kinds.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    files: Vec<Good<'a>>,
}

/// A file that can be used.
#[derive(Serialize, JsonSchema)]
struct Good<'a> {
    path: &'a Path,
    /// The kind of its content, in words.
    what: String,
}

pub(crate) fn run(args: &CheckFileArgs) -> Result<(), Error> {
    let mut good = Vec::new();
    for path in &args.files {
        let what = check(path)?;
        if !args.output.json {
            print(&format!("{}: {what}: good\n", path.display()))?;
        }
        good.push(Good { path, what });
    }
    if args.output.json { print_json(&Json { files: good }) } else { Ok(()) }
}

/// Checks a file and names its kind.
fn check(path: &Path) -> Result<String, Error> {
    let commands = config_file::commands_in(path)?;
    if !commands.is_empty() {
        let root = crate::command_line();
        let one = |name: &&str| {
            let left = config_file::check(&root, path, name)?;
            let left = left.map(|option| format!(" (farlane-{name}@ gives --{option})"));
            Ok(format!("{}{}", config_file::words_of(name), left.unwrap_or_default()))
        };
        let names = commands.iter().map(one).collect::<Result<Vec<_>, Error>>()?;
        return Ok(format!("options of farlane {}", names.join(", ")));
    }
    let text = whole_file::read(path, texts::LIST_MAX)?;
    let table = texts::parse::<toml::Table>(&text).unwrap_or_default();
    let has = |key: &str| table.contains_key(key);
    let is_scenario = ["task", "workload", "load", "stream"].into_iter().any(has);
    if has("link") && !is_scenario {
        Link::parse(&text).map_err(|why| Error::Link { path: path.to_owned(), why })?;
        return Ok("a model of a network".to_owned());
    }
    if is_scenario {
        sim::check(path)?;
        return Ok("a scenario".to_owned());
    }
    target::check(path)?;
    Ok("offers of a target".to_owned())
}
