//! The last measurement of each medium, kept for `farlane record`.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use live::sys::files::{Kind, Place, Replacement};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::answer::Behaviour;

/// The most bytes of a file that are read.
const FILE_MAX: u64 = 64 << 10;
/// The number of digits of a file's name.
const NAME_DIGITS: usize = 16;

/// A measurement that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The identity that distinguishes the medium from others.
    pub(crate) medium: String,
    /// When it was measured, in seconds since 1970.
    pub(crate) when: u64,
    /// Number of bytes that were written.
    pub(crate) bytes: u64,
    pub(crate) behaviour: Behaviour,
}

/// Where measurements are kept: `$XDG_STATE_HOME/farlane/preflight`, or
/// `.local/state/farlane/preflight` in the home directory, or `/var/lib/farlane/preflight` for a
/// user without one.
pub(super) fn directory() -> PathBuf {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.unwrap_or_else(|| PathBuf::from("/var/lib")).join("farlane/preflight")
}

/// The file of the medium with this name.
fn file_of(medium: &str) -> PathBuf {
    let digest: String = Sha256::digest(medium).iter().map(|byte| format!("{byte:02x}")).collect();
    directory().join(format!("{}.json", &digest[..NAME_DIGITS]))
}

impl Kept {
    /// Keeps the measurement in the place of an earlier one. Returns the file's name.
    ///
    /// # Errors
    /// When the file or its directory can't be made.
    pub(crate) fn save(&self) -> io::Result<PathBuf> {
        let path = file_of(&self.medium);
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut file = Replacement::begin(Place::find(&path)?, Kind::Private)?;
        serde_json::to_writer(&mut file, self)?;
        file.keep()?;
        Ok(path)
    }

    /// The last measurement of the medium with this name, if it is kept and can be read.
    pub(crate) fn load(medium: &str) -> Option<Self> {
        let mut text = String::new();
        fs::File::open(file_of(medium)).ok()?.take(FILE_MAX).read_to_string(&mut text).ok()?;
        let kept: Self = serde_json::from_str(&text).ok()?;
        let rates = &kept.behaviour.steps;
        let is_whole = rates.first().is_some_and(|(after, _)| *after == 0)
            && rates.is_sorted_by_key(|(after, _)| *after)
            && kept.medium == medium;
        is_whole.then_some(kept)
    }
}
