//! Finds the shared libraries that a program needs, by the ELF headers of the program and its
//! libraries.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use crate::Error;

/// Where a tree keeps Debian's libraries of this architecture.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Where a tree keeps the loader that programs name.
const LOADERS: &str = "usr/lib64";
/// The largest number of libraries of a program; a program with more is not supported.
const LIBRARIES_MAX: usize = 1_024;

/// The loader and all libraries that `program` needs, directly or not: path within `tree`, and
/// file. A static program needs none.
pub(crate) fn needed(program: &Path, tree: &Path) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(program.to_owned(), Vec::new())];
    while let Some((path, inherited)) = waiting.pop() {
        let bytes = fs::read(&path).map_err(Error::at("reading", &path))?;
        let elf = Elf::parse(&bytes).map_err(|error| Error::Io {
            doing: format!("reading {} as an ELF file", path.display()),
            source: std::io::Error::other(error),
        })?;
        // A library's own search path also serves the libraries that it needs. No name occurs twice
        // in our trees.
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

/// An absolute directory of a search path, as a directory within a tree.
fn within(directory: &str) -> String {
    directory.trim_matches('/').to_owned()
}

fn find(tree: &Path, places: &[String], name: &str) -> Option<(String, PathBuf)> {
    places.iter().find_map(|place| {
        let file = tree.join(place).join(name);
        file.is_file().then(|| (format!("{place}/{name}"), file))
    })
}
