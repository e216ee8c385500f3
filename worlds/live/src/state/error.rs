//! Why a file of state can't be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a file of state, and what to do.
#[derive(Debug)]
pub struct StateError {
    path: PathBuf,
    cause: StateCause,
}

/// What is wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateCause {
    /// Another process has it.
    InUse,
    /// It is not a file.
    NotAFile,
    /// It is no state of Farlane's.
    Foreign,
    /// A later version of Farlane wrote it.
    Newer {
        /// Its version.
        found: i64,
    },
    /// It ends too soon.
    CutOff,
    /// What is written there means nothing: where, what was expected.
    Damaged(String),
    /// It is of something else than what was asked for.
    Mismatch {
        /// The key.
        key: String,
        /// What is wrong with its value.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The system refuses.
    Io {
        /// What we were about to do.
        doing: &'static str,
        /// Its answer.
        error: io::Error,
    },
}

impl StateError {
    pub(super) fn new(path: &Path, cause: StateCause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// What is wrong.
    pub const fn cause(&self) -> &StateCause {
        &self.cause
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match &self.cause {
            StateCause::InUse => "end the farlane that uses it, or give another --state".to_owned(),
            StateCause::NotAFile => "give the path of a file; it is made if there is none".to_owned(),
            StateCause::Foreign => "give another --state: this file was left as it is".to_owned(),
            StateCause::Newer { .. } => "use the farlane that wrote it, or a later one".to_owned(),
            StateCause::CutOff | StateCause::Damaged(_) => format!(
                "correct it, or put back a copy; without {path} the device begins a new life, and a pool's namespaces are lost"
            ),
            StateCause::Mismatch { remedy, .. } => remedy.clone(),
            StateCause::Io { .. } => {
                "give a path in a directory that you may write to, on a disk with room".to_owned()
            }
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}: ", self.path.display())?;
        match &self.cause {
            StateCause::InUse => f.write_str("is in use (another export or device)"),
            StateCause::NotAFile => f.write_str("is not a file"),
            StateCause::Foreign => {
                f.write_str("is not a state of Farlane's: expected a line `farlane-state = 1` and tables")
            }
            StateCause::Newer { found } => {
                write!(f, "is of version {found}, which a later farlane wrote; this one reads version 1")
            }
            StateCause::CutOff => f.write_str("is cut off: expected `# end` for its last line"),
            StateCause::Damaged(what) => write!(f, "is damaged: {what}"),
            StateCause::Mismatch { key, what, .. } => write!(f, "{key}: {what}"),
            StateCause::Io { doing, error } => write!(f, "can't {doing}: {error}"),
        }
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            StateCause::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
