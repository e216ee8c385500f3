//! Why a file of state can't be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file of state that can't be used, and its fault.
#[derive(Debug)]
pub struct StateError {
    path: PathBuf,
    cause: StateCause,
}

/// The fault of a file of state.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateCause {
    /// Another process uses the file.
    InUse,
    /// The path is not that of a file.
    NotAFile,
    /// The file is no state of Farlane's.
    NotOurs,
    /// A later version of Farlane wrote the file.
    Newer {
        /// The version of the file.
        found: i64,
    },
    /// The file ends too soon.
    CutOff,
    /// The digest of the file does not match its contents.
    NotAsWritten,
    /// The contents are invalid: the place, and the expected form.
    Damaged(String),
    /// A value of the state does not match the given or expected value.
    Mismatch {
        /// The key whose value does not match.
        key: String,
        /// The fault of the value.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// The system refuses an operation on the file.
    Io {
        /// The refused operation, as it follows "can't" in a message.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl StateCause {
    /// Whether damage to a sound file may have caused this.
    pub(super) const fn may_be_damage(&self) -> bool {
        matches!(self, Self::NotOurs | Self::CutOff | Self::NotAsWritten | Self::Damaged(_))
    }
}

impl StateError {
    pub(super) fn new(path: &Path, cause: StateCause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// The fault of the file.
    pub const fn cause(&self) -> &StateCause {
        &self.cause
    }

    /// The remedy.
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match &self.cause {
            StateCause::InUse => "end the farlane that uses it, or give another --state".to_owned(),
            StateCause::NotAFile => "give the path of a file; it is made if there is none".to_owned(),
            StateCause::NotOurs => "give another --state: this file was left as it is".to_owned(),
            StateCause::Newer { .. } => "use the farlane that wrote it, or a later one".to_owned(),
            StateCause::NotAsWritten => format!(
                "after a change by hand, make `# end` its last line, without the digest; else put back a copy; \
                 without {path} the device begins a new life, and a pool's namespaces are lost"
            ),
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
        write!(f, "state {}: {}", self.path.display(), self.cause)
    }
}

impl fmt::Display for StateCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("is in use (another export or device)"),
            Self::NotAFile => f.write_str("is not a file"),
            Self::NotOurs => {
                f.write_str("is not a state of Farlane's: expected a line `farlane-state = 2` and tables")
            }
            Self::Newer { found } => {
                write!(f, "has version {found}, written by a later farlane; this one reads versions 1 and 2")
            }
            Self::CutOff => f.write_str("is cut off: expected `# end` for its last line"),
            Self::NotAsWritten => {
                f.write_str("was changed or damaged: its digest does not match its contents")
            }
            Self::Damaged(what) => write!(f, "is damaged: {what}"),
            Self::Mismatch { key, what, .. } => write!(f, "{key}: {what}"),
            Self::Io { doing, error } => write!(f, "can't {doing}: {error}"),
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
