//! Lines of a text file: the output of tracers and hardware analysers.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::Error;

/// The longest line that is read, in bytes. The rest is a line of its own.
const LINE_MAX: u64 = 64 << 10;

/// The lines of a file.
pub(crate) struct Lines {
    path: PathBuf,
    file: Box<dyn BufRead + Send>,
    line: Vec<u8>,
}

impl Lines {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::File { path: path.to_owned(), error })?;
        Ok(Self::of(file, path))
    }

    /// The lines of `file`; `path` is its name.
    pub(crate) fn of(file: impl Read + Send + 'static, path: &Path) -> Self {
        Self { path: path.to_owned(), file: Box::new(BufReader::new(file)), line: Vec::new() }
    }

    /// The name of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next line; none at the end. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn read_on(&mut self) -> Result<Option<Cow<'_, str>>, Error> {
        self.line.clear();
        let read = self.file.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line);
        match read {
            Err(error) => Err(Error::File { path: self.path.clone(), error }),
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(String::from_utf8_lossy(self.line.trim_ascii_end()))),
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("path", &self.path).finish_non_exhaustive()
    }
}
