//! Writes the changes of run time back into a daemon's file, whose comments and order stay.
//!
//! The daemon reports its offer; the command that asks changes the file, with its own rights. So a
//! daemon needs no right to change its own configuration.

pub(crate) mod offer;
mod replace;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use toml_edit::DocumentMut;

use super::{print, print_json};
use crate::args::SaveArgs;
use crate::error::{DaemonError, Error};
use crate::whole_file;

/// The file that was written, and the notes about it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Saved<'a> {
    file: &'a Path,
    /// Whether the file said something else before.
    changed: bool,
    notes: &'a [String],
}

/// A daemon's file, and the text that it is about to have.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) before: String,
    pub(crate) document: DocumentMut,
}

impl File {
    /// Reads the file that a daemon names in its offer.
    pub(crate) fn read(config: Option<&PathBuf>) -> Result<Self, Error> {
        let path = config.ok_or(DaemonError::NoFileToSave)?.clone();
        let before = whole_file::read(&path, texts::LIST_MAX)?;
        texts::check_nesting(&before).map_err(|why| wrong(&path, &why))?;
        let wrong = |error: toml_edit::TomlError| wrong(&path, error.to_string().trim_end());
        let document = before.parse().map_err(wrong)?;
        Ok(Self { path, before, document })
    }

    /// Writes the text, if it has changed, to the place of the arguments, and reports it.
    pub(crate) fn write(self, args: &SaveArgs, notes: &[String]) -> Result<(), Error> {
        let text = self.document.to_string();
        let place = args.to.as_ref().unwrap_or(&self.path);
        let is_changed = text != self.before;
        if is_changed || args.to.is_some() {
            let failed = |error| Error::File { path: place.clone(), error };
            replace::replace(place, &self.path, &text).map_err(failed)?;
        }
        if args.output.json {
            return print_json(&Saved { file: place, changed: is_changed, notes });
        }
        print(&match is_changed {
            true => format!("saved to {}\n", place.display()),
            false => format!("{} is up to date already\n", self.path.display()),
        })?;
        notes.iter().for_each(|note| note!("{note}"));
        Ok(())
    }
}

/// The error that a file can't be saved, for this reason.
pub(crate) fn wrong(path: &Path, why: &str) -> Error {
    Error::Config { path: path.to_owned(), why: why.to_owned() }
}
