//! Files that are replaced as a whole: until the new one is written to its end, the place has its
//! former content.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use live::sys::files::{self, Kind, Place, Replacement};

use crate::error::Error;
use crate::lasting::sync;

/// A file under way to its place.
pub(crate) enum WholeFile {
    /// A new file in the same folder, which replaces the one at the place.
    Replacing(Replacement),
    /// The place itself: it is no regular file, or its folder takes no other file.
    Straight(File),
}

impl WholeFile {
    /// Begins the new file for `path`. A symbolic link there stays, and the file that it leads to
    /// is replaced.
    ///
    /// # Errors
    /// When no file can be written there.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        Self::open(path, files::write)
    }

    /// Begins the new file for `path`. A place that is written straight is opened by `straight`.
    fn open(path: &Path, straight: fn(&Path, Kind) -> io::Result<File>) -> io::Result<Self> {
        let straight = || straight(path, Kind::Report).map(Self::Straight);
        let known = fs::metadata(path).ok();
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            return straight();
        }
        let place = Place::find(path)?;
        if place.is_kernels() {
            return straight();
        }
        if known.is_some() {
            // A file that may not be written is not replaced either.
            files::write_on(path, Kind::Report)?;
        }
        match Replacement::begin(place, Kind::Report) {
            Ok(file) => Ok(Self::Replacing(file)),
            // A full disk would keep neither the new file nor the present one.
            Err(error) if known.is_some() && !takes_no_file(&error) => Err(error),
            Err(_) => straight(),
        }
    }

    /// Puts the written file in its place, and makes it durable.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn keep(self) -> io::Result<()> {
        match self {
            Self::Replacing(file) => file.keep(),
            Self::Straight(file) => sync(&file),
        }
    }
}

/// Whether a folder has refused a new file, but not a change of its present files.
fn takes_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Replacing(file) => file.write(bytes),
            Self::Straight(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Replacing(file) => file.flush(),
            Self::Straight(file) => file.flush(),
        }
    }
}

/// Reads the text at `path`, which has at most `most` bytes. All files that people write, such as
/// configurations and lists, are read here.
///
/// # Errors
/// When it can't be read, or is longer, or no text.
pub(crate) fn read(path: &Path, most: u64) -> Result<String, Error> {
    texts::read(path, most).map_err(|error| Error::File { path: path.to_owned(), error })
}

/// Replaces the file at `path` by a new file of these bytes.
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

/// Checks that a file can be written at `path`. Everything stays as it is.
///
/// # Errors
/// When no file can be written there.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let checked = match fs::metadata(path) {
        // The reader of a pipe would take this for its end.
        Ok(known) if !known.is_file() && !known.is_dir() => Ok(()),
        _ => WholeFile::open(path, files::write_on).map(drop),
    };
    checked.map_err(|error| Error::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

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
    fn a_check_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [file, new] = ["file", "new"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        for path in [file.as_path(), new.as_path(), Path::new("/dev/null")] {
            check(path).unwrap();
        }
        assert_eq!(fs::read(&file).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is made");
        assert!(check(folder.path()).is_err());
        assert!(check(&folder.path().join("none/file")).is_err());
    }

    #[test]
    fn only_a_folder_that_takes_no_file_has_its_files_written_straight() {
        let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
        assert!(kinds.iter().all(|kind| takes_no_file(&(*kind).into())));
        assert!(!takes_no_file(&io::ErrorKind::StorageFull.into()));
        assert!(!takes_no_file(&io::ErrorKind::QuotaExceeded.into()));
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
