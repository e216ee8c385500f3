//! Writes the changes of run time back into a daemon's file, whose comments and order stay.
//!
//! The daemon reports its offer; the command that asks changes the file, with its own rights. So a
//! daemon needs no right to change its own configuration.

mod replace;

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use toml_edit::DocumentMut;

use super::{print, print_json};
use crate::args::{Backing, SaveArgs};
use crate::error::{DaemonError, Error};
use crate::whole_file;

/// A namespace in a daemon's report.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    pub(crate) nsid: u32,
    pub(crate) namespace: Option<String>,
    pub(crate) ram: Option<String>,
    pub(crate) ana_group: Option<u32>,
}

/// A daemon's report of a namespace, which [`Told`] reads.
pub(crate) fn tell_namespace(nsid: u32, backing: &Backing) -> Value {
    match backing {
        Backing::Medium(spec) => json!({ "nsid": nsid, "namespace": spec.to_string() }),
        Backing::Ram(spec) => json!({ "nsid": nsid, "ram": spec.to_string() }),
    }
}

impl Told {
    /// The medium or the memory behind the namespace.
    ///
    /// # Errors
    /// When the report names neither, or both.
    pub(crate) fn backing(&self) -> Result<Backing, String> {
        Backing::asked(self.namespace.as_deref(), self.ram.as_deref())
    }
}

/// A daemon's file, and the text that it is about to have.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) before: String,
    pub(crate) document: DocumentMut,
}

impl File {
    /// Reads the file that a daemon names in its offer.
    pub(crate) fn read(offered: &Value) -> Result<Self, Error> {
        let path = offered["config"].as_str().ok_or(DaemonError::NoFileToSave)?;
        let path = PathBuf::from(path);
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
            return print_json(&json!({ "file": place, "changed": is_changed, "notes": notes }));
        }
        print(&match is_changed {
            true => format!("saved to {}\n", place.display()),
            false => format!("{} says all of it already\n", self.path.display()),
        })?;
        notes.iter().for_each(|note| note!("{note}"));
        Ok(())
    }
}

/// The error that a file can't be saved, for this reason.
pub(crate) fn wrong(path: &std::path::Path, why: &str) -> Error {
    Error::Config { path: path.to_owned(), why: why.to_owned() }
}

/// The daemon's answer, as a type of ours.
pub(crate) fn understand<T: for<'de> Deserialize<'de>>(told: &Value) -> Result<T, Error> {
    T::deserialize(told)
        .map_err(|error| DaemonError::Asked { why: format!("the daemon's answer: {error}") }.into())
}
