//! Which shared libraries a program needs, read from its ELF header and theirs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use crate::Error;

/// Where Debian keeps the libraries of this architecture, within a tree.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Where the loader that programs name lives, within a tree.
const LOADERS: &str = "usr/lib64";
/// A program that needs more libraries than this is not one that we ship.
const LIBRARIES_MAX: usize = 1_024;

/// Every library that `program` needs, directly or not, and its loader: path within `tree` to file.
/// A static program needs none.
pub(crate) fn needed(program: &Path, tree: &Path) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(program.to_owned(), Vec::new())];
    while let Some((path, inherited)) = waiting.pop() {
        let bytes = fs::read(&path).map_err(Error::at("reading", &path))?;
        let elf = Elf::parse(&bytes).map_err(|error| Error::Io {
            doing: format!("reading {} as an ELF file", path.display()),
            source: std::io::Error::other(error),
        })?;
        // A library's own search path serves those below it too; our trees have no two of one name.
        let mut places: Vec<String> = inherited;
        places.push(LIBRARIES.to_owned());
        places.extend(elf.runpaths.iter().chain(&elf.rpaths).flat_map(|path| path.split(':')).map(within));
        let loader = elf.interpreter.iter().filter_map(|path| path.rsplit('/').next());
        let libraries = elf.libraries.iter().map(|&name| (name, find(tree, &places, name)));
        let loaders = [LOADERS.to_owned()];
        for (name, found_at) in libraries.chain(loader.map(|name| (name, find(tree, &loaders, name)))) {
            let (place, file) = found_at.ok_or_else(|| Error::Missing {
                what: format!("{name}, which {} needs,", path.display()),
                looked_in: tree.display().to_string(),
            })?;
            if found.insert(place, file.clone()).is_none() {
                assert!(found.len() <= LIBRARIES_MAX, "{} needs ever more libraries", program.display());
                waiting.push((file, places.clone()));
            }
        }
    }
    Ok(found)
}

/// An absolute directory of a search path, as a place within a tree.
fn within(directory: &str) -> String {
    directory.trim_matches('/').to_owned()
}

fn find(tree: &Path, places: &[String], name: &str) -> Option<(String, PathBuf)> {
    places.iter().find_map(|place| {
        let file = tree.join(place).join(name);
        file.is_file().then(|| (format!("{place}/{name}"), file))
    })
}
