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
    /// Its digest is not that of its contents.
    NotAsWritten,
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

impl StateCause {
    /// Whether a file that was sound may have become so by damage.
    pub(super) const fn may_be_damage(&self) -> bool {
        matches!(self, Self::Foreign | Self::CutOff | Self::NotAsWritten | Self::Damaged(_))
    }
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
            StateCause::NotAsWritten => format!(
                "if people have changed it, make `# end` its last line, without the digest; else put back a copy; \
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
            Self::Foreign => {
                f.write_str("is not a state of Farlane's: expected a line `farlane-state = 2` and tables")
            }
            Self::Newer { found } => {
                write!(
                    f,
                    "is of version {found}, which a later farlane wrote; this one reads versions 1 and 2"
                )
            }
            Self::CutOff => f.write_str("is cut off: expected `# end` for its last line"),
            Self::NotAsWritten => {
                f.write_str("is not as it was written: its digest is not that of its contents")
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
