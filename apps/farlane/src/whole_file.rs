//! Files that are replaced as a whole: until the new one is written to its end, the place has what
//! it had before.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::Error;

/// What is written to a place.
pub(crate) enum WholeFile {
    /// A file beside the place, and the place.
    Beside(NamedTempFile, PathBuf),
    /// The place itself: it is no regular file, or its folder takes no other file.
    Straight(File),
}

impl WholeFile {
    /// Begins what is to be at `path`. A symbolic link there stays, and the file that it
    /// leads to is replaced.
    ///
    /// # Errors
    /// When no file can be written there.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let place = fs::canonicalize(path).or_else(|_| std::path::absolute(path))?;
        let known = fs::metadata(&place).ok();
        let straight = || File::create(path).map(Self::Straight);
        let Some(folder) = place.parent() else { return straight() };
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            return straight();
        }
        if known.is_some() {
            // What may not be written is not replaced either.
            OpenOptions::new().write(true).open(&place)?;
        }
        let mut builder = tempfile::Builder::new();
        let made = builder.permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        let Ok(file) = made else { return straight() };
        if let Some(known) = known {
            // Only root can give a file to its former owner.
            let _ = fchown(file.as_file(), Some(known.uid()), Some(known.gid()));
            file.as_file().set_permissions(known.permissions())?;
        }
        Ok(Self::Beside(file, place))
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn keep(self) -> io::Result<()> {
        match self {
            Self::Beside(file, place) => file.persist(place).map(drop).map_err(|error| error.error),
            Self::Straight(_) => Ok(()),
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file, _) => file.write(bytes),
            Self::Straight(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file, _) => file.flush(),
            Self::Straight(file) => file.flush(),
        }
    }
}

/// Replaces the file at `path` by one that has these bytes.
///
/// # Errors
/// When no file can be written there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let written = WholeFile::begin(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.keep()
    });
    written.map_err(|error| Error::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_at_once_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut left = WholeFile::begin(&link).unwrap();
        left.write_all(b"half").unwrap();
        drop(left);
        assert_eq!(fs::read(&file).unwrap(), b"before");
        replace(&link, b"after").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside");
    }

    #[test]
    fn what_is_no_file_is_written_straight() {
        replace(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let folder = tempfile::tempdir().unwrap();
        assert!(replace(folder.path(), b"").is_err());
        assert!(replace(&folder.path().join("none/file"), b"").is_err());
    }
}
